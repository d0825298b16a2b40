// Command normalize generates the kernels of package normalize.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/mhc-go/mhc/_asm/vector"
)

func main() {
	for _, t := range vector.Tiers {
		shift(t)
		floor(t)
		step(t)
		reverse(t)
		ratio(t)
		balance(t)
	}
	steps4()
	reverse4()
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

func newLines(matrices ...string) *lines {
	w := &lines{}
	for _, name := range matrices {
		w.first, w.at = append(w.first, vector.Base(name)), append(w.at, GP64())
	}
	w.n = Load(Param("n"), GP64())
	w.line, w.along = vector.Stride("line", vector.Entry), vector.Stride("along", vector.Entry)
	return w
}

// each runs body for every line.
func (w *lines) each(body func()) {
	i := GP64()
	MOVQ(w.n, i)
	vector.Loop("lines", i, func() {
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
func (w *lines) entries(label string, less int, body func()) {
	j := GP64()
	MOVQ(w.n, j)
	if less > 0 {
		SUBQ(Imm(uint64(less)), j)
	}
	vector.Loop(label, j, func() {
		body()
		w.next()
	})
}

func shift(t vector.Tier) {
	t.Begin("shift", "func(p, a []float32, n, line, along int)",
		"equals, in every lane,", "",
		"	for i := range n {",
		"		top := the maximum of a's line i",
		"		p[i*line+j*along] = a[i*line+j*along] - top, for j < n",
		"	}", "",
		"The maximum of a line with a NaN may be any number.")
	w := newLines("p", "a")
	top, v := t.Parts(0), t.Reg(4)
	w.each(func() {
		w.begin()
		t.Each(Mem{Base: w.at[1]}, func(i int, a Mem) { VMOVUPS(a, top[i]) })
		w.next()
		w.entries("maximum", 1, func() {
			t.Each(Mem{Base: w.at[1]}, func(i int, a Mem) { VMAXPS(a, top[i], top[i]) })
		})
		w.begin()
		w.entries("difference", 0, func() {
			t.Each(Mem{Base: w.at[1]}, func(i int, a Mem) {
				VMOVUPS(a, v)
				VSUBPS(top[i], v, v)
				VMOVUPS(v, Mem{Base: w.at[0], Disp: a.Disp})
			})
		})
	})
	vector.End()
}

func floor(t vector.Tier) {
	t.Begin("floor", "func(p []float32, eps, tiny float32) (low uint16)",
		"equals", "",
		"	for i := range p {",
		"		p[i] += eps",
		"		if !(p[i] >= tiny) {",
		"			low |= 1 << (i % 16)",
		"		}",
		"	}")
	p, n := vector.Base("p"), vector.Count("p")
	eps, tiny, low := t.Reg(0), t.Reg(1), t.Parts(2)
	VBROADCASTSS(paramAddr("eps"), eps)
	VBROADCASTSS(paramAddr("tiny"), tiny)
	if t.Wide() {
		KXORW(K1, K1, K1)
	} else {
		for _, r := range low {
			VXORPS(r, r, r)
		}
	}
	vector.Loop("entries", n, func() {
		t.Each(Mem{Base: p}, func(i int, m Mem) {
			v := t.Reg(4)
			VADDPS(m, eps, v)
			VMOVUPS(v, m)
			if t.Wide() {
				VCMPPS(notAtLeast, tiny, v, K2)
				KORW(K2, K1, K1)
			} else {
				VCMPPS(notAtLeast, tiny, v, v)
				VORPS(v, low[i], low[i])
			}
		})
		vector.Advance(p, vector.Entry)
	})
	mask := GP32()
	if t.Wide() {
		KMOVW(K1, mask)
	} else {
		high := GP32()
		VMOVMSKPS(low[0], mask)
		VMOVMSKPS(low[1], high)
		SHLL(Imm(8), high)
		ORL(high, mask)
	}
	Store(mask.As16(), ReturnIndex(0))
	vector.End()
}

// paramAddr is the memory of a scalar parameter.
func paramAddr(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// ones sets r to 1 in every lane.
func ones(r VecPhysical) {
	x := GP32()
	MOVL(U32(0x3f800000), x)
	low := r.AsX()
	if r.ID() >= Z16.ID() {
		low = X15
	}
	VMOVD(x, low)
	VBROADCASTSS(low, r)
}

func step(t vector.Tier) {
	t.Begin("step", "func(p, sums []float32, n, line, along int, eps float32)",
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
	w := newLines("p")
	sums := vector.Base("sums")
	eps, one, sum, v := t.Reg(0), t.Reg(1), t.Parts(2), t.Reg(4)
	VBROADCASTSS(paramAddr("eps"), eps)
	ones(one)
	w.each(func() {
		w.begin()
		for _, s := range sum {
			VMOVAPS(eps, s)
		}
		w.entries("sum", 0, func() {
			t.Each(Mem{Base: w.at[0]}, func(i int, p Mem) { VADDPS(p, sum[i], sum[i]) })
		})
		t.Each(Mem{Base: sums}, func(i int, s Mem) {
			VMOVUPS(sum[i], s)
			VDIVPS(sum[i], one, sum[i])
		})
		vector.Advance(sums, vector.Entry)
		w.begin()
		w.entries("scale", 0, func() {
			t.Each(Mem{Base: w.at[0]}, func(i int, p Mem) {
				VMULPS(p, sum[i], v)
				VMOVUPS(v, p)
			})
		})
	})
	vector.End()
}

func reverse(t vector.Tier) {
	t.Begin("reverse", "func(g, y, sums []float32, n, line, along int)",
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
	w := newLines("g", "y")
	sums := vector.Base("sums")
	sum, s := t.Parts(0), t.Parts(2)
	g, y := t.Reg(4), t.Reg(5)
	w.each(func() {
		w.begin()
		t.Each(Mem{Base: sums}, func(i int, m Mem) {
			VMOVUPS(m, s[i])
			VXORPS(sum[i], sum[i], sum[i])
		})
		vector.Advance(sums, vector.Entry)
		w.entries("sum", 0, func() {
			t.Each(Mem{Base: w.at[0]}, func(i int, g Mem) { VADDPS(g, sum[i], sum[i]) })
		})
		w.begin()
		w.entries("entries", 0, func() {
			t.Each(Mem{Base: w.at[0]}, func(i int, m Mem) {
				at := Mem{Base: w.at[1], Disp: m.Disp}
				VMOVUPS(m, g)
				VMOVUPS(at, y)
				VFNMADD231PS(sum[i], y, g)
				VMULPS(s[i], y, y)
				VMOVUPS(g, m)
				VMOVUPS(y, at)
			})
		})
	})
	vector.End()
}

func ratio(t vector.Tier) {
	t.Begin("ratio", "func(g, soft []float32, eps float32)",
		"equals", "",
		"	for i := range g {",
		"		g[i] *= soft[i] / (soft[i] + eps)",
		"	}")
	g, soft, n := vector.Base("g"), vector.Base("soft"), vector.Count("g")
	eps, p, q := t.Reg(0), t.Reg(1), t.Reg(2)
	VBROADCASTSS(paramAddr("eps"), eps)
	vector.Loop("entries", n, func() {
		t.Each(Mem{Base: g}, func(_ int, m Mem) {
			VMOVUPS(Mem{Base: soft, Disp: m.Disp}, p)
			VADDPS(p, eps, q)
			VDIVPS(q, p, p)
			VMULPS(m, p, p)
			VMOVUPS(p, m)
		})
		vector.Advance(g, vector.Entry)
		vector.Advance(soft, vector.Entry)
	})
	vector.End()
}

func balance(t vector.Tier) {
	t.Begin("balance", "func(g, a []float32, n, line, along int)",
		"equals, in every lane,", "",
		"	for i := range n {",
		"		top := the first j of the maximum of a[i*line+j*along]",
		"		g[i*line+top*along] = -(the sum of g[i*line+j*along], j != top)",
		"	}", "",
		"The maximum of a line with a NaN may be any number.")
	w := newLines("g", "a")
	// The largest number so far, its index, its gradient, and the sum of the other
	// gradients; indices are counted as floats.
	top, at, held, rest := t.Parts(0), t.Parts(2), t.Parts(4), t.Parts(6)
	one, index, a, g, mask := t.Reg(8), t.Reg(9), t.Reg(10), t.Reg(11), t.Reg(12)
	ones(one)
	w.each(func() {
		w.begin()
		t.Each(Mem{Base: w.at[0]}, func(i int, m Mem) {
			VMOVUPS(m, held[i])
			VMOVUPS(Mem{Base: w.at[1], Disp: m.Disp}, top[i])
			VXORPS(at[i], at[i], at[i])
			VXORPS(rest[i], rest[i], rest[i])
		})
		VMOVAPS(one, index)
		w.next()
		w.entries("maximum", 1, func() {
			t.Each(Mem{Base: w.at[0]}, func(i int, m Mem) {
				VMOVUPS(m, g)
				VMOVUPS(Mem{Base: w.at[1], Disp: m.Disp}, a)
				if t.Wide() {
					VCMPPS(greater, top[i], a, K1)
					VBLENDMPS(held[i], g, K1, mask)
					VADDPS(mask, rest[i], rest[i])
					VMOVAPS(g, K1, held[i])
					VMOVAPS(a, K1, top[i])
					VMOVAPS(index, K1, at[i])
				} else {
					VCMPPS(greater, top[i], a, mask)
					VBLENDVPS(mask, held[i], g, t.Reg(13))
					VADDPS(t.Reg(13), rest[i], rest[i])
					VBLENDVPS(mask, g, held[i], held[i])
					VBLENDVPS(mask, a, top[i], top[i])
					VBLENDVPS(mask, index, at[i], at[i])
				}
			})
			VADDPS(one, index, index)
		})
		for _, r := range rest {
			VXORPS(mask, mask, mask)
			VSUBPS(r, mask, r)
		}
		w.begin()
		VXORPS(index, index, index)
		w.entries("replace", 0, func() {
			t.Each(Mem{Base: w.at[0]}, func(i int, m Mem) {
				if t.Wide() {
					VCMPPS(equal, index, at[i], K1)
					VMOVUPS(rest[i], K1, m)
				} else {
					VCMPPS(equal, index, at[i], mask)
					VMASKMOVPS(rest[i], mask, m)
				}
			})
			VADDPS(one, index, index)
		})
	})
	vector.End()
}

// line is the registers of line i of the 4 x 4 matrix in registers 0 to 15.
func line(t vector.Tier, columns bool, i int) []VecPhysical {
	l := make([]VecPhysical, 4)
	for j := range l {
		l[j] = t.Reg(4*i + j)
		if columns {
			l[j] = t.Reg(4*j + i)
		}
	}
	return l
}

func steps4() {
	t := vector.Tiers[1]
	t.Begin("steps4", "func(p, sums []float32, steps, advance int, eps float32)",
		"equals", "",
		"	for s := range steps {",
		"		line, along := 1, 4 if s is even, else 4, 1",
		"		step(p, sums[s*advance:], 4, line, along, eps)",
		"	}", "",
		"where steps is 1 or more, with the matrix in registers.")
	p, sums := vector.Base("p"), vector.Base("sums")
	steps, advance := Load(Param("steps"), GP64()), vector.Stride("advance", 4)
	sum, eps, one := t.Parts(16)[:0], t.Reg(24), t.Reg(25)
	for i := range 4 {
		sum = append(sum, t.Reg(16+i))
	}
	VBROADCASTSS(paramAddr("eps"), eps)
	ones(one)
	for k := range 16 {
		VMOVUPS(Mem{Base: p, Disp: k * vector.Entry}, t.Reg(k))
	}
	half := func(columns bool) {
		for i := range 4 {
			l := line(t, columns, i)
			VADDPS(l[0], l[1], sum[i])
			VADDPS(l[2], l[3], t.Reg(20+i))
		}
		for i := range 4 {
			VADDPS(eps, sum[i], sum[i])
		}
		for i := range 4 {
			VADDPS(t.Reg(20+i), sum[i], sum[i])
		}
		for i := range 4 {
			VMOVUPS(sum[i], Mem{Base: sums, Disp: i * vector.Entry})
			VDIVPS(sum[i], one, sum[i])
		}
		for i := range 4 {
			for _, r := range line(t, columns, i) {
				VMULPS(sum[i], r, r)
			}
		}
		ADDQ(advance, sums)
		DECQ(steps)
	}
	Label("columns")
	half(true)
	JZ(LabelRef("done"))
	half(false)
	JNZ(LabelRef("columns"))
	Label("done")
	for k := range 16 {
		VMOVUPS(t.Reg(k), Mem{Base: p, Disp: k * vector.Entry})
	}
	vector.End()
}

func reverse4() {
	t := vector.Tiers[1]
	t.Begin("reverse4", "func(g, y, sums []float32, steps int)",
		"equals", "",
		"	for s := steps - 1; s >= 0; s-- {",
		"		line, along := 1, 4 if s is even, else 4, 1",
		"		reverse(g, y, sums[s*4*16:], 4, line, along)",
		"	}", "",
		"where steps is 1 or more, with g in registers.")
	g, y, sums := vector.Base("g"), vector.Base("y"), vector.Base("sums")
	steps := Load(Param("steps"), GP64())
	last := GP64()
	LEAQ(Mem{Base: steps, Disp: -1}, last)
	IMUL3Q(U32(4*vector.Entry), last, last)
	ADDQ(last, sums)
	for k := range 16 {
		VMOVUPS(Mem{Base: g, Disp: k * vector.Entry}, t.Reg(k))
	}
	half := func(columns bool) {
		for i := range 4 {
			l := line(t, columns, i)
			VADDPS(l[0], l[1], t.Reg(16+i))
			VADDPS(l[2], l[3], t.Reg(20+i))
		}
		for i := range 4 {
			VADDPS(t.Reg(20+i), t.Reg(16+i), t.Reg(16+i))
			VMOVUPS(Mem{Base: sums, Disp: i * vector.Entry}, t.Reg(20+i))
		}
		for k := range 16 {
			i := k / 4
			if columns {
				i = k % 4
			}
			v := t.Reg(24 + k%8)
			at := Mem{Base: y, Disp: k * vector.Entry}
			VMOVUPS(at, v)
			VFNMADD231PS(v, t.Reg(16+i), t.Reg(k))
			VMULPS(v, t.Reg(20+i), v)
			VMOVUPS(v, at)
		}
		SUBQ(U32(4*vector.Entry), sums)
		DECQ(steps)
	}
	TESTB(Imm(1), steps.(GP).As8())
	JNZ(LabelRef("columns"))
	Label("rows")
	half(false)
	Label("columns")
	half(true)
	JNZ(LabelRef("rows"))
	for k := range 16 {
		VMOVUPS(t.Reg(k), Mem{Base: g, Disp: k * vector.Entry})
	}
	vector.End()
}
