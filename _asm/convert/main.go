// Command convert generates dtype's conversions between float32 and the 16-bit
// storage types. Each kernel converts 16 elements a step and leaves the rest of
// the slice to its caller.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// step is the number of elements that one turn of a kernel's loop converts.
const step = 16

func main() {
	widenBFloat16AVX2()
	widenBFloat16AVX512()
	widenFloat16("AVX2", 8, Y0)
	widenFloat16("AVX512", 16, Z0)
	narrowBFloat16AVX2()
	narrowBFloat16AVX512()
	narrowFloat16("AVX2", 8, Y0)
	narrowFloat16("AVX512", 16, Z0)
	Generate()
}

// loop begins the function name and lays body into a loop over the steps of
// src, with the addresses of the step's operands.
func loop(name, signature, value string, dstSize, srcSize int, before func(), body func(dst, src Mem)) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(
		name+" equals", "",
		"	for i := range len(src) / 16 * 16 {",
		"		dst[i] = "+value,
		"	}", "",
		"where dst is as long as src.")
	dst, src, n := Load(Param("dst").Base(), GP64()), Load(Param("src").Base(), GP64()), Load(Param("src").Len(), GP64())
	SHRQ(Imm(4), n)
	JZ(LabelRef("done"))
	before()
	Label("next")
	body(Mem{Base: dst}, Mem{Base: src})
	ADDQ(Imm(uint64(step*dstSize)), dst)
	ADDQ(Imm(uint64(step*srcSize)), src)
	DECQ(n)
	JNZ(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

func widen(name, value string, before func(), body func(dst, src Mem)) {
	loop(name, "func(dst []float32, src []uint16)", value, 4, 2, before, body)
}

func narrow(name, value string, before func(), body func(dst, src Mem)) {
	loop(name, "func(dst []uint16, src []float32)", value, 2, 4, before, body)
}

func widenBFloat16AVX2() {
	widen("widenBFloat16AVX2", "BFloat16(src[i]).Float32()", func() {}, func(dst, src Mem) {
		for i, y := range []VecPhysical{Y0, Y1} {
			VPMOVZXWD(src.Offset(16*i), y)
			VPSLLD(Imm(16), y, y)
			VMOVDQU(y, dst.Offset(32*i))
		}
	})
}

func widenBFloat16AVX512() {
	widen("widenBFloat16AVX512", "BFloat16(src[i]).Float32()", func() {}, func(dst, src Mem) {
		VPMOVZXWD(src, Z0)
		VPSLLD(Imm(16), Z0, Z0)
		VMOVDQU32(Z0, dst)
	})
}

func widenFloat16(tier string, width int, v VecPhysical) {
	widen("widenFloat16"+tier, "Float16(src[i]).Float32()", func() {}, func(dst, src Mem) {
		for i := 0; i < step; i += width {
			VCVTPH2PS(src.Offset(2*i), v)
			VMOVUPS(v, dst.Offset(4*i))
		}
	})
}

func narrowFloat16(tier string, width int, v VecPhysical) {
	narrow("narrowFloat16"+tier, "uint16(float16.Fromfloat32(src[i]))", func() {}, func(dst, src Mem) {
		for i := 0; i < step; i += width {
			VMOVUPS(src.Offset(4*i), v)
			VCVTPS2PH(Imm(0), v, dst.Offset(2*i)) // 0: to nearest, ties to even
		}
	})
}

// constant broadcasts bits to the 32-bit lanes of v.
func constant(bits uint32, v VecPhysical) {
	g := GP32()
	MOVL(U32(bits), g)
	VMOVD(g, v.AsX())
	VPBROADCASTD(v.AsX(), v)
}

// The rounding of a bfloat16: bits + 0x7fff + (bits>>16 & 1), whose upper half is
// the result; a NaN is its own upper half with the quiet bit set.

func narrowBFloat16AVX2() {
	half, one, quiet := Y13, Y14, Y15
	narrow("narrowBFloat16AVX2", "uint16(BFloat16FromFloat32(src[i]))", func() {
		constant(0x7fff, half)
		constant(1, one)
		constant(0x40, quiet)
	}, func(dst, src Mem) {
		for i, r := range [][4]VecPhysical{{Y0, Y1, Y2, Y3}, {Y4, Y5, Y6, Y7}} {
			v, upper, lsb, nan := r[0], r[1], r[2], r[3]
			VMOVUPS(src.Offset(32*i), v)
			VCMPPS(Imm(3), v, v, nan) // 3: unordered
			VPSRLD(Imm(16), v, upper)
			VPAND(one, upper, lsb)
			VPADDD(half, v, v)
			VPADDD(lsb, v, v)
			VPSRLD(Imm(16), v, v)
			VPOR(quiet, upper, upper)
			VBLENDVPS(nan, upper, v, v)
		}
		VPACKUSDW(Y4, Y0, Y0) // within each half of the register
		VPERMQ(Imm(0b11011000), Y0, Y0)
		VMOVDQU(Y0, dst)
	})
}

func narrowBFloat16AVX512() {
	half, one, quiet := Z13, Z14, Z15
	narrow("narrowBFloat16AVX512", "uint16(BFloat16FromFloat32(src[i]))", func() {
		constant(0x7fff, half)
		constant(1, one)
		constant(0x40, quiet)
	}, func(dst, src Mem) {
		VMOVUPS(src, Z0)
		VCMPPS(Imm(3), Z0, Z0, K1) // 3: unordered
		VPSRLD(Imm(16), Z0, Z1)
		VPANDD(one, Z1, Z2)
		VPADDD(half, Z0, Z0)
		VPADDD(Z2, Z0, Z0)
		VPSRLD(Imm(16), Z0, Z0)
		VPORD(quiet, Z1, K1, Z0)
		VPMOVDW(Z0, dst)
	})
}
