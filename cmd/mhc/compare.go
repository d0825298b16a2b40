package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/mhc-go/mhc/internal/compare"
)

type compareCommand struct {
	Baseline     string   `placeholder:"REV" help:"Revision to compare with."`
	Candidate    string   `placeholder:"REV" default:"HEAD" help:"Revision to judge (${default})."`
	BaselineBin  string   `placeholder:"FILE" help:"Program mhc to use as the baseline, on a machine without Go."`
	CandidateBin string   `placeholder:"FILE" help:"Program mhc to use as the candidate."`
	Repository   string   `placeholder:"DIR" default:"." help:"A folder of the repository (${default})."`
	Rounds       int      `default:"7" help:"Times that each side runs, in turn (${default})."`
	Gate         float64  `default:"0.95" help:"Least median speed-up: the exit status is 1 below it (${default})."`
	Output       string   `short:"o" placeholder:"FILE" help:"Also write JSON lines to a file, one a round and one a measurement of the summary; - is the standard output."`
	Arguments    []string `arg:"" optional:"" passthrough:"" name:"argument" help:"Arguments of mhc bench, after --, such as coeffs -N 2048."`
}

// Help is the text after the summary of -h.
func (compareCommand) Help() string {
	return `Both revisions are built in checkouts of their own, so the working tree must have no
changes. Every round runs mhc bench once a side, in a process of its own, with the
same arguments and seed. The table has the median time of each side over the rounds,
and the speed-up, which is the baseline's time over the candidate's in the same round:

  mhc compare -baseline main -candidate faster -- coeffs layer -N 2048 -dtype float32

Programs that are given must report the commit that they were built of.`
}

// Run measures and judges.
func (c *compareCommand) Run(ctx context.Context, std streams) (err error) {
	out, closeOut, err := output(c.Output, std.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeOut()) }()
	lines := json.NewEncoder(out)
	if len(c.Arguments) > 0 && c.Arguments[0] == "--" {
		c.Arguments = c.Arguments[1:]
	}
	summary, err := compare.Run(ctx, compare.Options{
		Repository: c.Repository, Baseline: c.Baseline, Candidate: c.Candidate,
		BaselineBinary: c.BaselineBin, CandidateBinary: c.CandidateBin,
		Rounds: c.Rounds, Arguments: c.Arguments,
	}, func(r compare.Round) error {
		fmt.Fprintf(std.err, "round %d of %d: %s, commit %.12s, %s\n", r.Round+1, c.Rounds, r.Side, r.Environment.Commit, r.Environment.Device)
		return lines.Encode(r)
	})
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(std.err, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "operator\tpass\tdtype\tn\tC\tN\tbaseline\tcandidate\tspeed-up\tp20\tp80\t\t")
	regressed := false
	for _, s := range summary {
		if err := lines.Encode(s); err != nil {
			return err
		}
		verdict := ""
		if !(s.Speedup.P50 >= c.Gate) {
			regressed, verdict = true, "SLOWER"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%.3f\t%.3f\t%.3f\t%s\t\n",
			s.Operator, s.Pass, s.Dtype, s.Streams, s.Channels, s.N,
			duration(s.Baseline.P50), duration(s.Candidate.P50), s.Speedup.P50, s.Speedup.P20, s.Speedup.P80, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if regressed {
		return errFailed
	}
	return nil
}

// output is where a command's JSON lines go: nowhere, standard output or a file.
func output(name string, stdout io.Writer) (io.Writer, func() error, error) {
	none := func() error { return nil }
	switch name {
	case "":
		return io.Discard, none, nil
	case "-":
		return stdout, none, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}
