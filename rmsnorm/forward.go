package rmsnorm

import (
	"math"
	"runtime"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/scratch"
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
	defer scratch.GiveBack(&packed, w)
	few := (d.Tokens + forwardPieces*matmul.Rows - 1) / (forwardPieces * matmul.Rows)
	rows := min(64, forwardWork/(d.K*l.columns)/matmul.Rows+4, few) * matmul.Rows
	if pieces := (d.Tokens + rows - 1) / rows; pieces >= min(l.blocks(), runtime.GOMAXPROCS(0)) {
		parallel.Blocks(d.Tokens, rows, func(_, lo, hi int) {
			s := newSums(&l, 1, hi-lo)
			defer s.giveBack()
			for i := range l.blocks() {
				multiply(&l, s.product(0), s.squares(0), x, *w, lo, hi, l.block(i))
			}
			finish(&l, mix, r, x, s, eps, lo)
		})
		return
	}
	// Too few tokens for the processors: the blocks of channels are the pieces. Their
	// sums are added up in the order in which multiply adds them, to the same bits.
	s := newSums(&l, l.blocks(), d.Tokens)
	defer s.giveBack()
	parallel.Blocks(l.blocks(), 1, func(i, _, _ int) {
		multiply(&l, s.product(i), s.squares(i), x, *w, 0, d.Tokens, l.block(i))
	})
	for i := 1; i < l.blocks(); i++ {
		l.Add(s.product(0), s.product(i))
		for t, v := range s.squares(i) {
			s.squares(0)[t] += v
		}
	}
	finish(&l, mix, r, x, s, eps, 0)
}

// sums are those over some of the channels of some tokens, one set after another.
type sums[A dtype.Float] struct {
	products       *[]A       // [sets, tokens, columns], the tokens padded to a multiple of matmul.Rows
	square         *[]float64 // [sets, tokens]
	length, tokens int        // of a set of products, and of squares
}

// newSums returns sums of nothing.
func newSums[A dtype.Float](l *layout[A], sets, tokens int) sums[A] {
	n := roundUp(tokens, matmul.Rows) * l.columns
	s := sums[A]{scratch.Borrow[A](&products, sets*n), scratch.Borrow[float64](&squares, sets*tokens), n, tokens}
	clear(*s.products)
	clear(*s.square)
	return s
}

func (s sums[A]) product(set int) []A       { return (*s.products)[set*s.length:][:s.length] }
func (s sums[A]) squares(set int) []float64 { return (*s.square)[set*s.tokens:][:s.tokens] }

func (s sums[A]) giveBack() {
	scratch.GiveBack(&products, s.products)
	scratch.GiveBack(&squares, s.square)
}

// multiply adds to product [hi-lo, columns] that of the tokens [lo, hi) with one
// block of phi, and to squares [hi-lo] the sums of squares.
func multiply[A dtype.Float, S dtype.Storage](l *layout[A], product []A, squares []float64, x []S, w []A, lo, hi int, b block) {
	buffer := scratch.Borrow[A](&tiles, matmul.Rows*(l.stride+2))
	defer scratch.GiveBack(&tiles, buffer)
	tile, ones, sums := (*buffer)[2*matmul.Rows:], (*buffer)[:matmul.Rows], (*buffer)[matmul.Rows:][:matmul.Rows]
	for i := range ones {
		ones[i] = 1
	}
	own, _ := any(x).([]A)
	for t := lo; t < hi; t += matmul.Rows {
		rows := min(matmul.Rows, hi-t)
		next, step := coming(l, x, t+matmul.Rows, b.lo)
		if t+matmul.Rows >= hi {
			next, step = coming(l, x, lo, b.hi)
		}
		to := product[(t-lo)*l.columns:]
		if own != nil && rows == matmul.Rows && b.hi-b.lo == b.width { // as it is
			l.DotSquares(to, sums, own[t*l.K+b.lo:], l.K, w[b.at:], l.stride, l.columns, b.width, next, step)
		} else {
			load(l, tile, l.stride, x, t, rows, b, ones, sums)
			l.Dot(to, tile, l.stride, w[b.at:], l.stride, l.columns, b.width, next, step)
		}
		for i, s := range sums[:rows] {
			squares[t-lo+i] += float64(s)
		}
	}
}

// finish writes mix and r for the tokens from lo on, of the first set of sums.
func finish[A dtype.Float, S dtype.Storage](l *layout[A], mix, r []A, x []S, s sums[A], eps float64, lo int) {
	product := s.product(0)
	for i, sum := range s.squares(0) {
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
