package dtype_test

import (
	"fmt"

	"github.com/mhc-go/mhc/dtype"
)

// A third keeps 8 significant bits as bfloat16 and 11 as float16.
func Example() {
	third := []float32{1. / 3}
	b, h := make([]dtype.BFloat16, 1), make([]dtype.Float16, 1)
	dtype.Narrow(b, third)
	dtype.Narrow(h, third)
	wide := make([]float32, 1)
	dtype.Widen(wide, b)
	fmt.Printf("bfloat16 %#04x is %v\n", b[0], wide[0])
	dtype.Widen(wide, h)
	fmt.Printf("float16  %#04x is %v\n", h[0].Bits(), wide[0])
	// Output:
	// bfloat16 0x3eab is 0.33398438
	// float16  0x3555 is 0.33325195
}
