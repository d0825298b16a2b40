package coeffs

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/normalize"
	"github.com/mhc-go/mhc/rmsnorm"
)

// sizes are the lengths of the operands.
type sizes struct {
	tokens, k, m int
	x            int // N*K
	phi          int // K*M
	mix          int // N*M
	vector       int // N*n
	res          int // N*n*n
}

func sizesOf(tokens, channels int, cfg mhc.Config) (sizes, error) {
	if err := cfg.Validate(); err != nil {
		return sizes{}, err
	}
	n := cfg.Streams
	switch {
	case n > normalize.MaxN:
		return sizes{}, fmt.Errorf("coeffs: Streams is %d, want %d or fewer", n, normalize.MaxN)
	case tokens < 0:
		return sizes{}, fmt.Errorf("coeffs: tokens is %d, want 0 or more", tokens)
	case channels < 1:
		return sizes{}, fmt.Errorf("coeffs: channels is %d, want 1 or more", channels)
	}
	s := sizes{tokens: tokens, k: product(n, channels), m: cfg.Width()}
	s.x, s.phi, s.mix = product(tokens, s.k), product(s.k, s.m), product(tokens, s.m)
	s.vector, s.res = product(tokens, n), product(tokens, n*n)
	return s, nil
}

// product is a*b for numbers of 0 or more, or the largest int, which is no
// slice's length, if that is too large.
func product(a, b int) int {
	hi, lo := bits.Mul(uint(a), uint(b))
	if hi != 0 || lo > math.MaxInt {
		return math.MaxInt
	}
	return int(lo)
}

func (s sizes) dims(cfg mhc.Config) rmsnorm.Dims {
	return rmsnorm.Dims{Tokens: s.tokens, K: s.k, M: s.m, Transposed: cfg.Phi == mhc.PhiMK}
}

// length is what an operand's length is and ought to be.
type length struct {
	name      string
	got, want int
}

func required[E any](name string, slice []E, want int) length { return length{name, len(slice), want} }

// optional is required but for a nil slice.
func optional[E any](name string, slice []E, want int) length {
	if slice == nil {
		want = 0
	}
	return required(name, slice, want)
}

func inputs[S, P dtype.Storage, A dtype.Float](in Inputs[S, P, A], s sizes) []length {
	return []length{
		required("X", in.X, s.x), required("Phi", in.Phi, s.phi), required("B", in.B, s.m), required("Alpha", in.Alpha, 3),
	}
}

func check(lengths []length) error {
	for _, l := range lengths {
		if l.got != l.want {
			return fmt.Errorf("coeffs: %s has %d numbers, want %d", l.name, l.got, l.want)
		}
	}
	return nil
}
