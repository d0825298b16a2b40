// Command normalize generates the kernels of package normalize.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/mhc-go/mhc/_asm/vector"
)

func main() {
	ConstraintExpr("!purego")
	for _, t := range vector.Targets {
		shift(t)
		floor(t)
		step(t)
		reverse(t)
		ratio(t)
		balance(t)
		if t.Wide() {
			steps4(t)
			reverse4(t)
		}
	}
	Generate()
}

// Predicates of comparisons.
var (
	equal      = Imm(0x00)
	notAtLeast = Imm(0x19)
	greater    = Imm(0x1e)
)

// lines walks the lines of matrices.
type lines struct {
	n, line, along Register
	first          []Register // of the line, one a matrix
	at             []Register // of the entry
}

// newLines takes the part of every entry that begins at offset.
func newLines(t vector.Target, offset int, matrices ...string) *lines {
	w := &lines{}
	for _, name := range matrices {
		w.first, w.at = append(w.first, half(name, offset)), append(w.at, GP64())
	}
	w.n = Load(Param("n"), GP64())
	w.line, w.along = vector.Stride("line", t.Entry()), vector.Stride("along", t.Entry())
	return w
}

// half is the address of the slice name, offset bytes on.
func half(name string, offset int) Register {
	p := vector.Base(name)
	if offset > 0 {
		vector.Advance(p, offset)
	}
	return p
}

// each runs body for every line.
func (w *lines) each(body func()) {
	i := GP64()
	MOVQ(w.n, i)
	vector.Loop(i, func() {
		body()
		for _, p := range w.first {
			ADDQ(w.line, p)
		}
	})
}

// begin goes to the first entry of the line.
func (w *lines) begin() {
	for i, p := range w.first {
		MOVQ(p, w.at[i])
	}
}

func (w *lines) next() {
	for _, p := range w.at {
		ADDQ(w.along, p)
	}
}

// entries runs body for every entry of the line from the current one on; less is
// how many the line has fewer than n.
func (w *lines) entries(less int, body func()) {
	j := GP64()
	MOVQ(w.n, j)
	if less > 0 {
		SUBQ(Imm(uint64(less)), j)
	}
	vector.Loop(j, func() {
		body()
		w.next()
	})
}

func shift(t vector.Target) {
	t.Begin("shift", "func(p, a []T, n, line, along int)",
		"equals, in every lane,", "",
		"	for i := range n {",
		"		top := the maximum of a's line i",
		"		p[i*line+j*along] = a[i*line+j*along] - top, for j < n",
		"	}", "",
		"The maximum of a line with a NaN may be any number.")
	t.EachHalf(func(offset int) {
		w := newLines(t, offset, "p", "a")
		top, v := t.Parts(0), t.Reg(4)
		w.each(func() {
			w.begin()
			t.EachPart(Mem{Base: w.at[1]}, func(i int, a Mem) { t.Move(a, top[i]) })
			w.next()
			w.entries(1, func() {
				t.EachPart(Mem{Base: w.at[1]}, func(i int, a Mem) { t.Max(a, top[i], top[i]) })
			})
			w.begin()
			w.entries(0, func() {
				t.EachPart(Mem{Base: w.at[1]}, func(i int, a Mem) {
					t.Move(a, v)
					t.Sub(top[i], v, v)
					t.Move(v, Mem{Base: w.at[0], Disp: a.Disp})
				})
			})
		})
	})
	vector.End()
}

