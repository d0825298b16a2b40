package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/bench"
	"github.com/mhc-go/mhc/internal/tier"
)

var short = []string{"-rounds", "2", "-round-time", "1us", "-n", "2,3", "-C", "4", "-N", "3", "-tmax", "2"}

// benchLines reads JSON lines: one on the run, then the results.
func benchLines(t *testing.T, text string) (bench.Environment, []bench.Result) {
	var first bench.Environment
	var results []bench.Result
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		if first == (bench.Environment{}) {
			require.NoError(t, decoder.Decode(&first))
			continue
		}
		var r bench.Result
		require.NoError(t, decoder.Decode(&r))
		results = append(results, r)
	}
	return first, results
}

func TestBench(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.jsonl")
	status, out, stderr := execute(append([]string{"bench", "pre", "coeffs", "-peer", "gorgonia", "-preset", "deepseek-v4", "-seed", "7", "-o", file}, short...)...)
	assert.Equal(t, 0, status, stderr)
	assert.Empty(t, out)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	require.Len(t, lines, 1+2*2*3)
	assert.Equal(t, "operator pass dtype n C N median p20 p80 floor /floor allocated peak gorgonia ratio its peak difference", strings.Join(strings.Fields(lines[0]), " "))
	assert.Regexp(t, `^ *coeffs +full +float32 +3 +4 +3 +\S+ `, lines[12])

	data, err := os.ReadFile(file)
	require.NoError(t, err)
	run, results := benchLines(t, string(data))
	assert.Equal(t, "deepseek-v4", run.Preset)
	assert.EqualValues(t, 7, run.Seed)
	assert.Contains(t, run.Device, "kernels")
	require.Len(t, results, 2*2*6)
	for i, r := range results {
		assert.Equal(t, []string{"pre", "coeffs"}[i/6%2], r.Operator)
		assert.Equal(t, 2+i/12, r.Streams)
		assert.Equal(t, 2, r.T)
	}
}

func TestBenchOnStandardOutput(t *testing.T) {
	status, out, stderr := execute(append([]string{"bench", "streams", "-dtype", "bfloat16,float64", "-o", "-"}, short...)...)
	assert.Equal(t, 0, status, stderr)
	assert.NotContains(t, stderr, "gorgonia")
	_, results := benchLines(t, out)
	require.Len(t, results, 2*2*3)
	assert.Equal(t, "bfloat16", results[0].Dtype)
	assert.Equal(t, "float64", results[11].Dtype)
}

func TestBenchArgumentsThatCannotBeUsed(t *testing.T) {
	for want, args := range map[string][]string{
		"must be one of \"coeffs\"":    {"bench", "softmax"},
		"--dtype must be one of":       {"bench", "-dtype", "int8"},
		`preset "torch", want one of`:  {"bench", "-preset", "torch"},
		"Streams is 0, want 1 or more": {"bench", "pre", "-n", "0"},
		"not in Float16":               {"bench", "pre", "-dtype", "float16", "-peer", "gorgonia"},
		"nowhere/b.jsonl":              {"bench", "pre", "-o", "nowhere/b.jsonl"},
		"takes no operators":           {"bench", "pre", "-yardsticks"},
	} {
		status, _, stderr := execute(args...)
		assert.Equal(t, 2, status, args)
		assert.Contains(t, stderr, want)
	}
}

// A tier that is demanded and not there is an error, not another tier's figures.
func TestBenchRefusesAnotherTier(t *testing.T) {
	t.Setenv(tier.Variable, "avx1024")
	status, _, stderr := execute(append([]string{"bench", "pre"}, short...)...)
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, `MHC_CPU is "avx1024", want go, avx2 or avx512`)
}

func TestBenchYardsticks(t *testing.T) {
	status, out, stderr := execute(append([]string{"bench", "-yardsticks", "-o", "-"}, short...)...)
	assert.Equal(t, 0, status, stderr)
	const rows = 8*2 + 4 + 11
	assert.Len(t, strings.Split(strings.TrimSpace(stderr), "\n"), 1+rows)
	assert.Regexp(t, `coefficients backward +graph +copying x to dx +cold +2 +4 +3 `, stderr)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 1+rows)
	for _, line := range lines[1:] {
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		var r bench.Comparison
		require.NoError(t, decoder.Decode(&r))
		if r.What != "coefficients backward" || r.By != "graph" { // a difference of two times, which noise can turn round
			assert.Positive(t, r.P50)
		}
		assert.Equal(t, []int{2, 2}, []int{r.Streams, r.T})
	}
}
