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
	// store writes consecutive vectors; it may change the registers.
	store func(from []VecPhysical, to Mem)
}

// loader is an access for loads alone, which needs no registers of its own.
func (t target) loader() access {
	switch t.suffix {
	case "BF16":
		return access{load: func(from Mem, to VecPhysical) {
			VPMOVZXWD(from, to)
			VPSLLD(Imm(16), to, to)
		}}
	case "F16":
		return access{load: func(from Mem, to VecPhysical) { VCVTPH2PS(from, to) }}
	case "F64":
		return access{load: func(from Mem, to VecPhysical) { VMOVUPD(from, to) }}
	}
	return access{load: func(from Mem, to VecPhysical) { VMOVUPS(from, to) }}
}

// plain is the access to whole vectors. It writes what its stores need to
// registers that the kernels leave free, the last ones.
func (t target) plain() access {
	a := t.loader()
	each := func(move func(from VecPhysical, to Mem)) func([]VecPhysical, Mem) {
		return func(from []VecPhysical, to Mem) {
			for v, r := range from {
				move(r, to.Offset(v*t.lanes()*t.size))
			}
		}
	}
	switch t.suffix {
	case "BF16":
		a.store = t.storeBFloat16()
	case "F16":
		a.store = each(func(from VecPhysical, to Mem) { VCVTPS2PH(Imm(0), from, to) }) // 0: to nearest, ties to even
	case "F64":
		a.store = each(func(from VecPhysical, to Mem) { VMOVUPD(from, to) })
	default:
		a.store = each(func(from VecPhysical, to Mem) { VMOVUPS(from, to) })
	}
	return a
}

// storeBFloat16 rounds to bits + 0x7fff + (bits>>16 & 1), whose upper half is the
// result; a NaN is its own upper half with the quiet bit set.
func (t target) storeBFloat16() func([]VecPhysical, Mem) {
	last := t.regs[len(t.regs)-6:]
	upper, lsb, nan, half, one, quiet := last[0], last[1], last[2], last[3], last[4], last[5]
	for i, bits := range []uint32{0x7fff, 1, 0x40} {
		g := GP32()
		MOVL(U32(bits), g)
		VMOVD(g, last[3+i].AsX())
		VPBROADCASTD(last[3+i].AsX(), last[3+i])
	}
	if t.vector == 64 {
		return func(from []VecPhysical, to Mem) {
			for v, r := range from {
				VCMPPS(Imm(3), r, r, K2) // 3: unordered
				VPSRLD(Imm(16), r, upper)
				VPANDD(one, upper, lsb)
				VPADDD(half, r, r)
				VPADDD(lsb, r, r)
				VPSRLD(Imm(16), r, r)
				VPORD(quiet, upper, K2, r)
				VPMOVDW(r, to.Offset(v*32))
			}
		}
	}
	return func(from []VecPhysical, to Mem) {
		for _, r := range from {
			VCMPPS(Imm(3), r, r, nan)
			VPSRLD(Imm(16), r, upper)
			VPAND(one, upper, lsb)
			VPADDD(half, r, r)
			VPADDD(lsb, r, r)
			VPSRLD(Imm(16), r, r)
			VPOR(quiet, upper, upper)
			VBLENDVPS(nan, upper, r, r)
		}
		VPACKUSDW(from[1], from[0], from[0]) // within each half of the register
		VPERMQ(Imm(0b11011000), from[0], from[0])
		VMOVDQU(from[0], to)
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
				store: func(from []VecPhysical, to Mem) { VMOVUPS(from[0], K1, to) },
			}
		}
		return access{
			load:  func(from Mem, to VecPhysical) { VMOVUPD_Z(from, K1, to) },
			store: func(from []VecPhysical, to Mem) { VMOVUPD(from[0], K1, to) },
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
			store: func(from []VecPhysical, to Mem) { VMASKMOVPS(from[0], mask, to) },
		}
	}
	return access{
		load:  func(from Mem, to VecPhysical) { VMASKMOVPD(from, mask, to) },
		store: func(from []VecPhysical, to Mem) { VMASKMOVPD(from[0], mask, to) },
	}
}
