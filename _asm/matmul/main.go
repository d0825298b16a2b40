// Command matmul generates the vector kernels of internal/kernel/matmul. Each
// comes for two instruction sets and two types of number, from one function here,
// and equals the portable kernel of its name.
package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// As in internal/kernel/matmul.
const (
	rows  = 6
	cols  = 4
	strip = 64
	step  = 16

	line = 64 // bytes of a cache line
)

func main() {
	ConstraintExpr("!purego")
	for _, n := range []number{float32s, float64s} {
		for _, v := range []vectors{avx2, avx512} {
			t := target{n, v}
			t.dot()
			if t.wide() {
				t.dotSquares()
			}
			t.outer()
			t.expand()
			t.add()
			t.squares()
			t.load(t.itself())
			if !t.double() {
				t.load(bfloat16s)
				t.load(float16s)
			}
		}
		target{n, avx2}.transpose()
	}
	Generate()
}

// number is a type of number.
type number struct {
	name, suffix string
	size         int
}

var (
	float32s = number{"float32", "F32", 4}
	float64s = number{"float64", "F64", 8}
)

// vectors is an instruction set's vectors.
type vectors struct {
	name  string
	bytes int
	regs  []VecPhysical
}

var (
	avx2   = vectors{"AVX2", 32, []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}}
	avx512 = vectors{"AVX512", 64, []VecPhysical{
		Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31}}
)

// target is what one version of the kernels is generated for.
type target struct {
	number
	vectors
}

func (t target) double() bool { return t.size == 8 }
func (t target) wide() bool   { return t.vectors.bytes == 64 }

// lanes is how many numbers a vector holds.
func (t target) lanes() int { return t.vectors.bytes / t.size }

// pick calls the instruction for float32 or that for float64.
func (t target) pick(single, double func(...Op), ops ...Op) {
	if t.double() {
		double(ops...)
	} else {
		single(ops...)
	}
}

func two(f func(a, b Op)) func(...Op) { return func(o ...Op) { f(o[0], o[1]) } }

func (t target) move(from, to Op)      { t.pick(VMOVUPS, VMOVUPD, from, to) }
func (t target) stream(from, to Op)    { t.pick(two(VMOVNTPS), two(VMOVNTPD), from, to) }
func (t target) broadcast(from, to Op) { t.pick(VBROADCASTSS, VBROADCASTSD, from, to) }
func (t target) plus(a, b, to Op)      { t.pick(VADDPS, VADDPD, a, b, to) }
func (t target) mul(a, b, to Op)       { t.pick(VMULPS, VMULPD, a, b, to) }
func (t target) fma(a, b, to Op)       { t.pick(VFMADD231PS, VFMADD231PD, a, b, to) }
func (t target) zero(v Op)             { t.pick(VXORPS, VXORPD, v, v, v) }

// begin starts a kernel. Arguments are those in [matmul.Kernels], with A the number.
func (t target) begin(name, args string) {
	t.beginAs(name, t.suffix, name+"Go for "+t.number.name, args)
}

// beginAs starts a kernel that equals a reference.
func (t target) beginAs(name, suffix, reference, args string) {
	name += suffix + t.vectors.name
	TEXT(name, NOSPLIT, fmt.Sprintf("func("+args+")", t.number.name))
	Doc(fmt.Sprintf("%s is %s with %s.", name, reference, t.vectors.name))
	Pragma("noescape")
}

func (t target) end() {
	VZEROUPPER()
	RET()
}

// base loads the address of a slice argument.
func base(name string) Register { return Load(Param(name).Base(), GP64()) }

// value loads another argument.
func value(name string) Register { return Load(Param(name), GP64()) }

// count loads a number of numbers, and turns it into bytes.
func (t target) count(name string) Register {
	r := value(name)
	SHLQ(log2(t.size), r)
	return r
}

// log2 is the shift by which a power of two divides or multiplies.
func log2(n int) Op { return Imm(uint64(bits.TrailingZeros(uint(n)))) }

// copyOf returns a register of its own with the value of r.
func copyOf(r Register) GPVirtual {
	to := GP64()
	MOVQ(r, to)
	return to
}

// triple returns 3*r.
func triple(r Register) GPVirtual {
	to := GP64()
	LEAQ(Mem{Base: r, Index: r, Scale: 2}, to)
	return to
}

// offset returns the address r + by.
func offset(r, by Register) GPVirtual {
	to := GP64()
	LEAQ(Mem{Base: r, Index: by, Scale: 1}, to)
	return to
}

