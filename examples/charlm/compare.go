package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/mhc-go/mhc/internal/device"
)

// residuals are what -compare trains, in the order of the plots.
var residuals = []string{"mhc", "hc", "plain"}

// compare trains the same model once a residual, in folders of their own, and
// draws the losses on one plot and the gains on another.
func compare(ctx context.Context, text *corpus, o options, dev *device.Device, out, progress io.Writer) error {
	var losses, gains []curve
	var table []string
	for i, r := range residuals {
		o := o
		o.Residual = r
		c := o.config(text, dev, progress)
		c.folder = filepath.Join(o.Out, r)
		c.resume = o.Resume && isFile(filepath.Join(c.folder, checkpointFile)) // the first may be all that was begun
		fmt.Fprintf(out, "\n%s, %d layers\n", r, 2*c.model.Blocks)
		res, err := train(ctx, text, c)
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		trained, _ := res.history.losses()
		forward, backward := res.history.gains()
		losses = append(losses, curve{name: r, points: trained, color: i})
		gains = append(gains,
			curve{name: r + " forward", points: forward, color: i},
			curve{name: r + " backward", points: backward, color: i, dashed: true})
		table = append(table, fmt.Sprintf("  %-8s %-10.4f %.4f", r, res.valid, res.history.largestGain()))
	}
	unigram, bigram := o.config(text, dev, nil).baselines(text)
	if err := drawPlot(filepath.Join(o.Out, lossFile), "training loss", "nats a character",
		losses, []level{{"bigram", bigram}}); err != nil {
		return err
	}
	if err := drawPlot(filepath.Join(o.Out, gainFile), "Amax gain of the stack", "gain", gains, nil); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nvalidation loss at the end (nats a character), largest gain of the stack\n  %-8s %.4f\n  %-8s %.4f\n",
		"unigram", unigram, "bigram", bigram)
	for _, line := range table {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "\nwritten to %s: %s, %s, and a folder for each\n", o.Out, lossFile, gainFile)
	return nil
}
