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
	ConstraintExpr("!purego")
	for _, t := range vector.Targets {
		if t.Elem == 4 || !t.Wide() { // four numbers of 8 bytes need no more than AVX2
			pack(t)
			unpack(t)
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

// transpose turns the 4 x 4 matrix in every four numbers of registers 0 to 3,
// using 4 to 7, and leaves it in 0 to 3.
func transpose(t vector.Target) {
	r := t.Reg
	if t.Elem == 8 {
		VUNPCKLPD(r(1), r(0), r(4))
		VUNPCKHPD(r(1), r(0), r(5))
		VUNPCKLPD(r(3), r(2), r(6))
		VUNPCKHPD(r(3), r(2), r(7))
		VPERM2F128(Imm(0x20), r(6), r(4), r(0))
		VPERM2F128(Imm(0x20), r(7), r(5), r(1))
		VPERM2F128(Imm(0x31), r(6), r(4), r(2))
		VPERM2F128(Imm(0x31), r(7), r(5), r(3))
		return
	}
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

// load fills register q with four numbers of each of the rows first, first+4, ...
func (r rows) load(t vector.Target, first, q int) {
	switch {
	case t.Elem == 8:
		VMOVUPD(r.at(first), t.Reg(q))
	case t.Wide():
		VMOVUPS(r.at(first), lower[q])
		for i := 1; i < 4; i++ {
			VINSERTF32X4(Imm(uint64(i)), r.at(first+4*i), t.Reg(q), t.Reg(q))
		}
	default:
		VMOVUPS(r.at(first), lower[q])
		VINSERTF128(Imm(1), r.at(first+4), t.Reg(q), t.Reg(q))
	}
}

// store is the way back of load.
func (r rows) store(t vector.Target, first, q int) {
	switch {
	case t.Elem == 8:
		VMOVUPD(t.Reg(q), r.at(first))
	case t.Wide():
		VMOVUPS(lower[q], r.at(first))
		for i := 1; i < 4; i++ {
			VEXTRACTF32X4(Imm(uint64(i)), t.Reg(q), r.at(first+4*i))
		}
	default:
		VMOVUPS(lower[q], r.at(first))
		VEXTRACTF128(Imm(1), t.Reg(q), r.at(first+4))
	}
}

func pack(t vector.Target) {
	t.Begin("pack", "func(dst, src []T, stride int)",
		"equals", "",
		"	for j := range len(dst) / 16 {",
		"		for l := range 16 {",
		"			dst[j*16+l] = src[l*stride+j]",
		"		}",
		"	}", "",
		"where len(dst) is a multiple of 4*16.")
	tiles(t, "dst", "src", func(q, row int, block Mem, r rows) { r.load(t, row, q) },
		func(q, row int, block Mem, r rows) { t.Move(t.Reg(q), block) })
}

func unpack(t vector.Target) {
	t.Begin("unpack", "func(dst, src []T, stride int)",
		"equals", "",
		"	for j := range len(src) / 16 {",
		"		for l := range 16 {",
		"			dst[l*stride+j] = src[j*16+l]",
		"		}",
		"	}", "",
		"where len(src) is a multiple of 4*16.")
	tiles(t, "src", "dst", func(q, row int, block Mem, r rows) { t.Move(block, t.Reg(q)) },
		func(q, row int, block Mem, r rows) { r.store(t, row, q) })
}

// tiles goes through the block and the rows of those names in steps of four
// columns, and of as many rows as registers 0 to 3 have room for: in fills register
// q, by the number of its first row or its address in the block; out empties it
// when it is transposed.
func tiles(t vector.Target, block, row string, in, out func(q, row int, block Mem, r rows)) {
	b, n := vector.Base(block), vector.Count(block)
	r := newRows(t, row)
	SHRQ(Imm(2), n)
	vector.Loop(n, func() {
		for part := range t.Entry() / t.Bytes {
			at := func(q int) (int, int, Mem, rows) {
				return q, part*t.Bytes/t.Elem + q, Mem{Base: b, Disp: q*t.Entry() + part*t.Bytes}, r
			}
			for q := range 4 {
				in(at(q))
			}
			transpose(t)
			for q := range 4 {
				out(at(q))
			}
		}
		vector.Advance(b, 4*t.Entry())
		r.advance(t)
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
