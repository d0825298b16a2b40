package sinkhorn_test

import (
	"math"
	"math/big"

	"github.com/mhc-go/mhc/sinkhorn"
)

// The reference follows the definition in numbers of 160 bits with exponents
// that do not underflow: matrices, not logarithms, every step kept, and the
// gradient of a normalisation by P, not by log P.

const precision = 160

func num(v float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(v) }
func add(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(precision).Add(a, b)
}
func sub(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(precision).Sub(a, b)
}
func mul(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(precision).Mul(a, b)
}
func quo(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(precision).Quo(a, b)
}

// exponential is exp(x): halved until the series is short, then squared.
func exponential(x *big.Float) *big.Float {
	const halvings = 40 // for |x| up to 2^30
	small := new(big.Float).SetPrec(precision+halvings).SetMantExp(x, -halvings)
	sum, term := new(big.Float).SetPrec(precision+halvings).SetInt64(1), new(big.Float).SetPrec(precision+halvings).SetInt64(1)
	for k := int64(1); k <= 16; k++ {
		term.Mul(term, small)
		term.Quo(term, new(big.Float).SetInt64(k))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum.SetPrec(precision)
}

type matrix [][]*big.Float

func newMatrix(n int) matrix {
	m := make(matrix, n)
	for i := range m {
		m[i] = make([]*big.Float, n)
		for j := range m[i] {
			m[i][j] = num(0)
		}
	}
	return m
}

func matrixOf(a []float64, n int) matrix {
	m := newMatrix(n)
	for i := range n {
		for j := range n {
			m[i][j] = num(a[i*n+j])
		}
	}
	return m
}

func (m matrix) float64s() []float64 {
	var a []float64
	for _, row := range m {
		for _, v := range row {
			f, _ := v.Float64()
			a = append(a, f)
		}
	}
	return a
}

func (m matrix) transposed() matrix {
	t := newMatrix(len(m))
	for i, row := range m {
		for j, v := range row {
			t[j][i] = v
		}
	}
	return t
}

// normalized divides each row of m by its sum plus eps, and returns the divisors.
func (m matrix) normalized(eps *big.Float) (matrix, []*big.Float) {
	y, div := newMatrix(len(m)), make([]*big.Float, len(m))
	for i, row := range m {
		div[i] = eps
		for _, v := range row {
			div[i] = add(div[i], v)
		}
		for j, v := range row {
			y[i][j] = quo(v, div[i])
		}
	}
	return y, div
}

// unnormalized is the gradient by P of normalized, given y, div and dy.
func unnormalized(dy, y matrix, div []*big.Float) matrix {
	dp := newMatrix(len(y))
	for i := range y {
		dot := num(0)
		for j := range y {
			dot = add(dot, mul(dy[i][j], y[i][j]))
		}
		for j := range y {
			dp[i][j] = quo(sub(dy[i][j], dot), div[i])
		}
	}
	return dp
}

// reference is the projection of the n x n matrix a, and the gradient by a given
// that by the projection.
func reference(a, dout []float64, n int, cfg sinkhorn.Config) (out, da []float64) {
	eps := num(cfg.Eps)
	logits := matrixOf(a, n)
	shifted, p, soft := newMatrix(n), newMatrix(n), newMatrix(n)
	tops := make([]int, n)
	for i := range n {
		for j := range n {
			top := math.Inf(-1)
			for k := range n {
				if cfg.Start == sinkhorn.RowSoftmax {
					top = max(top, a[i*n+k])
				} else if a[k*n+j] > top {
					top, tops[j] = a[k*n+j], k
				}
			}
			shifted[i][j] = sub(logits[i][j], num(top))
			p[i][j] = exponential(shifted[i][j])
		}
	}
	if cfg.Start == sinkhorn.RowSoftmax {
		soft, _ = p.normalized(num(0))
		for i := range n {
			for j := range n {
				p[i][j] = add(soft[i][j], eps)
			}
		}
	}
	start := p
	ys, divs := make([]matrix, cfg.Steps()), make([][]*big.Float, cfg.Steps())
	for s := range ys {
		if s%2 == 0 {
			p = p.transposed()
		}
		p, divs[s] = p.normalized(eps)
		ys[s] = p
		if s%2 == 0 {
			p = p.transposed()
		}
	}
	out = p.float64s()

	g := matrixOf(dout, n)
	for s := len(ys) - 1; s >= 0; s-- {
		if s%2 == 0 {
			g = unnormalized(g.transposed(), ys[s], divs[s]).transposed()
		} else {
			g = unnormalized(g, ys[s], divs[s])
		}
	}
	d := newMatrix(n)
	for i := range n {
		dot := num(0)
		for j := range n {
			dot = add(dot, mul(g[i][j], soft[i][j]))
		}
		for j := range n {
			if cfg.Start == sinkhorn.RowSoftmax {
				d[i][j] = mul(soft[i][j], sub(g[i][j], dot))
			} else {
				e := mul(g[i][j], start[i][j])
				d[i][j] = add(d[i][j], e)
				d[tops[j]][j] = sub(d[tops[j]][j], e)
			}
		}
	}
	return out, d.float64s()
}
