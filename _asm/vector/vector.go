// Package vector names what the instruction sets and the two types of the
// kernels on blocks of 16 lanes differ in.
package vector

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Lanes is the number of tokens of a block. A number of all of them is an entry.
const Lanes = 16

// Half is the number of bytes of an entry that the kernels on lines take at a
// time: a whole one of float32, half of one of float64.
const Half = 64

// Target is an instruction set and an element type.
type Target struct {
	Instructions
	Name  string // what its functions' names end in
	Type  string // in Go
	Elem  int    // bytes of an element
	Bytes int    // of a register
	regs  []VecPhysical
}

// Instructions are those on elements of one type.
type Instructions struct {
	Move, Add, Sub, Mul, Div, Min, Max, Xor, Or, Compare func(...Op)
	MulAdd213, MulSubFrom231                             func(...Op) // b*dst + a; dst - a*b
	Broadcast, Round, Scale                              func(...Op)
	Blend                                                func(...Op)         // AVX-512: by a mask register
	BlendBySign                                          func(a, b, c, d Op) // AVX2: by a register
	MaskedStore                                          func(a, b, c Op)    // AVX2
	SignMask, RoundAVX2                                  func(...Op)
}

// Registers are taken by number, so that no allocation takes one that needs a
// wider set.
var (
	ymm = []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}
	zmm = []VecPhysical{
		Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31,
	}
	single = Instructions{
		Move: VMOVUPS, Add: VADDPS, Sub: VSUBPS, Mul: VMULPS, Div: VDIVPS, Min: VMINPS, Max: VMAXPS, Xor: VXORPS, Or: VORPS, Compare: VCMPPS,
		MulAdd213: VFMADD213PS, MulSubFrom231: VFNMADD231PS,
		Broadcast: VBROADCASTSS, Round: VRNDSCALEPS, Scale: VSCALEFPS,
		Blend: VBLENDMPS, BlendBySign: VBLENDVPS, MaskedStore: VMASKMOVPS,
		SignMask: two(VMOVMSKPS), RoundAVX2: three(VROUNDPS),
	}
	double = Instructions{
		Move: VMOVUPD, Add: VADDPD, Sub: VSUBPD, Mul: VMULPD, Div: VDIVPD, Min: VMINPD, Max: VMAXPD, Xor: VXORPD, Or: VORPD, Compare: VCMPPD,
		MulAdd213: VFMADD213PD, MulSubFrom231: VFNMADD231PD,
		Broadcast: VBROADCASTSD, Round: VRNDSCALEPD, Scale: VSCALEFPD,
		Blend: VBLENDMPD, BlendBySign: VBLENDVPD, MaskedStore: VMASKMOVPD,
		SignMask: two(VMOVMSKPD), RoundAVX2: three(VROUNDPD),
	}
)

func two(f func(a, b Op)) func(...Op)      { return func(o ...Op) { f(o[0], o[1]) } }
func three(f func(a, b, c Op)) func(...Op) { return func(o ...Op) { f(o[0], o[1], o[2]) } }

// Targets are all of them.
var Targets = []Target{
	{single, "F32AVX2", "float32", 4, 32, ymm},
	{single, "F32AVX512", "float32", 4, 64, zmm},
	{double, "F64AVX2", "float64", 8, 32, ymm},
	{double, "F64AVX512", "float64", 8, 64, zmm},
}

// Wide says that the target has AVX-512.
func (t Target) Wide() bool { return t.Bytes == 64 }

// Entry is the size of an entry in bytes.
func (t Target) Entry() int { return Lanes * t.Elem }

// Reg is register i.
func (t Target) Reg(i int) VecPhysical { return t.regs[i] }

// Parts is the registers from register first on that hold half an entry.
func (t Target) Parts(first int) []VecPhysical { return t.regs[first : first+Half/t.Bytes] }

// EachPart calls f for each register of the half of an entry at m, with that
// part's address.
func (t Target) EachPart(m Mem, f func(i int, part Mem)) { t.each(m, Half, f) }

// Each calls f for each register of the whole entry at m, with that part's
// address.
func (t Target) Each(m Mem, f func(i int, part Mem)) { t.each(m, t.Entry(), f) }

func (t Target) each(m Mem, bytes int, f func(i int, part Mem)) {
	for i := range bytes / t.Bytes {
		f(i, m.Offset(i*t.Bytes))
	}
}

// EachHalf calls f with the offset of each half of an entry.
func (t Target) EachHalf(f func(offset int)) {
	for offset := 0; offset < t.Entry(); offset += Half {
		f(offset)
	}
}

// Begin opens the function of that name, with its equal in Go as documentation.
// "T" in the signature is the element type.
func (t Target) Begin(name, signature string, doc ...string) {
	TEXT(name+t.Name, NOSPLIT, strings.ReplaceAll(signature, "T", t.Type))
	Pragma("noescape")
	Doc(append([]string{name + t.Name + " " + doc[0]}, doc[1:]...)...)
}

// End closes a function.
func End() {
	VZEROUPPER()
	RET()
}

// Base loads the address of the slice parameter name.
func Base(name string) Register { return Load(Param(name).Base(), GP64()) }

// Count loads the number of entries in the slice parameter name.
func Count(name string) Register {
	n := Load(Param(name).Len(), GP64())
	SHRQ(Imm(4), n)
	return n
}

// Stride loads the int parameter name, a number of things of size bytes, as a
// number of bytes.
func Stride(name string, size int) Register {
	s := Load(Param(name), GP64())
	IMUL3Q(U32(size), s, s)
	return s
}

// Scalar broadcasts the parameter name to r.
func (t Target) Scalar(name string, r VecPhysical) {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	t.Broadcast(b.Addr, r)
}

// One sets r to 1 in every lane, by way of register 15.
func (t Target) One(r VecPhysical) {
	bits := GP64()
	if t.Elem == 4 {
		MOVQ(U32(0x3f800000), bits)
	} else {
		MOVQ(U64(0x3ff0000000000000), bits)
	}
	VMOVQ(bits, X15)
	t.Broadcast(X15, r)
}

var loops int

// Loop runs body as often as n says, not at all for 0, and spends n.
func Loop(n Register, body func()) {
	loops++
	start, end := fmt.Sprintf("loop%d", loops), fmt.Sprintf("end%d", loops)
	TESTQ(n, n)
	JZ(LabelRef(end))
	Label(start)
	body()
	DECQ(n)
	JNZ(LabelRef(start))
	Label(end)
}

// Advance adds bytes to the address p.
func Advance(p Register, bytes int) { ADDQ(U32(bytes), p) }