// threes addresses rows of a matrix by one pointer to every third.
type threes struct {
	at     []Register
	stride Register
}

func newThrees(at, stride Register, n int) threes {
	m := threes{[]Register{at}, stride}
	if n > 3 {
		by := triple(stride)
		for i := 3; i < n; i += 3 {
			m.at = append(m.at, offset(m.at[len(m.at)-1], by))
		}
	}
	return m
}

func (m threes) row(i int) Mem {
	a := Mem{Base: m.at[i/3]}
	if i%3 > 0 {
		a = a.Idx(m.stride, uint8(i%3))
	}
	return a
}

func (m threes) advance(by Op) {
	for _, r := range m.at {
		ADDQ(by, r)
	}
}

func (m threes) retreat(by Op) {
	for _, r := range m.at {
		SUBQ(by, r)
	}
}

// four addresses four rows.
type four struct{ at, stride, thrice Register }

func newFour(at, stride Register) four { return four{at, stride, triple(stride)} }

func (m four) row(i int) Mem {
	switch i {
	case 0:
		return Mem{Base: m.at}
	case 3:
		return Mem{Base: m.at, Index: m.thrice, Scale: 1}
	}
	return Mem{Base: m.at, Index: m.stride, Scale: uint8(i)}
}

// loop repeats body n times, at least once; it uses n up.
func loop(label string, n Register, body func()) {
	Label(label)
	body()
	DECQ(n)
	JNZ(LabelRef(label))
}

func (t target) dot() {
	t.begin("dot", "c, x []%[1]s, ldx int, phi []%[1]s, ld, m, w int, next *byte, stride int")
	c, x, ldx, phi, ld, m, w := base("c"), base("x"), t.count("ldx"), base("phi"), t.count("ld"), t.count("m"), t.count("w")
	p := newFour(phi, ld)
	groups := copyOf(m)
	SHRQ(log2(cols*t.size), groups)
	xs := newThrees(x, ldx, rows)
	next, stride := value("next"), value("stride")

	// Six rows at a time where there are registers for their sums, else three.
	high := rows
	if !t.wide() {
		high = rows / 2
	}
	loop("columns", groups, func() {
		for r := 0; r < rows; r += high {
			acc, rest := t.regs[:high*cols], t.regs[high*cols:]
			for _, a := range acc {
				t.zero(a)
			}
			along := append([]Register{p.at}, xs.at[r/3:(r+high)/3]...)
			if r == 0 {
				along = append(along, next)
			}
			n := copyOf(w)
			SHRQ(log2(line), n)
			loop(fmt.Sprintf("row%d", r), n, func() {
				for at := 0; at < line; at += t.vectors.bytes {
					t.dotStep(p, xs, r, high, at)
				}
				if r == 0 {
					PREFETCHT1(Mem{Base: next})
				}
				for _, a := range along {
					ADDQ(U32(line), a)
				}
			})
			for _, a := range along {
				SUBQ(w, a)
			}
			for i := range high {
				t.sumFour(acc[i*cols:][:cols], rest[0], Mem{Base: c})
				ADDQ(m, c)
			}
		}
		ADDQ(stride, next)
		for range rows / 3 {
			SUBQ(triple(m), c)
		}
		ADDQ(U32(cols*t.size), c)
		LEAQ(Mem{Base: p.at, Index: ld, Scale: 4}, p.at)
	})
	t.end()
}

