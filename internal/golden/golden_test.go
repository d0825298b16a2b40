package golden

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

const dir = "../../tests/testdata/golden"

func options(t *testing.T) Options {
	cpu, err := device.Open("cpu")
	require.NoError(t, err)
	return Options{Machines: []machine.Kind{machine.Tape}, Device: cpu}
}

// edited writes a copy of a file with other metadata and without some tensors,
// and returns its path.
func edited(t *testing.T, name string, meta map[string]string, without ...string) string {
	tensors, all, err := graph.ReadState(filepath.Join(dir, name), nil)
	require.NoError(t, err)
	for _, w := range without {
		delete(tensors, w)
	}
	maps.Copy(all, meta)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, graph.WriteState(path, tensors, all))
	return path
}

// What is wrong with a file is said with its name.
func TestFaultsOfFiles(t *testing.T) {
	const coeffs, lm = "coeffs_f64_hc4_c8_tmax4.safetensors", "lm_hc2_c16.safetensors"
	for want, path := range map[string]string{
		`setting tmax is "many", want a whole number`:              edited(t, coeffs, map[string]string{"tmax": "many"}),
		`setting rms_eps is "", want a number`:                     edited(t, coeffs, map[string]string{"rms_eps": ""}),
		`setting use names "mid", want some of pre, post`:          edited(t, coeffs, map[string]string{"use": "pre,mid"}),
		"Iterations is -3, want 1 or more":                         edited(t, coeffs, map[string]string{"tmax": "-3"}),
		"RMSEps is NaN":                                            edited(t, coeffs, map[string]string{"rms_eps": "NaN"}),
		"tensor alpha_res is missing":                              edited(t, coeffs, nil, "alpha_res"),
		"tensor upstream_post is missing":                          edited(t, coeffs, nil, "upstream_post"),
		"tensor grad_b is missing":                                 edited(t, coeffs, nil, "grad_b"),
		"no file of reference values: its tensors are alpha_post,": edited(t, coeffs, nil, "x", "phi", "alpha_pre"),
		"tensor param.embed has shape (32, 32), want (32, 64)":     edited(t, lm, map[string]string{"c": "32"}),
		"tensor labels holds 31, want 0 to 30":                     edited(t, lm, map[string]string{"vocab": "31"}),
		"tensor param.layers.1.phi is missing":                     edited(t, lm, map[string]string{"depth": "2"}),
		"tensor final.head is missing":                             edited(t, lm, nil, "final.head"),
	} {
		_, err := Verify(path, options(t))
		require.ErrorContains(t, err, path+": ")
		assert.ErrorContains(t, err, want)
	}
}

// A tensor of another shape or dtype is an error, whichever it is, or a row that
// fails.
func TestTensorsOfOtherShapes(t *testing.T) {
	for _, name := range []string{"coeffs_f32_hc3_c10.safetensors", "apply_bf16_b2_t4_hc2_c32.safetensors", "sinkhorn_hc2_tmax1.safetensors", "lm_hc2_c16.safetensors"} {
		tensors, meta, err := graph.ReadState(filepath.Join(dir, name), nil)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), name)
		for changed, original := range tensors {
			for _, other := range []*tensor.Dense{
				tensor.New(tensor.WithShape(2, 1, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})),
				tensor.New(tensor.WithBacking([]int64{-1, 1 << 40})),
				tensor.New(tensor.FromScalar(0.5)),
			} {
				tensors[changed] = other
				require.NoError(t, graph.WriteState(path, tensors, meta))
				rows, err := Verify(path, options(t))
				failed := slices.ContainsFunc(rows, func(r Row) bool { return !r.Pass })
				unused := changed == "invr"
				assert.True(t, err != nil || failed || unused, "%s: %s of shape %v", name, changed, other.Shape())
			}
			tensors[changed] = original
		}
	}
}

