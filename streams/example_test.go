package streams_test

import (
	"fmt"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/streams"
)

// A layer on two streams of three channels: read them, compute, write the result
// and mix the streams.
func Example() {
	d := streams.Dims{Tokens: 1, Streams: 2, Channels: 3}
	x := []float32{
		1, 2, 3, // stream 0
		10, 20, 30, // stream 1
	}
	hpre := []float32{0.5, 0.1}
	hpost := []float32{1, 2}
	hres := []float32{
		0.75, 0.25, // the weights of streams 0 and 1 in stream 0
		0.25, 0.75,
	}

	xin := make([]float32, 3)
	if err := streams.Pre(xin, x, hpre, d); err != nil {
		fmt.Println(err)
	}
	fmt.Println("the layer reads", xin)

	f := make([]float32, 3) // the layer: a negation
	for c, v := range xin {
		f[c] = -v
	}

	xout := make([]float32, 6)
	if err := streams.PostRes(xout, x, f, hpost, hres, d, mhc.ApplyRows); err != nil {
		fmt.Println(err)
	}
	fmt.Println("stream 0", xout[:3])
	fmt.Println("stream 1", xout[3:])
	// Output:
	// the layer reads [1.5 3 4.5]
	// stream 0 [1.75 3.5 5.25]
	// stream 1 [4.75 9.5 14.25]
}

// A stack begins with copies of one stream, and its head reads the streams with
// weights that depend on them. With alpha at zero they are sigmoid(b).
func ExampleHead() {
	d := streams.Dims{Tokens: 1, Streams: 2, Channels: 3}
	x := make([]float64, 6)
	if err := streams.Expand(x, []float64{1, 2, 3}, d); err != nil {
		fmt.Println(err)
	}
	in := streams.HeadInputs[float64, float64, float64]{
		X: x, Phi: make([]float64, 6*2), B: []float64{0, 0}, Alpha: []float64{0},
	}
	out := make([]float64, 3)
	kept := streams.HeadKept[float64]{Mix: make([]float64, 2), R: make([]float64, 1)}
	if err := streams.Head(out, kept, in, d, mhc.HeadConfig{RMSEps: 1e-6}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(x, "becomes", out)
	// Output:
	// [1 2 3 1 2 3] becomes [1 2 3]
}
