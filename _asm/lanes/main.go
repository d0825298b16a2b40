// Command lanes generates the kernels of package lanes: the change between rows
// and blocks, and what is done to blocks number by number.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/mhc-go/mhc/_asm/vector"
)

func main() {
	for _, t := range vector.Tiers {
		pack(t)
		unpack(t)
		mul(t)
		affine(t)
		accumulate(t)
	}
	Generate()
}

// rows are the addresses of 16 rows.
type rows struct {
	base                [4]Register // of rows 0, 4, 8 and 12
	stride, threeStride Register
}

func newRows(name string) rows {
	r := rows{stride: vector.Stride("stride", 4), threeStride: GP64()}
	r.base[0] = vector.Base(name)
	LEAQ(Mem{Base: r.stride, Index: r.stride, Scale: 2}, r.threeStride)
	for i := range 3 {
		r.base[i+1] = GP64()
		LEAQ(Mem{Base: r.base[i], Index: r.stride, Scale: 4}, r.base[i+1])
	}
	return r
}

func (r rows) at(row int) Mem {
	m := Mem{Base: r.base[row/4]}
	switch row % 4 {
	case 1, 2:
		m.Index, m.Scale = r.stride, uint8(row%4)
	case 3:
		m.Index, m.Scale = r.threeStride, 1
	}
	return m
}

// advance steps to the next four columns.
func (r rows) advance() {
	for _, b := range r.base {
		vector.Advance(b, 16)
	}
}

// transpose turns the 4 x 4 matrix in every 128 bits of registers 0 to 3, using 4
// to 7, and leaves it in 0 to 3.
func transpose(t vector.Tier) {
	r := t.Reg
	VUNPCKLPS(r(1), r(0), r(4))
	VUNPCKHPS(r(1), r(0), r(5))
	VUNPCKLPS(r(3), r(2), r(6))
	VUNPCKHPS(r(3), r(2), r(7))
	VUNPCKLPD(r(6), r(4), r(0))
	VUNPCKHPD(r(6), r(4), r(1))
	VUNPCKLPD(r(7), r(5), r(2))
	VUNPCKHPD(r(7), r(5), r(3))
}

var lower = []VecPhysical{X0, X1, X2, X3}

func pack(t vector.Tier) {
	t.Begin("pack", "func(dst, src []float32, stride int)",
		"equals", "",
		"	for j := range len(dst) / 16 {",
		"		for l := range 16 {",
		"			dst[j*16+l] = src[l*stride+j]",
		"		}",
		"	}", "",
		"where len(dst) is a multiple of 4*16.")
	dst, n := vector.Base("dst"), vector.Count("dst")
	src := newRows("src")
	SHRQ(Imm(2), n)
	vector.Loop("columns", n, func() {
		for part := range vector.Entry / t.Bytes {
			for q := range 4 { // register q: rows q, q+4, ...
				first := part*8 + q
				VMOVUPS(src.at(first), lower[q])
				if t.Wide() {
					for i := 1; i < 4; i++ {
						VINSERTF32X4(Imm(uint64(i)), src.at(first+4*i), t.Reg(q), t.Reg(q))
					}
				} else {
					VINSERTF128(Imm(1), src.at(first+4), t.Reg(q), t.Reg(q))
				}
			}
			transpose(t)
			for j := range 4 {
				VMOVUPS(t.Reg(j), Mem{Base: dst, Disp: j*vector.Entry + part*t.Bytes})
			}
		}
		vector.Advance(dst, 4*vector.Entry)
		src.advance()
	})
	vector.End()
}

