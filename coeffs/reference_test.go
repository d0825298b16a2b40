package coeffs_test

import (
	"math"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/sinkhorn"
)

// problem is the inputs, upstream gradients and results of the definition, in
// float64 and row-major, phi as [K, M].
type problem struct {
	tokens, channels int
	cfg              mhc.Config

	x, phi, b, alpha     []float64
	upPre, upPost, upRes []float64 // nil is zero
	pre, post, res       []float64
	mix, r               []float64
	dx, dphi, db, dalpha []float64
}

// solve computes the results by the definition, token by token.
func (p *problem) solve() {
	n, m, k := p.cfg.Streams, p.cfg.Width(), p.cfg.Streams*p.channels
	p.dx, p.dphi, p.db, p.dalpha = make([]float64, p.tokens*k), make([]float64, k*m), make([]float64, m), make([]float64, 3)
	for t := range p.tokens {
		x := p.x[t*k : (t+1)*k]
		square := 0.0
		for _, v := range x {
			square += v * v / float64(k)
		}
		r := 1 / math.Sqrt(square+p.cfg.RMSEps)
		mix, logits, g := make([]float64, m), make([]float64, m), make([]float64, m)
		for j := range m {
			for i, v := range x {
				mix[j] += r * v * p.phi[i*m+j]
			}
			logits[j] = p.alpha[min(j/n, 2)]*mix[j] + p.b[j]
		}
		for i := range n {
			s := 1 / (1 + math.Exp(-logits[i]))
			p.pre = append(p.pre, s+p.cfg.PreEps)
			if p.upPre != nil {
				g[i] = p.upPre[t*n+i] * s / (1 + math.Exp(logits[i]))
			}
			s = 1 / (1 + math.Exp(-logits[n+i]))
			p.post = append(p.post, p.cfg.PostMult*s)
			if p.upPost != nil {
				g[n+i] = p.upPost[t*n+i] * p.cfg.PostMult * s / (1 + math.Exp(logits[n+i]))
			}
		}
		up := make([]float64, n*n)
		if p.upRes != nil {
			up = p.upRes[t*n*n : (t+1)*n*n]
		}
		res, dres := project(logits[2*n:], up, n, p.cfg.Sinkhorn)
		p.res = append(p.res, res...)
		copy(g[2*n:], dres)
		c := 0.0
		for j := range m {
			p.db[j] += g[j]
			p.dalpha[min(j/n, 2)] += g[j] * mix[j]
			c -= r * r / float64(k) * g[j] * p.alpha[min(j/n, 2)] * mix[j]
		}
		for i, v := range x {
			d := c * v
			for j := range m {
				z := r * g[j] * p.alpha[min(j/n, 2)]
				d += z * p.phi[i*m+j]
				p.dphi[i*m+j] += z * v
			}
			p.dx[t*k+i] = d
		}
		p.mix, p.r = append(p.mix, mix...), append(p.r, r)
	}
}

// project is the projection of the n x n matrix a and the gradient by a, with
// every step kept.
func project(a, dout []float64, n int, cfg sinkhorn.Config) (out, da []float64) {
	at := func(column bool, i, j int) int {
		if column {
			return j*n + i
		}
		return i*n + j
	}
	columns := cfg.Start == sinkhorn.Exp
	p, soft := make([]float64, n*n), make([]float64, n*n)
	tops := make([]int, n)
	for i := range n {
		tops[i] = at(columns, i, 0)
		for j := range n {
			if k := at(columns, i, j); a[k] > a[tops[i]] {
				tops[i] = k
			}
		}
		sum := 0.0
		for j := range n {
			k := at(columns, i, j)
			p[k] = math.Exp(a[k] - a[tops[i]])
			sum += p[k]
		}
		for j := range n {
			k := at(columns, i, j)
			soft[k] = p[k] / sum
			if cfg.Start == sinkhorn.RowSoftmax {
				p[k] = soft[k] + cfg.Eps
			}
		}
	}
	start := append([]float64(nil), p...)
	var ys, divs [][]float64
	for s := range cfg.Steps() {
		y, div := make([]float64, n*n), make([]float64, n)
		for i := range n {
			div[i] = cfg.Eps
			for j := range n {
				div[i] += p[at(s%2 == 0, i, j)]
			}
			for j := range n {
				k := at(s%2 == 0, i, j)
				y[k] = p[k] / div[i]
			}
		}
		p, ys, divs = y, append(ys, y), append(divs, div)
	}
	g := append([]float64(nil), dout...)
	for s := cfg.Steps() - 1; s >= 0; s-- {
		for i := range n {
			dot := 0.0
			for j := range n {
				k := at(s%2 == 0, i, j)
				dot += g[k] * ys[s][k]
			}
			for j := range n {
				k := at(s%2 == 0, i, j)
				g[k] = (g[k] - dot) / divs[s][i]
			}
		}
	}
	da = make([]float64, n*n)
	for i := range n {
		dot := 0.0
		for j := range n {
			k := at(columns, i, j)
			dot += g[k] * soft[k]
		}
		for j := range n {
			k := at(columns, i, j)
			if columns {
				da[k] += g[k] * start[k]
				da[tops[i]] -= g[k] * start[k]
			} else {
				da[k] = soft[k] * (g[k] - dot)
			}
		}
	}
	return p, da
}
