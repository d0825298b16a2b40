// Command blend generates the kernels of internal/kernel/blend: the two products
// between rows that mix residual streams, for rows of each storage type, with
// AVX2 and with AVX-512.
//
// A kernel walks over blocks of up to four rows whose sums stay in registers.
// Rows come as slices of slices, so that they may lie anywhere. 16-bit numbers
// are widened as they are loaded and rounded as they are stored.
package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mhc-go/mhc/_asm/half"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// sliceHeader is the size of a slice's header, a row's in the list of rows.
const sliceHeader = 24

// An element is a type that rows are stored in.
type element struct {
	suffix string // of the kernels' names
	memory string // Go's name of the type in memory
	size   int    // its bytes
	wide   string // Go's name of the type that is computed in
}

var elements = []element{
	{"F32", "float32", 4, "float32"},
	{"F64", "float64", 8, "float64"},
	{"BF16", "uint16", 2, "float32"},
	{"F16", "uint16", 2, "float32"},
}

// A target is the element type and the instruction set of a kernel.
type target struct {
	element
	tier   string        // suffix of the kernels' names
	vector int           // bytes of a vector register
	regs   []VecPhysical // the vector registers
	unroll int           // vectors of a row that combine holds at once
	others int           // rows of x that dots holds at once
}

// rows is the number of rows that a kernel holds at once of dst, or of g.
const rows = 4

// maskTable is a vector of ones, then a vector of zeros.
var maskTable Mem

func main() {
	ConstraintExpr("!purego")
	ymm := []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}
	zmm := []VecPhysical{
		Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31,
	}
	maskTable = GLOBL("mask", RODATA|NOPTR)
	for i := range 8 {
		DATA(i*8, U64(map[bool]uint64{true: math.MaxUint64}[i < 4]))
	}
	for _, e := range elements {
		for _, t := range []target{
			{tier: "AVX2", vector: 32, regs: ymm, unroll: 2, others: 2},
			{tier: "AVX512", vector: 64, regs: zmm, unroll: 4, others: 4},
		} {
			t.element = e
			t.combine()
			t.dots()
		}
	}
	Generate()
}

func (t target) name(kernel string) string { return kernel + t.suffix + t.tier }

// lanes is the number of elements of a vector.
func (t target) lanes() int { return t.vector / t.wideSize() }

// wideSize is the size of a number that is computed with.
func (t target) wideSize() int { return max(t.size, 4) }

// narrow says that numbers are 16 bits in memory.
func (t target) narrow() bool { return t.size == 2 }

// begin begins a kernel with its comment: the loop that it equals, under which
// conditions, and what else there is to say.
func (t target) begin(kernel, signature, loop, where string, also ...string) {
	TEXT(t.name(kernel), NOSPLIT, fmt.Sprintf(signature, t.memory, t.wide))
	Pragma("noescape")
	if t.narrow() {
		where += ", n is a multiple of 16, and a number in memory stands for the " + map[string]string{"BF16": "BFloat16", "F16": "Float16"}[t.suffix] + " of its bits"
	}
	doc := []string{t.name(kernel) + " equals", ""}
	for _, line := range strings.Split(fmt.Sprintf(loop, t.wide), "\n") {
		doc = append(doc, "\t"+line)
	}
	doc = append(doc, "")
	Doc(append(doc, wrap(strings.Join(append([]string{where + "."}, also...), " "))...)...)
}