// dotSquares gives each sweep over four columns the squares of one of the six rows
// to add up beside, as squares does.
func (t target) dotSquares() {
	t.beginAs("dotSquares", t.suffix, "dotGo and squaresGo in one, for "+t.number.name+",",
		"c, sums, x []%[1]s, ldx int, phi []%[1]s, ld, w int, next *byte, stride int")
	c, sums, x, ldx, phi, ld, w := base("c"), base("sums"), base("x"), t.count("ldx"), base("phi"), t.count("ld"), t.count("w")
	p := newFour(phi, ld)
	own := copyOf(x) // the row that is squared
	xs := newThrees(x, ldx, rows)
	next, stride := value("next"), value("stride")
	squares, rest := t.regs[:4], t.regs[4:]
	acc, columns, v := rest[:rows*cols], rest[rows*cols:][:cols-1], rest[rows*cols+cols-1]

	sweeps := GP64()
	MOVQ(U32(rows), sweeps)
	loop("columns", sweeps, func() {
		for _, a := range t.regs[:rows*cols+4] {
			t.zero(a)
		}
		along := append([]Register{p.at, next, own}, xs.at...)
		n := copyOf(w)
		SHRQ(log2(4*line), n)
		loop("row", n, func() {
			for i, square := range squares {
				at := i * line
				for j, column := range columns {
					t.move(p.row(j).Offset(at), column)
				}
				t.move(Mem{Base: own, Disp: at}, v)
				t.fma(v, v, square)
				for r := range rows {
					t.move(xs.row(r).Offset(at), v)
					for j, column := range columns {
						t.fma(column, v, acc[r*cols+j])
					}
					t.fma(p.row(cols-1).Offset(at), v, acc[r*cols+cols-1])
				}
				PREFETCHT0(Mem{Base: next, Disp: at})
			}
			for _, a := range along {
				ADDQ(U32(4*line), a)
			}
		})
		for _, a := range along {
			SUBQ(w, a)
		}
		t.total(squares, Mem{Base: sums})
		for i := range rows {
			t.sumFour(acc[i*cols:][:cols], v, Mem{Base: c, Disp: i * rows * cols * t.size})
		}
		ADDQ(U32(t.size), sums)
		ADDQ(ldx, own)
		ADDQ(stride, next)
		ADDQ(U32(cols*t.size), c)
		LEAQ(Mem{Base: p.at, Index: ld, Scale: 4}, p.at)
	})
	t.end()
}

// dotStep adds to the sums of the rows from r on, high of them, what the vectors at
// an offset from the pointers give.
func (t target) dotStep(p four, xs threes, r, high, at int) {
	acc, rest := t.regs[:high*cols], t.regs[high*cols:]
	if t.wide() { // registers for four vectors of phi
		for j := range cols {
			t.move(p.row(j).Offset(at), rest[j])
		}
		for i := range high {
			v := rest[cols+i%(len(rest)-cols)]
			t.move(xs.row(r+i).Offset(at), v)
			for j := range cols {
				t.fma(rest[j], v, acc[i*cols+j])
			}
		}
		return
	}
	for i := range high {
		t.move(xs.row(r+i).Offset(at), rest[i])
	}
	for j := range cols {
		t.move(p.row(j).Offset(at), rest[high])
		for i := range high {
			t.fma(rest[high], rest[i], acc[i*cols+j])
		}
	}
}

// sumFour adds the sums of the numbers in each of four vectors to the four
// numbers at to.
func (t target) sumFour(v []VecPhysical, spare VecPhysical, to Mem) {
	pairs := func(a, b VecPhysical) { // a becomes sums of a and b in turn
		if t.double() {
			VUNPCKHPD(b, a, spare)
			VUNPCKLPD(b, a, a)
		} else {
			VUNPCKHPS(b, a, spare)
			VUNPCKLPS(b, a, a)
		}
		t.plus(spare, a, a)
	}
	pairs(v[0], v[1])
	pairs(v[2], v[3])
	y0, y2, ys := v[0].AsY(), v[2].AsY(), spare.AsY()
	x0, xs := v[0].AsX(), spare.AsX()
	if t.double() {
		if t.wide() {
			for _, i := range []int{0, 2} {
				VEXTRACTF64X4(Imm(1), v[i], ys)
				VADDPD(ys, v[i].AsY(), v[i].AsY())
			}
		}
		// [0 1 | 0 1] and [2 3 | 2 3]
		if t.wide() { // registers past Y15
			VSHUFF64X2(Imm(3), y2, y0, ys)
			VSHUFF64X2(Imm(0), y2, y0, y0)
		} else {
			VPERM2F128(Imm(0x31), y2, y0, ys)
			VPERM2F128(Imm(0x20), y2, y0, y0)
		}
		VADDPD(ys, y0, y0)
		VADDPD(to, y0, y0)
		VMOVUPD(y0, to)
		return
	}
	VUNPCKHPD(v[2], v[0], spare)
	VUNPCKLPD(v[2], v[0], v[0])
	t.plus(spare, v[0], v[0])
	if t.wide() {
		VEXTRACTF64X4(Imm(1), v[0], ys)
		VADDPS(ys, y0, y0)
		VEXTRACTF32X4(Imm(1), y0, xs)
	} else {
		VEXTRACTF128(Imm(1), y0, xs)
	}
	VADDPS(xs, x0, x0)
	VADDPS(to, x0, x0)
	VMOVUPS(x0, to)
}

