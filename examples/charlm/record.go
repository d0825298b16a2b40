package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"gonum.org/v1/plot/plotter"

	"github.com/mhc-go/mhc/graph"
)

// record is a line of metrics.jsonl, one step.
type record struct {
	Step         int      `json:"step"`
	Loss         float64  `json:"loss"`
	Eval         *float64 `json:"eval,omitempty"` // mean loss over validation batches
	GradNorm     float64  `json:"grad_norm"`
	LearningRate float64  `json:"learning_rate"`
	GainForward  *float64 `json:"gain_forward,omitempty"`
	GainBackward *float64 `json:"gain_backward,omitempty"`
	Tokens       int      `json:"tokens"`
	Milliseconds float64  `json:"milliseconds"`
}

func newRecord(m graph.Metrics, gain *graph.GainWatch) (record, error) {
	r := record{
		Step: m.Step, Loss: m.Loss, GradNorm: m.GradNorm, LearningRate: m.LearningRate,
		Tokens: m.Tokens, Milliseconds: float64(m.Elapsed.Microseconds()) / 1000,
	}
	if !math.IsNaN(m.Eval) {
		r.Eval = &m.Eval
	}
	if gain != nil {
		_, stack, err := gain.Gain()
		if err != nil {
			return r, err
		}
		r.GainForward, r.GainBackward = &stack.Forward, &stack.Backward
	}
	return r, nil
}

// history is a metrics file and what stands in it.
type history struct {
	records []record
	file    *os.File
	encoder *json.Encoder
}

// openHistory opens a metrics file with the records of the first steps steps in
// it, which must be there.
func openHistory(path string, steps int) (*history, error) {
	h := &history{}
	if steps > 0 {
		if err := h.read(path, steps); err != nil {
			return nil, err
		}
	}
	var err error
	if h.file, err = os.Create(path); err != nil {
		return nil, err
	}
	h.encoder = json.NewEncoder(h.file)
	for _, r := range h.records {
		if err := h.encoder.Encode(r); err != nil {
			return nil, errors.Join(err, h.file.Close())
		}
	}
	return h, nil
}

func (h *history) read(path string, steps int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); len(h.records) < steps && lines.Scan(); {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, len(h.records)+1, err)
		}
		h.records = append(h.records, r)
	}
	if len(h.records) < steps {
		return fmt.Errorf("%s: %d steps, want the %d of the checkpoint", path, len(h.records), steps)
	}
	return nil
}

func (h *history) add(r record) error {
	h.records = append(h.records, r)
	return h.encoder.Encode(r)
}

// losses are the training loss, averaged over a few steps around each so that it
// can be read, and the validation loss.
func (h *history) losses() (train, valid plotter.XYs) {
	const around = 5
	for i, r := range h.records {
		sum, n := 0.0, 0.0
		for _, near := range h.records[max(0, i-around):min(len(h.records), i+around+1)] {
			sum += near.Loss
			n++
		}
		train = append(train, plotter.XY{X: float64(r.Step), Y: sum / n})
		if r.Eval != nil {
			valid = append(valid, plotter.XY{X: float64(r.Step), Y: *r.Eval})
		}
	}
	return train, valid
}

// gains are the stack's gains by step; without hyper-connections nothing is
// mixed, and they are 1.
func (h *history) gains() (forward, backward plotter.XYs) {
	for _, r := range h.records {
		f, b := 1.0, 1.0
		if r.GainForward != nil {
			f, b = *r.GainForward, *r.GainBackward
		}
		forward = append(forward, plotter.XY{X: float64(r.Step), Y: f})
		backward = append(backward, plotter.XY{X: float64(r.Step), Y: b})
	}
	return forward, backward
}

// largestGain is the largest gain of any step in either direction.
func (h *history) largestGain() float64 {
	top := 1.0
	for _, r := range h.records {
		if r.GainForward != nil {
			top = max(top, *r.GainForward, *r.GainBackward)
		}
	}
	return top
}

// close closes the file; closed twice it stays closed.
func (h *history) close() error {
	if err := h.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}
