// Package half converts between float32 and the 16-bit storage types in vector
// registers.
package half

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A Packer rounds the float32 registers of a row to 16 bits. It returns the
// registers that hold the result, one number after the other, and may change
// those that it was given.
type Packer func(row []VecPhysical) []VecPhysical

// WidenBFloat16 loads a vector of bfloat16.
func WidenBFloat16(from Mem, to VecPhysical) {
	VPMOVZXWD(from, to)
	VPSLLD(Imm(16), to, to)
}

// WidenFloat16 loads a vector of float16.
func WidenFloat16(from Mem, to VecPhysical) { VCVTPH2PS(from, to) }

// PackFloat16 is a Packer to float16, to nearest, ties to even.
func PackFloat16(row []VecPhysical) []VecPhysical {
	packed := make([]VecPhysical, len(row))
	for i, r := range row {
		packed[i] = r.AsX().(VecPhysical)
		if r.Size() == 64 {
			packed[i] = r.AsY().(VecPhysical)
		}
		VCVTPS2PH(Imm(0), r, packed[i]) // 0: to nearest, ties to even
	}
	return packed
}

// BFloat16Packer loads constants to the last three of six registers, and returns
// a Packer to bfloat16 that uses all six. It takes an even number of AVX2's
// registers, or AVX-512's and K2, and rounds to bits + 0x7fff + (bits>>16 & 1),
// whose upper half is the result; a NaN is its own upper half with the quiet bit
// set.
func BFloat16Packer(six []VecPhysical) Packer {
	upper, lsb, nan, half, one, quiet := six[0], six[1], six[2], six[3], six[4], six[5]
	for i, bits := range []uint32{0x7fff, 1, 0x40} {
		g, r := GP32(), six[3+i]
		MOVL(U32(bits), g)
		VMOVD(g, r.AsX())
		VPBROADCASTD(r.AsX(), r)
	}
	if half.Size() == 64 {
		return func(row []VecPhysical) []VecPhysical {
			packed := make([]VecPhysical, len(row))
			for i, r := range row {
				VCMPPS(Imm(3), r, r, K2) // 3: unordered
				VPSRLD(Imm(16), r, upper)
				VPANDD(one, upper, lsb)
				VPADDD(half, r, r)
				VPADDD(lsb, r, r)
				VPSRLD(Imm(16), r, r)
				VPORD(quiet, upper, K2, r)
				packed[i] = r.AsY().(VecPhysical)
				VPMOVDW(r, packed[i])
			}
			return packed
		}
	}
	return func(row []VecPhysical) []VecPhysical {
		for _, r := range row {
			VCMPPS(Imm(3), r, r, nan)
			VPSRLD(Imm(16), r, upper)
			VPAND(one, upper, lsb)
			VPADDD(half, r, r)
			VPADDD(lsb, r, r)
			VPSRLD(Imm(16), r, r)
			VPOR(quiet, upper, upper)
			VBLENDVPS(nan, upper, r, r)
		}
		var packed []VecPhysical
		for i := 0; i < len(row); i += 2 {
			VPACKUSDW(row[i+1], row[i], row[i]) // within each half of the register
			VPERMQ(Imm(0b11011000), row[i], row[i])
			packed = append(packed, row[i])
		}
		return packed
	}
}
