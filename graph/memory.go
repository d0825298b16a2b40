package graph

import (
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// memory is the numbers of v in row-major order, a []float32 or []float64 that
// shares v's memory. what names v in the error: of another dtype, of another
// layout, or out of Go's reach.
func memory(what string, v gorgonia.Value) (any, error) {
	switch v := v.(type) {
	case *gorgonia.F32:
		return unsafe.Slice((*float32)(v), 1), nil
	case *gorgonia.F64:
		return unsafe.Slice((*float64)(v), 1), nil
	case *tensor.Dense:
		if err := rowMajor(what, v); err != nil {
			return nil, err
		}
		switch v.Dtype() {
		case tensor.Float32:
			return v.Float32s(), nil
		case tensor.Float64:
			return v.Float64s(), nil
		}
		return nil, fmt.Errorf("graph: %s is %v, want float32 or float64", what, v.Dtype())
	case nil:
		return nil, fmt.Errorf("graph: %s has no value", what)
	}
	return nil, fmt.Errorf("graph: %s is a %T, want a *tensor.Dense or a scalar of float32 or float64", what, v)
}

// rowMajor returns an error unless t's numbers lie in Go's memory without gaps,
// in row-major order.
func rowMajor(what string, t *tensor.Dense) error {
	if !t.IsNativelyAccessible() {
		return fmt.Errorf("graph: %s lies in memory that Go cannot reach", what)
	}
	if t.RequiresIterator() || t.DataOrder().IsColMajor() {
		return fmt.Errorf("graph: %s is not contiguous in row-major order", what)
	}
	return nil
}

// gradient is the value and the gradient of p in Go's memory: two slices of one
// type and length.
func gradient(p gorgonia.ValueGrad) (value, grad any, err error) {
	name := nameOf(p)
	if value, err = memory(name, p.Value()); err != nil {
		return nil, nil, err
	}
	g, err := p.Grad()
	if err != nil {
		return nil, nil, fmt.Errorf("graph: %s has no gradient: %w", name, err)
	}
	if grad, err = memory("the gradient of "+name, g); err != nil {
		return nil, nil, err
	}
	if v := p.Value(); g.Dtype() != v.Dtype() || !g.Shape().Eq(v.Shape()) {
		return nil, nil, fmt.Errorf("graph: the gradient of %s is %v %v, want %v %v like its value",
			name, g.Dtype(), g.Shape(), v.Dtype(), v.Shape())
	}
	return value, grad, nil
}

// nameOf is the name of a parameter, "" where it has none.
func nameOf(p any) string {
	if n, ok := p.(gorgonia.Namer); ok {
		return n.Name()
	}
	return ""
}
