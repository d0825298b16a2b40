package coeffs_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/rmsnorm"
)

// BenchmarkCoeffs reports microseconds a token of the float32 coefficients, and
// of the matmul and RMS within them by itself.
func BenchmarkCoeffs(b *testing.B) {
	for _, size := range []struct{ tokens, channels int }{{512, 256}, {2048, 1024}} {
		p := sample(1, size.tokens, size.channels, mhc.Liger.Config(4))
		o := operandsOf[float32, float32, float32](p)
		o.run(b, p)
		d := rmsnorm.Dims{Tokens: p.tokens, K: 4 * p.channels, M: p.cfg.Width()}
		dmix := make([]float32, len(o.out.Mix))
		copy(dmix, o.out.Mix)
		for _, c := range []struct {
			name string
			run  func() error
		}{
			{"Forward", func() error { return coeffs.Forward(o.out, o.in, p.tokens, p.channels, p.cfg) }},
			{"ForwardEpilogue", func() error {
				coeffs.FromMix(o.out, o.in.B, o.in.Alpha, p.tokens, p.cfg)
				return nil
			}},
			{"ForwardMatmul", func() error {
				return rmsnorm.Forward(o.out.Mix, o.out.R, o.in.X, o.in.Phi, d, p.cfg.RMSEps)
			}},
			{"Backward", func() error { return coeffs.Backward(o.grad, o.up, o.in, o.out, p.tokens, p.channels, p.cfg) }},
			{"BackwardEpilogue", func() error {
				grad := o.grad
				grad.X, grad.Phi = nil, nil
				return coeffs.Backward(grad, o.up, o.in, o.out, p.tokens, p.channels, p.cfg)
			}},
			{"BackwardMatmul", func() error {
				return rmsnorm.Backward(o.grad.X, o.grad.Phi, o.in.X, o.in.Phi, o.out.Mix, o.out.R, dmix, d)
			}},
		} {
			b.Run(fmt.Sprintf("%s/N=%d,C=%d", c.name, p.tokens, p.channels), func(b *testing.B) {
				tiertest.Each(b, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						require.NoError(b, c.run())
					}
					b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*p.tokens), "us/token")
				})
			})
		}
	}
}
