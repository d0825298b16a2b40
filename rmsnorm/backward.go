package rmsnorm

import (
	"sync/atomic"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/around"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/scratch"
)

const (
	// backwardRows is how many tokens a tile has: a strip of theirs, of phi and of
	// dphi share a first-level cache of 32 KiB.
	backwardRows = 8 * matmul.Rows
	// backwardPieces is how many pieces backward's work has, if there is enough
	// of it; a piece is one block of channels of one chunk of the tokens.
	backwardPieces = 64
	// chunkTokens is the largest number of tokens whose gradients of phi are added
	// up one after the other, a tile at a time.
	chunkTokens = 340 * backwardRows
)

func backward[S, P dtype.Storage, A dtype.Float](dx []S, dphi []P, x []S, phi []P, mix, r, dmix []A, d Dims) {
	if d.Tokens == 0 {
		clear(dphi)
		return
	}
	l := newLayout[A](d)
	rows, chunks := chunk(&l)
	var parts *parts[A]
	if dphi != nil {
		parts = newParts(&l, chunks)
		defer scratch.GiveBack(&partials, parts.buffer)
	}
	var w []A
	if dx != nil {
		buffer := pack(&l, phi)
		defer scratch.GiveBack(&packed, buffer)
		w = *buffer
	}
	up := newUpstream(&l, mix, r, dmix)
	defer scratch.GiveBack(&upstreams, up.buffer)
	past := around.Worth(dx) && around.Aligned(dx, d.K)
	parallel.Blocks(l.blocks()*chunks, 1, func(piece, _, _ int) {
		c, i := piece/l.blocks(), l.apart(piece%l.blocks())
		b := l.block(i)
		var part []A
		if dphi != nil {
			part = parts.of(c, b)
			clear(part)
		}
		buffer := scratch.Borrow[A](&tiles, backwardRows*(matmul.Strip+l.stride))
		defer scratch.GiveBack(&tiles, buffer)
		y, out := (*buffer)[:backwardRows*matmul.Strip], (*buffer)[backwardRows*matmul.Strip:]
		hi := min(d.Tokens, (c+1)*rows)
		for t := c * rows; t < hi; t += backwardRows {
			rows := min(backwardRows, hi-t)
			for s := 0; s < b.width; s += matmul.Strip {
				strip := b.strip(s)
				load(&l, y, matmul.Strip, x, t, rows, strip, r[t:], nil)
				if dphi != nil {
					next, step := coming(&l, x, t+backwardRows, strip.lo)
					l.Outer(part[s:], l.stride, y, up.dmix[t*l.columns:], l.columns, rows, next, step)
				}
				if dx != nil {
					expand(&l, dx, out, y, t, rows, b, s, w, up, past)
				}
			}
			if dx != nil {
				store(&l, dx, out, t, rows, b)
			}
		}
		if past {
			around.Fence()
		}
		if dphi != nil && parts.last(i) {
			unpack(&l, dphi, parts.sum(b), b)
		}
	})
}

// parts are the sums of dphi over chunks of the tokens.
type parts[A dtype.Float] struct {
	l      *layout[A]
	chunks int
	buffer *[]A           // [chunks], each a packed dphi
	done   []atomic.Int32 // the number of chunks that are summed, by block
}

func newParts[A dtype.Float](l *layout[A], chunks int) *parts[A] {
	return &parts[A]{l, chunks, scratch.Borrow[A](&partials, chunks*l.packed()), make([]atomic.Int32, l.blocks())}
}

// of is a chunk's part of a block.
func (p *parts[A]) of(chunk int, b block) []A {
	return (*p.buffer)[chunk*p.l.packed()+b.at:][:p.l.columns*p.l.stride]
}

// last says that one chunk more is summed, and whether it is block i's last.
func (p *parts[A]) last(i int) bool { return int(p.done[i].Add(1)) == p.chunks }

// sum adds up the chunks, in their order, in the place of the first.
func (p *parts[A]) sum(b block) []A {
	sum := p.of(0, b)
	for c := 1; c < p.chunks; c++ {
		p.l.Add(sum, p.of(c, b))
	}
	return sum
}

