package op_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
)

// views are ways to bind the same numbers to a node.
var views = []struct {
	name string
	view func(t *testing.T, d *tensor.Dense) *tensor.Dense
}{
	{"transposed", func(t *testing.T, d *tensor.Dense) *tensor.Dense {
		axes, shape := reversed(d.Dims()), make([]int, d.Dims())
		for i, a := range axes {
			shape[i] = d.Shape()[a]
		}
		v := tensor.New(tensor.WithShape(shape...), tensor.Of(d.Dtype()))
		fill(t, v, axes, d)
		require.NoError(t, v.T(axes...))
		return v
	}},
	{"sliced in the last dimension", func(t *testing.T, d *tensor.Dense) *tensor.Dense {
		last := d.Dims() - 1
		slices := make([]tensor.Slice, d.Dims())
		shape := d.Shape().Clone()
		shape[last] += 2
		slices[last] = tensor.S(1, shape[last]-1)
		big := tensor.New(tensor.WithShape(shape...), tensor.Of(d.Dtype()))
		require.NoError(t, big.Memset(7.0))
		v, err := big.Slice(slices...)
		require.NoError(t, err)
		fill(t, v.(*tensor.Dense), nil, d)
		return v.(*tensor.Dense)
	}},
	{"sliced in the first dimension", func(t *testing.T, d *tensor.Dense) *tensor.Dense {
		shape := d.Shape().Clone()
		shape[0] += 2
		big := tensor.New(tensor.WithShape(shape...), tensor.Of(d.Dtype()))
		require.NoError(t, big.Memset(7.0))
		v, err := big.Slice(tensor.S(1, shape[0]-1))
		require.NoError(t, err)
		fill(t, v.(*tensor.Dense), nil, d)
		return v.(*tensor.Dense)
	}},
	{"column-major", func(t *testing.T, d *tensor.Dense) *tensor.Dense {
		v := tensor.New(tensor.WithShape(d.Shape()...), tensor.Of(d.Dtype()), tensor.AsFortran(nil))
		fill(t, v, nil, d)
		return v
	}},
}

// fill sets v[at] to d[at], element by element; with axes, v[at of axes].
func fill(t *testing.T, v *tensor.Dense, axes []int, d *tensor.Dense) {
	at := make([]int, d.Dims())
	for range d.Shape().TotalSize() {
		x, err := d.At(at...)
		require.NoError(t, err)
		to := append([]int{}, at...)
		for i, a := range axes {
			to[i] = at[a]
		}
		require.NoError(t, v.SetAt(x, to...))
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < d.Shape()[i] {
				break
			}
			at[i] = 0
		}
	}
}

func reversed(n int) []int {
	axes := make([]int, n)
	for i := range axes {
		axes[i] = n - 1 - i
	}
	return axes
}

// A tensor that is no contiguous row-major one gives the same values and
// gradients as its copy.
func TestNonContiguousInputs(t *testing.T) {
	for _, c := range float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger) {
		for _, v := range views {
			t.Run(c.name+"/"+v.name, func(t *testing.T) {
				eachMachine(t, func(t *testing.T, kind machine.Kind) {
					want := run(t, kind, programOf(t, c.build, c.in))
					p := programOf(t, c.build, c.in)
					for i, n := range p.Inputs {
						if c.in[i].shape[0] > 1 {
							require.NoError(t, gorgonia.Let(n, v.view(t, c.in[i].dense())))
						}
					}
					got := run(t, kind, p)
					for i := range want.Outputs {
						assert.Equal(t, want.Outputs[i].Data(), got.Outputs[i].Data())
					}
					for i := range want.Gradients {
						d := got.Gradients[i].(*tensor.Dense)
						assert.Equal(t, want.Gradients[i].Data(), logical(t, d), c.in[i].name)
					}
				})
			})
		}
	}
}

// logical are the numbers of a tensor in row-major order.
func logical(t *testing.T, d *tensor.Dense) []float64 {
	out := tensor.New(tensor.WithShape(d.Shape()...), tensor.Of(d.Dtype()))
	at := make([]int, d.Dims())
	for range d.Shape().TotalSize() {
		x, err := d.At(at...)
		require.NoError(t, err)
		require.NoError(t, out.SetAt(x, at...))
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < d.Shape()[i] {
				break
			}
			at[i] = 0
		}
	}
	return out.Data().([]float64)
}
