package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/bench"
	"github.com/mhc-go/mhc/internal/compare"
)

// stub writes a program that reports a commit and that Pre took so long.
func stub(t *testing.T, us float64) string {
	var lines strings.Builder
	encoder := json.NewEncoder(&lines)
	require.NoError(t, encoder.Encode(bench.Environment{Commit: "0123456789abcdef"}))
	for _, pass := range []string{"forward", "full"} {
		require.NoError(t, encoder.Encode(bench.Result{
			Operator: "pre", Pass: pass, By: "mhc", Device: "cpu", Dtype: "float32", N: 3, Streams: 2, Channels: 4, T: 20, P50: us,
		}))
	}
	path := filepath.Join(t.TempDir(), "stub")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\ncat <<'END'\n%sEND\n", &lines), 0o700))
	return path
}

// The last commit of this repository, from a clone, which has no changes.
func TestCompare(t *testing.T) {
	if out, err := exec.Command("git", "rev-parse", "--verify", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("this is no git repository: %s", out)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	out, err := exec.Command("git", "clone", "--quiet", "../..", clone).CombinedOutput()
	require.NoError(t, err, "%s", out)

	status, stdout, stderr := execute("compare", "-baseline", "HEAD", "-candidate-bin", stub(t, 1e-9), "-repository", clone, "-rounds", "2", "-o", "-",
		"--", "pre", "-n", "2", "-C", "4", "-N", "3", "-rounds", "1", "-round-time", "1us")
	require.Equal(t, 0, status, stderr)
	var rounds []compare.Round
	var summary []compare.Summary
	for lines := bufio.NewScanner(strings.NewReader(stdout)); lines.Scan(); {
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		if len(rounds) < 4 {
			rounds = append(rounds, compare.Round{})
			require.NoError(t, decoder.Decode(&rounds[len(rounds)-1]))
			continue
		}
		summary = append(summary, compare.Summary{})
		require.NoError(t, decoder.Decode(&summary[len(summary)-1]))
	}
	require.Len(t, rounds, 4)
	require.Len(t, summary, 2)
	assert.Equal(t, []string{"baseline", "candidate", "candidate", "baseline"}, []string{rounds[0].Side, rounds[1].Side, rounds[2].Side, rounds[3].Side})
	assert.Equal(t, rounds[0].Environment, rounds[3].Environment)
	assert.Regexp(t, `^[0-9a-f]{40}$`, rounds[0].Environment.Commit)
	assert.Equal(t, compare.Key{Operator: "pre", Pass: "forward", Device: "cpu", Dtype: "float32", N: 3, Streams: 2, Channels: 4, T: 20}, summary[0].Key)
	assert.Greater(t, summary[0].Speedup.P50, 1e3)
	assert.Contains(t, stderr, "round 2 of 2: candidate, commit 0123456789ab")
}

func TestCompareGate(t *testing.T) {
	old, slower := stub(t, 100), stub(t, 110)
	for gate, want := range map[string]int{"0.95": 1, "0.9": 0} {
		status, out, stderr := execute("compare", "-baseline-bin", old, "-candidate-bin", slower, "-gate", gate)
		assert.Equal(t, want, status)
		assert.Empty(t, out)
		assert.Regexp(t, `(?m)^ *pre +full +float32 +2 +4 +3 +100\.0us +110\.0us +0\.909 +0\.909 +0\.909 `, stderr)
		assert.Equal(t, want == 1, strings.Contains(stderr, "SLOWER"))
	}
	status, _, stderr := execute("compare", "-baseline-bin", old, "-candidate", "")
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, "candidate: want a revision or a program")
}
