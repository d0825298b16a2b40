// Command exp generates the kernels of package exp.
//
// exp(x) is 2^k * exp(r) with k the integer nearest to x/log(2), and
// exp(r) = 1 + r + r^2 * p(r), p the polynomial that interpolates at the Chebyshev
// nodes of |r| <= log(2)/2, of degree 5 in float32 and 9 in float64: 0.006 and 0.07
// units in the last place from the function, so what is left is rounding. The
// arguments are bounded first, to where the type has more than 0 and +Inf; in AVX2
// the power is applied in two halves, so that subnormal results are rounded once.
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/mhc-go/mhc/_asm/vector"
)

// constants are 64 bytes of copies of each, to be operands of any target.
type constants struct {
	one, half, log2e, ln2, ln2Low, sign, most, least Mem
	bias                                             Mem   // that, added to k, has the exponent's bits of 2^k lowest
	poly                                             []Mem // from the highest power on to that of r^1
}

func newConstants(elem int) constants {
	if elem == 4 {
		single := func(name string, v float64) Mem { return words(name+"32", uint64(math.Float32bits(float32(v))), 4) }
		return constants{
			one: single("one", 1), half: single("half", 0.5), sign: words("sign32", 1<<31, 4),
			most: single("most", 89), least: single("least", -104),
			log2e: single("log2e", math.Log2E), ln2: single("ln2", 0.6931471824645996), ln2Low: single("ln2Low", -1.904654299957768e-09),
			bias: words("bias32", 127, 4),
			poly: []Mem{
				single("p5", 0.00019890991097781807), single("p4", 0.0013933649752289057), single("p3", 0.00833331048488617),
				single("p2", 0.04166646674275398), single("p1", 0.1666666716337204),
			},
		}
	}
	double := func(name string, v float64) Mem { return words(name+"64", math.Float64bits(v), 8) }
	return constants{
		one: double("one", 1), half: double("half", 0.5), sign: words("sign64", 1<<63, 8),
		most: double("most", 710), least: double("least", -746),
		log2e: double("log2e", math.Log2E), ln2: double("ln2", 0.6931471805599453), ln2Low: double("ln2Low", 2.3190468138462996e-17),
		bias: double("bias", 3<<51+1023),
		poly: []Mem{
			double("p9", 2.510038549551032e-08), double("p8", 2.7620088445409746e-07), double("p7", 2.7557268459997064e-06),
			double("p6", 2.4801521295954376e-05), double("p5", 0.00019841269863053618), double("p4", 0.0013888888917213717),
			double("p3", 0.008333333333330062), double("p2", 0.04166666666662413), double("p1", 0.16666666666666669),
		},
	}
}

func main() {
	ConstraintExpr("!purego")
	single, double := newConstants(4), newConstants(8)
	for _, t := range vector.Targets {
		c := &single
		if t.Elem == 8 {
			c = &double
		}
		exponential(t, c)
		sigmoid(t, c)
		slope(t, c)
	}
	Generate()
}

// words is 64 bytes of copies of the size low bytes of w.
func words(name string, w uint64, size int) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for at := 0; at < 64; at += size {
		if size == 4 {
			DATA(at, U32(w))
		} else {
			DATA(at, U64(w))
		}
	}
	return m
}

// kernel makes the function name: argument turns x to the exponential's argument,
// finish the exponential to the result.
func kernel(t vector.Target, c *constants, name, ulps, body string, argument, finish func(x, tmp VecPhysical)) {
	t.Begin(name, "func(dst, src []T)",
		"equals, within "+ulps+" units in the last place,", "",
		"	for i, x := range src {",
		"		"+body,
		"	}", "",
		"where len(src) is a multiple of 16.")
	dst, src, n := vector.Base("dst"), vector.Base("src"), vector.Count("src")
	most, least := t.Reg(14), t.Reg(15)
	t.Move(c.most, most)
	t.Move(c.least, least)
	vector.Loop(n, func() {
		t.Each(Mem{Base: src}, func(i int, m Mem) {
			x, tmp := t.Reg(i), t.Reg(4)
			t.Move(m, x)
			argument(x, tmp)
			exp(t, c, x, tmp, t.Reg(5), t.Reg(6))
			finish(x, tmp)
			t.Move(x, Mem{Base: dst, Disp: m.Disp})
		})
		vector.Advance(dst, t.Entry())
		vector.Advance(src, t.Entry())
	})
	vector.End()
}

