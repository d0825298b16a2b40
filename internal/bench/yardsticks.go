package bench

import (
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	coeffspkg "github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/internal/kernel/blend"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/tier"
	"github.com/mhc-go/mhc/op"
	sinkhornpkg "github.com/mhc-go/mhc/sinkhorn"
	streamspkg "github.com/mhc-go/mhc/streams"
)

// Comparison is one part of the CPU path beside a yardstick, float32. Times are in
// microseconds of one run, or of a token where What says so: the medians of the
// rounds' medians.
type Comparison struct {
	What    string `json:"what"`    // what is measured
	By      string `json:"by"`      // slices (packages coeffs, streams, sinkhorn) or graph (package op on a TapeMachine with an Arena, or without)
	Against string `json:"against"` // the yardstick
	// Cold says that before every run a buffer larger than the caches was written, so
	// that operands come from memory; else they are where the run before left them.
	Cold bool `json:"cold"`
	// Speedup says that the ratio is the yardstick's time over that of what is
	// measured, and not the other way round.
	Speedup bool `json:"speedup"`

	N        int `json:"N"`
	Streams  int `json:"n"`
	Channels int `json:"C,omitempty"`
	T        int `json:"T,omitempty"`
	Workers  int `json:"workers"`
	Rounds   int `json:"rounds"`

	Time      float64 `json:"time_us"`
	Yardstick float64 `json:"yardstick_us"`
	// The ratio is taken in each round, in which both sides run in turn.
	P20 float64 `json:"ratio_p20"`
	P50 float64 `json:"ratio_p50"`
	P80 float64 `json:"ratio_p80"`
}

// contender measures one run; it calls before in front of what it measures.
type contender func(before func()) (time.Duration, error)

// match is a comparison to be made.
type match struct {
	Comparison
	// against is nil where the yardstick is the fastest of the matches without one.
	of, against contender
	// tokens divides the time of a run, where that of a token is compared.
	tokens int
}

// sinkhornTokens is the number of matrices of the comparison of projections.
const sinkhornTokens = 8192

// Yardsticks measures the CPU path in float32 against what bounds it (reading,
// copying, its multiplications alone), against portable code, one worker and
// Gorgonia's own operators, and against itself at other numbers of tokens. It calls
// report with each result.
func Yardsticks(p Problem, tokens []int, opts Options, report func(Comparison) error) error {
	if err := p.check(); err != nil {
		return err
	}
	switch {
	case p.Dtype != tensor.Float32:
		return fmt.Errorf("dtype is %v, want float32", p.Dtype)
	case opts.Rounds < 1:
		return fmt.Errorf("%d rounds, want 1 or more", opts.Rounds)
	case len(tokens) == 0 || slices.Min(tokens) < 1:
		return fmt.Errorf("numbers of tokens are %v, want one or more, of 1 or more", tokens)
	}
	graphs, err := newGraphs(p)
	if err != nil {
		return err
	}
	defer graphs.close()
	for _, matches := range []func() []match{
		func() []match { return boundMatches(p, graphs) },
		func() []match { return otherMatches(p, graphs) },
		func() []match { return tokenMatches(p, tokens) },
	} {
		if err := compare(matches(), opts, report); err != nil {
			return err
		}
	}
	return nil
}

// boundMatches are against what memory and arithmetic allow, with cold caches and
// with warm ones.
func boundMatches(p Problem, g *graphs) []match {
	s, a := newSlices(p, p.Tokens), newApplied(p)
	x, dx := asBytes(s.in.X), asBytes(s.grad.X)
	half := make([]byte, 2*(a.bytes/2))
	var all []match
	add := func(what, by, against string, of, yardstick contender) {
		for _, cold := range []bool{true, false} {
			all = append(all, match{Comparison: Comparison{What: what, By: by, Against: against, Cold: cold}, of: of, against: yardstick})
		}
	}
	reading := timed(func() error { sum(s.in.X); return nil })
	copying := timed(func() error { copyAll(dx, x); return nil })
	moving := timed(func() error { copyAll(half[:a.bytes/2], half[a.bytes/2:]); return nil })
	product := 2 * len(s.in.X) * p.Config.Width()
	add("coefficients forward", "slices", "reading x", timed(s.forward), reading)
	add("coefficients forward", "graph", "reading x", timed(g.coeffs.forward), reading)
	add("coefficients forward", "slices", "its multiplications alone", timed(s.forward), timed(func() error { multiply(product); return nil }))
	add("coefficients backward", "slices", "copying x to dx", timed(s.backward), copying)
	add("coefficients backward", "graph", "copying x to dx", difference(g.coeffs), copying)
	add("coefficients backward", "slices", "its multiplications alone", timed(s.backward), timed(func() error { multiply(2 * product); return nil }))
	add("PostRes forward", "slices", "moving its bytes", timed(a.postRes), moving)
	add("PostRes forward", "graph", "moving its bytes", timed(g.postRes.forward), moving)
	for i := range all {
		describeMatch(&all[i], p)
	}
	return all
}

