package streams

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
)

// Expand copies x [N, C] to each of the n streams of out [N, n, C].
func Expand[S dtype.Storage](out, x []S, d Dims) error {
	if err := d.check(); err != nil {
		return err
	}
	if err := d.checkLengths(arg("out", out, shapeNnC), arg("x", x, shapeNC)); err != nil {
		return err
	}
	if d.Tokens == 0 {
		return nil
	}
	n, channels := d.Streams, d.Channels
	bytes := (n + 1) * channels * int(unsafe.Sizeof(*new(S)))
	parallel.Blocks(d.Tokens, pieceTokens(d.Tokens, bytes), func(_, lo, hi int) {
		for t := lo; t < hi; t++ {
			for i := range n {
				copy(out[(t*n+i)*channels:], x[t*channels:][:channels])
			}
		}
	})
	return nil
}

// ExpandBackward computes dx [N, C], the sum over the streams of g [N, n, C],
// the gradient of Expand's out.
func ExpandBackward[S dtype.Storage](dx, g []S, d Dims) error {
	if err := d.check(); err != nil {
		return err
	}
	if err := d.checkLengths(arg("dx", dx, shapeNC), arg("g", g, shapeNnC)); err != nil {
		return err
	}
	if checkTypes[S, float64]() == nil {
		sumStreams[S, float64](dx, g, d)
	} else {
		sumStreams[S, float32](dx, g, d)
	}
	return nil
}

func sumStreams[S dtype.Storage, A dtype.Float](dx, g []S, d Dims) {
	p := pass[S, A]{
		Dims: d,
		src:  []operand[S]{{g, d.Streams}},
		dst:  []operand[S]{{dx, 1}},
		weights: func(h []A, _ int) {
			for i := range h {
				h[i] = 1
			}
		},
	}
	p.run()
}