func unpack(t vector.Tier) {
	t.Begin("unpack", "func(dst, src []float32, stride int)",
		"equals", "",
		"	for j := range len(src) / 16 {",
		"		for l := range 16 {",
		"			dst[l*stride+j] = src[j*16+l]",
		"		}",
		"	}", "",
		"where len(src) is a multiple of 4*16.")
	src, n := vector.Base("src"), vector.Count("src")
	dst := newRows("dst")
	SHRQ(Imm(2), n)
	vector.Loop("columns", n, func() {
		for part := range vector.Entry / t.Bytes {
			for j := range 4 {
				VMOVUPS(Mem{Base: src, Disp: j*vector.Entry + part*t.Bytes}, t.Reg(j))
			}
			transpose(t)
			for q := range 4 {
				first := part*8 + q
				VMOVUPS(lower[q], dst.at(first))
				if t.Wide() {
					for i := 1; i < 4; i++ {
						VEXTRACTF32X4(Imm(uint64(i)), t.Reg(q), dst.at(first+4*i))
					}
				} else {
					VEXTRACTF128(Imm(1), t.Reg(q), dst.at(first+4))
				}
			}
		}
		vector.Advance(src, 4*vector.Entry)
		dst.advance()
	})
	vector.End()
}

func mul(t vector.Tier) {
	t.Begin("mul", "func(dst, src []float32)",
		"equals", "",
		"	for i := range dst {",
		"		dst[i] *= src[i]",
		"	}", "",
		"where len(dst) is a multiple of 16.")
	dst, src, n := vector.Base("dst"), vector.Base("src"), vector.Count("dst")
	vector.Loop("entries", n, func() {
		t.Each(Mem{Base: dst}, func(i int, m Mem) {
			VMOVUPS(m, t.Reg(i))
			VMULPS(Mem{Base: src, Disp: m.Disp}, t.Reg(i), t.Reg(i))
			VMOVUPS(t.Reg(i), m)
		})
		vector.Advance(dst, vector.Entry)
		vector.Advance(src, vector.Entry)
	})
	vector.End()
}

func affine(t vector.Tier) {
	t.Begin("affine", "func(dst, src, scale, shift []float32)",
		"equals", "",
		"	for i := range dst {",
		"		dst[i] = scale[i/16]*src[i] + shift[i/16]",
		"	}", "",
		"where len(dst) is 16*len(scale).")
	dst, src, n := vector.Base("dst"), vector.Base("src"), vector.Count("dst")
	scale, shift := vector.Base("scale"), vector.Base("shift")
	a, b := t.Reg(2), t.Reg(3)
	vector.Loop("entries", n, func() {
		VBROADCASTSS(Mem{Base: scale}, a)
		VBROADCASTSS(Mem{Base: shift}, b)
		t.Each(Mem{Base: src}, func(i int, m Mem) {
			VMOVUPS(m, t.Reg(i))
			VFMADD213PS(b, a, t.Reg(i))
			VMOVUPS(t.Reg(i), Mem{Base: dst, Disp: m.Disp})
		})
		vector.Advance(dst, vector.Entry)
		vector.Advance(src, vector.Entry)
		vector.Advance(scale, 4)
		vector.Advance(shift, 4)
	})
	vector.End()
}

func accumulate(t vector.Tier) {
	t.Begin("accumulate", "func(sum, dot []float64, g, x []float32)",
		"equals", "",
		"	for i := range g {",
		"		sum[i] += float64(g[i])",
		"		dot[i] += float64(g[i]) * float64(x[i])",
		"	}", "",
		"where len(g) is a multiple of 16.")
	sum, dot, n := vector.Base("sum"), vector.Base("dot"), vector.Count("g")
	g, x := vector.Base("g"), vector.Base("x")
	vector.Loop("entries", n, func() {
		for at := 0; at < 2*vector.Entry; at += t.Bytes {
			gv, xv := t.Reg(0), t.Reg(1)
			VCVTPS2PD(Mem{Base: g, Disp: at / 2}, gv)
			VCVTPS2PD(Mem{Base: x, Disp: at / 2}, xv)
			VFMADD213PD(Mem{Base: dot, Disp: at}, gv, xv)
			VADDPD(Mem{Base: sum, Disp: at}, gv, gv)
			VMOVUPD(xv, Mem{Base: dot, Disp: at})
			VMOVUPD(gv, Mem{Base: sum, Disp: at})
		}
		vector.Advance(sum, 2*vector.Entry)
		vector.Advance(dot, 2*vector.Entry)
		vector.Advance(g, vector.Entry)
		vector.Advance(x, vector.Entry)
	})
	vector.End()
}
