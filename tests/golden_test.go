package tests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/golden"
	"github.com/mhc-go/mhc/internal/machine"
)

// Every reference value holds on both machines, in the dtype in which its file
// is stored and, with the same inputs widened, to the bounds of float64.
func TestGolden(t *testing.T) {
	files, err := golden.Files([]string{"testdata/golden"})
	require.NoError(t, err)
	require.Len(t, files, 57)
	cpu, err := device.Open("cpu")
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".safetensors")
		t.Run(name, func(t *testing.T) {
			rows, err := golden.Verify(file, golden.Options{Machines: machine.Kinds, Device: cpu, Widen: true})
			require.NoError(t, err)
			kind, _, _ := strings.Cut(name, "_")
			runs := len(machine.Kinds)
			if kind != "lm" && !strings.HasPrefix(name, "coeffs_f64") {
				runs *= 2
			}
			tensors := map[string]int{"coeffs": 10, "apply": 8, "sinkhorn": 2}[kind]
			if kind == "lm" {
				tensors = map[string]int{"lm_hc2_c16": 18, "lm_hc4_c32_depth2": 30}[name]
			}
			assert.Len(t, rows, runs*tensors)
			for _, r := range rows {
				assert.True(t, r.Pass, "%s, %s, %s: error %.3g, bound %.3g", r.Machine, r.Dtype, r.Tensor, r.Error, r.Bound)
			}
		})
	}
}
