package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	G "gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/internal/device"
)

// The files that a run leaves in its folder.
const (
	checkpointFile = "checkpoint.safetensors"
	metricsFile    = "metrics.jsonl"
	lossFile       = "loss.png"
	gainFile       = "gain.png"
)

// trainConfig says how a model is trained.
type trainConfig struct {
	model     modelConfig
	batch     int // windows a step
	steps     int
	rate      float64 // peak learning rate
	evalEvery int
	folder    string
	resume    bool
	device    *device.Device
	progress  io.Writer
}

// evalBatches is how many validation batches one evaluation takes, and
// finalBatches how many the last.
const (
	evalBatches  = 4
	finalBatches = 16
)

// The batches of validation windows are drawn from streams of their own, the same
// for every run of a seed.
const validStream = 1 << 32

// result is what a run has come to.
type result struct {
	history *history
	valid   float64 // mean validation loss at the end
	weights graph.State
}

// validWindows are the windows of a validation batch.
func (c trainConfig) validWindows(text *corpus, batch int) [][]int {
	return windows(text.valid, c.batch, c.model.Context, c.model.Seed, validStream+uint64(batch))
}

// train trains a model on text and writes the folder's metrics and checkpoint.
// On an error of ctx it has written both for the steps taken.
func train(ctx context.Context, text *corpus, c trainConfig) (res *result, err error) {
	m, err := newModel(c.model, c.batch)
	if err != nil {
		return nil, err
	}
	batches := func(draw func(step int) [][]int) graph.Batches {
		return func(step int) (graph.Batch, error) {
			input, target := m.encode(draw(step))
			return graph.Batch{
				Inputs: map[string]G.Value{"input": input, "target": target},
				Tokens: c.batch * c.model.Context,
			}, nil
		}
	}
	training := batches(func(step int) [][]int {
		return windows(text.train, c.batch, c.model.Context, c.model.Seed, uint64(step))
	})
	valid := batches(func(step int) [][]int { return c.validWindows(text, step) })

	var h *history
	checkpoint := filepath.Join(c.folder, checkpointFile)
	options := []graph.TrainerOption{
		graph.WithSolver(graph.NewAdamW(c.rate)),
		graph.WithSchedule(graph.Cosine(c.rate, c.rate/10, max(1, c.steps/20), c.steps)),
		graph.WithClipNorm(1),
		graph.WithEval(c.evalEvery, evalBatches, valid),
		graph.WithCheckpoint(checkpoint, c.evalEvery),
		graph.WithProgress(c.progress),
		graph.WithSettings(c.settings(text)),
		graph.WithCallback(func(metrics graph.Metrics) error {
			r, err := newRecord(metrics, m.gain)
			if err != nil {
				return err
			}
			return h.add(r)
		}),
	}
	if c.device.Engine != nil {
		options = append(options, graph.WithEngine(c.device.Engine))
	}
	trainer, err := graph.NewTrainer(m.loss, m.params, options...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, trainer.Close()) }()
	if c.resume {
		if err := trainer.Resume(checkpoint); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(c.folder, 0o777); err != nil {
		return nil, err
	}
	if h, err = openHistory(filepath.Join(c.folder, metricsFile), trainer.Step()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := trainer.Run(ctx, c.steps, training); err != nil {
		if ctx.Err() != nil && isFile(checkpoint) {
			err = fmt.Errorf("%w; -resume goes on from %s", err, checkpoint)
		}
		return nil, err
	}
	res = &result{history: h}
	if res.valid, err = trainer.Evaluate(ctx, finalBatches, valid); err != nil {
		return nil, err
	}
	res.weights, err = graph.SaveWeights(m.params)
	return res, err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// settings are what a checkpoint must have been written with to be resumed.
func (c trainConfig) settings(text *corpus) map[string]string {
	m := c.model
	s := map[string]string{
		"text":    fmt.Sprintf("%s, checksum %08x", text.name, text.checksum),
		"context": strconv.Itoa(m.Context), "channels": strconv.Itoa(m.Channels), "heads": strconv.Itoa(m.Heads),
		"layers": strconv.Itoa(m.Blocks), "residual": m.Residual, "seed": strconv.FormatUint(m.Seed, 10),
		"batch": strconv.Itoa(c.batch), "steps": strconv.Itoa(c.steps), "rate": fmt.Sprint(c.rate), "eval-every": strconv.Itoa(c.evalEvery),
	}
	if m.Residual != "plain" {
		s["streams"] = strconv.Itoa(m.Streams)
	}
	if m.Residual == "mhc" {
		s["preset"] = m.Preset.String()
	}
	return s
}

// baselines are the losses of the unigram and the bigram model of the training
// text on the windows of the last evaluation.
func (c trainConfig) baselines(text *corpus) (unigram, bigram float64) {
	var all [][]int
	for i := range finalBatches {
		all = append(all, c.validWindows(text, i)...)
	}
	return countNgrams(text.train, len(text.alphabet)).losses(all)
}
