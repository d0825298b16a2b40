package fused

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// tensorOf returns a value as a contiguous row-major tensor: itself if it is one,
// else a copy.
func tensorOf(v gorgonia.Value) (tensor.Tensor, error) {
	d, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("is a %T, want a *tensor.Dense", v)
	}
	if rowMajor(d.Shape(), d.Strides()) {
		return d, nil
	}
	if !d.IsNativelyAccessible() {
		return nil, fmt.Errorf("is non-contiguous (shape %v, strides %v) in device memory", d.Shape(), d.Strides())
	}
	return gather(d), nil
}

// rowMajor says whether the elements of a tensor lie one after the other. The
// stride of a dimension of size 1 is never used.
func rowMajor(shape tensor.Shape, strides []int) bool {
	if len(strides) != len(shape) {
		return false
	}
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != step {
			return false
		}
		step *= shape[i]
	}
	return true
}

// gather copies a tensor of any strides to a contiguous one. (Materialize does so
// for views, but not for a column-major tensor.)
func gather(d *tensor.Dense) *tensor.Dense {
	shape, strides := d.Shape(), d.Strides()
	out := tensor.New(tensor.Of(d.Dtype()), tensor.WithShape(shape...), tensor.WithEngine(d.Engine()))
	size := int(d.Dtype().Size())
	dst, src := bytesOf(out), bytesOf(d)
	index := make([]int, len(shape))
	for at := 0; at < len(dst); at += size {
		from := 0
		for i, j := range index {
			from += j * strides[i]
		}
		copy(dst[at:at+size], src[from*size:])
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < shape[i] {
				break
			}
			index[i] = 0
		}
	}
	return out
}

func bytesOf(d *tensor.Dense) []byte {
	return unsafe.Slice((*byte)(reflect.ValueOf(d.Data()).UnsafePointer()), d.MemSize())
}
