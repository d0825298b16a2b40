package rmsnorm

import (
	"math"

	"github.com/mhc-go/mhc/dtype"
)

// referenceForward is the definition in float64.
func referenceForward[S, P dtype.Storage](x []S, phi []P, d Dims, eps float64) (mix, r []float64) {
	xs, w := widened(x), widened(phi)
	mix, r = make([]float64, d.Tokens*d.M), make([]float64, d.Tokens)
	for t := range d.Tokens {
		var sum float64
		for k := range d.K {
			v := xs[t*d.K+k]
			sum += v * v
			for j := range d.M {
				mix[t*d.M+j] += v * w[d.at(k, j)]
			}
		}
		r[t] = 1 / math.Sqrt(sum/float64(d.K)+eps)
		for j := range d.M {
			mix[t*d.M+j] *= r[t]
		}
	}
	return mix, r
}

// referenceBackward is the definition in float64.
func referenceBackward[S, P dtype.Storage](x []S, phi []P, mix, r, dmix []float64, d Dims) (dx, dphi []float64) {
	xs, w := widened(x), widened(phi)
	dx, dphi = make([]float64, d.Tokens*d.K), make([]float64, d.K*d.M)
	for t := range d.Tokens {
		var c float64
		for j := range d.M {
			c += dmix[t*d.M+j] * mix[t*d.M+j]
		}
		c *= -r[t] * r[t] / float64(d.K)
		for k := range d.K {
			v := xs[t*d.K+k]
			s := c * v
			for j := range d.M {
				z := r[t] * dmix[t*d.M+j]
				s += z * w[d.at(k, j)]
				dphi[d.at(k, j)] += z * v
			}
			dx[t*d.K+k] = s
		}
	}
	return dx, dphi
}

// at is where phi[k, j] is stored.
func (d Dims) at(k, j int) int {
	if d.Transposed {
		return j*d.K + k
	}
	return k*d.M + j
}

func widened[S dtype.Storage](s []S) []float64 {
	w := make([]float64, len(s))
	dtype.Widen(w, s)
	return w
}