func (t target) outer() {
	t.begin("outer", "d []%[1]s, ld int, x, g []%[1]s, m, rows int, next *byte, stride int")
	ld, m, stride := t.count("ld"), t.count("m"), value("stride")
	thrice := triple(ld)
	across := len(t.regs) / 2 / cols // vectors of a row of the tile
	done := GP64()                   // bytes of the strip
	XORQ(done, done)
	Label("strip")
	d, x, next := base("d"), base("x"), value("next")
	for _, r := range []Register{d, x, next} {
		ADDQ(done, r)
	}
	from := base("g")
	groups := copyOf(m)
	SHRQ(log2(cols*t.size), groups)
	loop("columns", groups, func() {
		acc, v := t.regs[:across*cols], t.regs[across*cols:]
		for _, a := range acc {
			t.zero(a)
		}
		n := value("rows")
		at, f, ahead := copyOf(x), copyOf(from), copyOf(next)
		loop("token", n, func() {
			for i := range across {
				t.move(Mem{Base: at, Disp: i * t.vectors.bytes}, v[i])
			}
			for j := range cols {
				s := v[across+j%(len(v)-across)]
				t.broadcast(Mem{Base: f, Disp: j * t.size}, s)
				for i := range across {
					t.fma(v[i], s, acc[j*across+i])
				}
			}
			PREFETCHT1(Mem{Base: ahead})
			ADDQ(stride, ahead)
			ADDQ(U32(strip*t.size), at)
			ADDQ(m, f)
		})
		to := four{d, ld, thrice}
		for j := range cols {
			for i := range across {
				a := acc[j*across+i]
				place := to.row(j).Offset(i * t.vectors.bytes)
				t.plus(place, a, a)
				t.move(a, place)
			}
		}
		LEAQ(Mem{Base: d, Index: ld, Scale: 4}, d)
		ADDQ(U32(cols*t.size), from)
		ADDQ(U32(line), next)
	})
	ADDQ(U32(across*t.vectors.bytes), done)
	CMPQ(done, U32(strip*t.size))
	JNE(LabelRef("strip"))
	t.end()
}

func (t target) expand() {
	t.begin("expand", "dst []%[1]s, ldd int, x, b, g, phi []%[1]s, ld, m, rows int, around bool")
	dst, ldd, x := base("dst"), t.count("ldd"), base("x")
	b, g, m, left := base("b"), base("g"), t.count("m"), value("rows")
	gs := newThrees(g, m, rows)
	across := 4 // vectors of a row of the tile
	if !t.wide() {
		across = 2
	}
	step := across * t.vectors.bytes
	acc, v := t.regs[:rows*across], t.regs[rows*across:]
	around, err := Param("around").Resolve()
	if err != nil {
		panic(err)
	}
	Label("rows")
	done := GP64() // bytes of the row
	XORQ(done, done)
	Label("vectors")
	for r := range rows {
		t.broadcast(Mem{Base: b, Disp: r * t.size}, v[0])
		for i := range across {
			t.mul(Mem{Base: x, Index: done, Scale: 1, Disp: r*strip*t.size + i*t.vectors.bytes}, v[0], acc[r*across+i])
		}
	}
	to := newThrees(offset(dst, done), ldd, rows)
	CMPB(around.Addr, Imm(0))
	JNE(LabelRef("fetched"))
	for r := range rows {
		for at := 0; at < step; at += line {
			PREFETCHT0(to.row(r).Offset(at))
		}
	}
	Label("fetched")
	n := copyOf(m)
	SHRQ(log2(t.size), n)
	p, ld := offset(base("phi"), done), t.count("ld")
	loop("column", n, func() {
		for i := range across {
			t.move(Mem{Base: p, Disp: i * t.vectors.bytes}, v[i])
		}
		for r := range rows {
			s := v[across+r%(len(v)-across)]
			t.broadcast(gs.row(r), s)
			for i := range across {
				t.fma(v[i], s, acc[r*across+i])
			}
		}
		gs.advance(U32(t.size))
		ADDQ(ld, p)
	})
	gs.retreat(m)
	to = newThrees(offset(dst, done), ldd, rows)
	write := func(move func(from, to Op)) {
		for r := range rows {
			for i := range across {
				move(acc[r*across+i], to.row(r).Offset(i*t.vectors.bytes))
			}
		}
	}
	CMPB(around.Addr, Imm(0))
	JNE(LabelRef("around"))
	write(t.move)
	JMP(LabelRef("written"))
	Label("around")
	write(t.stream)
	Label("written")
	ADDQ(U32(step), done)
	CMPQ(done, U32(strip*t.size))
	JNE(LabelRef("vectors"))
	ADDQ(U32(rows*strip*t.size), x)
	for range rows {
		ADDQ(ldd, dst)
		gs.advance(m)
	}
	ADDQ(U32(rows*t.size), b)
	SUBQ(U32(rows), left)
	JNZ(LabelRef("rows"))
	t.end()
}

