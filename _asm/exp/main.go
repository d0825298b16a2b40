// Command exp generates the kernels of package exp.
//
// exp(x) is 2^k * exp(r) with k the integer nearest to x/log(2), and
// exp(r) = 1 + r + r^2 * p(r), p the polynomial of degree 5 that interpolates at
// the Chebyshev nodes of |r| <= log(2)/2: 0.006 units in the last place from the
// function, so what is left is rounding. The arguments are bounded first, outside
// of which float32 has 0 and +Inf only; in AVX2 the power is applied in two
// halves, so that subnormal results are rounded once.
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/mhc-go/mhc/_asm/vector"
)

var (
	one, half, log2e, ln2, ln2Low, bias, sign Mem
	most, least                               Mem
	poly                                      [5]Mem // of r^5 to r^1
)

func main() {
	most, least = floats("most", 89), floats("least", -104)
	one, half = floats("one", 1), floats("half", 0.5)
	log2e, ln2, ln2Low = floats("log2e", math.Log2E), floats("ln2", 0.6931471824645996), floats("ln2Low", -1.904654299957768e-09)
	poly = [5]Mem{
		floats("p5", 0.00019890991097781807), floats("p4", 0.0013933649752289057), floats("p3", 0.00833331048488617),
		floats("p2", 0.04166646674275398), floats("p1", 0.1666666716337204),
	}
	bias, sign = words("bias", 127), words("sign", 1<<31)
	for _, t := range vector.Tiers {
		exponential(t)
		sigmoid(t)
		slope(t)
	}
	Generate()
}

// words is 16 copies of w, one an entry's lane.
func words(name string, w uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(w))
	}
	return m
}

func floats(name string, f float32) Mem { return words(name, math.Float32bits(f)) }

// kernel makes the function name: argument turns x to the exponential's argument,
// finish the exponential to the result.
func kernel(t vector.Tier, name, ulps, body string, argument, finish func(x, tmp VecPhysical)) {
	t.Begin(name, "func(dst, src []float32)",
		"equals, within "+ulps+" units in the last place,", "",
		"	for i, x := range src {",
		"		"+body,
		"	}", "",
		"where len(src) is a multiple of 16.")
	dst, src, n := vector.Base("dst"), vector.Base("src"), vector.Count("src")
	hi, lo := t.Reg(14), t.Reg(15)
	VMOVUPS(most, hi)
	VMOVUPS(least, lo)
	vector.Loop("entries", n, func() {
		t.Each(Mem{Base: src}, func(i int, m Mem) {
			x := t.Reg(i)
			VMOVUPS(m, x)
			argument(x, t.Reg(2))
			exp(t, x, t.Reg(2), t.Reg(3), t.Reg(4), hi, lo)
			finish(x, t.Reg(2))
			VMOVUPS(x, Mem{Base: dst, Disp: m.Disp})
		})
		vector.Advance(dst, vector.Entry)
		vector.Advance(src, vector.Entry)
	})
	vector.End()
}

// exp replaces x by exp(x). The bounds come first in the comparisons, which
// return their second operand for a NaN.
func exp(t vector.Tier, x, k, p, tmp, hi, lo VecPhysical) {
	VMINPS(x, hi, x)
	VMAXPS(x, lo, x)
	VMULPS(log2e, x, k)
	if t.Wide() {
		VRNDSCALEPS(Imm(8), k, k)
	} else {
		VROUNDPS(Imm(8), k, k)
	}
	VFNMADD231PS(ln2, k, x)
	VFNMADD231PS(ln2Low, k, x)
	VMOVUPS(poly[0], p)
	for _, c := range poly[1:] {
		VFMADD213PS(c, x, p)
	}
	VFMADD213PS(half, x, p)
	VMULPS(x, x, tmp)
	VFMADD213PS(x, tmp, p)
	VADDPS(one, p, p)
	if t.Wide() {
		VSCALEFPS(k, p, x)
		return
	}
	VCVTPS2DQ(k, k)
	VPSRAD(Imm(1), k, tmp)
	VPSUBD(tmp, k, k)
	for _, power := range []VecPhysical{k, tmp} {
		VPADDD(bias, power, power)
		VPSLLD(Imm(23), power, power)
		VMULPS(power, p, p)
	}
	VMOVAPS(p, x)
}

func exponential(t vector.Tier) {
	nothing := func(x, tmp VecPhysical) {}
	kernel(t, "exp", "2", "dst[i] = exp(x)", nothing, nothing)
}

func sigmoid(t vector.Tier) {
	kernel(t, "sigmoid", "3", "dst[i] = 1 / (1 + exp(-x))",
		func(x, _ VecPhysical) { VXORPS(sign, x, x) },
		func(x, tmp VecPhysical) {
			VMOVUPS(one, tmp)
			VADDPS(tmp, x, x)
			VDIVPS(x, tmp, x)
		})
}

func slope(t vector.Tier) {
	kernel(t, "slope", "4", "dst[i] = exp(-abs(x)) / square(1+exp(-abs(x)))",
		func(x, _ VecPhysical) { VORPS(sign, x, x) },
		func(x, tmp VecPhysical) {
			VADDPS(one, x, tmp)
			VMULPS(tmp, tmp, tmp)
			VDIVPS(tmp, x, x)
		})
}
