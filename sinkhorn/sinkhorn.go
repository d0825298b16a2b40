// Package sinkhorn projects square matrices of logits to doubly stochastic ones
// by alternating normalisation of columns and rows, with the exact gradient of
// the iterations that were run.
package sinkhorn

import (
	"fmt"
	"math"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
)

// Forward writes the projection of every n x n row-major matrix in logits to
// out. Both hold N*n*n numbers; N = 0 is valid. They may be the same slice.
func Forward[T dtype.Float](out, logits []T, n int, cfg Config) error {
	if err := check(n, cfg, len(logits), length{"out", len(out)}); err != nil {
		return err
	}
	nn := n * n
	parallel.Blocks(len(logits)/nn, 64, func(_, lo, hi int) {
		for t := lo; t < hi; t++ {
			p := out[t*nn : (t+1)*nn]
			copy(p, logits[t*nn:])
			forward(p, nil, n, cfg)
		}
	})
	return nil
}

// Backward writes to dlogits the gradient of the loss by the logits, given its
// gradient dout by the projection. Nothing of the forward pass is needed: the
// iterations are run again and reversed one by one in O(T). All three slices
// hold N*n*n numbers; dlogits may be the same slice as dout.
func Backward[T dtype.Float](dlogits, logits, dout []T, n int, cfg Config) error {
	if err := check(n, cfg, len(logits), length{"dlogits", len(dlogits)}, length{"dout", len(dout)}); err != nil {
		return err
	}
	nn := n * n
	parallel.Blocks(len(logits)/nn, 64, func(_, lo, hi int) {
		y, start := make([]T, nn), make([]T, nn)
		sums := make([]T, cfg.Steps()*n)
		for t := lo; t < hi; t++ {
			copy(y, logits[t*nn:])
			copy(start, y)
			forward(y, sums, n, cfg)
			g := dlogits[t*nn : (t+1)*nn]
			for i, d := range dout[t*nn : (t+1)*nn] {
				g[i] = d * y[i]
			}
			reverse(g, y, sums, n, cfg)
			reverseStart(g, start, n, cfg)
		}
	})
	return nil
}

type length struct {
	name string
	got  int
}

func check(n int, cfg Config, logits int, others ...length) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if n < 1 {
		return fmt.Errorf("sinkhorn: n is %d, want 1 or more", n)
	}
	if logits%(n*n) != 0 {
		return fmt.Errorf("sinkhorn: logits has %d numbers, want a multiple of n*n = %d", logits, n*n)
	}
	for _, o := range others {
		if o.got != logits {
			return fmt.Errorf("sinkhorn: %s has %d numbers, want %d as logits", o.name, o.got, logits)
		}
	}
	return nil
}

func strides(step, n int) (line, along int) {
	if step%2 == 0 { // column j is entries j, j+n, ...
		return 1, n
	}
	return n, 1
}

func forward[T dtype.Float](p, sums []T, n int, cfg Config) {
	eps := T(cfg.Eps)
	line, along := n, 1
	if cfg.Start == Exp {
		line, along = 1, n
	}
	for i := range n {
		top := p[i*line]
		for j := range n {
			top = max(top, p[i*line+j*along])
		}
		sum := T(0)
		for j := range n {
			e := T(math.Exp(float64(p[i*line+j*along] - top)))
			p[i*line+j*along] = e
			sum += e
		}
		if cfg.Start == RowSoftmax {
			for j := range n {
				p[i*line+j*along] = p[i*line+j*along]/sum + eps
			}
		}
	}
	for step := range cfg.Steps() {
		line, along := strides(step, n)
		for i := range n {
			sum := eps
			for j := range n {
				sum += p[i*line+j*along]
			}
			if sums != nil {
				sums[step*n+i] = sum
			}
			for j := range n {
				p[i*line+j*along] /= sum
			}
		}
	}
}

func reverse[T dtype.Float](g, y, sums []T, n int, cfg Config) {
	for step := cfg.Steps() - 1; step >= 0; step-- {
		line, along := strides(step, n)
		for i := range n {
			sum := T(0)
			for j := range n {
				sum += g[i*line+j*along]
			}
			s := sums[step*n+i]
			for j := range n {
				k := i*line + j*along
				g[k] -= y[k] * sum
				y[k] *= s
			}
		}
	}
}

func reverseStart[T dtype.Float](g, a []T, n int, cfg Config) {
	if cfg.Start == Exp {
		return
	}
	eps := T(cfg.Eps)
	for i := range n {
		row, g := a[i*n:(i+1)*n], g[i*n:(i+1)*n]
		top := row[0]
		for _, v := range row {
			top = max(top, v)
		}
		sum := T(0)
		for j, v := range row {
			row[j] = T(math.Exp(float64(v - top)))
			sum += row[j]
		}
		total := T(0)
		for j := range row {
			row[j] /= sum
			g[j] *= row[j] / (row[j] + eps)
			total += g[j]
		}
		for j := range row {
			g[j] -= row[j] * total
		}
	}
}