func floor(t vector.Target) {
	t.Begin("floor", "func(p []T, eps, tiny T) (low uint16)",
		"equals", "",
		"	for i := range p {",
		"		p[i] += eps",
		"		if !(p[i] >= tiny) {",
		"			low |= 1 << (i % 16)",
		"		}",
		"	}")
	p, n := vector.Base("p"), vector.Count("p")
	eps, tiny, v := t.Reg(0), t.Reg(1), t.Reg(2)
	t.Scalar("eps", eps)
	t.Scalar("tiny", tiny)
	parts := t.Entry() / t.Bytes
	masks := []Register{K1, K2}[:min(parts, 2)]
	for i := range parts {
		if t.Wide() {
			KXORW(masks[i], masks[i], masks[i])
		} else {
			t.Xor(t.Reg(4+i), t.Reg(4+i), t.Reg(4+i))
		}
	}
	vector.Loop(n, func() {
		t.Each(Mem{Base: p}, func(i int, m Mem) {
			t.Add(m, eps, v)
			t.Move(v, m)
			if t.Wide() {
				t.Compare(notAtLeast, tiny, v, K3)
				KORW(K3, masks[i], masks[i])
			} else {
				t.Compare(notAtLeast, tiny, v, v)
				t.Or(v, t.Reg(4+i), t.Reg(4+i))
			}
		})
		vector.Advance(p, t.Entry())
	})
	low, part := GP32(), GP32()
	for i := parts - 1; i >= 0; i-- {
		if t.Wide() {
			KMOVW(masks[i], part)
		} else {
			t.SignMask(t.Reg(4+i), part)
		}
		if i == parts-1 {
			MOVL(part, low)
		} else {
			SHLL(Imm(uint64(t.Bytes/t.Elem)), low)
			ORL(part, low)
		}
	}
	Store(low.As16(), ReturnIndex(0))
	vector.End()
}

func step(t vector.Target) {
	t.Begin("step", "func(p, sums []T, n, line, along int, eps T)",
		"equals, in every lane,", "",
		"	for i := range n {",
		"		sum := eps",
		"		for j := range n {",
		"			sum += p[i*line+j*along]",
		"		}",
		"		sums[i] = sum",
		"		for j := range n {",
		"			p[i*line+j*along] *= 1 / sum",
		"		}",
		"	}")
	t.EachHalf(func(offset int) {
		w := newLines(t, offset, "p")
		sums := half("sums", offset)
		eps, one, sum, v := t.Reg(0), t.Reg(1), t.Parts(2), t.Reg(4)
		t.Scalar("eps", eps)
		t.One(one)
		w.each(func() {
			w.begin()
			for _, s := range sum {
				t.Move(eps, s)
			}
			w.entries(0, func() {
				t.EachPart(Mem{Base: w.at[0]}, func(i int, p Mem) { t.Add(p, sum[i], sum[i]) })
			})
			t.EachPart(Mem{Base: sums}, func(i int, s Mem) {
				t.Move(sum[i], s)
				t.Div(sum[i], one, sum[i])
			})
			vector.Advance(sums, t.Entry())
			w.begin()
			w.entries(0, func() {
				t.EachPart(Mem{Base: w.at[0]}, func(i int, p Mem) {
					t.Mul(p, sum[i], v)
					t.Move(v, p)
				})
			})
		})
	})
	vector.End()
}

func reverse(t vector.Target) {
	t.Begin("reverse", "func(g, y, sums []T, n, line, along int)",
		"equals, in every lane,", "",
		"	for i := range n {",
		"		sum := 0",
		"		for j := range n {",
		"			sum += g[i*line+j*along]",
		"		}",
		"		for j := range n {",
		"			g[i*line+j*along] -= y[i*line+j*along] * sum",
		"			y[i*line+j*along] *= sums[i]",
		"		}",
		"	}")
	t.EachHalf(func(offset int) {
		w := newLines(t, offset, "g", "y")
		sums := half("sums", offset)
		sum, s := t.Parts(0), t.Parts(2)
		g, y := t.Reg(4), t.Reg(5)
		w.each(func() {
			w.begin()
			t.EachPart(Mem{Base: sums}, func(i int, m Mem) {
				t.Move(m, s[i])
				t.Xor(sum[i], sum[i], sum[i])
			})
			vector.Advance(sums, t.Entry())
			w.entries(0, func() {
				t.EachPart(Mem{Base: w.at[0]}, func(i int, g Mem) { t.Add(g, sum[i], sum[i]) })
			})
			w.begin()
			w.entries(0, func() {
				t.EachPart(Mem{Base: w.at[0]}, func(i int, m Mem) {
					at := Mem{Base: w.at[1], Disp: m.Disp}
					t.Move(m, g)
					t.Move(at, y)
					t.MulSubFrom231(sum[i], y, g)
					t.Mul(s[i], y, y)
					t.Move(g, m)
					t.Move(y, at)
				})
			})
		})
	})
	vector.End()
}