func (t target) add() {
	t.begin("add", "dst, src []%[1]s")
	dst, src, n := base("dst"), base("src"), Load(Param("src").Len(), GP64())
	SHRQ(log2(step), n)
	JZ(LabelRef("done"))
	loop("step", n, func() {
		for i := range step / t.lanes() {
			at := i * t.vectors.bytes
			t.move(Mem{Base: src, Disp: at}, t.regs[i])
			t.plus(Mem{Base: dst, Disp: at}, t.regs[i], t.regs[i])
			t.move(t.regs[i], Mem{Base: dst, Disp: at})
		}
		ADDQ(U32(step*t.size), src)
		ADDQ(U32(step*t.size), dst)
	})
	Label("done")
	t.end()
}

// source is a type of number in memory, and how a vector of it is loaded as numbers
// to compute with.
type source struct {
	name, suffix string
	size         int
	load         func(t target, from Mem, to VecPhysical)
}

func (t target) itself() source {
	return source{t.number.name, t.suffix, t.size, func(t target, from Mem, to VecPhysical) { t.move(from, to) }}
}

var (
	bfloat16s = source{"uint16", "BF16", 2, func(_ target, from Mem, to VecPhysical) {
		VPMOVZXWD(from, to)
		VPSLLD(Imm(16), to, to)
	}}
	float16s = source{"uint16", "F16", 2, func(_ target, from Mem, to VecPhysical) { VCVTPH2PS(from, to) }}
)

func (t target) load(s source) {
	t.beginAs("load", s.suffix, fmt.Sprintf("loadGo from %s to %s", s.suffix, t.number.name),
		"dst []%[1]s, ldd int, src []"+s.name+", lds int, factor, squares []%[1]s, rows, n int")
	dst, ldd, src, lds := base("dst"), t.count("ldd"), base("src"), value("lds")
	SHLQ(log2(s.size), lds)
	factor, squares, tokens, n := base("factor"), base("squares"), value("rows"), value("n")
	const sums = 4
	acc, f, tmp := t.regs[:sums], t.regs[sums], t.regs[sums+1:]
	// some multiplies and squares the next numbers.
	some := func(from, to Register, numbers int) {
		for i := range numbers / t.lanes() {
			v, at := tmp[i%len(tmp)], i*t.vectors.bytes
			s.load(t, Mem{Base: from, Disp: i * t.lanes() * s.size}, v)
			t.fma(v, v, acc[i%sums])
			t.mul(v, f, v)
			t.move(v, Mem{Base: to, Disp: at})
		}
		ADDQ(U32(numbers*s.size), from)
		ADDQ(U32(numbers*t.size), to)
	}
	loop("token", tokens, func() {
		for _, a := range acc {
			t.zero(a)
		}
		t.broadcast(Mem{Base: factor}, f)
		from, to := copyOf(src), copyOf(dst)
		many, few := copyOf(n), copyOf(n)
		block := max(step, sums*t.lanes())
		SHRQ(log2(block), many)
		JZ(LabelRef("rest"))
		loop("block", many, func() { some(from, to, block) })
		Label("rest")
		if block > step {
			ANDQ(U32(block-1), few)
			SHRQ(log2(step), few)
			JZ(LabelRef("sum"))
			loop("step", few, func() { some(from, to, step) })
			Label("sum")
		}
		TESTQ(squares, squares)
		JZ(LabelRef("unwanted"))
		t.total(acc, Mem{Base: squares})
		ADDQ(U32(t.size), squares)
		Label("unwanted")
		ADDQ(lds, src)
		ADDQ(ldd, dst)
		ADDQ(U32(t.size), factor)
	})
	t.end()
}

