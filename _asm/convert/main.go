// Command convert generates dtype's conversions between float32 and the 16-bit
// storage types. Each kernel converts 16 elements a step and leaves the rest of
// the slice to its caller.
package main

import (
	"github.com/mhc-go/mhc/_asm/half"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// step is the number of elements that one turn of a kernel's loop converts.
const step = 16

func main() {
	ConstraintExpr("!purego")
	for _, t := range []struct {
		tier string
		row  []VecPhysical // float32 registers that hold a step
		free []VecPhysical
	}{
		{"AVX2", []VecPhysical{Y0, Y1}, []VecPhysical{Y10, Y11, Y12, Y13, Y14, Y15}},
		{"AVX512", []VecPhysical{Z0}, []VecPhysical{Z10, Z11, Z12, Z13, Z14, Z15}},
	} {
		widen("BFloat16"+t.tier, "BFloat16(src[i]).Float32()", t.row, half.WidenBFloat16)
		widen("Float16"+t.tier, "Float16(src[i]).Float32()", t.row, half.WidenFloat16)
		narrow("BFloat16"+t.tier, "uint16(BFloat16FromFloat32(src[i]))", t.row, func() half.Packer { return half.BFloat16Packer(t.free) })
		narrow("Float16"+t.tier, "uint16(float16.Fromfloat32(src[i]))", t.row, func() half.Packer { return half.PackFloat16 })
	}
	Generate()
}

func widen(name, value string, row []VecPhysical, load func(from Mem, to VecPhysical)) {
	dst, src, n := begin("widen"+name, "func(dst []float32, src []uint16)", value)
	loop(n, func() {
		for i, r := range row {
			lanes := int(r.Size()) / 4
			load(Mem{Base: src, Disp: i * lanes * 2}, r)
			VMOVUPS(r, Mem{Base: dst, Disp: i * lanes * 4})
		}
		ADDQ(Imm(step*4), dst)
		ADDQ(Imm(step*2), src)
	})
}

func narrow(name, value string, row []VecPhysical, packer func() half.Packer) {
	dst, src, n := begin("narrow"+name, "func(dst []uint16, src []float32)", value)
	pack := packer()
	loop(n, func() {
		for i, r := range row {
			VMOVUPS(Mem{Base: src, Disp: i * int(r.Size())}, r)
		}
		to := Mem{Base: dst}
		for _, r := range pack(row) {
			VMOVDQU(r, to)
			to = to.Offset(int(r.Size()))
		}
		ADDQ(Imm(step*2), dst)
		ADDQ(Imm(step*4), src)
	})
}

// begin begins a kernel, and loads the addresses of its arguments and the number
// of its steps.
func begin(name, signature, value string) (dst, src, n Register) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(
		name+" equals", "",
		"	for i := range len(src) / 16 * 16 {",
		"		dst[i] = "+value,
		"	}", "",
		"where dst is as long as src.")
	dst, src, n = Load(Param("dst").Base(), GP64()), Load(Param("src").Base(), GP64()), Load(Param("src").Len(), GP64())
	SHRQ(Imm(4), n)
	return dst, src, n
}

// loop repeats body n times and ends the kernel.
func loop(n Register, body func()) {
	TESTQ(n, n)
	JZ(LabelRef("done"))
	Label("next")
	body()
	DECQ(n)
	JNZ(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}