func ratio(t vector.Target) {
	t.Begin("ratio", "func(g, soft []T, eps T)",
		"equals", "",
		"	for i := range g {",
		"		g[i] *= soft[i] / (soft[i] + eps)",
		"	}")
	g, soft, n := vector.Base("g"), vector.Base("soft"), vector.Count("g")
	eps, p, q := t.Reg(0), t.Reg(1), t.Reg(2)
	t.Scalar("eps", eps)
	vector.Loop(n, func() {
		t.Each(Mem{Base: g}, func(_ int, m Mem) {
			t.Move(Mem{Base: soft, Disp: m.Disp}, p)
			t.Add(p, eps, q)
			t.Div(q, p, p)
			t.Mul(m, p, p)
			t.Move(p, m)
		})
		vector.Advance(g, t.Entry())
		vector.Advance(soft, t.Entry())
	})
	vector.End()
}

func balance(t vector.Target) {
	t.Begin("balance", "func(g, a []T, n, line, along int)",
		"equals, in every lane,", "",
		"	for i := range n {",
		"		top := the first j of the maximum of a[i*line+j*along]",
		"		g[i*line+top*along] = -(the sum of g[i*line+j*along], j != top)",
		"	}", "",
		"The maximum of a line with a NaN may be any number.")
	t.EachHalf(func(offset int) {
		w := newLines(t, offset, "g", "a")
		// The largest number so far, its index, its gradient, and the sum of the other
		// gradients; indices are counted as floats.
		top, at, held, rest := t.Parts(0), t.Parts(2), t.Parts(4), t.Parts(6)
		one, index, a, g, mask := t.Reg(8), t.Reg(9), t.Reg(10), t.Reg(11), t.Reg(12)
		t.One(one)
		w.each(func() {
			w.begin()
			t.EachPart(Mem{Base: w.at[0]}, func(i int, m Mem) {
				t.Move(m, held[i])
				t.Move(Mem{Base: w.at[1], Disp: m.Disp}, top[i])
				t.Xor(at[i], at[i], at[i])
				t.Xor(rest[i], rest[i], rest[i])
			})
			t.Move(one, index)
			w.next()
			w.entries(1, func() {
				t.EachPart(Mem{Base: w.at[0]}, func(i int, m Mem) {
					t.Move(m, g)
					t.Move(Mem{Base: w.at[1], Disp: m.Disp}, a)
					if t.Wide() {
						t.Compare(greater, top[i], a, K1)
						t.Blend(held[i], g, K1, mask)
						t.Add(mask, rest[i], rest[i])
						t.Move(g, K1, held[i])
						t.Move(a, K1, top[i])
						t.Move(index, K1, at[i])
					} else {
						t.Compare(greater, top[i], a, mask)
						t.BlendBySign(mask, held[i], g, t.Reg(13))
						t.Add(t.Reg(13), rest[i], rest[i])
						t.BlendBySign(mask, g, held[i], held[i])
						t.BlendBySign(mask, a, top[i], top[i])
						t.BlendBySign(mask, index, at[i], at[i])
					}
				})
				t.Add(one, index, index)
			})
			for _, r := range rest {
				t.Xor(mask, mask, mask)
				t.Sub(r, mask, r)
			}
			w.begin()
			t.Xor(index, index, index)
			w.entries(0, func() {
				t.EachPart(Mem{Base: w.at[0]}, func(i int, m Mem) {
					if t.Wide() {
						t.Compare(equal, index, at[i], K1)
						t.Move(rest[i], K1, m)
					} else {
						t.Compare(equal, index, at[i], mask)
						t.MaskedStore(rest[i], mask, m)
					}
				})
				t.Add(one, index, index)
			})
		})
	})
	vector.End()
}

// line is the registers of line i of the 4 x 4 matrix in registers 0 to 15.
func line(t vector.Target, columns bool, i int) []VecPhysical {
	l := make([]VecPhysical, 4)
	for j := range l {
		l[j] = t.Reg(4*i + j)
		if columns {
			l[j] = t.Reg(4*j + i)
		}
	}
	return l
}

