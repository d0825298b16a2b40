package graph

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
)

// Gain is how much a mixing of streams can amplify (arXiv 2512.24880, section
// 3.1 and figure 3): with H the matrix that takes the streams in to the streams
// out, x_out = H x_in, the largest absolute row sum of H bounds the signal
// forward and the largest absolute column sum the gradient backward. Both are
// averaged over tokens. A doubly stochastic H has 1; unconstrained
// hyper-connections reach thousands.
type Gain struct{ Forward, Backward float64 }

// AmaxGain computes the gain of each layer of a stack, and of the product of all.
// layers are the layers' h_res in the order of the stack, each [tokens, n, n] in
// row-major order, and apply says how they mix the streams. At least one layer
// and one token are wanted.
func AmaxGain[A dtype.Float](layers [][]A, n int, apply mhc.Apply) (each []Gain, stack Gain, err error) {
	if n < 1 {
		return nil, Gain{}, fmt.Errorf("graph: n is %d, want 1 or more", n)
	}
	if len(layers) == 0 {
		return nil, Gain{}, fmt.Errorf("graph: there are no layers to take the gain of")
	}
	for i, l := range layers {
		if len(l)/n < n || len(l)%(n*n) != 0 || len(l) != len(layers[0]) {
			return nil, Gain{}, fmt.Errorf("graph: h_res of layer %d has %d numbers, want tokens * n * n with n = %d, like every layer", i, len(l), n)
		}
	}
	tokens := len(layers[0]) / (n * n)
	each = make([]Gain, len(layers))
	h, product, next := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
	for t := range tokens {
		for i, l := range layers {
			effective(h, l[t*n*n:(t+1)*n*n], n, apply)
			each[i].add(h, n)
			if i == 0 {
				copy(product, h)
				continue
			}
			multiply(next, h, product, n)
			product, next = next, product
		}
		stack.add(product, n)
	}
	for i := range each {
		each[i].divide(tokens)
	}
	stack.divide(tokens)
	return each, stack, nil
}

// effective is the matrix that takes the streams in to the streams out.
func effective[A dtype.Float](dst []float64, h []A, n int, apply mhc.Apply) {
	for o := range n {
		for i := range n {
			if apply == mhc.ApplyTransposed {
				dst[o*n+i] = float64(h[i*n+o])
			} else {
				dst[o*n+i] = float64(h[o*n+i])
			}
		}
	}
}

// multiply computes dst = a b.
func multiply(dst, a, b []float64, n int) {
	for o := range n {
		for i := range n {
			s := 0.0
			for k := range n {
				s += a[o*n+k] * b[k*n+i]
			}
			dst[o*n+i] = s
		}
	}
}

// add adds one token's gain.
func (g *Gain) add(h []float64, n int) {
	var forward, backward float64
	for a := range n {
		var row, column float64
		for b := range n {
			row += math.Abs(h[a*n+b])
			column += math.Abs(h[b*n+a])
		}
		forward, backward = max(forward, row), max(backward, column)
	}
	g.Forward += forward
	g.Backward += backward
}

func (g *Gain) divide(tokens int) {
	g.Forward /= float64(tokens)
	g.Backward /= float64(tokens)
}

// GainWatch reads the h_res of a graph's layers at every run.
type GainWatch struct {
	apply mhc.Apply
	n     int
	hres  []gorgonia.Value
}

// WatchGain watches the nodes of h_res [..., n, n], float32 or float64, one a
// layer in the order of the stack. It adds statements to the graph that copy
// their values out, so it must come before the machine is made: a TapeMachine is
// compiled from the graph as it stands, and it reuses the memory of nodes that
// nothing reads.
func WatchGain(apply mhc.Apply, hres ...*gorgonia.Node) (*GainWatch, error) {
	if len(hres) == 0 {
		return nil, fmt.Errorf("graph: there are no layers to take the gain of")
	}
	w := &GainWatch{apply: apply, hres: make([]gorgonia.Value, len(hres))}
	for i, h := range hres {
		if h == nil {
			return nil, fmt.Errorf("graph: h_res of layer %d is nil", i)
		}
		s := h.Shape()
		if s.Dims() < 2 || s[s.Dims()-1] != s[s.Dims()-2] || !s.Eq(hres[0].Shape()) {
			return nil, fmt.Errorf("graph: h_res of layer %d has shape %v, want [..., n, n], like every layer", i, s)
		}
		if dt := h.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 || dt != hres[0].Dtype() {
			return nil, fmt.Errorf("graph: h_res of layer %d is %v, want float32 or float64, like every layer", i, dt)
		}
		w.n = s[s.Dims()-1]
	}
	for i, h := range hres {
		gorgonia.Read(h, &w.hres[i])
	}
	return w, nil
}

// Gain is the gain of each layer and of the stack in the last run of the whole
// graph: a [Trainer]'s last step (its Evaluate runs the loss alone).
func (w *GainWatch) Gain() (each []Gain, stack Gain, err error) {
	var singles [][]float32
	var doubles [][]float64
	for i, v := range w.hres {
		data, err := memory(fmt.Sprintf("h_res of layer %d", i), v)
		if err != nil {
			return nil, Gain{}, fmt.Errorf("%w: has the graph run?", err)
		}
		switch data := data.(type) {
		case []float32:
			singles = append(singles, data)
		case []float64:
			doubles = append(doubles, data)
		}
	}
	if singles != nil {
		return AmaxGain(singles, w.n, w.apply)
	}
	return AmaxGain(doubles, w.n, w.apply)
}