// exp replaces x by exp(x).
func exp(t vector.Target, c *constants, x, k, p, tmp VecPhysical) {
	// Of a NaN and a number, these return the operand written first.
	t.Min(x, t.Reg(14), x)
	t.Max(x, t.Reg(15), x)
	t.Mul(c.log2e, x, k)
	if t.Wide() {
		t.Round(Imm(8), k, k)
	} else {
		t.RoundAVX2(Imm(8), k, k)
	}
	t.MulSubFrom231(c.ln2, k, x)
	t.MulSubFrom231(c.ln2Low, k, x)
	t.Move(c.poly[0], p)
	for _, coefficient := range c.poly[1:] {
		t.MulAdd213(coefficient, x, p)
	}
	t.MulAdd213(c.half, x, p)
	t.Mul(x, x, tmp)
	t.MulAdd213(x, tmp, p)
	t.Add(c.one, p, p)
	if t.Wide() {
		t.Scale(k, p, x)
		return
	}
	if t.Elem == 4 {
		VCVTPS2DQ(k, k)
		VPSRAD(Imm(1), k, tmp)
		VPSUBD(tmp, k, k)
		for _, power := range []VecPhysical{k, tmp} {
			VPADDD(c.bias, power, power)
			VPSLLD(Imm(23), power, power)
		}
	} else {
		VMULPD(c.half, k, tmp)
		VROUNDPD(Imm(8), tmp, tmp)
		VSUBPD(tmp, k, k)
		for _, power := range []VecPhysical{k, tmp} {
			VADDPD(c.bias, power, power)
			VPSLLQ(Imm(52), power, power)
		}
	}
	t.Mul(k, p, p)
	t.Mul(tmp, p, x)
}

func exponential(t vector.Target, c *constants) {
	nothing := func(x, tmp VecPhysical) {}
	kernel(t, c, "exp", "2", "dst[i] = exp(x)", nothing, nothing)
}

// sigmoid is q = 1/(1+e) of e = exp(-|x|), and e*q where x is negative. What the
// sum rounds off, and the division, are put right by a step of Newton's.
func sigmoid(t vector.Target, c *constants) {
	sum, lost, q, rest, sign := t.Reg(4), t.Reg(5), t.Reg(6), t.Reg(7), t.Reg(8)
	kernel(t, c, "sigmoid", "2", "dst[i] = 1 / (1 + exp(-x))",
		func(x, _ VecPhysical) {
			t.Move(x, sign)
			t.Or(c.sign, x, x)
		},
		func(x, _ VecPhysical) {
			t.Add(c.one, x, sum)
			t.Sub(c.one, sum, lost)
			t.Sub(lost, x, lost)
			t.Move(c.one, rest)
			t.Div(sum, rest, q)
			t.MulSubFrom231(sum, q, rest)
			t.MulSubFrom231(lost, q, rest)
			t.MulAdd213(q, rest, q)
			t.Mul(q, x, x)
			if !t.Wide() {
				t.BlendBySign(sign, x, q, x)
				return
			}
			if t.Elem == 4 {
				VPMOVD2M(sign, K1)
			} else {
				VPMOVQ2M(sign, K1)
			}
			t.Blend(x, q, K1, x)
		})
}

func slope(t vector.Target, c *constants) {
	kernel(t, c, "slope", "4", "dst[i] = exp(-abs(x)) / square(1+exp(-abs(x)))",
		func(x, _ VecPhysical) { t.Or(c.sign, x, x) },
		func(x, tmp VecPhysical) {
			t.Add(c.one, x, tmp)
			t.Mul(tmp, tmp, tmp)
			t.Div(tmp, x, x)
		})
}
