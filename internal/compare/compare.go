// Package compare measures two revisions of this repository against each other:
// each is built in a clean checkout of its own and runs mhc bench in processes of
// its own, in turn, so that the machine's moods meet both.
package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/mhc-go/mhc/internal/bench"
	"github.com/mhc-go/mhc/internal/buildinfo"
)

// Options say what is compared.
type Options struct {
	// Repository is a folder of the repository.
	Repository string
	// Baseline and Candidate are revisions, as git takes them.
	Baseline, Candidate string
	// BaselineBinary and CandidateBinary are programs to use instead, where they
	// are not empty.
	BaselineBinary, CandidateBinary string
	// Rounds is the number of times that each runs.
	Rounds int
	// Arguments are those of mhc bench.
	Arguments []string
}

// Round is what one side measured in one round.
type Round struct {
	Round       int               `json:"round"`
	Side        string            `json:"side"` // baseline or candidate
	Environment bench.Environment `json:"environment"`
	Results     []bench.Result    `json:"results"`
}

// Quantiles are those over the rounds.
type Quantiles struct {
	P20 float64 `json:"p20"`
	P50 float64 `json:"p50"`
	P80 float64 `json:"p80"`
}

// Summary compares one measurement over all rounds. Times are in microseconds.
type Summary struct {
	Key
	Rounds    int       `json:"rounds"`
	Baseline  Quantiles `json:"baseline_us"`
	Candidate Quantiles `json:"candidate_us"`
	// Speedup is the baseline's time over the candidate's in the same round.
	Speedup Quantiles `json:"speedup"`
}

// Key says what was measured.
type Key struct {
	Operator string `json:"operator"`
	Pass     string `json:"pass"`
	Device   string `json:"device"`
	Dtype    string `json:"dtype"`
	N        int    `json:"N"`
	Streams  int    `json:"n"`
	Channels int    `json:"C"`
	T        int    `json:"T"`
	WidePhi  bool   `json:"wide_phi,omitempty"`
}

func keyOf(r bench.Result) Key {
	return Key{r.Operator, r.Pass, r.Device, r.Dtype, r.N, r.Streams, r.Channels, r.T, r.WidePhi}
}

// Run builds both sides, and calls report with every round as it ends. When ctx
// is done it stops with ctx's error. It leaves nothing behind.
func Run(ctx context.Context, opts Options, report func(Round) error) (summary []Summary, err error) {
	if opts.Rounds < 1 {
		return nil, fmt.Errorf("%d rounds, want 1 or more", opts.Rounds)
	}
	folder, err := os.MkdirTemp("", "mhc-compare-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	var sides [2]side
	for i, o := range []origin{
		{"baseline", opts.Baseline, opts.BaselineBinary},
		{"candidate", opts.Candidate, opts.CandidateBinary},
	} {
		if sides[i], err = o.side(ctx, opts.Repository, folder); err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return measure(ctx, sides, opts, report)
}

// measure runs the sides in turn.
func measure(ctx context.Context, sides [2]side, opts Options, report func(Round) error) ([]Summary, error) {
	var keys []Key
	times := map[Key]*[2][]float64{}
	for round := range opts.Rounds {
		for k := range sides {
			i := (k + round) % 2
			r, err := sides[i].run(ctx, opts.Arguments)
			if err != nil {
				return nil, err
			}
			r.Round = round
			if err := report(r); err != nil {
				return nil, err
			}
			for _, result := range r.Results {
				key := keyOf(result)
				if times[key] == nil {
					keys = append(keys, key)
					times[key] = &[2][]float64{}
				}
				times[key][i] = append(times[key][i], result.P50)
			}
		}
	}
	summary := make([]Summary, len(keys))
	for j, key := range keys {
		base, cand := times[key][0], times[key][1]
		if len(base) != opts.Rounds || len(cand) != opts.Rounds {
			return nil, fmt.Errorf("%+v was measured %d times by the baseline and %d by the candidate, want %d", key, len(base), len(cand), opts.Rounds)
		}
		speedup := make([]float64, opts.Rounds)
		for i := range speedup {
			speedup[i] = base[i] / cand[i]
		}
		summary[j] = Summary{Key: key, Rounds: opts.Rounds, Baseline: quantiles(base), Candidate: quantiles(cand), Speedup: quantiles(speedup)}
	}
	return summary, nil
}

// run is one process of mhc bench.
func (s side) run(ctx context.Context, arguments []string) (Round, error) {
	cmd := exec.CommandContext(ctx, s.binary, append([]string{"bench", "--output=-"}, arguments...)...)
	cmd.WaitDelay = 10 * time.Second
	out, err := output(cmd)
	if ctx.Err() != nil {
		return Round{}, ctx.Err()
	}
	if err != nil {
		return Round{}, fmt.Errorf("%s: %w", s.name, err)
	}
	r := Round{Side: s.name}
	lines := json.NewDecoder(bytes.NewReader([]byte(out)))
	if err := lines.Decode(&r.Environment); err != nil {
		return Round{}, fmt.Errorf("%s: reading what mhc bench wrote: %w", s.name, err)
	}
	if err := s.verify(r.Environment); err != nil {
		return Round{}, err
	}
	for {
		var result bench.Result
		switch err := lines.Decode(&result); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return Round{}, fmt.Errorf("%s: reading what mhc bench wrote: %w", s.name, err)
		}
		// Backward on the CPU is a difference of two times and too unsteady to be judged.
		if result.By == "mhc" && (result.Pass != "backward" || result.Device != "cpu") {
			r.Results = append(r.Results, result)
		}
	}
}

// verify returns an error unless the program is what was asked for.
func (s side) verify(env bench.Environment) error {
	switch {
	case env.Commit == buildinfo.Unknown || env.Commit == "":
		return fmt.Errorf("%s: %s does not report its commit; build it in a clean clone with go build ./cmd/mhc", s.name, s.binary)
	case env.Modified:
		return fmt.Errorf("%s: %s was built of commit %s with changes", s.name, s.binary, env.Commit)
	case s.commit != "" && env.Commit != s.commit:
		return fmt.Errorf("%s: the program reports commit %s, want %s", s.name, env.Commit, s.commit)
	}
	return nil
}

func quantiles(x []float64) Quantiles {
	sorted := slices.Sorted(slices.Values(x))
	q := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, sorted, nil) }
	return Quantiles{q(0.2), q(0.5), q(0.8)}
}
