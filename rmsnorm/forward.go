package rmsnorm

import (
	"math"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/parallel"
)

// forwardWork is how many multiplications a piece of forward's work has: some 10
// microseconds of them.
const forwardWork = 1 << 19

func forward[S, P dtype.Storage, A dtype.Float](mix, r []A, x []S, phi []P, d Dims, eps float64) {
	if d.Tokens == 0 {
		return
	}
	l := newLayout[A](d)
	w := pack(&l, phi)
	rows := min(64, forwardWork/(d.K*l.columns)/matmul.Rows+4) * matmul.Rows
	parallel.Blocks(d.Tokens, rows, func(_, lo, hi int) {
		buffer := borrow[A](matmul.Rows*l.stride + roundUp(hi-lo, matmul.Rows)*l.columns)
		defer giveBack(buffer)
		tile, product := buffer[:matmul.Rows*l.stride], buffer[matmul.Rows*l.stride:]
		clear(product)
		total := make([]float64, hi-lo)
		ones, squares := []A{1, 1, 1, 1, 1, 1}, make([]A, matmul.Rows)
		for i := range l.blocks() {
			b := l.block(i)
			for t := lo; t < hi; t += matmul.Rows {
				rows := min(matmul.Rows, hi-t)
				load(&l, tile, x, t, rows, b, ones, squares)
				for i, s := range squares[:rows] {
					total[t-lo+i] += float64(s)
				}
				next, step := coming(&l, x, t+matmul.Rows, b.lo)
				if t+matmul.Rows >= hi {
					next, step = coming(&l, x, lo, b.hi)
				}
				l.Dot(product[(t-lo)*l.columns:], tile, w[b.at:], l.stride, l.columns, b.width, next, step)
			}
		}
		for t := lo; t < hi; t++ {
			sum := total[t-lo]
			if !inRange[A](sum, d.K) {
				sum = sumSquares(tile, x[t*d.K:][:d.K])
			}
			rt := A(1 / math.Sqrt(sum/float64(d.K)+eps))
			r[t] = rt
			out := mix[t*d.M:][:d.M]
			for j, v := range product[(t-lo)*l.columns:][:d.M] {
				out[j] = rt * v
			}
		}
	})
}

// inRange says whether a sum of k squares, added up in A, has neither overflowed
// nor lost to underflow what would be seen in its result.
func inRange[A dtype.Float](sum float64, k int) bool {
	return !same[A, float32]() || sum >= 0x1p-90*float64(k) && sum <= math.MaxFloat32
}

// sumSquares adds up squares in float64, for numbers of any size. The buffer
// takes the numbers in A.
func sumSquares[A dtype.Float, S dtype.Storage](buffer []A, x []S) float64 {
	var sum float64
	for len(x) > 0 {
		n := min(len(x), len(buffer))
		dtype.Widen(buffer[:n], x[:n])
		for _, v := range buffer[:n] {
			sum += float64(v) * float64(v)
		}
		x = x[n:]
	}
	return sum
}
