package streams

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

// Every operation at two sizes, by tier. GB/s is that of the fastest iteration,
// and counts each operand and result once; "of-copy" is the rate over that of the
// fastest parallel copy of the streams, before and after.
func BenchmarkStreams(b *testing.B) {
	tiertest.Each(b, func(b *testing.B) {
		for _, d := range []Dims{{512, 4, 256}, {2048, 4, 2560}} {
			b.Run(fmt.Sprintf("N=%d,n=%d,C=%d", d.Tokens, d.Streams, d.Channels), func(b *testing.B) {
				b.Run("float32", func(b *testing.B) { benchmark[float32](b, d) })
				b.Run("bfloat16", func(b *testing.B) { benchmark[dtype.BFloat16](b, d) })
			})
		}
	})
}

func benchmark[S dtype.Storage](b *testing.B, d Dims) {
	many, one := d.Tokens*d.Streams*d.Channels, d.Tokens*d.Channels
	x, g, out := noise[S](many), noise[S](many), make([]S, many)
	f, df := noise[S](one), make([]S, one)
	h, dh := noise[float32](d.Tokens*d.Streams), make([]float32, d.Tokens*d.Streams)
	res, dres := noise[float32](d.Tokens*d.Streams*d.Streams), make([]float32, d.Tokens*d.Streams*d.Streams)
	cfg := mhc.HeadConfig{RMSEps: 1e-6}
	in := HeadInputs[S, S, float32]{X: x, Phi: noise[S](d.Streams * d.Channels * d.Streams), B: h[:d.Streams], Alpha: h[:1]}
	kept := HeadKept[float32]{Mix: make([]float32, len(h)), R: make([]float32, d.Tokens)}
	headGrad := HeadInputs[S, S, float32]{X: out, Phi: make([]S, len(in.Phi)), B: make([]float32, d.Streams), Alpha: make([]float32, 1)}
	for _, c := range []struct {
		name    string
		numbers int
		f       func() error
	}{
		{"Pre", many + one, func() error { return Pre(df, x, h, d) }},
		{"PreBackward", 2*many + one, func() error { return PreBackward(out, dh, x, h, f, d) }},
		{"PostRes", 2*many + one, func() error { return PostRes(out, x, f, h, res, d, mhc.ApplyRows) }},
		{"PostResBackward", 3*many + 2*one, func() error {
			return PostResBackward(PostResGradients[S, float32]{out, df, dh, dres}, x, f, h, res, g, d, mhc.ApplyRows)
		}},
		{"Expand", many + one, func() error { return Expand(out, f, d) }},
		{"ExpandBackward", many + one, func() error { return ExpandBackward(df, g, d) }},
		{"Head", many + one, func() error { return Head(df, kept, in, d, cfg) }},
		{"HeadBackward", 2*many + one, func() error { return HeadBackward(headGrad, in, kept, f, d, cfg) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			floor := copyRate(out, g)
			fastest := time.Duration(math.MaxInt64)
			for b.Loop() {
				start := time.Now()
				if err := c.f(); err != nil {
					b.Fatal(err)
				}
				fastest = min(fastest, time.Since(start))
			}
			floor = max(floor, copyRate(out, g))
			rate := float64(c.numbers) * float64(unsafe.Sizeof(*new(S))) / fastest.Seconds()
			b.ReportMetric(rate/1e9, "GB/s")
			b.ReportMetric(rate/floor, "of-copy")
		})
	}
}

// copyRate is the best rate of a parallel copy, in bytes read and written a
// second.
func copyRate[S dtype.Storage](dst, src []S) float64 {
	best := 0.0
	bytes := 2 * float64(len(src)) * float64(unsafe.Sizeof(*new(S)))
	for range 8 {
		start := time.Now()
		parallel.Blocks(len(src), grainBytes/int(unsafe.Sizeof(*new(S))), func(_, lo, hi int) { copy(dst[lo:hi], src[lo:hi]) })
		best = max(best, bytes/time.Since(start).Seconds())
	}
	return best
}

func noise[S dtype.Storage](n int) []S {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	wide, s := make([]float32, n), make([]S, n)
	for i := range wide {
		wide[i] = float32(rng.NormFloat64())
	}
	dtype.Narrow(s, wide)
	return s
}
