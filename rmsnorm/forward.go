package rmsnorm

import (
	"math"
	"runtime"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/parallel"
)

const (
	// forwardWork is how many multiplications a piece of forward's work has: some 10
	// microseconds of them.
	forwardWork = 1 << 19
	// forwardPieces is how many pieces there are of few tokens, where they have to be
	// shorter: enough to occupy several processors evenly.
	forwardPieces = 16
)

func forward[S, P dtype.Storage, A dtype.Float](mix, r []A, x []S, phi []P, d Dims, eps float64) {
	if d.Tokens == 0 {
		return
	}
	l := newLayout[A](d)
	w := pack(&l, phi)
	defer giveBack(packed, w)
	few := (d.Tokens + forwardPieces*matmul.Rows - 1) / (forwardPieces * matmul.Rows)
	rows := min(64, forwardWork/(d.K*l.columns)/matmul.Rows+4, few) * matmul.Rows
	if pieces := (d.Tokens + rows - 1) / rows; pieces >= min(l.blocks(), runtime.GOMAXPROCS(0)) {
		parallel.Blocks(d.Tokens, rows, func(_, lo, hi int) {
			product := borrow[A](products, roundUp(hi-lo, matmul.Rows)*l.columns)
			defer giveBack(products, product)
			clear(product)
			squares := make([]float64, hi-lo)
			for i := range l.blocks() {
				multiply(&l, product, squares, x, w, lo, hi, l.block(i))
			}
			finish(&l, mix, r, x, product, squares, eps, lo)
		})
		return
	}
	// Too few tokens for the processors: the blocks of channels are the pieces. Their
	// sums are added up in the order in which multiply adds them, to the same bits.
	n := roundUp(d.Tokens, matmul.Rows) * l.columns
	sums, squares := borrow[A](products, l.blocks()*n), make([]float64, l.blocks()*d.Tokens)
	defer giveBack(products, sums)
	clear(sums)
	parallel.Blocks(l.blocks(), 1, func(i, _, _ int) {
		multiply(&l, sums[i*n:][:n], squares[i*d.Tokens:][:d.Tokens], x, w, 0, d.Tokens, l.block(i))
	})
	for i := 1; i < l.blocks(); i++ {
		l.Add(sums[:n], sums[i*n:][:n])
		for t, v := range squares[i*d.Tokens:][:d.Tokens] {
			squares[t] += v
		}
	}
	finish(&l, mix, r, x, sums[:n], squares[:d.Tokens], eps, 0)
}

// multiply adds to product [hi-lo, columns] that of the tokens [lo, hi) with one
// block of phi, and to squares [hi-lo] the sums of squares.
func multiply[A dtype.Float, S dtype.Storage](l *layout[A], product []A, squares []float64, x []S, w []A, lo, hi int, b block) {
	tile := borrow[A](tiles, matmul.Rows*l.stride)
	defer giveBack(tiles, tile)
	ones := [matmul.Rows]A{1, 1, 1, 1, 1, 1}
	var sums [matmul.Rows]A
	own, _ := any(x).([]A)
	for t := lo; t < hi; t += matmul.Rows {
		rows := min(matmul.Rows, hi-t)
		from, ld := tile, l.stride
		if own != nil && rows == matmul.Rows && b.hi-b.lo == b.width { // as it is
			from, ld = own[t*l.K+b.lo:], l.K
			l.Squares(sums[:], from, ld, rows, b.width)
		} else {
			load(l, tile, l.stride, x, t, rows, b, ones[:], sums[:])
		}
		for i, s := range sums[:rows] {
			squares[t-lo+i] += float64(s)
		}
		next, step := coming(l, x, t+matmul.Rows, b.lo)
		if t+matmul.Rows >= hi {
			next, step = coming(l, x, lo, b.hi)
		}
		l.Dot(product[(t-lo)*l.columns:], from, ld, w[b.at:], l.stride, l.columns, b.width, next, step)
	}
}

// finish writes mix and r for the tokens from lo on, one for each sum of squares.
func finish[A dtype.Float, S dtype.Storage](l *layout[A], mix, r []A, x []S, product []A, squares []float64, eps float64, lo int) {
	for i, sum := range squares {
		t := lo + i
		if !inRange[A](sum, l.K) {
			sum = sumSquares[A](x[t*l.K:][:l.K])
		}
		rt := A(1 / math.Sqrt(sum/float64(l.K)+eps))
		r[t] = rt
		out := mix[t*l.M:][:l.M]
		for j, v := range product[i*l.columns:][:l.M] {
			out[j] = rt * v
		}
	}
}

// inRange says whether a sum of k squares, added up in A, has neither overflowed
// nor lost to underflow what would be seen in its result.
func inRange[A dtype.Float](sum float64, k int) bool {
	return !same[A, float32]() || sum >= 0x1p-90*float64(k) && sum <= math.MaxFloat32
}

// sumSquares adds up squares in float64, for numbers of any size.
func sumSquares[A dtype.Float, S dtype.Storage](x []S) float64 {
	var (
		sum    float64
		buffer [256]A
	)
	for len(x) > 0 {
		wide := buffer[:min(len(x), len(buffer))]
		dtype.Widen(wide, x[:len(wide)])
		for _, v := range wide {
			sum += float64(v) * float64(v)
		}
		x = x[len(wide):]
	}
	return sum
}
