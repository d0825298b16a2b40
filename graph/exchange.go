package graph

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
)

// LoadModule sets the layer's parameters to those of the published PyTorch module
// in state: phi [K, M], b [M], and alpha_pre, alpha_post and alpha_res, each one
// number, under a prefix that ends with its dot ("model.layers.0.mhc."). They are
// converted from float32, float64, BFloat16 or Float16 to the layer's dtype and
// layout. On an error, which names the tensor, the layer is as before. Other
// tensors of state do not matter.
func (l *Layer) LoadModule(state State, prefix string) error {
	return l.params.load(state, moduleFormat(prefix))
}

// SaveModule puts the layer's parameters into state as [Layer.LoadModule] finds
// them, in the layer's dtype, the alphas with shape [].
func (l *Layer) SaveModule(state State, prefix string) error {
	return l.params.save(state, moduleFormat(prefix))
}

// DeepSeekNames are the names of a layer's (or a head's) parameters in a file of
// the DeepSeek V4 layout, "layers.0.hc_attn_fn" for instance.
type DeepSeekNames struct {
	Fn    string // phi [M, K]; of a head [n, K]
	Base  string // b [M]; of a head [n]
	Scale string // alpha [3]; of a head [1]
}

// LoadDeepSeek sets the layer's parameters to tensors of the DeepSeek V4 layout;
// as [Layer.LoadModule] does.
func (l *Layer) LoadDeepSeek(state State, names DeepSeekNames) error {
	return l.params.load(state, names.format())
}

// SaveDeepSeek puts the layer's parameters into state in the DeepSeek V4 layout,
// which is float32.
func (l *Layer) SaveDeepSeek(state State, names DeepSeekNames) error {
	return l.params.save(state, names.format())
}

// LoadDeepSeek sets the head's parameters to tensors of the DeepSeek V4 layout;
// as [Layer.LoadModule] does.
func (h *Head) LoadDeepSeek(state State, names DeepSeekNames) error {
	return h.params.load(state, names.format())
}

// SaveDeepSeek puts the head's parameters into state in the DeepSeek V4 layout,
// which is float32.
func (h *Head) SaveDeepSeek(state State, names DeepSeekNames) error {
	return h.params.save(state, names.format())
}

// format is how a file holds phi, b and alpha.
type format struct {
	phi    string
	layout mhc.PhiLayout
	b      string
	alpha  []string     // one tensor with all numbers, or a scalar for each
	dtype  tensor.Dtype // what is written; the zero value is the parameters' own
}

func moduleFormat(prefix string) format {
	return format{
		phi: prefix + "phi", layout: mhc.PhiKM, b: prefix + "b",
		alpha: []string{prefix + "alpha_pre", prefix + "alpha_post", prefix + "alpha_res"},
	}
}

func (n DeepSeekNames) format() format {
	return format{phi: n.Fn, layout: mhc.PhiMK, b: n.Base, alpha: []string{n.Scale}, dtype: tensor.Float32}
}

// load sets the parameters, all or none.
func (p parameters) load(state State, f format) error {
	shape := p.phi.Shape()
	if p.layout != f.layout {
		shape = tensor.Shape{shape[1], shape[0]}
	}
	phi, err := fetch(state, f.phi, shape, p.phi.Dtype())
	if err != nil {
		return err
	}
	if p.layout != f.layout {
		phi = transposed(phi)
	}
	b, err := fetch(state, f.b, p.b.Shape(), p.b.Dtype())
	if err != nil {
		return err
	}
	each := p.alpha.Shape()[0] / len(f.alpha)
	var alpha []float64
	for _, name := range f.alpha {
		a, err := fetch(state, name, tensor.Shape{each}, tensor.Float64)
		if err != nil {
			return err
		}
		alpha = append(alpha, elementsOf[float64](a)...)
	}
	joined, err := Convert(tensor.New(tensor.WithShape(len(alpha)), tensor.WithBacking(alpha)), p.alpha.Dtype())
	if err != nil {
		return err
	}
	return LoadWeights(p.nodes(), State{p.phi.Name(): phi, p.b.Name(): b, p.alpha.Name(): joined})
}

// fetch is a tensor of state in dtype dt, if it has that shape; [] passes for [1].
func fetch(state State, name string, shape tensor.Shape, dt tensor.Dtype) (*tensor.Dense, error) {
	t := state[name]
	if t == nil {
		return nil, fmt.Errorf("graph: there is no tensor %s", name)
	}
	scalar := len(t.Shape()) == 0 && slices.Equal(shape, tensor.Shape{1})
	if !scalar && !slices.Equal(t.Shape(), shape) {
		return nil, fmt.Errorf("graph: tensor %s has shape %v, want %v", name, t.Shape(), shape)
	}
	out, err := Convert(t, dt)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", name, err)
	}
	return out, nil
}

// save puts the parameters into state, all or none.
func (p parameters) save(state State, f format) error {
	if state == nil {
		return errors.New("graph: the state to save to is nil")
	}
	own, err := SaveWeights(p.nodes())
	if err != nil {
		return err
	}
	phi, alpha := own[p.phi.Name()], own[p.alpha.Name()]
	if p.layout != f.layout {
		phi = transposed(phi)
	}
	out := State{f.phi: phi, f.b: own[p.b.Name()], f.alpha[0]: alpha}
	if len(f.alpha) > 1 {
		for i, name := range f.alpha {
			v, err := alpha.At(i)
			if err != nil {
				return fmt.Errorf("graph: %s: %w", p.alpha.Name(), err)
			}
			out[name] = tensor.New(tensor.FromScalar(v))
		}
	}
	if len(out) != 2+len(f.alpha) {
		return fmt.Errorf("graph: the names %s, %s and %s are not distinct", f.phi, f.b, strings.Join(f.alpha, ", "))
	}
	for name, t := range out {
		if f.dtype.Type == nil {
			break
		}
		if out[name], err = Convert(t, f.dtype); err != nil {
			return err
		}
	}
	maps.Copy(state, out)
	return nil
}

// transposed is a copy of t, a matrix of float32 or float64.
func transposed(t *tensor.Dense) *tensor.Dense {
	rows, columns := t.Shape()[0], t.Shape()[1]
	out := tensor.New(tensor.Of(t.Dtype()), tensor.WithShape(columns, rows))
	if t.Dtype() == tensor.Float32 {
		transpose(elementsOf[float32](out), elementsOf[float32](t), columns)
	} else {
		transpose(elementsOf[float64](out), elementsOf[float64](t), columns)
	}
	return out
}

func transpose[T dtype.Float](dst, src []T, columns int) {
	rows := len(src) / columns
	for i, v := range src {
		dst[i%columns*rows+i/columns] = v
	}
}
