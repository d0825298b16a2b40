package main

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/compare"
)

// The last commit of this repository against itself, in a clone, which has no
// changes.
func TestCompare(t *testing.T) {
	if out, err := exec.Command("git", "rev-parse", "--verify", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("this is no git repository: %s", out)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	out, err := exec.Command("git", "clone", "--quiet", "../..", clone).CombinedOutput()
	require.NoError(t, err, "%s", out)

	status, stdout, stderr := execute("compare", "-baseline", "HEAD", "-repository", clone, "-rounds", "2", "-gate", "0", "-o", "-",
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
	for _, r := range rounds {
		assert.Equal(t, rounds[0].Environment, r.Environment)
		assert.Len(t, r.Results, 2)
	}
	assert.Equal(t, compare.Key{Operator: "pre", Pass: "forward", Device: "cpu", Dtype: "float32", N: 3, Streams: 2, Channels: 4, T: 20}, summary[0].Key)
	assert.Positive(t, summary[0].Speedup.P50)
	assert.Contains(t, stderr, "round 2 of 2: candidate, commit ")
	assert.Regexp(t, `(?m)^ *pre +full +float32 +2 +4 +3 +\S+ +\S+ +\d+\.\d{3} `, stderr)

	status, _, stderr = execute("compare", "-baseline", "HEAD", "-repository", clone, "-rounds", "1", "-gate", "1e9",
		"--", "pre", "-n", "2", "-C", "4", "-N", "3", "-rounds", "1", "-round-time", "1us")
	assert.Equal(t, 1, status, "no speed-up is over the gate")
	assert.Contains(t, stderr, "SLOWER")
}
