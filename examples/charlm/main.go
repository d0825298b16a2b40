// Command charlm trains a small character-level language model whose residual
// stream is mHC, plain, or unconstrained hyper-connections, on real text.
//
//	charlm                      the Go standard library's sources, about two minutes
//	charlm -text FILE           any text
//	charlm -compare             the three residuals on one plot of loss and one of gain
//	charlm -resume              go on from the checkpoint in the output folder
//
// It writes loss.png, gain.png, metrics.jsonl and checkpoint.safetensors to the
// output folder. The same seed gives the same numbers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/cli"
	"github.com/mhc-go/mhc/internal/device"
)

type options struct {
	Text     string     `help:"Train on this file instead of the Go standard library's sources." placeholder:"FILE"`
	Out      string     `help:"The output folder." default:"out/charlm" type:"path" placeholder:"DIR"`
	Residual string     `help:"What carries a token from layer to layer: mhc, hc (unconstrained hyper-connections) or plain." enum:"mhc,hc,plain" default:"mhc"`
	Compare  bool       `help:"Train all three residuals and draw them on one plot of loss and one of gain."`
	Preset   mhc.Preset `help:"The convention of mHC: liger, deepseek-v4 or paper." default:"liger"`
	Streams  int        `help:"Residual streams of mhc and hc." default:"4"`
	Layers   int        `help:"Blocks of attention and MLP (default: 2, and 8 with -compare)."`
	Channels int        `help:"Channels of a stream." default:"64"`
	Heads    int        `help:"Attention heads." default:"4"`
	Context  int        `help:"Characters that a prediction looks at." default:"64"`
	Batch    int        `help:"Windows of the text in a step." default:"16"`
	Steps    int        `help:"Training steps (default: 1200, and 150 for each residual with -compare)."`
	Rate     float64    `help:"Peak learning rate." default:"0.01"`
	Seed     uint64     `help:"Seed of the weights, the batches and the sample." default:"1"`
	Resume   bool       `help:"Continue from the checkpoint in the output folder."`
	Sample   int        `help:"Characters to write at the end." default:"300"`
	Device   string     `help:"Where the mHC operators run: ${devices}." default:"cpu"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "charlm:", err)
	if errors.Is(err, context.Canceled) {
		os.Exit(130)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	var o options
	parser, err := kong.New(&o, kong.Name("charlm"),
		kong.Description("Train a small character-level language model with manifold-constrained hyper-connections."),
		kong.Writers(out, progress),
		kong.Vars{"devices": strings.Join(device.Names(), " or ")})
	if err != nil {
		return err
	}
	if _, err := parser.Parse(cli.LongFlags(args)); err != nil {
		return err
	}
	o.fill()
	if err := o.check(); err != nil {
		return err
	}
	name, bytes, err := readText(o.Text)
	if err != nil {
		return err
	}
	text, err := newCorpus(name, bytes, o.Context)
	if err != nil {
		return err
	}
	dev, err := device.Open(o.Device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	fmt.Fprintf(out, "%s: %d characters, %d different; the last tenth is held out\n", text.name, len(bytes), len(text.alphabet))
	if o.Compare {
		return compare(ctx, text, o, dev, out, progress)
	}
	return single(ctx, text, o.config(text, dev, progress), o.Sample, out)
}

// fill sets the defaults that depend on other flags.
func (o *options) fill() {
	layers, steps := 2, 1200
	if o.Compare {
		layers, steps = 8, 150
	}
	if o.Layers == 0 {
		o.Layers = layers
	}
	if o.Steps == 0 {
		o.Steps = steps
	}
}

func (o *options) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"streams", o.Streams}, {"layers", o.Layers}, {"channels", o.Channels}, {"heads", o.Heads},
		{"context", o.Context}, {"batch", o.Batch}, {"steps", o.Steps},
	} {
		if f.value < 1 {
			return fmt.Errorf("-%s is %d, want 1 or more", f.name, f.value)
		}
	}
	if !(o.Rate > 0) || math.IsInf(o.Rate, 1) {
		return fmt.Errorf("-rate is %v, want a finite number above 0", o.Rate)
	}
	if o.Sample < 0 {
		return fmt.Errorf("-sample is %d, want 0 or more", o.Sample)
	}
	return nil
}

func (o *options) config(text *corpus, dev *device.Device, progress io.Writer) trainConfig {
	return trainConfig{
		model: modelConfig{
			Alphabet: len(text.alphabet), Context: o.Context, Channels: o.Channels, Heads: o.Heads, Blocks: o.Layers,
			Residual: o.Residual, Streams: o.Streams, Preset: o.Preset, Seed: o.Seed,
		},
		batch: o.Batch, steps: o.Steps, rate: o.Rate, evalEvery: max(1, o.Steps/10),
		folder: o.Out, resume: o.Resume, device: dev, progress: progress,
	}
}

// single trains one model, draws its plots and writes a sample.
func single(ctx context.Context, text *corpus, c trainConfig, sampleLength int, out io.Writer) error {
	res, err := train(ctx, text, c)
	if err != nil {
		return err
	}
	unigram, bigram := c.baselines(text)
	trained, valid := res.history.losses()
	if err := drawPlot(filepath.Join(c.folder, lossFile), "loss", "nats a character",
		[]curve{{name: "training", points: trained}, {name: "validation", points: valid, color: 1}}, []level{{"unigram", unigram}, {"bigram", bigram}}); err != nil {
		return err
	}
	forward, backward := res.history.gains()
	if err := drawPlot(filepath.Join(c.folder, gainFile), "Amax gain of the stack", "gain",
		[]curve{{name: "forward", points: forward}, {name: "backward", points: backward, color: 1, dashed: true}}, []level{{"1", 1}}); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nvalidation loss, nats a character (and bits):\n")
	for _, l := range []level{{"unigram", unigram}, {"bigram", bigram}, {c.model.Residual, res.valid}} {
		fmt.Fprintf(out, "  %-8s %.4f (%.3f)\n", l.name, l.value, bits(l.value))
	}
	fmt.Fprintf(out, "largest gain of the stack: %.4f\n", res.history.largestGain())
	if sampleLength > 0 {
		prompt := text.valid[:min(16, c.model.Context)]
		sampled, err := sample(ctx, c.model, res.weights, prompt, sampleLength, c.model.Seed, c.device.Options()...)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\nsample, after %q:\n%s\n", text.decode(prompt), text.decode(sampled[len(prompt):]))
	}
	fmt.Fprintf(out, "\nwritten to %s: %s, %s, %s, %s\n", c.folder, lossFile, gainFile, metricsFile, checkpointFile)
	return nil
}