func steps4(t vector.Target) {
	t.Begin("steps4", "func(p, sums []T, steps, advance int, eps T)",
		"equals", "",
		"	for s := range steps {",
		"		line, along := 1, 4 if s is even, else 4, 1",
		"		step(p, sums[s*advance:], 4, line, along, eps)",
		"	}", "",
		"where steps is 1 or more, with the matrix in registers.")
	eps, one := t.Reg(24), t.Reg(25)
	t.Scalar("eps", eps)
	t.One(one)
	t.EachHalf(func(offset int) {
		p, sums := half("p", offset), half("sums", offset)
		steps, advance := Load(Param("steps"), GP64()), vector.Stride("advance", t.Elem)
		for k := range 16 {
			t.Move(Mem{Base: p, Disp: k * t.Entry()}, t.Reg(k))
		}
		step := func(columns bool) {
			for i := range 4 {
				l := line(t, columns, i)
				t.Add(l[0], l[1], t.Reg(16+i))
				t.Add(l[2], l[3], t.Reg(20+i))
			}
			for i := range 4 {
				t.Add(eps, t.Reg(16+i), t.Reg(16+i))
			}
			for i := range 4 {
				t.Add(t.Reg(20+i), t.Reg(16+i), t.Reg(16+i))
			}
			for i := range 4 {
				t.Move(t.Reg(16+i), Mem{Base: sums, Disp: i * t.Entry()})
				t.Div(t.Reg(16+i), one, t.Reg(16+i))
			}
			for i := range 4 {
				for _, r := range line(t, columns, i) {
					t.Mul(t.Reg(16+i), r, r)
				}
			}
			ADDQ(advance, sums)
			DECQ(steps)
		}
		columns, done := label("columns", offset), label("done", offset)
		Label(columns)
		step(true)
		JZ(LabelRef(done))
		step(false)
		JNZ(LabelRef(columns))
		Label(done)
		for k := range 16 {
			t.Move(t.Reg(k), Mem{Base: p, Disp: k * t.Entry()})
		}
	})
	vector.End()
}

func label(name string, offset int) string { return fmt.Sprintf("%s%d", name, offset) }

func reverse4(t vector.Target) {
	t.Begin("reverse4", "func(g, y, sums []T, steps int)",
		"equals", "",
		"	for s := steps - 1; s >= 0; s-- {",
		"		line, along := 1, 4 if s is even, else 4, 1",
		"		reverse(g, y, sums[s*4*16:], 4, line, along)",
		"	}", "",
		"where steps is 1 or more, with g in registers.")
	t.EachHalf(func(offset int) {
		g, y, sums := half("g", offset), half("y", offset), half("sums", offset)
		steps, last := Load(Param("steps"), GP64()), GP64()
		LEAQ(Mem{Base: steps, Disp: -1}, last)
		IMUL3Q(U32(4*t.Entry()), last, last)
		ADDQ(last, sums)
		for k := range 16 {
			t.Move(Mem{Base: g, Disp: k * t.Entry()}, t.Reg(k))
		}
		reverse := func(columns bool) {
			for i := range 4 {
				l := line(t, columns, i)
				t.Add(l[0], l[1], t.Reg(16+i))
				t.Add(l[2], l[3], t.Reg(20+i))
			}
			for i := range 4 {
				t.Add(t.Reg(20+i), t.Reg(16+i), t.Reg(16+i))
				t.Move(Mem{Base: sums, Disp: i * t.Entry()}, t.Reg(20+i))
			}
			for k := range 16 {
				i := k / 4
				if columns {
					i = k % 4
				}
				v, at := t.Reg(24+k%8), Mem{Base: y, Disp: k * t.Entry()}
				t.Move(at, v)
				t.MulSubFrom231(v, t.Reg(16+i), t.Reg(k))
				t.Mul(v, t.Reg(20+i), v)
				t.Move(v, at)
			}
			SUBQ(U32(4*t.Entry()), sums)
			DECQ(steps)
		}
		columns, rows := label("columns", offset), label("rows", offset)
		TESTB(Imm(1), steps.(GP).As8())
		JNZ(LabelRef(columns))
		Label(rows)
		reverse(false)
		Label(columns)
		reverse(true)
		JNZ(LabelRef(rows))
		for k := range 16 {
			t.Move(t.Reg(k), Mem{Base: g, Disp: k * t.Entry()})
		}
	})
	vector.End()
}
