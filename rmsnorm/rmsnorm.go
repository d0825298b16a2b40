// Package rmsnorm multiplies tokens by a narrow matrix and divides the product
// by the root mean square of the token, in one pass over the tokens (arXiv
// 2512.24880, eq. 14-15):
//
//	r[t]   = 1 / sqrt(mean_k x[t,k]^2 + eps)
//	mix[t] = r[t] * (x[t] phi)
//
// [Forward] and [Backward] take plain row-major slices:
//
//	x, dx       [Tokens, K]   x[t*K+k]
//	phi, dphi   [K, M]        phi[k*M+j], or [M, K] phi[j*K+k] if Transposed
//	mix, dmix   [Tokens, M]   mix[t*M+j]
//	r           [Tokens]      r[t]
//
// x is read once in either direction, in tiles that stay in the cache, by vector
// kernels where the processor has AVX2 or AVX-512. Beside its arguments, Forward
// takes memory for a copy of phi, and Backward for one, two of dmix and partial sums
// of dphi: less than x takes, unless K or N is tiny. It is kept for the next call,
// until the garbage collector takes it.
//
// Results are the same bits whatever GOMAXPROCS is, and what a token gets does
// not depend on the other tokens. Float32 sums are taken over blocks of 512
// channels and then over the blocks: at K = 32768 the error of mix, norm over norm,
// is some 2e-7 (5e-7 without vector kernels), and that of dx and dphi 1e-7. Sums of
// squares neither overflow nor underflow. A NaN in a token makes the token's mix
// NaN, and no other's.
package rmsnorm

import "github.com/mhc-go/mhc/dtype"

// Dims are the sizes of one product.
type Dims struct {
	Tokens int // N, rows of x; 0 is valid
	K      int // length of a token, at least 1
	M      int // columns of the product, at least 1
	// Transposed says that phi is stored as [M, K] instead of [K, M].
	Transposed bool
}

// Forward computes mix [N, M] and r [N] from x [N, K] and phi [K, M] (eq.
// 14-15). A is float64 where x is, else float32; phi is of x's type or of A. The
// results must not overlap the inputs.
//
// eps is finite and not negative. Where it is 0 (or so small that r is past A's
// range), a token of zeros has no finite r, and its mix is NaN.
//
// An error names the argument that does not fit; nothing has been written then.
func Forward[S, P dtype.Storage, A dtype.Float](mix, r []A, x []S, phi []P, d Dims, eps float64) error {
	if err := checkForward(mix, r, x, phi, d, eps); err != nil {
		return err
	}
	forward(mix, r, x, phi, d, eps)
	return nil
}

// Backward computes dx [N, K] and dphi (in phi's layout) from the gradient dmix
// [N, M] of mix, and mix and r as [Forward] gave them:
//
//	z    = r * dmix
//	dphi = x^T z
//	dx   = z phi^T + c x,   c[t] = -(r[t]^2 / K) * sum_j dmix[t,j] mix[t,j]
//
// The gradient of r is not part of it. dx and dphi are assigned, not added to;
// either may be nil, and its work is skipped. dx may be x itself; no other result
// may overlap an argument. Without tokens dphi is zero.
//
// An error names the argument that does not fit; nothing has been written then.
func Backward[S, P dtype.Storage, A dtype.Float](dx []S, dphi []P, x []S, phi []P, mix, r, dmix []A, d Dims) error {
	if err := checkBackward(dx, dphi, x, phi, mix, r, dmix, d); err != nil {
		return err
	}
	backward(dx, dphi, x, phi, mix, r, dmix, d)
	return nil
}
