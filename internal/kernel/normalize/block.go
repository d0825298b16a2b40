// Package normalize projects blocks of matrices (see package lanes) by
// alternating normalisation of columns and rows, forward and backward.
//
// The backward carries the log-gradient G = dP * P, the gradient by log P. With
// it the reverse of a normalisation Y = P / (s + eps) needs no division and
// stays bounded: from
//
//	dP = (dY - sum(dY * Y)) / (s + eps)
//
// follows, by P = Y * (s + eps),
//
//	G_P = G_Y - Y * sum(G_Y)
//
// the sums running over the line that the step normalised. P itself comes back
// from Y and the sums, which are all that is kept of a step.
//
// At the start a line's maximum is subtracted from it, and so nothing changes if
// a number is added to a whole line of logits: its gradients sum to 0. The one at
// the maximum is set to what the others say. If that entry rules its line, its
// gradient is a small difference of large numbers, while each of the others is
// the product of a small entry and an accurate factor.
package normalize

import (
	"math"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/exp"
	"github.com/mhc-go/mhc/internal/kernel/lanes"
)

// MaxN bounds N, so that no size overflows.
const MaxN = 1 << 15

// Projection says what is done to a matrix.
type Projection struct {
	// N is the number of rows and columns.
	N int
	// Steps is the number of normalisations: those of even number are over
	// columns, the odd ones over rows.
	Steps int
	// Softmax starts from the softmax of the rows plus Eps, else the start is the
	// exponential of the logits less the maximum of their column.
	Softmax bool
	// Eps is added to every sum.
	Eps float64
}

// Chunk is the number of tokens, in whole blocks, that make a piece of work of
// some 15 us forward and 30 backward, which is worth a goroutine.
func (p Projection) Chunk() int {
	const work = 16000 // entries of a block times steps
	return width * max(1, work/(p.N*p.N*(p.Steps+8)))
}

// Block has the memory to project one block after the other.
type Block[T dtype.Float] struct {
	Projection
	k     *kernels[T]
	exp   func(dst, src []T)
	lanes *lanes.Kernels[T]
	// tiny is the smallest entry at the start that the steps are trusted with: it
	// leaves room for an entry to shrink and grow by large factors on its way, and
	// keeps the rounding of the exponential's argument small.
	tiny T
	y    []T // N*N, backward only
	soft []T // N*N, backward from a softmax only
	sums []T // N a step, or N
	wide *wide
	log  *logDomain
}

// New is a Block for p; backward says whether Backward will be called.
func New[T dtype.Float](p Projection, backward bool) *Block[T] {
	tiny := 1e-200
	if single[T]() {
		tiny = 1e-20
	}
	b := &Block[T]{Projection: p, k: active[T](), exp: exp.For[T]().Exp, lanes: lanes.For[T](), tiny: T(tiny)}
	if !backward {
		b.sums = make([]T, p.N*width)
		return b
	}
	b.sums = make([]T, p.Steps*p.N*width)
	b.y = make([]T, p.N*p.N*width)
	if p.Softmax {
		b.soft = make([]T, p.N*p.N*width)
	}
	return b
}

// Forward writes the projection of the block logits to out.
func (b *Block[T]) Forward(out, logits []T) { b.forward(out, logits, math.MaxUint16) }

// forward is Forward of which only the lanes in wanted matter.
func (b *Block[T]) forward(out, logits []T, wanted uint16) {
	low := b.run(out, logits, 0) & wanted
	if low != 0 {
		b.redo(low, out, logits, nil)
	}
}

// Backward writes to grad the gradient by the block logits of the loss whose
// gradient by the projection is dout.
func (b *Block[T]) Backward(grad, logits, dout []T) { b.backward(grad, logits, dout, math.MaxUint16) }

// backward is Backward of which only the lanes in wanted matter.
func (b *Block[T]) backward(grad, logits, dout []T, wanted uint16) {
	low := b.run(b.y, logits, b.N*width) & wanted
	copy(grad, dout)
	b.lanes.Mul(grad, b.y)
	if b.N == 4 && b.k.reverse4 != nil {
		b.k.reverse4(grad, b.y, b.sums, b.Steps)
	} else {
		for s := b.Steps - 1; s >= 0; s-- {
			line, along := b.lines(s)
			b.k.reverse(grad, b.y, b.sums[s*b.N*width:], b.N, line, along)
		}
	}
	line, along := b.start()
	if b.Softmax {
		if b.Eps != 0 {
			b.k.ratio(grad, b.soft, T(b.Eps))
		}
		b.k.reverse(grad, b.soft, b.sums, b.N, line, along)
	}
	b.k.balance(grad, logits, b.N, line, along)
	if low != 0 {
		b.redo(low, grad, logits, dout)
	}
}

// start is the strides of the lines whose maximum is subtracted at the start.
func (p Projection) start() (line, along int) {
	if p.Softmax {
		return p.N, 1
	}
	return 1, p.N
}

// lines is the strides of step s's lines.
func (p Projection) lines(s int) (line, along int) {
	if s%2 == 0 {
		return 1, p.N
	}
	return p.N, 1
}

// run does the start and the steps, and returns the lanes whose result is not to
// be trusted. The sums of a step lie advance numbers behind those of the one
// before it.
func (b *Block[T]) run(p, logits []T, advance int) (low uint16) {
	n, eps := b.N, T(b.Eps)
	line, along := b.start()
	b.k.shift(p, logits, n, line, along)
	b.exp(p, p)
	if b.Softmax {
		b.k.step(p, b.sums, n, line, along, 0)
		copy(b.soft, p) // of no length forward
		low = b.k.floor(p, eps, b.tiny)
	} else {
		low = b.k.floor(p, 0, b.tiny)
	}
	if b.Eps > 1 { // then each step shrinks the entries without end
		low = math.MaxUint16
	}
	if n == 4 && b.k.steps4 != nil {
		b.k.steps4(p, b.sums, b.Steps, advance, eps)
		return low
	}
	for s := range b.Steps {
		line, along := b.lines(s)
		b.k.step(p, b.sums[s*advance:], n, line, along, eps)
	}
	return low
}