// squares adds up as load does.
func (t target) squares() {
	t.begin("squares", "dst, src []%[1]s, lds, rows, n int")
	dst, src, lds, tokens, n := base("dst"), base("src"), t.count("lds"), value("rows"), t.count("n")
	const sums = 4
	acc, tmp := t.regs[:sums], t.regs[sums:2*sums]
	step := sums * t.vectors.bytes
	SHRQ(log2(step), n)
	loop("token", tokens, func() {
		for _, a := range acc {
			t.zero(a)
		}
		from, left := copyOf(src), copyOf(n)
		loop("block", left, func() {
			for i, a := range acc {
				t.move(Mem{Base: from, Disp: i * t.vectors.bytes}, tmp[i])
				t.fma(tmp[i], tmp[i], a)
			}
			ADDQ(U32(step), from)
		})
		t.total(acc, Mem{Base: dst})
		ADDQ(lds, src)
		ADDQ(U32(t.size), dst)
	})
	t.end()
}

// total writes the sum of the numbers in four vectors.
func (t target) total(acc []VecPhysical, to Mem) {
	t.plus(acc[1], acc[0], acc[0])
	t.plus(acc[3], acc[2], acc[2])
	t.plus(acc[2], acc[0], acc[0])
	t.sum(acc[0], acc[1])
	if t.double() {
		VMOVSD(acc[0].AsX(), to)
	} else {
		VMOVSS(acc[0].AsX(), to)
	}
}

// sum leaves the sum of a vector in its lowest place.
func (t target) sum(v, spare VecPhysical) {
	if t.wide() {
		VEXTRACTF64X4(Imm(1), v, spare.AsY())
		t.plus(spare.AsY(), v.AsY(), v.AsY())
	}
	VEXTRACTF128(Imm(1), v.AsY(), spare.AsX())
	t.plus(spare.AsX(), v.AsX(), v.AsX())
	VPERMILPD(Imm(1), v.AsX(), spare.AsX())
	t.plus(spare.AsX(), v.AsX(), v.AsX())
	if !t.double() {
		VMOVSHDUP(v.AsX(), spare.AsX())
		VADDPS(spare.AsX(), v.AsX(), v.AsX())
	}
}

// transpose writes blocks of one vector by one vector, as many as 8 by 8 numbers
// have.
func (t target) transpose() {
	t.begin("transpose", "dst []%[1]s, ldd int, src []%[1]s, lds, rows, cols int")
	dst, ldd, src, lds, down, across := base("dst"), t.count("ldd"), base("src"), t.count("lds"), value("rows"), value("cols")
	n := t.lanes()
	Label("down")
	to, left := copyOf(dst), copyOf(across)
	from := copyOf(src)
	Label("across")
	in, out := newThrees(from, lds, n), newThrees(to, ldd, n)
	if t.double() {
		transpose4(in, out)
	} else {
		transpose8(in, out)
	}
	ADDQ(U32(t.vectors.bytes), from)
	for range n {
		ADDQ(ldd, to)
	}
	SUBQ(U32(n), left)
	JNZ(LabelRef("across"))
	for range n {
		ADDQ(lds, src)
	}
	ADDQ(U32(t.vectors.bytes), dst)
	SUBQ(U32(n), down)
	JNZ(LabelRef("down"))
	t.end()
}

func transpose4(in, out threes) {
	y := []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7}
	for i := range 4 {
		VMOVUPD(in.row(i), y[i])
	}
	for i := 0; i < 4; i += 2 {
		VUNPCKLPD(y[i+1], y[i], y[4+i])
		VUNPCKHPD(y[i+1], y[i], y[5+i])
	}
	for i := range 2 {
		VPERM2F128(Imm(0x20), y[6+i], y[4+i], y[i])
		VPERM2F128(Imm(0x31), y[6+i], y[4+i], y[2+i])
	}
	for i := range 4 {
		VMOVUPD(y[i], out.row(i))
	}
}

func transpose8(in, out threes) {
	a := []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7}
	b := []VecPhysical{Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}
	for i := range 8 {
		VMOVUPS(in.row(i), a[i])
	}
	for i := 0; i < 8; i += 2 {
		VUNPCKLPS(a[i+1], a[i], b[i])
		VUNPCKHPS(a[i+1], a[i], b[i+1])
	}
	for i := 0; i < 8; i += 4 {
		for j := range 2 {
			VUNPCKLPD(b[i+j+2], b[i+j], a[i+2*j])
			VUNPCKHPD(b[i+j+2], b[i+j], a[i+2*j+1])
		}
	}
	for i := range 4 {
		VPERM2F128(Imm(0x20), a[i+4], a[i], b[i])
		VPERM2F128(Imm(0x31), a[i+4], a[i], b[i+4])
	}
	for i := range 8 {
		VMOVUPS(b[i], out.row(i))
	}
}
