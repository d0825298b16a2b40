package sinkhorn_test

import (
	"fmt"

	"github.com/mhc-go/mhc/sinkhorn"
)

func Example() {
	cfg := sinkhorn.Config{Start: sinkhorn.Exp, End: sinkhorn.Rows, Iterations: 20}
	logits := []float64{
		2, 0, 1,
		0, 1, 0,
		1, 0, 3,
	}
	p := make([]float64, 9)
	if err := sinkhorn.Forward(p, logits, 3, cfg); err != nil {
		fmt.Println(err)
		return
	}
	for i := 0; i < 9; i += 3 {
		fmt.Printf("%.3f  sum %.3f\n", p[i:i+3], p[i]+p[i+1]+p[i+2])
	}
	// The gradient of p[0].
	grad := make([]float64, 9)
	if err := sinkhorn.Backward(grad, logits, []float64{1, 0, 0, 0, 0, 0, 0, 0, 0}, 3, cfg); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f\n", grad)
	// Output:
	// [0.683 0.159 0.159]  sum 1.000
	// [0.159 0.741 0.100]  sum 1.000
	// [0.159 0.100 0.741]  sum 1.000
	// [0.120 -0.060 -0.060 -0.060 0.053 0.007 -0.060 0.007 0.053]
}