// wrap breaks text into lines of a comment.
func wrap(text string) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > 77 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// combine writes the kernel of a Combine.
func (t target) combine() {
	t.begin("combine", "func(dst [][]%[1]s, h []%[2]s, src [][]%[1]s, n int, around bool)", `for o, row := range dst {
	for c := range n {
		s := %s(0)
		for i := range src {
			s += h[o*len(src)+i] * src[i][c]
		}
		row[c] = s
	}
}`, "where src has a row or more, and a product and its addition are rounded once",
		"With around set, the rows of dst are aligned to 64 bytes, and are written past the caches, to be seen elsewhere after a fence.")
	c := combine{
		target: t,
		dst:    Load(Param("dst").Base(), GP64()),
		h:      Load(Param("h").Base(), GP64()),
		src:    Load(Param("src").Base(), GP64()),
		inputs: Load(Param("src").Len(), GP64()),
		stride: GP64(), stride3: GP64(), at: GP64(),
	}
	n := Load(Param("n"), GP64())
	IMUL3Q(U32(t.wideSize()), c.inputs, c.stride)
	LEAQ(Mem{Base: c.stride, Index: c.stride, Scale: 2}, c.stride3)
	XORQ(c.at, c.at)
	plain := t.plain()
	if t.suffix == "BF16" {
		plain.pack = half.BFloat16Packer(t.regs[len(t.regs)-6:])
	}

	for _, vectors := range []int{t.unroll, 1} {
		step, label := vectors*t.lanes(), fmt.Sprintf("by%d", vectors)
		if t.narrow() && step < narrowStep {
			continue
		}
		Label(label)
		CMPQ(n, U32(step))
		JL(LabelRef("past_" + label))
		c.pass(label, vectors, plain)
		ADDQ(U32(step*t.size), c.at)
		SUBQ(U32(step), n)
		JMP(LabelRef(label))
		Label("past_" + label)
	}
	if !t.narrow() {
		TESTQ(n, n)
		JZ(LabelRef("done"))
		c.pass("tail", 1, t.masked(n))
		Label("done")
	}
	VZEROUPPER()
	RET()
}

// combine is the kernel being written, with its arguments in registers.
type combine struct {
	target
	dst, h, src, inputs Register
	stride, stride3     Register // bytes of a row of h, and of three
	at                  Register // bytes of a row that are done
}

// pass computes vectors vectors of every row of dst.
func (c combine) pass(label string, vectors int, mem access) {
	dst, h, left := GP64(), GP64(), GP64()
	MOVQ(c.dst, dst)
	MOVQ(c.h, h)
	Load(Param("dst").Len(), left)
	Label(label + "_rows")
	for outputs := rows; outputs >= 1; outputs-- {
		other := fmt.Sprintf("%s_not%d", label, outputs)
		CMPQ(left, Imm(uint64(outputs)))
		JL(LabelRef(other))
		c.block(fmt.Sprintf("%s_%d", label, outputs), dst, h, outputs, vectors, mem)
		if outputs == rows {
			ADDQ(Imm(rows*sliceHeader), dst)
			ADDQ(c.stride3, h) // the block has moved on by one row
			SUBQ(Imm(rows), left)
			JMP(LabelRef(label + "_rows"))
		} else {
			JMP(LabelRef(label + "_end"))
		}
		Label(other)
	}
	Label(label + "_end")
}

