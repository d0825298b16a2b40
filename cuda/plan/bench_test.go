package plan

import (
	"fmt"
	"testing"
)

// What a plan costs the host, which a GPU waits for where its own work is short.
func BenchmarkCoeffs(b *testing.B) {
	for _, channels := range []int{1024, 8192} {
		for _, tokens := range []int64{512, 8192} {
			settings := Sinkhorn{Iters: 20, Eps: 1e-6}
			forward := &CoeffsForward{Tokens: tokens, Streams: 4, Channels: channels, XType: BFloat16, PhiType: BFloat16, Sinkhorn: settings}
			backward := &CoeffsBackward{Tokens: tokens, Streams: 4, Channels: channels, XType: BFloat16, PhiType: BFloat16, Sinkhorn: settings}
			for _, c := range []struct {
				name string
				op   interface{ Workspace(Limits) (int64, error) }
			}{{"forward", forward}, {"backward", backward}} {
				b.Run(fmt.Sprintf("%s/C=%d/N=%d", c.name, channels, tokens), func(b *testing.B) {
					for b.Loop() {
						if _, err := c.op.Workspace(H200); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
