// Package vector names what the two instruction sets of the float32 kernels on
// blocks of 16 lanes differ in.
package vector

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Entry is the size in bytes of one number of all 16 lanes.
const Entry = 64

// Tier is an instruction set. Registers are named by number, so that no
// allocation takes one that needs a wider set.
type Tier struct {
	Name  string
	Bytes int // of a register
	regs  []VecPhysical
}

// Tiers are the instruction sets.
var Tiers = []Tier{
	{"AVX2", 32, []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}},
	{"AVX512", 64, []VecPhysical{
		Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31,
	}},
}

// Wide says that the tier has AVX-512.
func (t Tier) Wide() bool { return t.Bytes == 64 }

// Reg is register i.
func (t Tier) Reg(i int) VecPhysical { return t.regs[i] }

// Parts is the registers from register first on that hold one entry.
func (t Tier) Parts(first int) []VecPhysical { return t.regs[first : first+Entry/t.Bytes] }

// Each calls f for each register of an entry at m, with that part's address.
func (t Tier) Each(m Mem, f func(i int, part Mem)) {
	for i := range Entry / t.Bytes {
		f(i, m.Offset(i*t.Bytes))
	}
}

// Begin opens the function name+tier with its equal in Go as documentation.
func (t Tier) Begin(name, signature string, doc ...string) {
	TEXT(name+t.Name, NOSPLIT, signature)
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

// Stride loads the int parameter name, a number of elements of size bytes, as a
// number of bytes.
func Stride(name string, size int) Register {
	s := Load(Param(name), GP64())
	IMUL3Q(U32(size), s, s)
	return s
}

// Loop runs body as often as n says, not at all for 0, and spends n.
func Loop(label string, n Register, body func()) {
	TESTQ(n, n)
	JZ(LabelRef(label + "_end"))
	Label(label)
	body()
	DECQ(n)
	JNZ(LabelRef(label))
	Label(label + "_end")
}

// Advance adds bytes to the address p.
func Advance(p Register, bytes int) { ADDQ(U32(bytes), p) }
