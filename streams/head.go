package streams

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/around"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/scratch"
	"github.com/mhc-go/mhc/rmsnorm"
)

// HeadInputs are the operands of the way out of a stack, or their gradients. P
// is S or A; K = n*C.
type HeadInputs[S, P dtype.Storage, A dtype.Float] struct {
	X     []S // [N, n, C]
	Phi   []P // [K, n], or [n, K] where the config says so
	B     []A // [n]
	Alpha []A // [1]
}

// HeadKept is what HeadBackward needs of Head: mix [N, n] and r [N], as package
// rmsnorm defines them.
type HeadKept[A dtype.Float] struct{ Mix, R []A }

// What is kept between calls: w, its slopes, the gradient of mix, phi, and who
// walks over the tokens, of type A.
var (
	headWs, headSlopes, headDmixes, headPhis scratch.Buffers
	headWalkers                              sync.Pool
)

// Head computes out [N, C], out[c] = sum_i w[i] x[i,c] with w = sigmoid(alpha *
// mix + b) + pre_eps and mix = r * (X phi), and sets kept. It reads x twice.
func Head[S, P dtype.Storage, A dtype.Float](out []S, kept HeadKept[A], in HeadInputs[S, P, A], d Dims, cfg mhc.HeadConfig) error {
	if err := checkHead[S, P, A](d, cfg, append([]argument{arg("out", out, shapeNC)}, headOperands(kept, in)...)); err != nil {
		return err
	}
	if err := rmsnorm.Forward(kept.Mix, kept.R, in.X, in.Phi, headDims(d, cfg), cfg.RMSEps); err != nil {
		return err
	}
	w, slope := headWeights(kept.Mix, in.B, in.Alpha[0], cfg)
	defer scratch.GiveBack(&headWs, w)
	defer scratch.GiveBack(&headSlopes, slope)
	return Pre(out, in.X, *w, d)
}

// HeadBackward computes the gradients of Head's operands, in their layouts, from
// g [N, C], the gradient of out:
//
//	dw[i]   = sum_c g[c] x[i,c];   s = w - pre_eps;   dlogit = dw s (1-s)
//	B       = sum_t dlogit;        Alpha = sum_t dlogit . mix
//	Phi     = X^T (r alpha dlogit)
//	X[i,c]  = w[i] g[c] + r (alpha dlogit phi^T + toX r x)[i,c],   toX = -(alpha dlogit . mix) / K
//
// where the last two are what [rmsnorm.Backward] says of mix. A nil gradient is
// not computed. Both terms of X are summed before the one rounding. Besides its
// results it takes room for phi in type A and for 3n numbers a token.
func HeadBackward[S, P dtype.Storage, A dtype.Float](grad HeadInputs[S, P, A], in HeadInputs[S, P, A], kept HeadKept[A], g []S, d Dims, cfg mhc.HeadConfig) error {
	args := []argument{
		result("grad.X", grad.X, shapeNnC), result("grad.Phi", grad.Phi, shapeKn),
		result("grad.B", grad.B, shapeB), result("grad.Alpha", grad.Alpha, shape1),
	}
	args = append(args, headOperands(kept, in)...)
	if err := checkHead[S, P, A](d, cfg, append(args, arg("g", g, shapeNC))); err != nil {
		return err
	}
	w, slope := headWeights(kept.Mix, in.B, in.Alpha[0], cfg)
	defer scratch.GiveBack(&headWs, w)
	defer scratch.GiveBack(&headSlopes, slope)
	buffer := scratch.Borrow[A](&headDmixes, len(*w))
	defer scratch.GiveBack(&headDmixes, buffer)
	dmix := *buffer // dw, and then what it makes of mix
	if err := PreBackward(nil, dmix, in.X, *w, g, d); err != nil {
		return err
	}
	db, dalpha := make([]float64, d.Streams), make([]float64, 1)
	for i, dw := range dmix {
		dlogit := float64(dw) * (*slope)[i]
		db[i%d.Streams] += dlogit
		dalpha[0] += dlogit * float64(kept.Mix[i])
		dmix[i] = A(dlogit * float64(in.Alpha[0]))
	}
	dtype.Narrow(grad.B, db)
	dtype.Narrow(grad.Alpha, dalpha)
	if grad.X != nil {
		headToX(grad.X, in, kept, *w, dmix, g, d, cfg)
	}
	if grad.Phi == nil {
		return nil
	}
	return rmsnorm.Backward(nil, grad.Phi, in.X, in.Phi, kept.Mix, kept.R, dmix, headDims(d, cfg))
}