// chunk cuts the tokens into chunks of so many rows, by the sizes alone: as many
// as fill backwardPieces, of no fewer tokens than make a chunk's dphi small
// beside its part of x, and no more than chunkTokens.
func chunk[A dtype.Float](l *layout[A]) (rows, chunks int) {
	rows = l.Tokens * l.blocks() / backwardPieces
	rows = min(max(rows, 4*backwardRows, 4*l.columns), chunkTokens)
	rows = roundUp(rows, backwardRows)
	return rows, (l.Tokens + rows - 1) / rows
}

// upstream is what the gradient of mix says of each token. Tiles hold y = r*x,
// whose size is near 1 whatever that of x is:
//
//	dphi  = sum_t y[t]^T dmix[t]
//	dx[t] = z[t] phi^T + toY[t] * y[t]
//	z     = r * dmix
//	toY   = -(r / K) * sum_j dmix[j] mix[j]
type upstream[A dtype.Float] struct {
	dmix   []A  // [Tokens, columns]
	z      []A  // [Tokens, columns], the tokens padded to a multiple of matmul.Rows
	toY    []A  // [Tokens], padded likewise; what pads tokens holds anything
	buffer *[]A // that the others are in, but for a dmix that needs no padding
}

func newUpstream[A dtype.Float](l *layout[A], mix, r, dmix []A) upstream[A] {
	tokens := roundUp(l.Tokens, matmul.Rows)
	n, copied := tokens*l.columns, 0
	if l.columns != l.M {
		copied = n
	}
	buffer := scratch.Borrow[A](&upstreams, n+tokens+copied)
	up := upstream[A]{dmix, (*buffer)[:n], (*buffer)[n:][:tokens], buffer}
	if copied > 0 {
		up.dmix = (*buffer)[n+tokens:]
	}
	parallel.Blocks(l.Tokens, max(1, 1<<14/l.M), func(_, lo, hi int) {
		for t := lo; t < hi; t++ {
			g, m, rt := dmix[t*l.M:][:l.M], mix[t*l.M:][:l.M], r[t]
			z := up.z[t*l.columns:][:l.columns]
			var sum float64
			for j, v := range g {
				z[j] = rt * v
				sum += float64(v) * float64(m[j])
			}
			clear(z[l.M:]) // what pads phi is 0, and 0 times anything has to be
			up.toY[t] = A(-float64(rt) / float64(l.K) * sum)
			if copied > 0 {
				copy(up.dmix[t*l.columns:], g)
			}
		}
	})
	return up
}

// expand computes one strip of dx, at channel s of the block, for the tokens
// [t, t+rows) of which y is the strip: in dx where direct says so, past the caches
// if past says so, else in the tile out.
func expand[A dtype.Float, S dtype.Storage](l *layout[A], dx []S, out, y []A, t, rows int, b block, s int, w []A, up upstream[A], past bool) {
	kernel := func(dst []A, ldd, first, rows int, past bool) {
		l.Expand(dst, ldd, y[first*matmul.Strip:], up.toY[t+first:], up.z[(t+first)*l.columns:], w[b.at+s:],
			l.stride, l.columns, rows, past)
	}
	to, first, channels := direct(l, dx, t, rows, b)
	if s >= channels {
		first = 0
	}
	if first > 0 {
		kernel(to[s:], l.K, 0, first, past)
	}
	if first < rows {
		kernel(out[first*l.stride+s:], l.stride, first, roundUp(rows-first, matmul.Rows), false)
	}
}

// direct returns the place of a tile in dx, and how many of its tokens and
// channels the kernel can write there: whole kernel tiles, of type A.
func direct[A dtype.Float, S dtype.Storage](l *layout[A], dx []S, t, rows int, b block) (to []A, tokens, channels int) {
	to, ok := any(dx[t*l.K+b.lo:]).([]A)
	if !ok {
		return nil, 0, 0
	}
	return to, rows / matmul.Rows * matmul.Rows, (b.hi - b.lo) / matmul.Strip * matmul.Strip
}

// store writes to dx what expand has left in the tile.
func store[A dtype.Float, S dtype.Storage](l *layout[A], dx []S, tile []A, t, rows int, b block) {
	_, tokens, channels := direct(l, dx, t, rows, b)
	n := b.hi - b.lo
	for i := range rows {
		from := 0
		if i < tokens {
			from = channels
		}
		if from < n {
			dtype.Narrow(dx[(t+i)*l.K+b.lo:][from:n], tile[i*l.stride:][from:n])
		}
	}
}
