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
	for _, t := range vector.Targets {
		if t.Elem == 4 {
			pack(t)
			unpack(t)
		} else if !t.Wide() { // which has all that four numbers of 8 bytes need
			packDouble(t)
			unpackDouble(t)
		}
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

func newRows(t vector.Target, name string) rows {
	r := rows{stride: vector.Stride("stride", t.Elem), threeStride: GP64()}
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
func (r rows) advance(t vector.Target) {
	for _, b := range r.base {
		vector.Advance(b, 4*t.Elem)
	}
}

// transpose turns the 4 x 4 matrix in every 128 bits of registers 0 to 3, using 4
// to 7, and leaves it in 0 to 3.
func transpose(t vector.Target) {
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

func beginPack(t vector.Target) {
	t.Begin("pack", "func(dst, src []T, stride int)",
		"equals", "",
		"	for j := range len(dst) / 16 {",
		"		for l := range 16 {",
		"			dst[j*16+l] = src[l*stride+j]",
		"		}",
		"	}", "",
		"where len(dst) is a multiple of 4*16.")
}

func beginUnpack(t vector.Target) {
	t.Begin("unpack", "func(dst, src []T, stride int)",
		"equals", "",
		"	for j := range len(src) / 16 {",
		"		for l := range 16 {",
		"			dst[l*stride+j] = src[j*16+l]",
		"		}",
		"	}", "",
		"where len(src) is a multiple of 4*16.")
}

func pack(t vector.Target) {
	beginPack(t)
	dst, n := vector.Base("dst"), vector.Count("dst")
	src := newRows(t, "src")
	SHRQ(Imm(2), n)
	vector.Loop(n, func() {
		for part := range t.Entry() / t.Bytes {
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
				VMOVUPS(t.Reg(j), Mem{Base: dst, Disp: j*t.Entry() + part*t.Bytes})
			}
		}
		vector.Advance(dst, 4*t.Entry())
		src.advance(t)
	})
	vector.End()
}

func unpack(t vector.Target) {
	beginUnpack(t)
	src, n := vector.Base("src"), vector.Count("src")
	dst := newRows(t, "dst")
	SHRQ(Imm(2), n)
	vector.Loop(n, func() {
		for part := range t.Entry() / t.Bytes {
			for j := range 4 {
				VMOVUPS(Mem{Base: src, Disp: j*t.Entry() + part*t.Bytes}, t.Reg(j))
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
		vector.Advance(src, 4*t.Entry())
		dst.advance(t)
	})
	vector.End()
}

// transposeDouble turns the 4 x 4 matrix in registers 0 to 3, using 4 to 7, and
// leaves it in 0 to 3.
func transposeDouble(t vector.Target) {
	r := t.Reg
	VUNPCKLPD(r(1), r(0), r(4))
	VUNPCKHPD(r(1), r(0), r(5))
	VUNPCKLPD(r(3), r(2), r(6))
	VUNPCKHPD(r(3), r(2), r(7))
	VPERM2F128(Imm(0x20), r(6), r(4), r(0))
	VPERM2F128(Imm(0x20), r(7), r(5), r(1))
	VPERM2F128(Imm(0x31), r(6), r(4), r(2))
	VPERM2F128(Imm(0x31), r(7), r(5), r(3))
}

func packDouble(t vector.Target) {
	beginPack(t)
	dst, n := vector.Base("dst"), vector.Count("dst")
	src := newRows(t, "src")
	SHRQ(Imm(2), n)
	vector.Loop(n, func() {
		for first := 0; first < vector.Lanes; first += 4 {
			for l := range 4 {
				VMOVUPD(src.at(first+l), t.Reg(l))
			}
			transposeDouble(t)
			for j := range 4 {
				VMOVUPD(t.Reg(j), Mem{Base: dst, Disp: j*t.Entry() + first*t.Elem})
			}
		}
		vector.Advance(dst, 4*t.Entry())
		src.advance(t)
	})
	vector.End()
}

func unpackDouble(t vector.Target) {
	beginUnpack(t)
	src, n := vector.Base("src"), vector.Count("src")
	dst := newRows(t, "dst")
	SHRQ(Imm(2), n)
	vector.Loop(n, func() {
		for first := 0; first < vector.Lanes; first += 4 {
			for j := range 4 {
				VMOVUPD(Mem{Base: src, Disp: j*t.Entry() + first*t.Elem}, t.Reg(j))
			}
			transposeDouble(t)
			for l := range 4 {
				VMOVUPD(t.Reg(l), dst.at(first+l))
			}
		}
		vector.Advance(src, 4*t.Entry())
		dst.advance(t)
	})
	vector.End()
}

func mul(t vector.Target) {
	t.Begin("mul", "func(dst, src []T)",
		"equals", "",
		"	for i := range dst {",
		"		dst[i] *= src[i]",
		"	}", "",
		"where len(dst) is a multiple of 16.")
	dst, src, n := vector.Base("dst"), vector.Base("src"), vector.Count("dst")
	vector.Loop(n, func() {
		t.Each(Mem{Base: dst}, func(i int, m Mem) {
			t.Move(m, t.Reg(i))
			t.Mul(Mem{Base: src, Disp: m.Disp}, t.Reg(i), t.Reg(i))
			t.Move(t.Reg(i), m)
		})
		vector.Advance(dst, t.Entry())
		vector.Advance(src, t.Entry())
	})
	vector.End()
}

func affine(t vector.Target) {
	t.Begin("affine", "func(dst, src, scale, shift []T)",
		"equals", "",
		"	for i := range dst {",
		"		dst[i] = scale[i/16]*src[i] + shift[i/16]",
		"	}", "",
		"where len(dst) is 16*len(scale).")
	dst, src, n := vector.Base("dst"), vector.Base("src"), vector.Count("dst")
	scale, shift := vector.Base("scale"), vector.Base("shift")
	a, b := t.Reg(4), t.Reg(5)
	vector.Loop(n, func() {
		t.Broadcast(Mem{Base: scale}, a)
		t.Broadcast(Mem{Base: shift}, b)
		t.Each(Mem{Base: src}, func(i int, m Mem) {
			t.Move(m, t.Reg(i))
			t.MulAdd213(b, a, t.Reg(i))
			t.Move(t.Reg(i), Mem{Base: dst, Disp: m.Disp})
		})
		vector.Advance(dst, t.Entry())
		vector.Advance(src, t.Entry())
		vector.Advance(scale, t.Elem)
		vector.Advance(shift, t.Elem)
	})
	vector.End()
}

func accumulate(t vector.Target) {
	t.Begin("accumulate", "func(sum, dot []float64, g, x []T)",
		"equals", "",
		"	for i := range g {",
		"		sum[i] += float64(g[i])",
		"		dot[i] += float64(g[i]) * float64(x[i])",
		"	}", "",
		"where len(g) is a multiple of 16.")
	sum, dot, n := vector.Base("sum"), vector.Base("dot"), vector.Count("g")
	g, x := vector.Base("g"), vector.Base("x")
	const entry = 8 * vector.Lanes // in float64
	gv, xv := t.Reg(0), t.Reg(1)
	vector.Loop(n, func() {
		for at := 0; at < entry; at += t.Bytes {
			for _, v := range []struct {
				from Register
				to   VecPhysical
			}{{g, gv}, {x, xv}} {
				if t.Elem == 4 {
					VCVTPS2PD(Mem{Base: v.from, Disp: at / 2}, v.to)
				} else {
					VMOVUPD(Mem{Base: v.from, Disp: at}, v.to)
				}
			}
			VFMADD213PD(Mem{Base: dot, Disp: at}, gv, xv)
			VADDPD(Mem{Base: sum, Disp: at}, gv, gv)
			VMOVUPD(xv, Mem{Base: dot, Disp: at})
			VMOVUPD(gv, Mem{Base: sum, Disp: at})
		}
		vector.Advance(sum, entry)
		vector.Advance(dot, entry)
		vector.Advance(g, t.Entry())
		vector.Advance(x, t.Entry())
	})
	vector.End()
}
