package streams

import (
	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
)

// PostRes computes xout [N, n, C], xout[o,c] = sum_i hres[o,i] x[i,c] + hpost[o]
// f[c], from x [N, n, C], f [N, C], hpost [N, n] and hres [N, n, n]. With
// [mhc.ApplyTransposed] hres[i,o] stands for hres[o,i].
func PostRes[S dtype.Storage, A dtype.Float](xout, x, f []S, hpost, hres []A, d Dims, apply mhc.Apply) error {
	if err := checkMix[S, A](d, apply,
		arg("xout", xout, shapeNnC), arg("x", x, shapeNnC), arg("f", f, shapeNC),
		arg("hpost", hpost, shapeNn), arg("hres", hres, shapeNnn)); err != nil {
		return err
	}
	n := d.Streams
	p := pass[S, A]{
		Dims: d,
		src:  []operand[S]{{x, n}, {f, 1}},
		dst:  []operand[S]{{xout, n}},
		weights: func(h []A, t int) {
			res, post := hres[t*n*n:], hpost[t*n:]
			for o := range n {
				for i := range n {
					h[o*(n+1)+i] = res[entry(o, i, n, apply)]
				}
				h[o*(n+1)+n] = post[o]
			}
		},
	}
	p.run()
	return nil
}

// PostResGradients are the results of [PostResBackward]; a nil one is not
// computed.
type PostResGradients[S dtype.Storage, A dtype.Float] struct {
	X     []S // [N, n, C]
	F     []S // [N, C]
	HPost []A // [N, n]
	HRes  []A // [N, n, n]
}

// PostResBackward computes the gradients of PostRes's operands from g [N, n, C],
// the gradient of xout:
//
//	X[i,c]   = sum_o hres[o,i] g[o,c];   F[c]      = sum_o hpost[o] g[o,c]
//	HPost[o] = sum_c g[o,c] f[c];        HRes[o,i] = sum_c g[o,c] x[i,c]
func PostResBackward[S dtype.Storage, A dtype.Float](grad PostResGradients[S, A], x, f []S, hpost, hres []A, g []S, d Dims, apply mhc.Apply) error {
	if err := checkMix[S, A](d, apply,
		result("grad.X", grad.X, shapeNnC), result("grad.F", grad.F, shapeNC),
		result("grad.HPost", grad.HPost, shapeNn), result("grad.HRes", grad.HRes, shapeNnn),
		arg("x", x, shapeNnC), arg("f", f, shapeNC),
		arg("hpost", hpost, shapeNn), arg("hres", hres, shapeNnn), arg("g", g, shapeNnC)); err != nil {
		return err
	}
	n := d.Streams
	p := pass[S, A]{
		Dims: d,
		src:  []operand[S]{{g, n}},
		weights: func(h []A, t int) {
			if grad.X != nil {
				res := hres[t*n*n:]
				for i := range n {
					for o := range n {
						h[i*n+o] = res[entry(o, i, n, apply)]
					}
				}
				h = h[n*n:]
			}
			if grad.F != nil {
				copy(h, hpost[t*n:][:n])
			}
		},
		products: func(d []A, t int) {
			width, post := len(d)/n, 0 // d[o] is HRes[o], if asked for, then HPost[o]
			if grad.HRes != nil {
				post = n
				res := grad.HRes[t*n*n:]
				for o := range n {
					for i := range n {
						res[entry(o, i, n, apply)] = d[o*width+i]
					}
				}
			}
			if grad.HPost != nil {
				for o := range n {
					grad.HPost[t*n+o] = d[o*width+post]
				}
			}
		},
	}
	if grad.X != nil {
		p.dst = append(p.dst, operand[S]{grad.X, n})
	}
	if grad.F != nil {
		p.dst = append(p.dst, operand[S]{grad.F, 1})
	}
	if grad.HRes != nil {
		p.other = append(p.other, operand[S]{x, n})
	}
	if grad.HPost != nil {
		p.other = append(p.other, operand[S]{f, 1})
	}
	p.run()
	return nil
}

// entry is the place in a token's hres of the weight of stream i in stream o.
func entry(o, i, n int, apply mhc.Apply) int {
	if apply == mhc.ApplyTransposed {
		return i*n + o
	}
	return o*n + i
}
