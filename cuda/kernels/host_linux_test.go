package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/sinkhorn"
)

// host is the program that runs the kernels of Sinkhorn without a GPU.
func host(t *testing.T) string {
	compiler, err := exec.LookPath("c++")
	if err != nil {
		t.Skip("no C++ compiler: ", err)
	}
	// The test reads what the compiler will: a result is kept as long as that stays.
	sources, err := filepath.Glob("*.cu*")
	require.NoError(t, err)
	for _, f := range append(sources, "testdata/host.cpp") {
		_, err := os.ReadFile(f)
		require.NoError(t, err)
	}
	program := filepath.Join(t.TempDir(), "host")
	out, err := exec.Command(compiler, "-std=c++17", "-O1", "-o", program, "testdata/host.cpp").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// launch is the input of the program: one launch, of logits a and, for a
// backward, upstream gradients g.
func launch(w *bytes.Buffer, l plan.Launch, n int, cfg sinkhorn.Config, a, g []float32) {
	name := make([]byte, 32)
	copy(name, l.Name)
	w.Write(name)
	for _, v := range []any{
		[]int32{int32(l.Grid.X), int32(l.Block.X), int32(len(a) / n / n), int32(n), int32(cfg.Start), int32(cfg.Steps())}, cfg.Eps, a, g,
	} {
		if err := binary.Write(w, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
}

// relative is the norm of the difference over the norm; 0 where both are zero.
func relative(got []float32, want []float64) float64 {
	var d, n float64
	for i := range got {
		d += (float64(got[i]) - want[i]) * (float64(got[i]) - want[i])
		n += want[i] * want[i]
	}
	if d == 0 {
		return 0
	}
	return math.Sqrt(d / n)
}

func widened(v []float32) []float64 {
	w := make([]float64, len(v))
	for i := range v {
		w[i] = float64(v[i])
	}
	return w
}

type projection struct {
	n     int
	cfg   sinkhorn.Config
	scale float64 // of the logits
	peak  float64 // added on the diagonal
	shift plan.Ptr
}

func (p projection) String() string {
	return fmt.Sprintf("n%d_%v_%v_T%d_eps%g_scale%g_peak%g_shift%d", p.n, p.cfg.Start, p.cfg.End, p.cfg.Iterations, p.cfg.Eps, p.scale, p.peak, p.shift)
}

func projections() []projection {
	r := rand.New(rand.NewPCG(5, 7))
	var all []projection
	for _, n := range []int{1, 2, 3, 4, 5, 8, 11, 16, 17} {
		for _, start := range []sinkhorn.Start{sinkhorn.RowSoftmax, sinkhorn.Exp} {
			for _, eps := range []float64{0, 1e-9, 1e-6, 1e-3} {
				all = append(all, projection{n, sinkhorn.Config{
					Start: start, End: []sinkhorn.Axis{sinkhorn.Columns, sinkhorn.Rows}[r.IntN(2)],
					Iterations: []int{1, 2, 8}[r.IntN(3)], Eps: eps,
				}, []float64{1, 8, 30}[r.IntN(3)], 0, plan.Ptr(4 * r.IntN(2))})
			}
		}
	}
	// Nearly one-hot rows, whose gradients lie below the rounding of 1 + eps.
	for _, n := range []int{2, 3, 4, 5, 16, 17} {
		all = append(all, projection{n, sinkhorn.Config{Iterations: 8, Eps: 1e-6}, 1, 25, 0})
	}
	return all
}

// The kernels, launched as they are planned, agree with the float64 projection:
// also a gradient far smaller than the upstream one, and that of n = 1, which is
// zero.
func TestSinkhornOnTheHost(t *testing.T) {
	const batch = 9
	r := rand.New(rand.NewPCG(1, 2))
	var in bytes.Buffer
	type result struct {
		name  string
		want  []float64
		bound float64
	}
	var results []result
	for _, p := range projections() {
		a, g := make([]float32, batch*p.n*p.n), make([]float32, batch*p.n*p.n)
		for i := range a {
			a[i], g[i] = float32(p.scale*r.NormFloat64()), float32(r.NormFloat64())
			if at := i % (p.n * p.n); at/p.n == at%p.n {
				a[i] += float32(p.peak)
			}
		}
		out, grad := make([]float64, len(a)), make([]float64, len(a))
		require.NoError(t, sinkhorn.Forward(out, widened(a), p.n, p.cfg))
		require.NoError(t, sinkhorn.Backward(grad, widened(a), widened(g), p.n, p.cfg))

		at := plan.Ptr(1<<20) + p.shift
		fw := plan.SinkhornForward{Batch: batch, N: p.n, Sinkhorn: p.cfg, A: at, Out: at}
		bw := plan.SinkhornBackward{Batch: batch, N: p.n, Sinkhorn: p.cfg, A: at, G: at, DA: at}
		forward, err := fw.Launches(plan.H200, at)
		require.NoError(t, err)
		backward, err := bw.Launches(plan.H200, at)
		require.NoError(t, err)
		require.Len(t, forward, 1)
		require.Len(t, backward, 1)
		launch(&in, forward[0], p.n, p.cfg, a, nil)
		launch(&in, backward[0], p.n, p.cfg, a, g)
		results = append(results, result{p.String() + "/" + forward[0].Name, out, 1e-5}, result{p.String() + "/" + backward[0].Name, grad, 2e-5})
	}

	cmd := exec.Command(host(t))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	data, err := cmd.Output()
	require.NoError(t, err)
	numbers := bytes.NewReader(data)
	for _, c := range results {
		t.Run(c.name, func(t *testing.T) {
			got := make([]float32, len(c.want))
			require.NoError(t, binary.Read(numbers, binary.LittleEndian, got))
			err := relative(got, c.want)
			t.Logf("relative error %.1e", err)
			assert.LessOrEqual(t, err, c.bound)
		})
	}
	require.Zero(t, numbers.Len())
}
