package op

import (
	"slices"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/rmsnorm"
)

// shapeOf joins the leading dimensions of the tokens and those of one token. A
// single token without dimensions of its own has shape [1].
func shapeOf(lead tensor.Shape, last ...int) tensor.Shape {
	if len(lead)+len(last) == 0 {
		return tensor.Shape{1}
	}
	return slices.Concat(lead, last)
}

// splitLast cuts off the last dimensions of a shape.
func splitLast(s tensor.Shape, count int) (lead, last tensor.Shape) {
	return s[:len(s)-count], s[len(s)-count:]
}

// matMulDims are the leading dimensions and the sizes of the product of x [..., K]
// or [..., n, C] and phi.
func matMulDims(x, phi tensor.Shape, cfg MatMulRMSConfig) (lead tensor.Shape, d rmsnorm.Dims) {
	d.K, d.M = phi[0], phi[1]
	if d.Transposed = cfg.Phi == mhc.PhiMK; d.Transposed {
		d.K, d.M = d.M, d.K
	}
	lead = x[:len(x)-1]
	if x[len(x)-1] != d.K {
		lead = x[:max(len(x)-2, 0)]
	}
	d.Tokens = lead.TotalSize()
	return lead, d
}
