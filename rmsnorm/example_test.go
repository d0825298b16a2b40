package rmsnorm_test

import (
	"fmt"

	"github.com/mhc-go/mhc/rmsnorm"
)

func Example() {
	d := rmsnorm.Dims{Tokens: 2, K: 4, M: 2}
	x := []float32{
		1, -1, 1, -1,
		2, 0, 0, 0,
	}
	phi := []float32{
		3, 1,
		1, 1,
		2, 0,
		0, 0,
	}
	mix, r := make([]float32, d.Tokens*d.M), make([]float32, d.Tokens)
	if err := rmsnorm.Forward(mix, r, x, phi, d, 0); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("mix ", mix[:2], mix[2:])
	fmt.Println("r   ", r)

	// The gradient of the sum of mix's first column.
	dmix := []float32{1, 0, 1, 0}
	dx, dphi := make([]float32, len(x)), make([]float32, len(phi))
	if err := rmsnorm.Backward(dx, dphi, x, phi, mix, r, dmix, d); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("dx  ", dx[:4], dx[4:])
	fmt.Println("dphi", dphi)
	// Output:
	// mix  [4 0] [6 2]
	// r    [1 1]
	// dx   [2 2 1 1] [0 1 2 0]
	// dphi [3 0 -1 0 1 0 -1 0]
}
