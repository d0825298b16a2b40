package main

import (
	"github.com/mhc-go/mhc/_asm/half"
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
	pack half.Packer
	// store writes a register; stream does so past the caches, to an aligned
	// address, and is nil where there is no such way.
	store, stream func(from VecPhysical, to Mem)
}

func unchanged(row []VecPhysical) []VecPhysical { return row }

// plain is the access to whole vectors. The pack to bfloat16 is missing, since it
// takes registers, and only combine has a use for it.
func (t target) plain() access {
	switch t.suffix {
	case "BF16":
		return access{
			load:   half.WidenBFloat16,
			store:  func(from VecPhysical, to Mem) { VMOVDQU(from, to) },
			stream: func(from VecPhysical, to Mem) { VMOVNTDQ(from, to) },
		}
	case "F16":
		return access{
			load:   half.WidenFloat16,
			pack:   half.PackFloat16,
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
