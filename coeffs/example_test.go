package coeffs_test

import (
	"fmt"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
)

func Example() {
	const tokens, streams, channels = 1, 2, 3
	cfg := mhc.Liger.Config(streams)
	m := cfg.Width()
	in := coeffs.Inputs[float32, float32, float32]{
		X:     []float32{1, 2, 3, -1, 0, 1},
		Phi:   make([]float32, streams*channels*m), // the coefficients do not depend on x yet
		B:     []float32{0, 1, 0, 0, 10, 0, 0, 10},
		Alpha: []float32{0.01, 0.01, 0.01},
	}
	out := coeffs.Outputs[float32]{
		Pre: make([]float32, tokens*streams), Post: make([]float32, tokens*streams), Res: make([]float32, tokens*streams*streams),
		Mix: make([]float32, tokens*m), R: make([]float32, tokens),
	}
	if err := coeffs.Forward(out, in, tokens, channels, cfg); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("h_pre  %.3f\nh_post %.3f\nh_res  %.3f\n", out.Pre, out.Post, out.Res)

	// The loss is the first number of h_post: only its gradient is given.
	grad := coeffs.Gradients[float32, float32, float32]{B: make([]float32, m)}
	up := coeffs.Upstream[float32]{Post: []float32{1, 0}}
	if err := coeffs.Backward(grad, up, in, out, tokens, channels, cfg); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("db     %.3f\n", grad.B)
	// Output:
	// h_pre  [0.500 0.731]
	// h_post [1.000 1.000]
	// h_res  [1.000 0.000 0.000 1.000]
	// db     [0.000 0.000 0.500 0.000 0.000 0.000 0.000 0.000]
}
