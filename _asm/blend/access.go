package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// narrowStep is the number of channels that the kernels of 16-bit rows do at
// least; what is left over is their caller's.
const narrowStep = 16

// access is how numbers move between memory and vector registers.
type access struct {
	load func(from Mem, to VecPhysical)
	// pack rounds the vectors of a row to the numbers of memory, in the registers
	// that it returns.
	pack func(row []VecPhysical) []VecPhysical
	// store writes a register; stream does so past the caches, to an aligned
	// address, and is nil where there is no such way.
	store, stream func(from VecPhysical, to Mem)
}

func unchanged(row []VecPhysical) []VecPhysical { return row }

// plain is the access to whole vectors.
func (t target) plain() access {
	switch t.suffix {
	case "BF16":
		return access{
			load: func(from Mem, to VecPhysical) {
				VPMOVZXWD(from, to)
				VPSLLD(Imm(16), to, to)
			},
			store:  func(from VecPhysical, to Mem) { VMOVDQU(from, to) },
			stream: func(from VecPhysical, to Mem) { VMOVNTDQ(from, to) },
		}
	case "F16":
		return access{
			load:   func(from Mem, to VecPhysical) { VCVTPH2PS(from, to) },
			pack:   t.packFloat16,
			store:  func(from VecPhysical, to Mem) { VMOVDQU(from, to) },
			stream: func(from VecPhysical, to Mem) { VMOVNTDQ(from, to) },
		}
	case "F64":
		return access{
			load:   func(from Mem, to VecPhysical) { VMOVUPD(from, to) },
			pack:   unchanged,
			store:  func(from VecPhysical, to Mem) { VMOVUPD(from, to) },
			stream: func(from VecPhysical, to Mem) { VMOVNTPD(from, to) },
		}
	}
	return access{
		load:   func(from Mem, to VecPhysical) { VMOVUPS(from, to) },
		pack:   unchanged,
		store:  func(from VecPhysical, to Mem) { VMOVUPS(from, to) },
		stream: func(from VecPhysical, to Mem) { VMOVNTPS(from, to) },
	}
}

func (t target) packFloat16(row []VecPhysical) []VecPhysical {
	var packed []VecPhysical
	for _, r := range row {
		half := VecPhysical(r.AsX().(VecPhysical))
		if t.vector == 64 {
			half = r.AsY().(VecPhysical)
		}
		VCVTPS2PH(Imm(0), r, half) // 0: to nearest, ties to even
		packed = append(packed, half)
	}
	return packed
}

// bfloat16Packer loads constants to the last three vector registers, and returns
// a pack that also changes the three before them. It rounds to bits + 0x7fff +
// (bits>>16 & 1), whose upper half is the result; a NaN is its own upper half with
// the quiet bit set.
func (t target) bfloat16Packer() func(row []VecPhysical) []VecPhysical {
	last := t.regs[len(t.regs)-6:]
	upper, lsb, nan, half, one, quiet := last[0], last[1], last[2], last[3], last[4], last[5]
	for i, bits := range []uint32{0x7fff, 1, 0x40} {
		g := GP32()
		MOVL(U32(bits), g)
		VMOVD(g, last[3+i].AsX())
		VPBROADCASTD(last[3+i].AsX(), last[3+i])
	}
	if t.vector == 64 {
		return func(row []VecPhysical) (packed []VecPhysical) {
			for _, r := range row {
				VCMPPS(Imm(3), r, r, K2) // 3: unordered
				VPSRLD(Imm(16), r, upper)
				VPANDD(one, upper, lsb)
				VPADDD(half, r, r)
				VPADDD(lsb, r, r)
				VPSRLD(Imm(16), r, r)
				VPORD(quiet, upper, K2, r)
				VPMOVDW(r, r.AsY())
				packed = append(packed, r.AsY().(VecPhysical))
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
		VPACKUSDW(row[1], row[0], row[0]) // within each half of the register
		VPERMQ(Imm(0b11011000), row[0], row[0])
		return row[:1]
	}
}

// masked moves the first n elements, fewer than a vector has; those past them
// load as zero. It holds the mask in K1, or in the last vector register.
func (t target) masked(n Register) access {
	if t.vector == 64 {
		bits := GP64()
		MOVQ(I32(-1), bits)
		BZHIQ(n, bits, bits)
		KMOVW(bits.As32(), K1)
		if t.size == 4 {
			return access{
				load:  func(from Mem, to VecPhysical) { VMOVUPS_Z(from, K1, to) },
				pack:  unchanged,
				store: func(from VecPhysical, to Mem) { VMOVUPS(from, K1, to) },
			}
		}
		return access{
			load:  func(from Mem, to VecPhysical) { VMOVUPD_Z(from, K1, to) },
			pack:  unchanged,
			store: func(from VecPhysical, to Mem) { VMOVUPD(from, K1, to) },
		}
	}
	mask := t.regs[len(t.regs)-1]
	table, back := GP64(), GP64()
	LEAQ(maskTable.Offset(t.vector), table)
	MOVQ(n, back)
	NEGQ(back)
	VMOVDQU(Mem{Base: table, Index: back, Scale: uint8(t.size)}, mask)
	if t.size == 4 {
		return access{
			load:  func(from Mem, to VecPhysical) { VMASKMOVPS(from, mask, to) },
			pack:  unchanged,
			store: func(from VecPhysical, to Mem) { VMASKMOVPS(from, mask, to) },
		}
	}
	return access{
		load:  func(from Mem, to VecPhysical) { VMASKMOVPD(from, mask, to) },
		pack:  unchanged,
		store: func(from VecPhysical, to Mem) { VMASKMOVPD(from, mask, to) },
	}
}
