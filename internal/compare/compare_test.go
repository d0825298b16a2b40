package compare_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/compare"
)

// program writes a program that stands for mhc: it appends its name and
// arguments to a log and writes lines.
func program(t *testing.T, log, name string, lines ...string) string {
	path := filepath.Join(t.TempDir(), name)
	script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\ncat <<'END'\n%s\nEND\n", name, log, strings.Join(lines, "\n"))
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

func environment(commit string) string {
	return fmt.Sprintf(`{"commit":%q,"device":"a device"}`, commit)
}

func result(operator, pass, by string, us float64) string {
	return resultOn("cpu", operator, pass, by, us)
}

func resultOn(device, operator, pass, by string, us float64) string {
	return fmt.Sprintf(`{"operator":%q,"pass":%q,"by":%q,"device":%q,"N":3,"p50_us":%g}`, operator, pass, by, device, us)
}

func nothing(compare.Round) error { return nil }

func TestRoundsAndSummary(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	opts := compare.Options{
		BaselineBinary: program(t, log, "old", environment("abc"), result("pre", "forward", "mhc", 30),
			result("pre", "backward", "mhc", 5), result("pre", "full", "mhc", 80), result("pre", "full", "gorgonia", 1)),
		CandidateBinary: program(t, log, "new", environment("def"), result("pre", "forward", "mhc", 20), result("pre", "full", "mhc", 100)),
		Rounds:          3, Arguments: []string{"pre", "-N", "3"},
	}
	var rounds []string
	summary, err := compare.Run(t.Context(), opts, func(r compare.Round) error {
		rounds = append(rounds, fmt.Sprint(r.Round, r.Side, r.Environment.Commit, len(r.Results)))
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"0baselineabc2", "0candidatedef2", "1candidatedef2", "1baselineabc2", "2baselineabc2", "2candidatedef2"}, rounds)
	runs, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("old bench --output=- pre -N 3\nnew bench --output=- pre -N 3\nnew bench --output=- pre -N 3\nold bench --output=- pre -N 3\n", 2)[:6*30], string(runs))

	require.Len(t, summary, 2)
	assert.Equal(t, compare.Key{Operator: "pre", Pass: "forward", Device: "cpu", N: 3}, summary[0].Key)
	assert.Equal(t, "full", summary[1].Pass)
	assert.Equal(t, 3, summary[0].Rounds)
	assert.Equal(t, compare.Quantiles{P20: 30, P50: 30, P80: 30}, summary[0].Baseline)
	assert.InDelta(t, 1.5, summary[0].Speedup.P50, 1e-15)
	assert.InDelta(t, 0.8, summary[1].Speedup.P20, 1e-15)
}

// On a GPU backward is measured as one, on the CPU it is a difference.
func TestBackwardIsJudgedOnAGPU(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	lines := func(us float64) []string {
		return []string{environment("abc"), resultOn("cuda:1", "pre", "backward", "mhc", us), resultOn("cpu", "pre", "backward", "mhc", us)}
	}
	summary, err := compare.Run(t.Context(), compare.Options{
		BaselineBinary: program(t, log, "old", lines(30)...), CandidateBinary: program(t, log, "new", lines(40)...), Rounds: 1,
	}, nothing)
	require.NoError(t, err)
	require.Len(t, summary, 1)
	assert.Equal(t, compare.Key{Operator: "pre", Pass: "backward", Device: "cuda:1", N: 3}, summary[0].Key)
	assert.InDelta(t, 0.75, summary[0].Speedup.P50, 1e-15)
}

func TestProgramsThatCannotBeUsed(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	good := program(t, log, "good", environment("abc"), result("pre", "full", "mhc", 1))
	failing := filepath.Join(t.TempDir(), "failing")
	require.NoError(t, os.WriteFile(failing, []byte("#!/bin/sh\necho no such operator >&2\nexit 2\n"), 0o700))
	for want, opts := range map[string]compare.Options{
		"0 rounds, want 1 or more":                     {BaselineBinary: good, CandidateBinary: good},
		"candidate: want a revision or a program":      {BaselineBinary: good, Rounds: 1},
		"unknown does not report its commit":           {BaselineBinary: good, CandidateBinary: program(t, log, "unknown", environment("unknown")), Rounds: 1},
		"was built of commit abc with changes":         {BaselineBinary: good, CandidateBinary: program(t, log, "modified", `{"commit":"abc","modified":true}`), Rounds: 1},
		"exit status 2: no such operator":              {BaselineBinary: good, CandidateBinary: failing, Rounds: 1},
		"candidate: reading what mhc bench wrote: EOF": {BaselineBinary: good, CandidateBinary: program(t, log, "silent"), Rounds: 1},
		"was measured 1 times by the baseline and 0":   {BaselineBinary: good, CandidateBinary: program(t, log, "less", environment("abc")), Rounds: 1},
		"no such file": {BaselineBinary: "nowhere", CandidateBinary: good, Rounds: 1},
	} {
		_, err := compare.Run(t.Context(), opts, nothing)
		assert.ErrorContains(t, err, want)
	}
}

// repository makes one with a program of the given lines.
func repository(t *testing.T, lines ...string) string {
	folder := t.TempDir()
	files := map[string]string{
		"go.mod":          "module example.com/fake\n\ngo 1.26.0\n",
		"cmd/mhc/main.go": mainFile(lines),
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	run(t, folder, "init", "--quiet", "--initial-branch=main")
	commit(t, folder)
	return folder
}

// mainFile is a program that reports its commit, and lines.
func mainFile(lines []string) string {
	return `package main

import (
	"fmt"
	"runtime/debug"
)

func main() {
	info, _ := debug.ReadBuildInfo()
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	fmt.Printf("{\"commit\":%q,\"modified\":%s}\n", settings["vcs.revision"], settings["vcs.modified"])
	fmt.Println(` + "`" + strings.Join(lines, "\n") + "`" + `)
}
`
}

func commit(t *testing.T, folder string) {
	run(t, folder, "add", ".")
	run(t, folder, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", "c")
}

func run(t *testing.T, folder string, args ...string) string {
	cmd := exec.Command("git", append([]string{"-C", folder}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// Revisions are built in checkouts that are gone afterwards, also where the run
// was stopped.
func TestRevisions(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	folder := repository(t, result("pre", "full", "mhc", 20))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "cmd/mhc/main.go"), []byte(mainFile([]string{result("pre", "full", "mhc", 10)})), 0o600))
	opts := compare.Options{Repository: filepath.Join(folder, "cmd"), Baseline: "main~1", Candidate: "HEAD", Rounds: 1}

	_, err := compare.Run(t.Context(), opts, nothing)
	require.ErrorContains(t, err, "baseline: the working tree has changes")
	assert.ErrorContains(t, err, "cmd/mhc/main.go")
	commit(t, folder)

	var commits []string
	summary, err := compare.Run(t.Context(), opts, func(r compare.Round) error {
		commits = append(commits, r.Environment.Commit)
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, []string{run(t, folder, "rev-parse", "main~1"), run(t, folder, "rev-parse", "main")}, commits)
	require.Len(t, summary, 1)
	assert.InDelta(t, 2, summary[0].Speedup.P50, 1e-15)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = compare.Run(ctx, opts, func(compare.Round) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)

	opts.Baseline = "nowhere"
	_, err = compare.Run(t.Context(), opts, nothing)
	require.ErrorContains(t, err, "baseline: git")
	opts.Baseline = "--all"
	_, err = compare.Run(t.Context(), opts, nothing)
	require.ErrorContains(t, err, "baseline: git")

	left, err := filepath.Glob(filepath.Join(temp, "mhc-compare-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