// otherMatches are against other ways to compute the same.
func otherMatches(p Problem, g *graphs) []match {
	s, k := newSlices(p, p.Tokens), newProjections(p)
	all := []match{
		{Comparison: Comparison{What: "coefficients forward and backward", By: "graph", Against: "Gorgonia's own operators"}, of: timed(g.coeffs.full), against: timed(g.peer.full)},
		{Comparison: Comparison{What: "coefficients forward and backward", By: "graph without an Arena", Against: "Gorgonia's own operators"}, of: timed(g.plain.full), against: timed(g.peer.full)},
		{Comparison: Comparison{What: "Sinkhorn forward and backward", By: "slices", Against: "portable code", N: sinkhornTokens}, of: timed(k.both), against: timed(portably(k.both))},
		{Comparison: Comparison{What: "coefficients forward and backward", By: "slices", Against: "one worker"}, of: timed(s.both), against: timed(alone(s.both))},
	}
	for i := range all {
		all[i].Speedup = true
		describeMatch(&all[i], p)
	}
	return all
}

// tokenMatches are those of a token's time with that at each other number of
// tokens: the yardstick is the number of tokens with the shortest.
func tokenMatches(p Problem, tokens []int) []match {
	most := newSlices(p, slices.Max(tokens))
	var all []match
	for _, n := range tokens {
		m := match{
			Comparison: Comparison{What: "coefficients forward and backward, a token", By: "slices", Against: "the best number of tokens", N: n, Channels: p.Channels},
			of:         timed(most.first(n).both), tokens: n,
		}
		describeMatch(&m, p)
		all = append(all, m)
	}
	return all
}

// describeMatch says what the problem is, if not of a size of its own.
func describeMatch(m *match, p Problem) {
	m.Streams, m.T, m.Workers = p.Config.Streams, p.Config.Sinkhorn.Iterations, runtime.GOMAXPROCS(0)
	if m.N == 0 {
		m.N, m.Channels = p.Tokens, p.Channels
	}
}

// compare measures matches, round after round.
func compare(matches []match, opts Options, report func(Comparison) error) error {
	of, against := make([][]float64, len(matches)), make([][]float64, len(matches))
	for round := range opts.Rounds {
		runtime.GC()
		for i, m := range matches {
			sides := []struct {
				c    contender
				into *[]float64
			}{{m.of, &of[i]}, {m.against, &against[i]}}
			if round%2 == 1 {
				slices.Reverse(sides)
			}
			for _, s := range sides {
				if s.c == nil {
					continue
				}
				t, err := typical(s.c, m.Cold, opts.RoundTime)
				if err != nil {
					return fmt.Errorf("%s by %s against %s: %w", m.What, m.By, m.Against, err)
				}
				*s.into = append(*s.into, t/float64(max(m.tokens, 1)))
			}
		}
	}
	best := 0
	for i := range matches {
		if matches[i].against == nil && median(of[i]) < median(of[best]) {
			best = i
		}
	}
	for i, m := range matches {
		if m.against == nil {
			against[i] = of[best]
		}
		ratios := make([]float64, opts.Rounds)
		for r := range ratios {
			ratios[r] = of[i][r] / against[i][r]
			if m.Speedup {
				ratios[r] = 1 / ratios[r]
			}
		}
		slices.Sort(ratios)
		c := m.Comparison
		c.Rounds, c.Time, c.Yardstick = opts.Rounds, median(of[i]), median(against[i])
		c.P20, c.P50, c.P80 = quantile(0.2, ratios), quantile(0.5, ratios), quantile(0.8, ratios)
		if err := report(c); err != nil {
			return err
		}
	}
	return nil
}

// typical is the median time, in microseconds, of some runs: three or more, until
// they have taken roundTime. One that is not counted comes before them.
func typical(c contender, cold bool, roundTime time.Duration) (float64, error) {
	before := func() {}
	if cold {
		before = evict
	}
	if _, err := c(before); err != nil {
		return 0, err
	}
	var times []float64
	for start := time.Now(); len(times) < 3 || time.Since(start) < roundTime; {
		t, err := c(before)
		if err != nil {
			return 0, err
		}
		times = append(times, microseconds(t))
	}
	return median(times), nil
}

