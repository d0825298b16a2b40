package rmsnorm

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/parallel"
)

const (
	// backwardRows is how many tokens a tile has.
	backwardRows = 8 * matmul.Rows
	// backwardPieces is how many pieces backward's work has, if there is enough
	// of it; a piece is one block of channels of one chunk of the tokens.
	backwardPieces = 64
	// chunkTokens is the largest number of tokens whose float32 gradients of phi
	// are added up one after the other.
	chunkTokens = 1 << 15
)

func backward[S, P dtype.Storage, A dtype.Float](dx []S, dphi []P, x []S, phi []P, mix, r, dmix []A, d Dims) {
	if d.Tokens == 0 {
		clear(dphi)
		return
	}
	l := newLayout[A](d)
	var w, toX []A
	if dx != nil {
		w, toX = pack(&l, phi), throughNorm(mix, dmix, d)
	}
	rows, chunks := chunk(&l)
	var partial []A // [chunks], each a packed dphi
	if dphi != nil {
		partial = make([]A, chunks*l.packed())
	}
	parallel.Blocks(l.blocks()*chunks, 1, func(piece, _, _ int) {
		c, b := piece/l.blocks(), l.block(piece%l.blocks())
		lo, hi := c*rows, min(d.Tokens, (c+1)*rows)
		tile := make([]A, backwardRows*l.stride)
		g := make([]A, backwardRows*l.columns)
		perToken := make([]A, 3*backwardRows)
		coef, factor, squares := perToken[:backwardRows], perToken[backwardRows:2*backwardRows], perToken[2*backwardRows:]
		for t := lo; t < hi; t += backwardRows {
			rows := min(backwardRows, hi-t)
			copy(factor, r[t:][:rows])
			load(&l, tile, x, t, rows, b, factor, squares)
			for i := range rows {
				copy(g[i*l.columns:], dmix[(t+i)*d.M:][:d.M])
			}
			if dphi != nil {
				for s := 0; s < b.width; s += matmul.Strip {
					ahead := min((t+backwardRows)*d.K+b.lo+s, len(x)-1)
					l.Outer(partial[c*l.packed()+b.at+s:], b.width, tile[s:], l.stride, g, l.columns, rows,
						(*byte)(unsafe.Pointer(&x[ahead])), d.K*int(unsafe.Sizeof(x[0])))
				}
			}
			if dx != nil {
				copy(coef, toX[t:][:rows])
				expand(&l, dx, tile, t, rows, b, coef, factor, g, w)
			}
		}
	})
	if dphi == nil {
		return
	}
	parallel.Blocks(l.blocks(), 1, func(i, _, _ int) {
		b := l.block(i)
		sum := partial[b.at:][:l.columns*b.width]
		for c := 1; c < chunks; c++ {
			for i, v := range partial[c*l.packed()+b.at:][:len(sum)] {
				sum[i] += v
			}
		}
		unpack(&l, dphi, sum, b)
	})
}

// expand writes one block of dx for the tokens [t, t+rows): straight from the
// kernel where dx holds numbers of type A and the kernel's tile is full, else by
// way of the tile of x, which is lost.
func expand[A dtype.Float, S dtype.Storage](l *layout[A], dx []S, tile []A, t, rows int, b block, coef, factor, g, w []A) {
	n := b.hi - b.lo
	direct, ok := any(dx[t*l.K+b.lo:]).([]A)
	var fullRows, fullCols int
	if ok {
		fullRows, fullCols = rows/matmul.Rows*matmul.Rows, n/matmul.Strip*matmul.Strip
	}
	for s := 0; s < b.width; s += matmul.Strip {
		first := 0
		if s < fullCols && fullRows > 0 {
			first = fullRows
			l.Expand(direct[s:], l.K, tile[s:], l.stride, coef, factor, g, w[b.at+s:], l.columns, b.width, first)
		}
		if first < rows {
			in := tile[first*l.stride+s:]
			l.Expand(in, l.stride, in, l.stride, coef[first:], factor[first:], g[first*l.columns:], w[b.at+s:],
				l.columns, b.width, roundUp(rows-first, matmul.Rows))
		}
	}
	for i := range rows {
		from := 0
		if i < fullRows {
			from = fullCols
		}
		dtype.Narrow(dx[(t+i)*l.K+b.lo:][from:n], tile[i*l.stride:][from:n])
	}
}

// throughNorm computes the factor of r*x in dx/r, the way of the gradient through r:
//
//	dx[t] = r[t] * (dmix[t] phi^T + toX[t] * (r[t] x[t])),   toX[t] = -(sum_j dmix[t,j] mix[t,j]) / K
func throughNorm[A dtype.Float](mix, dmix []A, d Dims) []A {
	toX := make([]A, d.Tokens)
	parallel.Blocks(d.Tokens, max(1, forwardWork/16/d.M), func(_, lo, hi int) {
		for t := lo; t < hi; t++ {
			var sum float64
			g := dmix[t*d.M:][:d.M]
			for j, v := range mix[t*d.M:][:d.M] {
				sum += float64(v) * float64(g[j])
			}
			toX[t] = A(-sum / float64(d.K))
		}
	})
	return toX
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
