package streams

import (
	"math"

	"github.com/mhc-go/mhc"
)

// numbers are the operands of every operation, and the gradients of their
// results, as float64.
type numbers struct {
	x, g          []float64 // [N, n, C]
	f, up         []float64 // [N, C]
	hpre, hpost   []float64 // [N, n]
	hres          []float64 // [N, n, n]
	phi, b, alpha []float64 // [n*C, n], [n], [1]
}

// reference computes every result of the package, by its name in compute, with
// one plain loop an equation. With "sizes of" before its name there is the same
// sum with every term positive, for those results of few numbers whose terms may
// cancel: rounding is in proportion to that.
func reference(in numbers, d Dims, apply mhc.Apply, cfg mhc.HeadConfig) map[string][]float64 {
	N, n, C := d.Tokens, d.Streams, d.Channels
	big, one := N*n*C, N*C
	r := map[string][]float64{
		"expand": make([]float64, big), "expand.dx": make([]float64, one),
		"pre": make([]float64, one), "pre.dx": make([]float64, big), "pre.dhpre": make([]float64, N*n),
		"postres": make([]float64, big), "postres.dx": make([]float64, big), "postres.df": make([]float64, one),
		"postres.dhpost": make([]float64, N*n), "postres.dhres": make([]float64, N*n*n),
		"head": make([]float64, one), "head.mix": make([]float64, N*n), "head.r": make([]float64, N),
		"head.dx": make([]float64, big), "head.dphi": make([]float64, n*C*n), "head.db": make([]float64, n), "head.dalpha": make([]float64, 1),
		"sizes of expand.dx": make([]float64, one), "sizes of head.dalpha": make([]float64, 1),
	}
	for t := range N {
		x := func(i, c int) int { return (t*n+i)*C + c }
		y := func(c int) int { return t*C + c }
		v := func(i int) int { return t*n + i }
		w := func(o, i int) int {
			if apply == mhc.ApplyTransposed {
				o, i = i, o
			}
			return (t*n+o)*n + i
		}
		for i := range n {
			for c := range C {
				r["expand"][x(i, c)] = in.f[y(c)]
				r["expand.dx"][y(c)] += in.g[x(i, c)]
				r["sizes of expand.dx"][y(c)] += math.Abs(in.g[x(i, c)])
				r["pre"][y(c)] += in.hpre[v(i)] * in.x[x(i, c)]
				r["pre.dx"][x(i, c)] = in.hpre[v(i)] * in.up[y(c)]
				r["pre.dhpre"][v(i)] += in.up[y(c)] * in.x[x(i, c)]
				r["postres"][x(i, c)] += in.hpost[v(i)] * in.f[y(c)]
				r["postres.df"][y(c)] += in.hpost[v(i)] * in.g[x(i, c)]
				r["postres.dhpost"][v(i)] += in.g[x(i, c)] * in.f[y(c)]
				for j := range n {
					r["postres"][x(i, c)] += in.hres[w(i, j)] * in.x[x(j, c)]
					r["postres.dx"][x(j, c)] += in.hres[w(i, j)] * in.g[x(i, c)]
					r["postres.dhres"][w(i, j)] += in.g[x(i, c)] * in.x[x(j, c)]
				}
			}
		}
		referenceHead(r, in, d, t, cfg)
	}
	return r
}

// referenceHead does Head and its backward for one token, by the chain rule from
// the output back through the sigmoid, the product and the root mean square.
func referenceHead(r map[string][]float64, in numbers, d Dims, t int, cfg mhc.HeadConfig) {
	n, C, K := d.Streams, d.Channels, d.Streams*d.Channels
	x, up := in.x[t*K:][:K], in.up[t*C:][:C]
	phi := func(k, j int) int {
		if cfg.Phi == mhc.PhiMK {
			return j*K + k
		}
		return k*n + j
	}
	mean := 0.0
	for _, v := range x {
		mean += v * v / float64(K)
	}
	root := math.Sqrt(mean + cfg.RMSEps)
	r["head.r"][t] = 1 / root
	dx := r["head.dx"][t*K:][:K]
	droot := 0.0
	for j := range n {
		product := 0.0
		for k, v := range x {
			product += v * in.phi[phi(k, j)]
		}
		mix := product / root
		r["head.mix"][t*n+j] = mix
		s := 1 / (1 + math.Exp(-(in.alpha[0]*mix + in.b[j])))
		w, dw, sizes := s+cfg.PreEps, 0.0, 0.0
		for c := range C {
			r["head"][t*C+c] += w * x[j*C+c]
			dx[j*C+c] += w * up[c]
			dw += up[c] * x[j*C+c]
			sizes += math.Abs(up[c] * x[j*C+c])
		}
		dlogit := dw * s * (1 - s)
		r["head.db"][j] += dlogit
		r["head.dalpha"][0] += dlogit * mix
		r["sizes of head.dalpha"][0] += sizes * s * (1 - s) * math.Abs(mix)
		dproduct := dlogit * in.alpha[0] / root
		droot -= dlogit * in.alpha[0] * product / (root * root)
		for k, v := range x {
			r["head.dphi"][phi(k, j)] += dproduct * v
			dx[k] += dproduct * in.phi[phi(k, j)]
		}
	}
	for k, v := range x {
		dx[k] += droot * v / (float64(K) * root)
	}
}
