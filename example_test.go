package mhc_test

import (
	"fmt"

	"github.com/mhc-go/mhc"
)

// A preset is where settings start from; every choice can be changed.
func ExamplePreset() {
	for _, p := range mhc.Presets {
		c := p.Config(4)
		fmt.Printf("%v: %d coefficients, %v then %d normalisations to %v, h_res applied %v, phi %v\n",
			p, c.Width(), c.Sinkhorn.Start, c.Sinkhorn.Steps(), c.Sinkhorn.End, c.Apply, c.Phi)
	}
	c := mhc.Paper.Config(4)
	c.Sinkhorn.Iterations = 0
	fmt.Println(c.Validate())
	// Output:
	// liger: 24 coefficients, row-softmax then 39 normalisations to columns, h_res applied rows, phi KM
	// deepseek-v4: 24 coefficients, row-softmax then 39 normalisations to columns, h_res applied transposed, phi MK
	// paper: 24 coefficients, exp then 40 normalisations to rows, h_res applied rows, phi KM
	// mhc: Sinkhorn: sinkhorn: Iterations is 0, want 1 or more
}
