package coeffs

import (
	"sync"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/exp"
	"github.com/mhc-go/mhc/internal/kernel/lanes"
	"github.com/mhc-go/mhc/internal/kernel/normalize"
	"github.com/mhc-go/mhc/internal/scratch"
	"github.com/mhc-go/mhc/internal/tier"
	"github.com/mhc-go/mhc/sinkhorn"
)

// block turns mix to coefficients, and their gradients to that of mix, for one
// block of tokens after the other (see package lanes).
type block[A dtype.Float] struct {
	cfg     mhc.Config
	tier    tier.Tier
	n, m    int
	lanes   *lanes.Kernels[A]
	exp     *exp.Kernels[A]
	project *normalize.Block[A]
	// Number j of the logits is scale[j]*mix + shift[j].
	scale, shift []A
	// gain is the factor behind the sigmoids, lift what is added then: 2n numbers.
	gain, lift []A
	// zero is a shift of nothing.
	zero []A

	mix, logits, y []A // M numbers a token

	// For the backward only: the gradient by the logits, zero in a call where there is
	// no upstream gradient; the upstream gradient of h_res; and sums over tokens.
	g, dout  []A
	sum, dot []float64
}

// What is kept between calls: blocks for either direction, the gradient of mix,
// and sums of float64, those of each piece of the tokens.
var (
	forwards, backwards sync.Pool
	dmixes, pieces      scratch.Buffers
)

// borrow returns a block of a pool for a call's parameters, made anew if it was
// made for other settings.
func borrow[A dtype.Float](pool *sync.Pool, bias, alpha []A, cfg mhc.Config, backward bool) *block[A] {
	b := scratch.Take[block[A]](pool)
	if b.project == nil || b.cfg != cfg || b.tier != tier.Active {
		b = newBlock[A](cfg, backward)
	}
	b.shift = bias
	for j := range b.scale {
		b.scale[j] = alpha[group(j, b.n)]
	}
	return b
}

// giveBack ends the use of a block that borrow has returned.
func (b *block[A]) giveBack(pool *sync.Pool) {
	b.shift = nil // which is the caller's
	pool.Put(b)
}

func projection(cfg mhc.Config) normalize.Projection {
	return normalize.Projection{
		N: cfg.Streams, Steps: cfg.Sinkhorn.Steps(), Softmax: cfg.Sinkhorn.Start == sinkhorn.RowSoftmax, Eps: cfg.Sinkhorn.Eps,
	}
}

func newBlock[A dtype.Float](cfg mhc.Config, backward bool) *block[A] {
	n, m := cfg.Streams, cfg.Width()
	size := m * lanes.Width
	b := &block[A]{
		cfg: cfg, tier: tier.Active, n: n, m: m,
		lanes: lanes.For[A](), exp: exp.For[A](), project: normalize.New[A](projection(cfg), backward),
		scale: make([]A, m), gain: make([]A, 2*n), lift: make([]A, 2*n), zero: make([]A, m),
		mix: make([]A, size), logits: make([]A, size), y: make([]A, size),
	}
	if backward {
		b.g, b.dout = make([]A, size), make([]A, n*n*lanes.Width)
		b.sum, b.dot = make([]float64, size), make([]float64, size)
	}
	for j := range n {
		b.gain[j], b.lift[j], b.gain[n+j] = 1, A(cfg.PreEps), A(cfg.PostMult)
	}
	return b
}

// group is the index in alpha of column j: 0 for pre, 1 for post, 2 for res.
func group(j, n int) int { return min(j/n, 2) }

// load packs the mix of rows tokens and computes their logits.
func (b *block[A]) load(mix []A, rows int) {
	b.lanes.Pack(b.mix, mix, rows, b.m)
	b.lanes.Affine(b.logits, b.mix, b.scale, b.shift)
}

// forward computes the coefficients that out has room for of tokens lo to hi.
func (b *block[A]) forward(out Outputs[A], lo, hi int) {
	n, split := b.n, 2*b.n*lanes.Width
	half := split / 2
	for t := lo; t < hi; t += lanes.Width {
		rows := min(lanes.Width, hi-t)
		b.load(out.Mix[t*b.m:], rows)
		if out.Pre != nil || out.Post != nil {
			b.exp.Sigmoid(b.y[:split], b.logits[:split])
			b.lanes.Affine(b.y, b.y, b.gain, b.lift)
		}
		if out.Pre != nil {
			b.lanes.Unpack(out.Pre[t*n:], b.y[:half], rows, n)
		}
		if out.Post != nil {
			b.lanes.Unpack(out.Post[t*n:], b.y[half:split], rows, n)
		}
		if out.Res != nil {
			b.project.Forward(b.y[split:], b.logits[split:])
			b.lanes.Unpack(out.Res[t*n*n:], b.y[split:], rows, n*n)
		}
	}
}

// backward computes dmix of tokens lo to hi and, in total, their sums: the M of the
// bias's gradient, then the 3 of alpha's.
func (b *block[A]) backward(dmix []A, total []float64, up Upstream[A], mix []A, lo, hi int) {
	n, split := b.n, 2*b.n*lanes.Width
	half := split / 2
	clear(b.g)
	clear(b.sum)
	clear(b.dot)
	for t := lo; t < hi; t += lanes.Width {
		rows := min(lanes.Width, hi-t)
		b.load(mix[t*b.m:], rows)
		if up.Pre != nil {
			b.slope(b.g[:half], up.Pre[t*n:], b.logits[:half], b.gain[:n], rows)
		}
		if up.Post != nil {
			b.slope(b.g[half:split], up.Post[t*n:], b.logits[half:split], b.gain[n:], rows)
		}
		if up.Res != nil {
			b.lanes.Pack(b.dout, up.Res[t*n*n:], rows, n*n)
			b.project.Backward(b.g[split:], b.logits[split:], b.dout)
		}
		b.lanes.Accumulate(b.sum, b.dot, b.g, b.mix)
		b.lanes.Affine(b.y, b.g, b.scale, b.zero)
		b.lanes.Unpack(dmix[t*b.m:], b.y, rows, b.m)
	}
	clear(total)
	for j := range b.m {
		for l := j * lanes.Width; l < (j+1)*lanes.Width; l++ {
			total[j] += b.sum[l]
			total[b.m+group(j, n)] += b.dot[l]
		}
	}
}

// slope writes to g the gradient by the logits of gain*sigmoid(logits), given up,
// that by the value, row-major.
func (b *block[A]) slope(g, up, logits, gain []A, rows int) {
	b.lanes.Pack(g, up, rows, b.n)
	b.exp.Slope(b.y[:len(g)], logits)
	b.lanes.Mul(g, b.y)
	b.lanes.Affine(g, g, gain, b.zero)
}
