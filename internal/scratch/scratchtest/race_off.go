//go:build !race

package scratchtest

// race says that the race detector is on.
const race = false