// block computes vectors vectors of outputs rows. It moves h on by one row.
func (c combine) block(label string, dst, h Register, outputs, vectors int, mem access) {
	sum, free := take(c.regs, outputs*vectors)
	in, free := take(free, vectors)
	weight := free[0]
	for _, r := range sum {
		c.zero(r)
	}
	src, left, row := GP64(), GP64(), GP64()
	MOVQ(c.src, src)
	MOVQ(c.inputs, left)
	Label(label)
	MOVQ(Mem{Base: src}, row)
	for v, r := range in {
		mem.load(Mem{Base: row, Index: c.at, Scale: 1, Disp: v * c.lanes() * c.size}, r)
	}
	for o, at := range []Mem{
		{Base: h},
		{Base: h, Index: c.stride, Scale: 1},
		{Base: h, Index: c.stride, Scale: 2},
		{Base: h, Index: c.stride3, Scale: 1},
	}[:outputs] {
		c.broadcast(at, weight)
		for v, r := range in {
			c.fma(weight, r, sum[o*vectors+v])
		}
	}
	ADDQ(Imm(uint64(c.wideSize())), h)
	ADDQ(Imm(sliceHeader), src)
	DECQ(left)
	JNZ(LabelRef(label))
	packed := make([][]VecPhysical, outputs)
	for o := range packed {
		packed[o] = mem.pack(sum[o*vectors:][:vectors])
	}
	write := func(move func(from VecPhysical, to Mem)) {
		for o, registers := range packed {
			MOVQ(Mem{Base: dst, Disp: o * sliceHeader}, row)
			to := Mem{Base: row, Index: c.at, Scale: 1}
			for _, r := range registers {
				move(r, to)
				to = to.Offset(int(r.Size()))
			}
		}
	}
	if mem.stream == nil {
		write(mem.store)
		return
	}
	around, err := Param("around").Resolve()
	if err != nil {
		panic(err)
	}
	CMPB(around.Addr, Imm(0))
	JNE(LabelRef(label + "_around"))
	write(mem.store)
	JMP(LabelRef(label + "_written"))
	Label(label + "_around")
	write(mem.stream)
	Label(label + "_written")
}

// dots writes the kernel of a Dots.
func (t target) dots() {
	t.begin("dots", "func(d []%[2]s, g, x [][]%[1]s, n int)", `for o := range g {
	for i := range x {
		s := %s(0)
		for c := range n {
			s += g[o][c] * x[i][c]
		}
		d[o*len(x)+i] += s
	}
}`, fmt.Sprintf("but that each sum is of %d sums, of every %dth c", t.lanes(), t.lanes()))
	k := dots{target: t, g: GP64(), x: GP64(), d: GP64(), right: GP64(), left: AllocLocal(8)}
	Load(Param("g").Base(), k.g)
	Load(Param("d").Base(), k.d)
	left := Load(Param("g").Len(), GP64())
	MOVQ(left, k.left)
	Label("rows")
	for outputs := rows; outputs >= 1; outputs-- {
		other := fmt.Sprintf("not%d", outputs)
		CMPQ(k.left, Imm(uint64(outputs)))
		JL(LabelRef(other))
		k.row(outputs)
		if outputs < rows {
			JMP(LabelRef("done"))
		} else {
			ADDQ(Imm(rows*sliceHeader), k.g)
			SUBQ(Imm(rows), k.left)
			JMP(LabelRef("rows"))
		}
		Label(other)
	}
	Label("done")
	VZEROUPPER()
	RET()
}

// dots is the kernel being written.
type dots struct {
	target
	g, x, d Register // the next rows of g and of x, and their products
	left    Mem      // rows of g that are left
	right   Register // rows of x that are left
}

// row writes the products of outputs rows of g with all of x, and moves d on by
// outputs rows.
func (k dots) row(outputs int) {
	label := fmt.Sprintf("row%d", outputs)
	Load(Param("x").Base(), k.x)
	Load(Param("x").Len(), k.right)
	Label(label)
	for inputs := k.others; inputs >= 1; inputs-- {
		other := fmt.Sprintf("%s_not%d", label, inputs)
		CMPQ(k.right, Imm(uint64(inputs)))
		JL(LabelRef(other))
		k.block(fmt.Sprintf("%s_%d", label, inputs), outputs, inputs)
		ADDQ(Imm(uint64(inputs*sliceHeader)), k.x)
		ADDQ(Imm(uint64(inputs*k.wideSize())), k.d)
		SUBQ(Imm(uint64(inputs)), k.right)
		JMP(LabelRef(label))
		Label(other)
	}
	stride := Load(Param("x").Len(), GP64())
	IMUL3Q(U32((outputs-1)*k.wideSize()), stride, stride)
	ADDQ(stride, k.d)
}

