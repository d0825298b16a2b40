package streams

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/around"
	"github.com/mhc-go/mhc/internal/kernel/blend"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/scratch"
)

const (
	// tileBytes is the room that the rows of a tile may take: they are read more
	// than once, and stay in the first level of the cache in between.
	tileBytes = 24 << 10
	// tileAlign is the number of channels that a tile has a multiple of.
	tileAlign = 64
	// grainBytes is the memory traffic of the smallest piece of work that is worth
	// a goroutine: about 30 microseconds from memory, 6 from the caches.
	grainBytes = 300 << 10
	// maxPieces bounds the number of pieces.
	maxPieces = 256
)

// operand is a tensor [N, rows, C].
type operand[S dtype.Storage] struct {
	data []S
	rows int
}

// pass is one walk over the tokens. For each it makes the rows of dst out of
// those of src, and the scalar products of the rows of src with those of other,
// one tile of channels after the other:
//
//	dst[o,c] = sum_i h[o,i] src[i,c]
//	d[i,j]   = sum_c src[i,c] other[j,c]
type pass[S dtype.Storage, A dtype.Float] struct {
	Dims
	src, dst, other []operand[S]
	// weights sets h [rows of dst, rows of src] for a token.
	weights func(h []A, t int)
	// products takes d [rows of src, rows of other] of a token.
	products func(d []A, t int)
}

func (p *pass[S, A]) run() {
	src, dst, other := rows(p.src), rows(p.dst), rows(p.other)
	if p.Tokens == 0 || dst+other == 0 {
		return
	}
	width := tileWidth[S](src+dst+other, p.Channels)
	past := slices.ContainsFunc(p.dst, func(o operand[S]) bool { return around.Worth(o.data) })
	parallel.Blocks(p.Tokens, p.piece(src, dst, other), func(_, lo, hi int) {
		w := scratch.Take[walker[S, A]](&walkers)
		defer w.giveBack(&walkers)
		w.Around = past
		defer w.Fence()
		w.list = scratch.Grow(w.list, src+dst+other)
		from, to, with := w.list[:src], w.list[src:][:dst], w.list[src+dst:]
		w.numbers = scratch.Grow(w.numbers, src*(dst+other))
		h, d := w.numbers[:dst*src], w.numbers[dst*src:]
		for t := lo; t < hi; t++ {
			if dst > 0 {
				p.weights(h, t)
			}
			clear(d)
			for c := 0; c < p.Channels; c += width {
				n := min(width, p.Channels-c)
				p.open(from, p.src, t, c, n)
				if dst > 0 {
					p.open(to, p.dst, t, c, n)
					w.Combine(to, h, from)
				}
				if other > 0 {
					p.open(with, p.other, t, c, n)
					w.Dots(d, from, with)
				}
			}
			if other > 0 {
				p.products(d, t)
			}
		}
	})
}

// walker is what a goroutine needs for a walk.
type walker[S dtype.Storage, A dtype.Float] struct {
	blend.Blender[S, A]
	list    [][]S
	numbers []A
}

var walkers sync.Pool // kept between calls

// giveBack ends the use of a walker.
func (w *walker[S, A]) giveBack(pool *sync.Pool) {
	clear(w.list) // which is memory of the caller's
	pool.Put(w)
}

// open sets list to the rows of operands at a token, n channels from c on.
func (p *pass[S, A]) open(list [][]S, operands []operand[S], t, c, n int) {
	r := 0
	for _, o := range operands {
		at := t*o.rows*p.Channels + c
		for range o.rows {
			list[r] = o.data[at:][:n]
			at += p.Channels
			r++
		}
	}
}

// piece is the number of tokens that make a piece of work. A multiplication
// costs about as much as a quarter of a byte of memory traffic.
func (p *pass[S, A]) piece(src, dst, other int) int {
	bytes := p.Channels * ((src+dst+other)*int(unsafe.Sizeof(*new(S))) + src*(dst+other)/4)
	return pieceTokens(p.Tokens, bytes)
}

// pieceTokens is the number of tokens that make a piece of work, from the cost
// of a token in bytes of memory traffic.
func pieceTokens(tokens, bytes int) int {
	return max(1, grainBytes/bytes, ceilDiv(tokens, maxPieces))
}

// tileWidth is the number of channels of a tile of so many rows. The tiles of a
// row are about as wide as each other.
func tileWidth[S dtype.Storage](rows, channels int) int {
	widest := max(tileAlign, tileBytes/(rows*int(unsafe.Sizeof(*new(S))))/tileAlign*tileAlign)
	tiles := ceilDiv(channels, widest)
	return min(channels, ceilDiv(ceilDiv(channels, tiles), tileAlign)*tileAlign)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func rows[S dtype.Storage](operands []operand[S]) int {
	n := 0
	for _, o := range operands {
		n += o.rows
	}
	return n
}
