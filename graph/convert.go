package graph

import (
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/op"
)

var convertible = []tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16, op.Float16}

// Convert is a copy of t in another dtype: from and to float32, float64,
// [op.BFloat16] and [op.Float16]. Every number is rounded once, to nearest even.
func Convert(t *tensor.Dense, to tensor.Dtype) (*tensor.Dense, error) {
	if t == nil {
		return nil, fmt.Errorf("graph: the tensor to convert is nil")
	}
	if t.Raw == nil {
		return nil, fmt.Errorf("graph: the tensor to convert has no numbers")
	}
	if err := rowMajor("the tensor to convert", t); err != nil {
		return nil, err
	}
	if !slices.Contains(convertible, to) {
		return nil, fmt.Errorf("graph: a tensor cannot be converted to %v, want float32, float64, BFloat16 or Float16", to)
	}
	wide := make([]float64, t.Shape().TotalSize())
	switch t.Dtype() {
	case tensor.Float32:
		dtype.Widen(wide, elementsOf[float32](t))
	case tensor.Float64:
		dtype.Widen(wide, elementsOf[float64](t))
	case op.BFloat16:
		dtype.Widen(wide, elementsOf[dtype.BFloat16](t))
	case op.Float16:
		dtype.Widen(wide, elementsOf[dtype.Float16](t))
	default:
		return nil, fmt.Errorf("graph: a tensor of %v cannot be converted, want float32, float64, BFloat16 or Float16", t.Dtype())
	}
	out := tensor.New(tensor.Of(to), tensor.WithShape(t.Shape().Clone()...))
	switch to {
	case tensor.Float32:
		dtype.Narrow(elementsOf[float32](out), wide)
	case tensor.Float64:
		dtype.Narrow(elementsOf[float64](out), wide)
	case op.BFloat16:
		dtype.Narrow(elementsOf[dtype.BFloat16](out), wide)
	case op.Float16:
		dtype.Narrow(elementsOf[dtype.Float16](out), wide)
	}
	return out, nil
}

// elementsOf are the numbers of t, which are of type T, also where t is a scalar.
func elementsOf[T dtype.Storage](t *tensor.Dense) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(t.Raw))), t.Shape().TotalSize())
}
