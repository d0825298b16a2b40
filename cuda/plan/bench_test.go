package plan

import (
	"fmt"
	"testing"

	"github.com/mhc-go/mhc/sinkhorn"
)

// What the search for a shape's split costs the host, once, and what a call costs
// it that has seen the shape: a GPU waits for it where its own work is short.
func BenchmarkCoeffs(b *testing.B) {
	for _, channels := range []int{1024, 8192} {
		for _, tokens := range []int64{512, 8192} {
			settings := sinkhorn.Config{Iterations: 20, Eps: 1e-6}
			forward := &CoeffsForward{Tokens: tokens, Streams: 4, Channels: channels, XType: BFloat16, PhiType: BFloat16, Sinkhorn: settings}
			backward := &CoeffsBackward{Tokens: tokens, Streams: 4, Channels: channels, XType: BFloat16, PhiType: BFloat16, Sinkhorn: settings}
			p := Ptr(1 << 20)
			forward.X, forward.Phi, forward.B, forward.Alpha, forward.HPre = p, p, p, p, p
			forward.HPost, forward.HRes, forward.Mix, forward.R = p, p, p, p
			backward.X, backward.Phi, backward.B, backward.Alpha, backward.Mix, backward.R = p, p, p, p, p, p
			backward.GPre, backward.GPost, backward.GRes, backward.DX = p, p, p, p
			backward.DPhi, backward.DB, backward.DAlpha = p, p, p
			for _, c := range []struct {
				name   string
				search func()
				op     interface {
					Workspace(Limits) (int64, error)
					Launches(Limits, Ptr) ([]Launch, error)
				}
			}{
				{"forward", func() { forward.shape().searchForward(H200) }, forward},
				{"backward", func() { backward.shape().searchBackward(H200) }, backward},
			} {
				name := fmt.Sprintf("%s/C=%d/N=%d", c.name, channels, tokens)
				b.Run("search/"+name, func(b *testing.B) {
					for b.Loop() {
						c.search()
					}
				})
				b.Run("call/"+name, func(b *testing.B) {
					for b.Loop() {
						if _, err := c.op.Workspace(H200); err != nil {
							b.Fatal(err)
						}
						if _, err := c.op.Launches(H200, p); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
