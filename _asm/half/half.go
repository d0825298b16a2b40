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

// A bfloat16 is the upper half of bits + 0x7fff + (bits>>16 & 1), where bits are
// the float32's; a NaN's is its own upper half with the quiet bit set.
const (
	almostHalf = 0x7fff
	lastBit    = 1 << 16
	quietBit   = 1 << 22
)

// BFloat16Packer loads constants to some of six registers, and returns a Packer
// to bfloat16 that uses all six. It takes an even number of AVX2's registers, or
// AVX-512's, K1 and K2.
func BFloat16Packer(six []VecPhysical) Packer {
	if six[0].Size() == 64 {
		return bfloat16AVX512(six)
	}
	return bfloat16AVX2(six)
}

func bfloat16AVX512(six []VecPhysical) Packer {
	sum, upper, half, one, last, quiet := six[0], six[1], six[2], six[3], six[4], six[5]
	VMOVDQU16(oddWords(), upper)
	constant(almostHalf, half)
	constant(1, one)
	constant(lastBit, last)
	constant(quietBit, quiet)
	return func(row []VecPhysical) []VecPhysical {
		packed := make([]VecPhysical, len(row))
		for i, r := range row {
			VCMPPS(Imm(3), r, r, K2) // 3: unordered
			VPTESTMD(last, r, K1)
			VPADDD(half, r, sum)
			VPADDD(one, sum, K1, sum)
			VPORD(quiet, r, K2, sum)
			VPERMW(sum, upper, r)
			packed[i] = r.AsY().(VecPhysical)
		}
		return packed
	}
}

func bfloat16AVX2(six []VecPhysical) Packer {
	sum, bit, nan, half, last, quiet := six[0], six[1], six[2], six[3], six[4], six[5]
	constant(almostHalf, half)
	constant(1, last)
	constant(quietBit, quiet)
	return func(row []VecPhysical) []VecPhysical {
		for _, r := range row {
			VCMPPS(Imm(3), r, r, nan)
			VPSRLD(Imm(16), r, bit)
			VPAND(last, bit, bit)
			VPADDD(half, r, sum)
			VPADDD(bit, sum, sum)
			VPOR(quiet, r, r)
			VBLENDVPS(nan, r, sum, r)
			VPSRLD(Imm(16), r, r)
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

func constant(bits uint32, r VecPhysical) {
	g := GP32()
	MOVL(U32(bits), g)
	VMOVD(g, r.AsX())
	VPBROADCASTD(r.AsX(), r)
}

var oddWordTable *Mem

// oddWords is a table of the indices of a register's odd 16-bit words, the upper
// halves of its 32-bit ones.
func oddWords() Mem {
	if oddWordTable == nil {
		m := GLOBL("odd_words", RODATA|NOPTR)
		for i := range 32 {
			DATA(2*i, U16(2*i+1)%32)
		}
		oddWordTable = &m
	}
	return *oddWordTable
}
