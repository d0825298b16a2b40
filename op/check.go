package op

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op/fused"
)

// wantStreams checks x [..., n, C] and splits its shape.
func wantStreams(x fused.Operand) (lead tensor.Shape, n, channels int, err error) {
	if err := wantStorage(x); err != nil {
		return nil, 0, 0, err
	}
	if len(x.Shape) < 2 {
		return nil, 0, 0, fmt.Errorf("%s has shape %v, want [..., streams, channels]", x.Name, x.Shape)
	}
	lead, last := splitLast(x.Shape, 2)
	return lead, last[0], last[1], nil
}

// wantStorage checks that a dtype is one of streams.
func wantStorage(x fused.Operand) error {
	return wantDtype(x, "", tensor.Float32, tensor.Float64, BFloat16, Float16)
}

// wantDtype checks a dtype; because, if any, says what asks for it.
func wantDtype(o fused.Operand, because string, want ...tensor.Dtype) error {
	if !slices.Contains(want, o.Dtype) {
		return fmt.Errorf("%s is %v, want %v%s", o.Name, o.Dtype, orList(want), because)
	}
	return nil
}

// wantCoefficient checks that the dtype of o is that of the arithmetic with x.
func wantCoefficient(o, x fused.Operand) error {
	return wantDtype(o, where(x), arithmetic(x.Dtype))
}

// where is the reason that x gives for the dtype of another operand.
func where(x fused.Operand) string { return fmt.Sprintf(" where %s is %v", x.Name, x.Dtype) }

// orList reads a, b or c.
func orList(ts []tensor.Dtype) string {
	s := fmt.Sprint(ts[0])
	for i, t := range ts[1:] {
		sep := ", "
		if i == len(ts)-2 {
			sep = " or "
		}
		s += sep + fmt.Sprint(t)
	}
	return s
}

// wantShape checks a shape; why says where its dimensions come from.
func wantShape(o fused.Operand, why string, want ...int) error {
	if !slices.Equal(o.Shape, want) {
		return fmt.Errorf("%s has shape %v, want %v: %s", o.Name, o.Shape, tensor.Shape(want), why)
	}
	return nil
}

// wantPhi checks phi of tokens of k numbers with m columns.
func wantPhi(phi, x fused.Operand, k, m int, layout mhc.PhiLayout) error {
	if err := wantDtype(phi, where(x), slices.Compact([]tensor.Dtype{x.Dtype, arithmetic(x.Dtype)})...); err != nil {
		return err
	}
	want := []int{k, m}
	if layout == mhc.PhiMK {
		slices.Reverse(want)
	}
	return wantShape(phi, fmt.Sprintf("K = %d numbers a token, M = %d columns, layout %v", k, m, layout), want...)
}