func timed(f func() error) contender {
	return func(before func()) (time.Duration, error) {
		before()
		start := time.Now()
		err := f()
		return time.Since(start), err
	}
}

// difference is the backward in a graph: forward and backward less forward.
func difference(g *taped) contender {
	return func(before func()) (time.Duration, error) {
		full, err := timed(g.full)(before)
		if err != nil {
			return 0, err
		}
		forward, err := timed(g.forward)(before)
		return full - forward, err
	}
}

// alone runs f on one processor.
func alone(f func() error) func() error {
	return func() error {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		return f()
	}
}

// portably runs f without vector kernels.
func portably(f func() error) func() error {
	return func() error {
		before := tier.Active
		defer func() { tier.Active = before }()
		tier.Active = tier.Go
		return f()
	}
}

// evicted is larger than the caches.
var evicted []byte

// evict fills the caches with something else.
func evict() {
	if evicted == nil {
		evicted = make([]byte, 128<<20)
	}
	parallel.Blocks(len(evicted), pieceBytes, func(_, lo, hi int) {
		for i := lo; i < hi; i += 64 {
			evicted[i]++
		}
	})
}

// sum adds up x with vectors, on all processors.
func sum(x []float32) float32 {
	const rows, row = 4, 4096
	var ones [row]float32
	for i := range ones {
		ones[i] = 1
	}
	const piece = pieceBytes / 4
	sums := make([]float32, rows*((len(x)+piece-1)/piece))
	parallel.Blocks(len(x), piece, func(block, lo, hi int) {
		var b blend.Blender[float32, float32]
		for ; lo < hi; lo += rows * row {
			part := x[lo:min(hi, lo+rows*row)]
			n := len(part) / rows
			b.Dots(sums[rows*block:][:rows], [][]float32{ones[:n]}, [][]float32{part[:n], part[n:][:n], part[2*n:][:n], part[3*n:][:n]})
			for _, v := range part[rows*n:] {
				sums[rows*block] += v
			}
		}
	})
	var total float32
	for _, s := range sums {
		total += s
	}
	return total
}

// multiply does as many operations, of multiplying and of adding, on numbers that
// stay in the first-level cache, on all processors.
func multiply(operations int) {
	const tokens, columns = 48, 24
	const call = 2 * tokens * columns * matmul.Strip
	k := matmul.Of[float32]()
	parallel.Blocks((operations+call-1)/call, 64, func(_, lo, hi int) {
		d, x, g := make([]float32, columns*matmul.Strip), make([]float32, tokens*matmul.Strip), make([]float32, tokens*columns)
		next := (*byte)(unsafe.Pointer(&x[0]))
		for range hi - lo {
			k.Outer(d, matmul.Strip, x, g, columns, tokens, next, 0)
		}
	})
}

// sliceOperands are those of package coeffs.
type sliceOperands struct {
	p      Problem
	tokens int
	in     coeffspkg.Inputs[float32, float32, float32]
	out    coeffspkg.Outputs[float32]
	up     coeffspkg.Upstream[float32]
	grad   coeffspkg.Gradients[float32, float32, float32]
}

func newSlices(p Problem, tokens int) *sliceOperands {
	n, m := p.Config.Streams, p.Config.Width()
	k := n * p.Channels
	return &sliceOperands{
		p: p, tokens: tokens,
		in: coeffspkg.Inputs[float32, float32, float32]{
			X: p.numbers("x", 1, tokens*k), Phi: p.numbers("phi", 0.02, k*m), B: p.numbers("b", 0.5, m), Alpha: p.numbers("alpha", 1, 3),
		},
		out: coeffspkg.Outputs[float32]{
			Pre: make([]float32, tokens*n), Post: make([]float32, tokens*n), Res: make([]float32, tokens*n*n),
			Mix: make([]float32, tokens*m), R: make([]float32, tokens),
		},
		up: coeffspkg.Upstream[float32]{
			Pre: p.numbers("pre", 1, tokens*n), Post: p.numbers("post", 1, tokens*n), Res: p.numbers("res", 1, tokens*n*n),
		},
		grad: coeffspkg.Gradients[float32, float32, float32]{
			X: make([]float32, tokens*k), Phi: make([]float32, k*m), B: make([]float32, m), Alpha: make([]float32, 3),
		},
	}
}

