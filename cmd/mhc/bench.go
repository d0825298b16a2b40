package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/bench"
	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/tier"
	"github.com/mhc-go/mhc/op"
)

type benchCommand struct {
	Operators  []string      `arg:"" optional:"" enum:"${operators}" name:"operator" help:"What to measure, all by default: ${operators}."`
	Streams    []int         `short:"n" default:"4" help:"Residual streams n, or several as in 2,4,8."`
	Channels   []int         `short:"C" default:"256" help:"Channels C of a stream."`
	Tokens     []int         `short:"N" default:"512" help:"Tokens N."`
	Dtype      []string      `enum:"float32,float64,bfloat16,float16" default:"float32" help:"Of the streams: float32, float64, bfloat16 or float16."`
	WidePhi    bool          `help:"Keep phi in float32 beside 16-bit streams, as DeepSeek V4 does."`
	T          int           `short:"T" name:"tmax" default:"20" help:"Sinkhorn iterations T."`
	Preset     mhc.Preset    `default:"liger" help:"Convention: liger, deepseek-v4 or paper."`
	Peer       string        `enum:"none,gorgonia" default:"none" help:"Also measure the same computation composed of Gorgonia's own operators, in turn, and compare the results: none or gorgonia."`
	Device     string        `default:"cpu" help:"Where the operators run: ${devices}."`
	Rounds     int           `default:"7" help:"Rounds that the quantiles are taken over."`
	RoundTime  time.Duration `default:"50ms" help:"Least time of a measurement in a round, on the CPU."`
	Seed       uint64        `default:"1" help:"Seed of the inputs."`
	Yardsticks bool          `help:"Measure the coefficients, PostRes and Sinkhorn in float32 on the CPU against what bounds them, instead of operators: of -n, -C, -N, -tmax, the first of each."`

	Output string `short:"o" placeholder:"FILE" help:"Also write JSON lines to a file, the first of them on the build and the machine; - is the standard output."`
}

// Help is the text after the summary of -h.
func (benchCommand) Help() string {
	return `On the CPU every operator runs in a graph of its own on a TapeMachine: forward, and
full, which is forward and backward as one; backward is the difference of the two.
On a GPU it runs on device memory with a cold cache, between CUDA events, 100 times a
round, and backward by itself too.

The table has the median of a run and the range from the 20th to the 80th percentile
of the rounds, the time of copying as many bytes as must be read and written (the
floor) and the median in units of it, the bytes that a run allocates, and the peak:
those and the tensors that it is given. For a GPU it also has the number of kernels,
the sum of their times, and the largest error of a result against float64. The sum is
from the records of CUPTI, of runs that are traced after the others; libcupti is looked
for by the loader, and under CUDA_HOME, CUDA_PATH and /usr/local/cuda. Without it the sum
is taken between events around each kernel, which add 2 to 3 us to each.

With -peer gorgonia the exit status is 1 if the two sides' results differ.

With -yardsticks the rows are ratios to reading x, copying it, the multiplications
alone, Gorgonia's own operators, portable code, one worker, and the best number of
tokens from 64 to 65536: both sides run in turn in every round, by packages on slices
and in a graph on an op.Arena. Cold rows come after a write of more than the caches.`
}

// Run measures every operator at every size.
func (c *benchCommand) Run(std streams) (err error) {
	if err := tier.Refused(); err != nil {
		return err
	}
	dev, err := device.Open(c.Device)
	if err != nil {
		return err
	}
	defer dev.Close()
	out, closeOut, err := output(c.Output, std.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeOut()) }()
	lines := json.NewEncoder(out)
	if err := lines.Encode(bench.NewEnvironment(dev, c.Preset.String(), c.Seed)); err != nil {
		return err
	}
	if c.Yardsticks {
		return c.yardsticks(lines, std.err)
	}
	names := c.Operators
	if len(names) == 0 {
		names = bench.Names()
	}
	table := newBenchTable(std.err, c.Peer != "none", dev.Engine != nil)
	agree := true
	for _, p := range c.problems() {
		for _, name := range names {
			results, err := bench.Measure(name, p, bench.Options{
				Device: dev, Rounds: c.Rounds, RoundTime: c.RoundTime, Peers: c.Peer == "gorgonia",
			})
			if err != nil {
				return err
			}
			for _, r := range results {
				if err := lines.Encode(r); err != nil {
					return err
				}
				if !(r.Difference <= bench.Tolerance(p.Dtype)) {
					agree = false
				}
			}
			if err := table.add(results); err != nil {
				return err
			}
		}
	}
	if !agree {
		fmt.Fprintln(std.err, "mhc: the two sides' results differ")
		return errFailed
	}
	return nil
}

