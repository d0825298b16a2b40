package op

import (
	"errors"
	"fmt"
	"reflect"

	"gorgonia.org/tensor"
)

// compute calls f with what computes an operator on tensors: the Engine that
// they belong to, and the CPU where there is none or it does not support them.
func compute(ts []tensor.Tensor, f func(Operators) ([]tensor.Tensor, error)) ([]tensor.Tensor, error) {
	e, err := engineOf(ts)
	if err != nil {
		return nil, err
	}
	if e != nil {
		out, err := f(e)
		if !errors.Is(err, errors.ErrUnsupported) {
			return out, err
		}
	}
	for _, t := range ts {
		if !t.IsNativelyAccessible() {
			return nil, fmt.Errorf("a tensor lies in device memory whose engine (%T) does not compute this operator on %v", t.Engine(), t.Dtype())
		}
	}
	c, err := cpuFor(ts)
	if err != nil {
		return nil, err
	}
	return f(c)
}

// engineOf returns the Engine among the tensors' engines, nil if there is none.
func engineOf(ts []tensor.Tensor) (Engine, error) {
	var found Engine
	for _, t := range ts {
		e, ok := t.Engine().(Engine)
		switch {
		case !ok:
		case found == nil:
			found = e
		case !sameEngine(found, e):
			return nil, fmt.Errorf("the tensors lie on different devices: engines %v and %v", found, e)
		}
	}
	return found, nil
}

func sameEngine(a, b Engine) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && (!reflect.TypeOf(a).Comparable() || a == b)
}
