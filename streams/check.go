package streams

import (
	"fmt"
	"math/bits"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
)

// checkTypes requires that A is the type that streams of type S are computed in.
func checkTypes[S dtype.Storage, A dtype.Float]() error {
	var s, a any = *new(S), *new(A)
	_, double := s.(float64)
	if _, wide := a.(float64); wide == double {
		return nil
	}
	want := "float32"
	if double {
		want = "float64"
	}
	return fmt.Errorf("streams: coefficients of %T streams are %T, want %s", s, a, want)
}

// check requires valid sizes, of products that fit an int.
func (d Dims) check() error {
	switch {
	case d.Tokens < 0:
		return fmt.Errorf("streams: Tokens is %d, want 0 or more", d.Tokens)
	case d.Streams < 1:
		return fmt.Errorf("streams: Streams is %d, want 1 or more", d.Streams)
	case d.Channels < 1:
		return fmt.Errorf("streams: Channels is %d, want 1 or more", d.Channels)
	}
	for _, last := range []int{d.Channels, d.Streams} {
		if !fits(max(d.Tokens, 1), d.Streams, last) {
			return fmt.Errorf("streams: a tensor of %d*%d*%d numbers is too large", d.Tokens, d.Streams, last)
		}
	}
	return nil
}

// fits says whether the product of positive numbers is an int.
func fits(a, b, c int) bool {
	over, ab := bits.Mul(uint(a), uint(b))
	if over != 0 {
		return false
	}
	over, abc := bits.Mul(ab, uint(c))
	return over == 0 && int(abc) > 0
}

// The shapes of the tensors, by the names of their sizes.
const (
	shapeNnC = "N*n*C"
	shapeNC  = "N*C"
	shapeNnn = "N*n*n"
	shapeNn  = "N*n"
	shapeN   = "N"
	shapeKn  = "n*C*n"
	shapeB   = "n"
	shape1   = "1"
)

// length is the number of elements of a shape.
func (d Dims) length(shape string) int {
	n := 1
	for _, size := range shape {
		switch size {
		case 'N':
			n *= d.Tokens
		case 'n':
			n *= d.Streams
		case 'C':
			n *= d.Channels
		}
	}
	return n
}

// An argument is a slice as a check sees it.
type argument struct {
	name     string
	len      int
	shape    string
	optional bool // nil, and its work skipped
}

func arg[T any](name string, s []T, shape string) argument {
	return argument{name: name, len: len(s), shape: shape}
}

func result[T any](name string, s []T, shape string) argument {
	return argument{name: name, len: len(s), shape: shape, optional: s == nil}
}

// checkLengths requires that every argument has as many numbers as its shape.
func (d Dims) checkLengths(args ...argument) error {
	for _, a := range args {
		if want := d.length(a.shape); a.len != want && !a.optional {
			return fmt.Errorf("streams: %s has %d numbers, want %s", a.name, a.len, wanted(a.shape, want))
		}
	}
	return nil
}

// check requires types that go together, valid sizes, and arguments of their
// lengths, in this order.
func check[S dtype.Storage, A dtype.Float](d Dims, args ...argument) error {
	if err := checkTypes[S, A](); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	return d.checkLengths(args...)
}

// wanted is a shape with its number of elements.
func wanted(shape string, n int) string {
	if shape == shape1 {
		return shape
	}
	return fmt.Sprintf("%s = %d", shape, n)
}

// checkMix is check for functions that mix the streams.
func checkMix[S dtype.Storage, A dtype.Float](d Dims, apply mhc.Apply, args ...argument) error {
	if err := check[S, A](d, args...); err != nil {
		return err
	}
	if apply != mhc.ApplyRows && apply != mhc.ApplyTransposed {
		return fmt.Errorf("streams: apply is %v, want rows or transposed", apply)
	}
	return nil
}
