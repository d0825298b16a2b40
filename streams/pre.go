package streams

import "github.com/mhc-go/mhc/dtype"

// Pre computes xin [N, C], xin[c] = sum_i hpre[i] x[i,c], from x [N, n, C] and
// hpre [N, n].
func Pre[S dtype.Storage, A dtype.Float](xin, x []S, hpre []A, d Dims) error {
	if err := check[S, A](d, arg("xin", xin, shapeNC), arg("x", x, shapeNnC), arg("hpre", hpre, shapeNn)); err != nil {
		return err
	}
	n := d.Streams
	p := pass[S, A]{
		Dims:    d,
		src:     []operand[S]{{x, n}},
		dst:     []operand[S]{{xin, 1}},
		weights: func(h []A, t int) { copy(h, hpre[t*n:]) },
	}
	p.run()
	return nil
}

// PreBackward computes dx [N, n, C] and dhpre [N, n] from g [N, C], the gradient
// of xin:
//
//	dx[i,c] = hpre[i] g[c];   dhpre[i] = sum_c g[c] x[i,c]
//
// Either result may be nil, and its work is skipped.
func PreBackward[S dtype.Storage, A dtype.Float](dx []S, dhpre []A, x []S, hpre []A, g []S, d Dims) error {
	if err := check[S, A](d,
		result("dx", dx, shapeNnC), result("dhpre", dhpre, shapeNn),
		arg("x", x, shapeNnC), arg("hpre", hpre, shapeNn), arg("g", g, shapeNC)); err != nil {
		return err
	}
	n := d.Streams
	p := pass[S, A]{
		Dims:     d,
		src:      []operand[S]{{g, 1}},
		weights:  func(h []A, t int) { copy(h, hpre[t*n:]) },
		products: func(d []A, t int) { copy(dhpre[t*n:], d) },
	}
	if dx != nil {
		p.dst = []operand[S]{{dx, n}}
	}
	if dhpre != nil {
		p.other = []operand[S]{{x, n}}
	}
	p.run()
	return nil
}
