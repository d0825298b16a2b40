package main

import (
	"bytes"
	"context"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/graph"
)

// small makes a run of seconds.
func small(out string, more ...string) []string {
	return append([]string{"-text", "corpus.go", "-out", out, "-channels", "8", "-heads", "2", "-context", "8", "-batch", "4", "-layers", "1",
		"-steps", "12", "-sample", "10", "-streams", "3"}, more...)
}

func readHistory(t *testing.T, path string, steps int) []record {
	t.Helper()
	var h history
	require.NoError(t, h.read(path, steps))
	return h.records
}

func requirePNG(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	assert.Greater(t, picture.Bounds().Dx(), 100)
}

func TestRun(t *testing.T) {
	for _, r := range residuals {
		t.Run(r, func(t *testing.T) {
			dir := t.TempDir()
			var out, progress bytes.Buffer
			require.NoError(t, run(context.Background(), small(dir, "-residual", r, "-seed=7", "-steps", "60"), &out, &progress))
			assert.Contains(t, out.String(), "bigram")
			assert.Contains(t, out.String(), "sample, after")
			assert.Contains(t, progress.String(), "step 60/60")
			records := readHistory(t, filepath.Join(dir, metricsFile), 60)
			assert.Less(t, records[59].Loss, records[0].Loss-0.5)
			if r == "mhc" {
				assert.InDelta(t, 1, *records[59].GainForward, 0.05)
				assert.InDelta(t, 1, *records[59].GainBackward, 0.05)
			}
			requirePNG(t, filepath.Join(dir, lossFile))
			requirePNG(t, filepath.Join(dir, gainFile))

			again := t.TempDir()
			var second bytes.Buffer
			require.NoError(t, run(context.Background(), small(again, "-residual", r, "-seed=7", "-steps", "60"), &second, io.Discard))
			assert.Equal(t, withoutFolder(out.String()), withoutFolder(second.String()), "the same seed gives the same numbers")
		})
	}
}

// withoutFolder cuts the last line, which names the output folder.
func withoutFolder(s string) string { return s[:bytes.LastIndex([]byte(s), []byte("\nwritten to"))] }

func TestResume(t *testing.T) {
	whole, parts := t.TempDir(), t.TempDir()
	require.NoError(t, run(context.Background(), small(whole, "-preset", "paper"), io.Discard, io.Discard))

	// Cancelled while it runs: after the checkpoint of some step.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := run(ctx, small(parts, "-preset", "paper"), io.Discard, writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("step 5/12")) {
			cancel()
		}
		return len(p), nil
	}))
	require.ErrorIs(t, err, context.Canceled)
	checkpoint, err := graph.ReadCheckpoint(filepath.Join(parts, checkpointFile))
	require.NoError(t, err)
	assert.Equal(t, 5, checkpoint.Step)

	require.NoError(t, run(context.Background(), small(parts, "-preset", "paper", "-resume"), io.Discard, io.Discard))
	a, b := readHistory(t, filepath.Join(whole, metricsFile), 12), readHistory(t, filepath.Join(parts, metricsFile), 12)
	for i := range a {
		a[i].Milliseconds, b[i].Milliseconds = 0, 0
	}
	assert.Equal(t, a, b, "a resumed run follows the uninterrupted one to the last bit")

	err = run(context.Background(), small(parts, "-resume"), io.Discard, io.Discard)
	assert.ErrorContains(t, err, `setting preset is "paper", want "liger"`)
	other := filepath.Join(t.TempDir(), "corpus.go")
	text, err := os.ReadFile("corpus.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, bytes.ReplaceAll(text, []byte("corpus"), []byte("suproc")), 0o600))
	err = run(context.Background(), small(parts, "-preset", "paper", "-resume", "-text", other), io.Discard, io.Discard)
	assert.ErrorContains(t, err, `setting text is "corpus.go, checksum `)

	// Before the first step there is nothing to go on from.
	stopped, stop := context.WithCancel(context.Background())
	stop()
	empty := t.TempDir()
	err = run(stopped, small(empty), io.Discard, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotContains(t, err.Error(), "-resume")
	assert.NoFileExists(t, filepath.Join(empty, checkpointFile))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), small(dir, "-compare"), &out, io.Discard))
	requirePNG(t, filepath.Join(dir, lossFile))
	requirePNG(t, filepath.Join(dir, gainFile))
	for _, r := range residuals {
		assert.Len(t, readHistory(t, filepath.Join(dir, r, metricsFile), 12), 12)
	}
	assert.Contains(t, out.String(), "largest gain")

	// Stopped in the first of the three, it goes on from there.
	parts := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := run(ctx, small(parts, "-compare"), io.Discard, writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("step 5/12")) {
			cancel()
		}
		return len(p), nil
	}))
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "-resume goes on from "+filepath.Join(parts, "mhc", checkpointFile))
	var resumed bytes.Buffer
	require.NoError(t, run(context.Background(), small(parts, "-compare", "-resume"), &resumed, io.Discard))
	assert.Equal(t, withoutFolder(out.String()), withoutFolder(resumed.String()))
}

func TestBadFlags(t *testing.T) {
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"-streams is 0, want 1 or more", []string{"-streams", "0"}},
		{"-rate is NaN, want a finite number above 0", []string{"-rate=NaN"}},
		{"-rate is 0, want a finite number above 0", []string{"-rate", "0"}},
		{"-sample is -1, want 0 or more", []string{"-sample=-1"}},
		{"8 channels do not split into 3 heads", []string{"-heads", "3"}},
		{`preset "x", want one of liger, deepseek-v4, paper`, []string{"-preset", "x"}},
		{`device "abacus", want one of`, []string{"-device", "abacus"}},
		{"has 5 bytes, want at least 91 for a context of 8", []string{"-text", tiny(t)}},
		{"checkpoint.safetensors", []string{"-resume"}},
	} {
		err := run(context.Background(), small(t.TempDir(), tc.args...), io.Discard, io.Discard)
		assert.ErrorContains(t, err, tc.want, "%v", tc.args)
	}
}

func tiny(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "tiny.txt")
	require.NoError(t, os.WriteFile(path, []byte("short"), 0o600))
	return path
}

func TestGains(t *testing.T) {
	one, two, half := 1.0, 2.0, 0.5
	h := history{records: []record{{Step: 1, Loss: 4}, {Step: 2, Loss: 2, Eval: &half, GainForward: &one, GainBackward: &two}}}
	forward, backward := h.gains()
	assert.Equal(t, []float64{1, 1, 1, 2}, []float64{forward[0].Y, forward[1].Y, backward[0].Y, backward[1].Y})
	assert.Equal(t, 2.0, h.largestGain())
	trained, valid := h.losses()
	assert.Equal(t, 3.0, trained[0].Y)
	require.Len(t, valid, 1)
	assert.Equal(t, 0.5, valid[0].Y)
}

func TestDraw(t *testing.T) {
	logits := []float32{0, float32(temperature * math.Log(3)), 0} // 1 : 3 : 1
	for u, want := range map[float64]int{0: 0, 0.19: 0, 0.21: 1, 0.79: 1, 0.81: 2, 0.999: 2} {
		assert.Equal(t, want, draw(logits, u), "u = %v", u)
	}
}
