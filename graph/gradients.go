package graph

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
)

// gradients are the gradients of a model in memory: a []float32 or []float64 for
// each parameter.
type gradients []any

func gradientsOf(params gorgonia.Nodes) (gradients, error) {
	all := make(gradients, len(params))
	for i, p := range params {
		var err error
		if _, all[i], err = gradient(p); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (all gradients) zero() {
	for _, g := range all {
		switch g := g.(type) {
		case []float32:
			clear(g)
		case []float64:
			clear(g)
		}
	}
}

// norm is the L2 norm over all, summed in float64 in a fixed order.
func (all gradients) norm() float64 {
	sum := 0.0
	for _, g := range all {
		switch g := g.(type) {
		case []float32:
			sum += squares(g)
		case []float64:
			sum += squares(g)
		}
	}
	return math.Sqrt(sum)
}

func (all gradients) scale(by float64) {
	for _, g := range all {
		switch g := g.(type) {
		case []float32:
			multiplyBy(g, by)
		case []float64:
			multiplyBy(g, by)
		}
	}
}

// gradientBlock is the number of gradients that one goroutine takes at a time.
const gradientBlock = 1 << 15

func squares[A dtype.Float](g []A) float64 {
	partial := make([]float64, (len(g)+gradientBlock-1)/gradientBlock)
	parallel.Blocks(len(g), gradientBlock, func(b, lo, hi int) {
		s := 0.0
		for _, v := range g[lo:hi] {
			s += float64(v) * float64(v)
		}
		partial[b] = s
	})
	sum := 0.0
	for _, s := range partial {
		sum += s
	}
	return sum
}

func multiplyBy[A dtype.Float](g []A, by float64) {
	parallel.Blocks(len(g), gradientBlock, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			g[i] *= A(by)
		}
	})
}

// scalar is the number in v.
func scalar(v gorgonia.Value) (float64, error) {
	data, err := memory("the loss", v)
	if err != nil {
		return 0, err
	}
	switch data := data.(type) {
	case []float32:
		return float64(data[0]), nil
	default:
		return data.([]float64)[0], nil
	}
}

// checkFinite returns an error that names what x is, if x is not finite.
func checkFinite(what string, x float64) error {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%s is %v; the weights are those of the step before", what, x)
	}
	return nil
}
