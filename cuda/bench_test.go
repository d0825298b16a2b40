package cuda_test

import (
	"fmt"
	"testing"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/dtype"
)

// BenchmarkPre compares an operator on host tensors, which are copied both ways,
// with the same on device memory, launched and waited for.
func BenchmarkPre(b *testing.B) {
	e, err := cuda.New()
	if err != nil {
		b.Skipf("needs a GPU: %v", err)
	}
	defer e.Close()
	const n = 4
	for _, size := range []struct{ tokens, channels int }{{512, 256}, {2048, 1024}, {8192, 4096}} {
		k := size.tokens * n * size.channels
		bytes := int64(2*(k+k/n) + 4*size.tokens*n)
		name := fmt.Sprintf("N=%d/C=%d/", size.tokens, size.channels)
		b.Run(name+"memory=host", func(b *testing.B) {
			x := tensor.New(tensor.WithShape(size.tokens, n, size.channels), tensor.WithBacking(make([]dtype.BFloat16, k)))
			h := tensor.New(tensor.WithShape(size.tokens, n), tensor.WithBacking(make([]float32, size.tokens*n)))
			b.SetBytes(bytes)
			for b.Loop() {
				if _, err := e.Pre(x, h); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"memory=device", func(b *testing.B) {
			s, err := e.NewStream()
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			buf, err := e.NewBuffer(bytes)
			if err != nil {
				b.Fatal(err)
			}
			defer buf.Free()
			x := buf.Ptr()
			h := x + plan.Ptr(2*k)
			o := &plan.PreForward{
				Tokens: int64(size.tokens), Streams: n, Channels: size.channels, XType: plan.BFloat16,
				X: x, HPre: h, Out: h + plan.Ptr(4*size.tokens*n),
			}
			b.SetBytes(bytes)
			for b.Loop() {
				if err := s.Run(o); err != nil {
					b.Fatal(err)
				}
				if err := s.Synchronize(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
