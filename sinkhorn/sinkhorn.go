// Package sinkhorn projects square matrices of logits to doubly stochastic ones
// by alternating normalisation of columns and rows, with the exact gradient of
// the iterations that were run (arXiv 2512.24880, eq. 9).
//
// A matrix A becomes P = softmax of its rows + eps, or P = exp(A - shift), and
// then step after step
//
//	P[i,j] /= sum_i P[i,j] + eps      even steps, over columns
//	P[i,j] /= sum_j P[i,j] + eps      odd steps, over rows
//
// # Range
//
// Finite logits give a finite result and a finite gradient, whatever their size.
// With an eps near 0, differences of 46 or more within a line of float32 logits
// (the row of a softmax, else the column) would come near to underflow, and their
// blocks are computed in float64; with differences of 460 or more, or an eps above
// 1, a matrix is computed in the log domain, which is a hundred times slower or more.
//
// A NaN among the logits makes the whole matrix NaN, in both directions, and no
// other matrix. A logit of -Inf is the limit, an entry of 0 with gradient 0; a
// limit that does not exist gives a matrix of NaN: one with a logit of +Inf, or
// with a row or column of nothing but -Inf that no eps saves.
//
// # Determinism
//
// A result depends on the matrix alone: not on its place among the others, nor on
// GOMAXPROCS. Instruction sets differ in rounding.
package sinkhorn

import (
	"fmt"
	"sync"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/lanes"
	"github.com/mhc-go/mhc/internal/kernel/normalize"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/scratch"
	"github.com/mhc-go/mhc/internal/tier"
)

// Forward writes the projection of every n x n row-major matrix in logits to
// out. Both hold N*n*n numbers; N = 0 is valid. They may be the same slice, but
// not overlap in another way. An error names the setting or the argument that is
// wrong, and then nothing is written.
func Forward[T dtype.Float](out, logits []T, n int, cfg Config) error {
	if err := check(n, cfg, len(logits), length{"out", len(out)}); err != nil {
		return err
	}
	p, nn := projection(n, cfg), n*n
	parallel.Blocks(len(logits)/nn, p.Chunk(), func(_, lo, hi int) {
		b := borrow[T](&forwards, p, false)
		defer forwards.Put(b)
		for t := lo; t < hi; t += lanes.Width {
			rows := min(lanes.Width, hi-t)
			b.lanes.Pack(b.logits, logits[t*nn:], rows, nn)
			b.project.Forward(b.result, b.logits)
			b.lanes.Unpack(out[t*nn:], b.result, rows, nn)
		}
	})
	return nil
}

// Backward writes to dlogits the gradient of the loss by the logits, given its
// gradient dout by the projection. Nothing of the forward pass is needed: the
// iterations are run again and reversed one by one, in O(T) time, with 32*T*n
// numbers of memory a goroutine. All three slices hold N*n*n numbers; dlogits may
// be the same slice as logits or dout, but not overlap them in another way. An
// error names the setting or the argument that is wrong, and then nothing is
// written.
func Backward[T dtype.Float](dlogits, logits, dout []T, n int, cfg Config) error {
	if err := check(n, cfg, len(logits), length{"dlogits", len(dlogits)}, length{"dout", len(dout)}); err != nil {
		return err
	}
	p, nn := projection(n, cfg), n*n
	parallel.Blocks(len(logits)/nn, p.Chunk(), func(_, lo, hi int) {
		b := borrow[T](&backwards, p, true)
		defer backwards.Put(b)
		for t := lo; t < hi; t += lanes.Width {
			rows := min(lanes.Width, hi-t)
			b.lanes.Pack(b.logits, logits[t*nn:], rows, nn)
			b.lanes.Pack(b.dout, dout[t*nn:], rows, nn)
			b.project.Backward(b.result, b.logits, b.dout)
			b.lanes.Unpack(dlogits[t*nn:], b.result, rows, nn)
		}
	})
	return nil
}

// block is the memory for one block of matrices.
type block[T dtype.Float] struct {
	tier                 tier.Tier
	lanes                *lanes.Kernels[T]
	project              *normalize.Block[T]
	logits, dout, result []T
}

// What is kept between calls, in either direction.
var forwards, backwards sync.Pool

// borrow returns a block of a pool, made anew if it was made for something else.
func borrow[T dtype.Float](pool *sync.Pool, p normalize.Projection, backward bool) *block[T] {
	b := scratch.Take[block[T]](pool)
	if b.project != nil && b.project.Projection == p && b.tier == tier.Active {
		return b
	}
	size := p.N * p.N * lanes.Width
	*b = block[T]{
		tier: tier.Active, lanes: lanes.For[T](), project: normalize.New[T](p, backward),
		logits: make([]T, size), result: make([]T, size),
	}
	if backward {
		b.dout = make([]T, size)
	}
	return b
}

func projection(n int, cfg Config) normalize.Projection {
	return normalize.Projection{N: n, Steps: cfg.Steps(), Softmax: cfg.Start == RowSoftmax, Eps: cfg.Eps}
}

type length struct {
	name string
	got  int
}

func check(n int, cfg Config, logits int, others ...length) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if n < 1 || n > normalize.MaxN {
		return fmt.Errorf("sinkhorn: n is %d, want 1 to %d", n, normalize.MaxN)
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
