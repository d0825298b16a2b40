// Package rmsnorm multiplies tokens by a matrix and divides the product by the
// root mean square of the token, in one pass over the tokens (arXiv 2512.24880,
// eq. 14-15):
//
//	r[t]   = 1 / sqrt(mean_k x[t,k]^2 + eps)
//	mix[t] = r[t] * (x[t] phi)
package rmsnorm

import (
	"fmt"
	"math"

	"github.com/mhc-go/mhc/dtype"
)

// Dims are the sizes of one product.
type Dims struct {
	Tokens int // N, rows of x; 0 is valid
	K      int // length of a token
	M      int // columns of the product
	// Transposed says that phi is stored as [M, K] instead of [K, M].
	Transposed bool
}

// Forward computes mix [N, M] and r [N] from x [N, K] and phi [K, M]. A is
// float64 where x is, else float32; phi is of x's type or of A.
func Forward[S, P dtype.Storage, A dtype.Float](mix, r []A, x []S, phi []P, d Dims, eps float64) error {
	if len(x) != d.Tokens*d.K || len(phi) != d.K*d.M || len(mix) != d.Tokens*d.M || len(r) != d.Tokens {
		return fmt.Errorf("rmsnorm: lengths") // replaced by the real checks
	}
	xr, w := make([]A, d.K), make([]A, d.K*d.M)
	dtype.Widen(w, phi)
	for t := range d.Tokens {
		dtype.Widen(xr, x[t*d.K:(t+1)*d.K])
		var sum float64
		acc := make([]float64, d.M)
		for k, v := range xr {
			sum += float64(v) * float64(v)
			for j := range acc {
				acc[j] += float64(v) * float64(w[d.at(k, j)])
			}
		}
		rt := 1 / math.Sqrt(sum/float64(d.K)+eps)
		r[t] = A(rt)
		for j, v := range acc {
			mix[t*d.M+j] = A(rt * v)
		}
	}
	return nil
}

// Backward computes dx [N, K] and dphi (phi's layout) from the gradient dmix
// [N, M] by mix, and mix and r as Forward gave them. Either result may be nil,
// and its work is skipped.
//
//	z = r * dmix;  dphi = x^T z;  dx = z phi^T + c x,  c = -(r^2/K) sum_j dmix_j mix_j
func Backward[S, P dtype.Storage, A dtype.Float](dx []S, dphi []P, x []S, phi []P, mix, r, dmix []A, d Dims) error {
	w, dw := make([]A, d.K*d.M), make([]float64, d.K*d.M)
	dtype.Widen(w, phi)
	xr, dr := make([]A, d.K), make([]A, d.K)
	for t := range d.Tokens {
		dtype.Widen(xr, x[t*d.K:(t+1)*d.K])
		var c float64
		for j := range d.M {
			c += float64(dmix[t*d.M+j]) * float64(mix[t*d.M+j])
		}
		rt := float64(r[t])
		c *= -rt * rt / float64(d.K)
		for k, v := range xr {
			s := c * float64(v)
			for j := range d.M {
				z := rt * float64(dmix[t*d.M+j])
				s += z * float64(w[d.at(k, j)])
				dw[d.at(k, j)] += z * float64(v)
			}
			dr[k] = A(s)
		}
		if dx != nil {
			dtype.Narrow(dx[t*d.K:(t+1)*d.K], dr)
		}
	}
	if dphi != nil {
		dtype.Narrow(dphi, dw)
	}
	return nil
}

func (d Dims) at(k, j int) int {
	if d.Transposed {
		return j*d.K + k
	}
	return k*d.M + j
}