// headToX computes the gradient of x. A stream's row is a combination of the n
// columns of phi in that stream, of x, and of g.
func headToX[S, P dtype.Storage, A dtype.Float](dx []S, in HeadInputs[S, P, A], kept HeadKept[A], w, dmix []A, g []S, d Dims, cfg mhc.HeadConfig) {
	n, channels, k := d.Streams, d.Channels, d.Streams*d.Channels
	buffer := headColumns[P, A](in.Phi, d, cfg)
	defer scratch.GiveBack(&headPhis, buffer)
	columns := *buffer
	own, isOwn := any(dx).([]A)
	width := tileWidth[A](n+3, channels)
	bytes := k * (3*int(unsafe.Sizeof(*new(S))) + (n+2)/4)
	parallel.Blocks(d.Tokens, pieceTokens(d.Tokens, bytes), func(_, lo, hi int) {
		b := scratch.Take[walker[A, A]](&headWalkers)
		defer b.giveBack(&headWalkers)
		b.Around = isOwn && around.Worth(dx)
		defer b.Fence()
		b.list, b.numbers = scratch.Grow(b.list, n+3), scratch.Grow(b.numbers, n+2+3*width+channels)
		rows, out := b.list[:n+2], b.list[n+2:]
		h, x, normed, sum, up := b.numbers[:n+2], b.numbers[n+2:][:width], b.numbers[n+2+width:][:width], b.numbers[n+2+2*width:][:width], b.numbers[n+2+3*width:]
		for t := lo; t < hi; t++ {
			token := t * n
			apart := headFactors(h[:n+1], dmix[token:][:n], kept.Mix[token:][:n], kept.R[t], k)
			up := wide(up, g[t*channels:][:channels])
			for i := range n {
				h[n+1] = w[token+i]
				for c := 0; c < channels; c += width {
					m := min(width, channels-c)
					at := (token+i)*channels + c
					for j := range n {
						rows[j] = columns[j*k+i*channels+c:][:m]
					}
					rows[n], rows[n+1] = wide(x, in.X[at:][:m]), up[c:][:m]
					if apart {
						for l, v := range rows[n] {
							normed[l] = kept.R[t] * v
						}
						rows[n] = normed[:m]
					}
					if isOwn {
						out[0] = own[at:][:m]
						b.Combine(out, h, rows)
					} else {
						out[0] = sum[:m]
						b.Combine(out, h, rows)
						dtype.Narrow(dx[at:], out[0])
					}
				}
			}
		}
	})
}

// headFactors sets h to the factors of phi's columns and of x in a token's
// gradient. Where that of x is near the end of A's range, it is the factor of r x
// instead, and apart is true.
func headFactors[A dtype.Float](h, dmix, mix []A, r A, k int) (apart bool) {
	dot := 0.0
	for j, dm := range dmix {
		h[j] = r * dm
		dot += float64(dm) * float64(mix[j])
	}
	toX := -float64(r) * dot / float64(k)
	size := math.Abs(float64(r) * toX)
	if size > 0x1p-100 && size < 0x1p100 || size == 0 {
		h[len(dmix)] = A(float64(r) * toX)
		return false
	}
	h[len(dmix)] = A(toX)
	return true
}

// wide is s in type A: s itself, or a copy in buffer.
func wide[A dtype.Float, S dtype.Storage](buffer []A, s []S) []A {
	if own, ok := any(s).([]A); ok {
		return own
	}
	return buffer[:dtype.Widen(buffer, s)]
}

// headColumns is phi as [n, K], in type A, in a buffer to give back.
func headColumns[P dtype.Storage, A dtype.Float](phi []P, d Dims, cfg mhc.HeadConfig) *[]A {
	const rows = 64
	n, k := d.Streams, d.Streams*d.Channels
	buffer := scratch.Borrow[A](&headPhis, n*(k+rows))
	columns, tile := (*buffer)[:n*k], (*buffer)[n*k:]
	if cfg.Phi == mhc.PhiMK {
		dtype.Widen(columns, phi)
		return buffer
	}
	for lo := 0; lo < k; lo += rows {
		m := dtype.Widen(tile, phi[lo*n:]) / n
		for j := range n {
			for i := range m {
				columns[j*k+lo+i] = tile[i*n+j]
			}
		}
	}
	return buffer
}

// headWeights computes w, and the derivative of each by its logit, in buffers to
// give back.
func headWeights[A dtype.Float](mix, b []A, alpha A, cfg mhc.HeadConfig) (w *[]A, slope *[]float64) {
	w, slope = scratch.Borrow[A](&headWs, len(mix)), scratch.Borrow[float64](&headSlopes, len(mix))
	for i, v := range mix {
		logit := float64(alpha)*float64(v) + float64(b[i%len(b)])
		s := 1 / (1 + math.Exp(-logit))
		// 1 - s would lose what a sigmoid near 1 leaves.
		(*w)[i], (*slope)[i] = A(s+cfg.PreEps), s/(1+math.Exp(logit))
	}
	return w, slope
}

func headDims(d Dims, cfg mhc.HeadConfig) rmsnorm.Dims {
	return rmsnorm.Dims{Tokens: d.Tokens, K: d.Streams * d.Channels, M: d.Streams, Transposed: cfg.Phi == mhc.PhiMK}
}

func headOperands[S, P dtype.Storage, A dtype.Float](kept HeadKept[A], in HeadInputs[S, P, A]) []argument {
	return []argument{
		arg("in.X", in.X, shapeNnC), arg("in.Phi", in.Phi, shapeKn), arg("in.B", in.B, shapeB), arg("in.Alpha", in.Alpha, shape1),
		arg("kept.Mix", kept.Mix, shapeNn), arg("kept.R", kept.R, shapeN),
	}
}

func checkHead[S, P dtype.Storage, A dtype.Float](d Dims, cfg mhc.HeadConfig, args []argument) error {
	if err := checkTypes[S, A](); err != nil {
		return err
	}
	var p, s, a any = *new(P), *new(S), *new(A)
	_, likeS := p.(S)
	if _, likeA := p.(A); !likeS && !likeA {
		want := fmt.Sprintf("%T", a)
		if _, same := s.(A); !same {
			want = fmt.Sprintf("%T or %s", s, want)
		}
		return fmt.Errorf("streams: phi of %T streams is %T, want %s", s, p, want)
	}
	if err := d.check(); err != nil {
		return err
	}
	if !fits(d.Streams, d.Channels, d.Streams) {
		return fmt.Errorf("streams: a phi of %d*%d*%d numbers is too large", d.Streams, d.Channels, d.Streams)
	}
	if err := d.checkLengths(args...); err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	return nil
}