// block adds the products of outputs rows of g with inputs rows of x to d.
func (k dots) block(label string, outputs, inputs int) {
	sum, free := take(k.regs, outputs*inputs)
	g, free := take(free, outputs)
	x := free[0]
	for _, r := range sum {
		k.zero(r)
	}
	gRow, xRow := make([]Register, outputs), make([]Register, inputs)
	for o := range gRow {
		gRow[o] = GP64()
		MOVQ(Mem{Base: k.g, Disp: o * sliceHeader}, gRow[o])
	}
	for i := range xRow {
		xRow[i] = GP64()
		MOVQ(Mem{Base: k.x, Disp: i * sliceHeader}, xRow[i])
	}
	plain, at, n := k.plain(), GP64(), Load(Param("n"), GP64())
	XORQ(at, at)
	multiply := func(mem access) {
		for o, r := range g {
			mem.load(Mem{Base: gRow[o], Index: at, Scale: 1}, r)
		}
		for i, row := range xRow {
			mem.load(Mem{Base: row, Index: at, Scale: 1}, x)
			for o, r := range g {
				k.fma(r, x, sum[o*inputs+i])
			}
		}
	}
	Label(label)
	CMPQ(n, Imm(uint64(k.lanes())))
	JL(LabelRef(label + "_tail"))
	multiply(plain)
	ADDQ(Imm(uint64(k.lanes()*k.size)), at)
	SUBQ(Imm(uint64(k.lanes())), n)
	JMP(LabelRef(label))
	Label(label + "_tail")
	if !k.narrow() {
		TESTQ(n, n)
		JZ(LabelRef(label + "_sum"))
		multiply(k.masked(n))
		Label(label + "_sum")
	}

	d, stride := GP64(), Load(Param("x").Len(), GP64())
	MOVQ(k.d, d)
	for o := range outputs {
		for i := range inputs {
			k.addSum(sum[o*inputs+i], x, Mem{Base: d, Disp: i * k.wideSize()})
		}
		if o < outputs-1 {
			LEAQ(Mem{Base: d, Index: stride, Scale: uint8(k.wideSize())}, d)
		}
	}
}

func (t target) zero(r VecPhysical) {
	if t.vector == 64 {
		VPXORD(r, r, r)
	} else {
		VXORPS(r, r, r)
	}
}

func (t target) broadcast(from Mem, to VecPhysical) {
	if t.wideSize() == 4 {
		VBROADCASTSS(from, to)
	} else {
		VBROADCASTSD(from, to)
	}
}

func (t target) fma(a, b, sum VecPhysical) {
	if t.wideSize() == 4 {
		VFMADD231PS(a, b, sum)
	} else {
		VFMADD231PD(a, b, sum)
	}
}

// addSum adds the sum of v's elements to the number at to, by halving v until one
// element is left.
func (t target) addSum(v, scratch VecPhysical, to Mem) {
	add := func(a, b Op) {
		if t.wideSize() == 4 {
			VADDPS(a, b, b)
		} else {
			VADDPD(a, b, b)
		}
	}
	if t.vector == 64 {
		VEXTRACTF64X4(Imm(1), v, scratch.AsY())
		add(scratch.AsY(), v.AsY())
		VEXTRACTF64X2(Imm(1), v.AsY(), scratch.AsX())
	} else {
		VEXTRACTF128(Imm(1), v.AsY(), scratch.AsX())
	}
	add(scratch.AsX(), v.AsX())
	VPERMILPD(Imm(1), v.AsX(), scratch.AsX())
	add(scratch.AsX(), v.AsX())
	if t.wideSize() == 8 {
		VADDSD(to, v.AsX(), v.AsX())
		VMOVSD(v.AsX(), to)
		return
	}
	VPERMILPS(Imm(1), v.AsX(), scratch.AsX())
	VADDSS(scratch.AsX(), v.AsX(), v.AsX())
	VADDSS(to, v.AsX(), v.AsX())
	VMOVSS(v.AsX(), to)
}

// take cuts n registers off regs.
func take(regs []VecPhysical, n int) (taken, rest []VecPhysical) { return regs[:n], regs[n:] }
