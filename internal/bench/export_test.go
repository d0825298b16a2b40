package bench

// Sum is sum.
var Sum = sum
