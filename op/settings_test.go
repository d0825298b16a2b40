package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/gorgonia/encoding/dot"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op/fused"
)

// Every op of a graph tells its settings, backward nodes included, and shows
// them in its name and in DOT.
func TestSettings(t *testing.T) {
	const coeffs = "n=3 rms_eps=1e-06 pre_eps=1e-06 post_mult=2 phi=MK T=3 start=row-softmax end=columns sinkhorn_eps=1e-06"
	want := map[string][]string{
		"MatMulRMS": {"mhc.MatMulRMS{rms_eps=1e-06 phi=MK}", "mhc.MatMulRMS.backward{rms_eps=1e-06 phi=MK of=mix}"},
		"Sinkhorn": {"mhc.Sinkhorn{T=3 start=row-softmax end=columns sinkhorn_eps=1e-06}",
			"mhc.Sinkhorn.backward{T=3 start=row-softmax end=columns sinkhorn_eps=1e-06 of=p}"},
		"Pre":                                   {"mhc.Pre", "mhc.Pre.backward{of=out}"},
		"PostRes":                               {"mhc.PostRes{apply=transposed}", "mhc.PostRes.backward{apply=transposed of=out}"},
		"Streams":                               {"mhc.Streams{n=3}", "mhc.Streams.backward{n=3 of=out}"},
		"Head":                                  {"mhc.Head{rms_eps=1e-06 pre_eps=1e-06 phi=MK}", "mhc.Head.backward{rms_eps=1e-06 pre_eps=1e-06 phi=MK of=out}"},
		"Coeffs/{pre:true post:false res:true}": {"mhc.Coeffs{" + coeffs + "}", "mhc.Coeffs.backward{" + coeffs + " of=pre,res}"},
	}
	for _, c := range float64Cases(sizes{[]int{2}, 3, 4}, mhc.DeepSeekV4) {
		if want[c.name] == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			p := programOf(t, c.build, c.in)
			_, err := gorgonia.Grad(p.Loss, p.Inputs...)
			require.NoError(t, err)
			var got []string
			for _, n := range p.Graph.AllNodes() {
				d, ok := n.Op().(fused.Described)
				if !ok || d.Settings() == nil && d.String() != "mhc.Pre" {
					continue
				}
				got = append(got, d.String())
				for _, s := range d.Settings() {
					assert.Contains(t, d.String(), fmt.Sprintf("%s=%v", s.Name, s.Value))
				}
			}
			assert.Equal(t, want[c.name], got)
			marshalled, err := dot.Marshal(p.Graph)
			require.NoError(t, err)
			assert.Contains(t, string(marshalled), "|mhc."+c.name[:3])
		})
	}
}