// first is the same of the first tokens.
func (s *sliceOperands) first(tokens int) *sliceOperands {
	of := func(all []float32) []float32 { return all[:len(all)/s.tokens*tokens] }
	f := *s
	f.tokens = tokens
	f.in.X, f.grad.X = of(s.in.X), of(s.grad.X)
	f.out = coeffspkg.Outputs[float32]{Pre: of(s.out.Pre), Post: of(s.out.Post), Res: of(s.out.Res), Mix: of(s.out.Mix), R: of(s.out.R)}
	f.up = coeffspkg.Upstream[float32]{Pre: of(s.up.Pre), Post: of(s.up.Post), Res: of(s.up.Res)}
	return &f
}

func (s *sliceOperands) forward() error {
	return coeffspkg.Forward(s.out, s.in, s.tokens, s.p.Channels, s.p.Config)
}

func (s *sliceOperands) backward() error {
	return coeffspkg.Backward(s.grad, s.up, s.in, s.out, s.tokens, s.p.Channels, s.p.Config)
}

func (s *sliceOperands) both() error {
	if err := s.forward(); err != nil {
		return err
	}
	return s.backward()
}

// appliedOperands are those of PostRes.
type appliedOperands struct {
	p                       Problem
	xout, x, f, hpost, hres []float32
	bytes                   int // of all of them
}

func newApplied(p Problem) *appliedOperands {
	n := p.Config.Streams
	one := p.Tokens * p.Channels
	a := &appliedOperands{
		p: p, xout: make([]float32, n*one), x: p.numbers("x", 1, n*one), f: p.numbers("f", 1, one),
		hpost: p.numbers("hpost", 1, p.Tokens*n), hres: p.numbers("hres", 1, p.Tokens*n*n),
	}
	for _, s := range [][]float32{a.xout, a.x, a.f, a.hpost, a.hres} {
		a.bytes += 4 * len(s)
	}
	return a
}

func (a *appliedOperands) postRes() error {
	d := streamspkg.Dims{Tokens: a.p.Tokens, Streams: a.p.Config.Streams, Channels: a.p.Channels}
	return streamspkg.PostRes(a.xout, a.x, a.f, a.hpost, a.hres, d, a.p.Config.Apply)
}

// projections are the operands of package sinkhorn.
type projections struct {
	p                       Problem
	logits, up, out, dlogit []float32
}

func newProjections(p Problem) *projections {
	size := sinkhornTokens * p.Config.Streams * p.Config.Streams
	return &projections{p, p.numbers("logits", 1, size), p.numbers("up", 1, size), make([]float32, size), make([]float32, size)}
}

func (k *projections) both() error {
	n, cfg := k.p.Config.Streams, k.p.Config.Sinkhorn
	if err := sinkhornpkg.Forward(k.out, k.logits, n, cfg); err != nil {
		return err
	}
	return sinkhornpkg.Backward(k.dlogit, k.logits, k.up, n, cfg)
}

// numbers are what random draws, as a slice.
func (p Problem) numbers(name string, scale float64, n int) []float32 {
	s := make([]float32, n)
	drawn := random(name, p.Seed, tensor.Float32, scale, tensor.Shape{min(n, period)}).Float32s()
	for at := 0; at < n; at += len(drawn) {
		copy(s[at:], drawn)
	}
	return s
}

func asBytes(s []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}

// graphs are the operators of package op on an Arena, those of the coefficients
// also without one, and the same from Gorgonia's own.
type graphs struct{ coeffs, postRes, plain, peer *taped }

func newGraphs(p Problem) (g *graphs, err error) {
	g = &graphs{}
	for _, each := range []struct {
		to    **taped
		build func(*builder) error
		arena *op.Arena
	}{
		{&g.coeffs, coeffs, op.NewArena()}, {&g.postRes, postRes, op.NewArena()}, {&g.plain, coeffs, nil}, {&g.peer, peerCoeffs, nil},
	} {
		if *each.to, err = newTaped(p, each.build, each.arena); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *graphs) close() {
	for _, each := range []*taped{g.coeffs, g.postRes, g.plain, g.peer} {
		for _, m := range each.machines {
			_ = m.Close()
		}
	}
}

// taped runs an operator on TapeMachines.
type taped struct {
	machines [passes]*machine.Machine
	arena    *op.Arena // nil without one
}

func newTaped(p Problem, build func(*builder) error, arena *op.Arena) (*taped, error) {
	g := &taped{arena: arena}
	var opts []gorgonia.VMOpt
	if arena != nil {
		opts = append(opts, gorgonia.WithEngine(arena))
	}
	for pass := range passes {
		var err error
		if _, g.machines[pass], err = newMachine(build, p, pass, opts...); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *taped) forward() error { return g.run(forward) }
func (g *taped) full() error    { return g.run(full) }

func (g *taped) run(pass int) error {
	_, err := g.machines[pass].Run()
	if g.arena != nil {
		g.arena.Recycle()
	}
	return err
}