// Another setting or weight gives numbers over the bounds.
func TestOtherSettingsFail(t *testing.T) {
	failing := func(path string) (names []string) {
		rows, err := Verify(path, options(t))
		require.NoError(t, err)
		for _, r := range rows {
			if !r.Pass {
				names = append(names, r.Tensor)
			}
		}
		return names
	}
	assert.Empty(t, failing(edited(t, "coeffs_f32_hc3_c10.safetensors", nil)))
	assert.Equal(t, []string{"h_pre"}, failing(edited(t, "coeffs_f32_hc3_c10.safetensors", map[string]string{"pre_eps": "0.0002"})))
	assert.Equal(t, []string{"h_post", "grad_x", "grad_phi", "grad_b", "grad_alpha_post"},
		failing(edited(t, "coeffs_f32_hc3_c10.safetensors", map[string]string{"post_mult": "2.0001"})))
	assert.Contains(t, failing(edited(t, "lm_hc2_c16.safetensors", map[string]string{"lr": "0.500001"})), "loss")
}

func TestErrorOfATensor(t *testing.T) {
	assert.Zero(t, relative([]float64{0, 0}, []float64{0, 0}, 0))
	assert.InDelta(t, 0.2, relative([]float64{3, 5}, []float64{3, 4}, 0), 1e-15)
	assert.True(t, math.IsInf(relative([]float64{1}, []float64{0}, 0), 1))
	assert.True(t, math.IsNaN(relative([]float64{math.NaN()}, []float64{1}, 0)))
	assert.InDelta(t, 0.01, relative([]float64{2e-3}, []float64{1e-3}, 0.1), 1e-15)

	r := &run{file: &file{}, device: &device.Device{Name: "cpu"}, dtype: tensor.Float32}
	r.add("x", math.NaN(), 1)
	require.False(t, r.rows[0].Pass, "not a number is no pass")
	line, err := json.Marshal(r.rows[0])
	require.NoError(t, err)
	assert.Contains(t, string(line), `"error":null,"bound":1,"pass":false`)
}

// Rounding allows what rounding the reference costs, and the bound once more.
func TestRounding(t *testing.T) {
	third := []float64{1. / 3}
	for _, c := range []struct {
		stored tensor.Dtype
		want   []float64
		bound  float64
		extra  float64
	}{
		{tensor.Float32, third, 1e-5, 0},
		{op.BFloat16, third, 1e-5, 1e-5 + 1./512}, // 0.333984375
		{op.Float16, third, 1e-5, 1e-5 + 1./4096}, // 0.333251953125
		{op.Float16, []float64{0.25, 8}, 1e-5, 0}, // exact in 16 bits
		{op.BFloat16, third, 4e-3, 0},             // the bound has it in it
	} {
		got, err := rounding(c.stored, c.want, c.bound)
		require.NoError(t, err)
		assert.InDelta(t, c.extra, got, 1e-12)
	}
}

func TestBounds(t *testing.T) {
	cpu, gpu := &device.Device{}, &device.Device{Engine: tensor.StdEng{}}
	for _, c := range []struct {
		run  run
		want bounds
	}{
		{run{device: cpu, dtype: tensor.Float64}, bounds{1e-12, 1e-12, 1e-12, 1e-12}},
		{run{device: cpu, dtype: tensor.Float32}, bounds{2e-6, 1e-5, 1e-5, 1e-5}},
		{run{device: cpu, dtype: op.BFloat16}, bounds{2e-6, 1e-5, 1e-5, 1e-5}},
		{run{device: gpu, dtype: tensor.Float64}, bounds{1e-12, 1e-12, 1e-12, 1e-12}},
		{run{device: gpu, dtype: tensor.Float32}, bounds{1e-5, 2e-5, 2e-5, 2e-5}},
		{run{device: gpu, dtype: op.Float16}, bounds{1e-5, 4e-3, 1e-4, 1e-4}},
	} {
		assert.Equal(t, c.want, c.run.bounds())
	}
}

func TestFiles(t *testing.T) {
	files, err := Files([]string{dir, dir + "/README.md"})
	require.NoError(t, err)
	assert.Len(t, files, 58)
	assert.Equal(t, dir+"/README.md", files[57])
	_, err = Files([]string{"nowhere"})
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Files([]string{t.TempDir()})
	assert.ErrorContains(t, err, "no *.safetensors files in this folder")
}