// yardstickTokens are the numbers of tokens whose times are compared.
var yardstickTokens = []int{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}

func (c *benchCommand) yardsticks(lines *json.Encoder, w io.Writer) error {
	if c.Device != "cpu" || len(c.Operators) > 0 || c.Peer != "none" {
		return errors.New("-yardsticks measures what it measures on the CPU, and takes no operators, -device or -peer")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "what\tby\tagainst\tcaches\tn\tC\tN\ttime\tyardstick\tratio\tp20\tp80\t")
	caches := map[bool]string{true: "cold", false: "warm"}
	err := bench.Yardsticks(c.problems()[0], yardstickTokens, bench.Options{Rounds: c.Rounds, RoundTime: c.RoundTime}, func(r bench.Comparison) error {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%.2f\t%.2f\t%.2f\t\n",
			r.What, r.By, r.Against, caches[r.Cold], r.Streams, r.Channels, r.N, duration(r.Time), duration(r.Yardstick), r.P50, r.P20, r.P80)
		return lines.Encode(r)
	})
	return errors.Join(err, table.Flush())
}

var dtypes = map[string]tensor.Dtype{
	"float32": tensor.Float32, "float64": tensor.Float64, "bfloat16": op.BFloat16, "float16": op.Float16,
}

// problems are all combinations of the sizes.
func (c *benchCommand) problems() []bench.Problem {
	var all []bench.Problem
	for _, dtype := range c.Dtype {
		for _, n := range c.Streams {
			cfg := c.Preset.Config(n)
			cfg.Sinkhorn.Iterations = c.T
			for _, channels := range c.Channels {
				for _, tokens := range c.Tokens {
					all = append(all, bench.Problem{Config: cfg, Channels: channels, Tokens: tokens, Dtype: dtypes[dtype], WidePhi: c.WidePhi, Seed: c.Seed})
				}
			}
		}
	}
	return all
}

// benchTable writes results as they come, in columns of a set width.
type benchTable struct {
	out         *tabwriter.Writer
	peers, cuda bool
}

func newBenchTable(w io.Writer, peers, cuda bool) *benchTable {
	t := &benchTable{tabwriter.NewWriter(w, 10, 0, 2, ' ', tabwriter.AlignRight), peers, cuda}
	fmt.Fprint(t.out, "operator\tpass\tdtype\tn\tC\tN\tmedian\tp20\tp80\tfloor\t/floor\tallocated\tpeak\t")
	if peers {
		fmt.Fprint(t.out, "gorgonia\tratio\tits peak\tdifference\t")
	}
	if cuda {
		fmt.Fprint(t.out, "launches\tkernels\tby\terror\t")
	}
	fmt.Fprintln(t.out)
	return t
}

// add writes the rows of one operator: mhc's three passes, then the peer's.
func (t *benchTable) add(results []bench.Result) error {
	const passes = 3
	for i, r := range results[:passes] {
		fmt.Fprintf(t.out, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%.2f\t%s\t%s\t",
			r.Operator, r.Pass, r.Dtype, r.Streams, r.Channels, r.N,
			duration(r.P50), duration(r.P20), duration(r.P80), duration(r.Floor), r.OverFloor(), size(r.Allocated), size(r.Peak))
		if t.peers {
			peer := results[passes+i]
			fmt.Fprintf(t.out, "%s\t%.1f\t%s\t%.0e\t", duration(peer.P50), r.Ratio, size(peer.Peak), r.Difference)
		}
		if t.cuda {
			fmt.Fprintf(t.out, "%d\t%s\t%s\t", r.Launches, duration(r.Kernels), r.KernelsBy)
			if len(r.Errors) > 0 {
				fmt.Fprintf(t.out, "%.1e", slices.Max(slices.Collect(maps.Values(r.Errors))))
			}
			fmt.Fprint(t.out, "\t")
		}
		fmt.Fprintln(t.out)
	}
	return t.out.Flush()
}

// duration shows microseconds.
func duration(us float64) string {
	if us < 1000 {
		return fmt.Sprintf("%.1fus", us)
	}
	return fmt.Sprintf("%.2fms", us/1000)
}

// size shows bytes; 0 is one that is not known.
func size(bytes int64) string {
	switch {
	case bytes == 0:
		return "-"
	case bytes < 1<<20:
		return fmt.Sprintf("%.1fKiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%.2fMiB", float64(bytes)/(1<<20))
}
