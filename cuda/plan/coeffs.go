package plan

import (
	"fmt"

	"github.com/mhc-go/mhc/sinkhorn"
)

// CoeffsForward computes h_pre, h_post, h_res, mix and r of x in two launches.
type CoeffsForward struct {
	Tokens            int64 // N
	Streams, Channels int   // n, C; K = n*C, M = n*n + 2*n
	XType, PhiType    Type  // PhiType is XType or Float32
	PhiTransposed     bool  // phi is [M, K] instead of [K, M]
	RMSEps, PreEps    float64
	PostMult          float64
	Sinkhorn          sinkhorn.Config

	X, Phi      Ptr // [N, K], [K, M]
	B, Alpha    Ptr // [M], [3] float32
	HPre, HPost Ptr // [N, n] float32, written
	HRes        Ptr // [N, n, n] float32, written
	Mix, R      Ptr // [N, M], [N] float32, written: what the backward needs
}

// CoeffsBackward computes the gradients of x, phi, b and alpha from those of any subset of h_pre, h_post and h_res: two
// launches for up to eight streams, three for more.
type CoeffsBackward struct {
	Tokens            int64
	Streams, Channels int
	XType, PhiType    Type
	PhiTransposed     bool
	PostMult          float64
	Sinkhorn          sinkhorn.Config

	X, Phi, B, Alpha Ptr // as in the forward
	Mix, R           Ptr // from the forward
	GPre, GPost      Ptr // [N, n] float32, 0: zero
	GRes             Ptr // [N, n, n] float32, 0: zero
	DX               Ptr // [N, K] in XType, written; 0: not wanted
	DPhi             Ptr // as phi, written
	DPhiType         Type
	DB, DAlpha       Ptr // [M], [3] float32, written
}

// MatMulRMSForward computes mix = r * (X phi) and r = 1/sqrt(mean(x^2) + eps) for any number of columns.
type MatMulRMSForward struct {
	Tokens         int64
	K, M           int64
	XType, PhiType Type
	PhiTransposed  bool
	RMSEps         float64

	X, Phi, Mix, R Ptr
}

// MatMulRMSBackward computes the gradients of x and phi from that of mix and, where present, that of r.
type MatMulRMSBackward struct {
	Tokens         int64
	K, M           int64
	XType, PhiType Type
	PhiTransposed  bool

	X, Phi, Mix, R Ptr
	GMix, GR       Ptr // [N, M], [N] float32; either may be 0: zero
	DX, DPhi       Ptr // DX may be 0: not wanted
	DPhiType       Type
}

// HeadForward computes w = sigmoid(alpha*r*(X phi)+b)+pre_eps and out = sum_i w[i] x[i] in three launches.
type HeadForward struct {
	Tokens            int64
	Streams, Channels int
	XType, PhiType    Type // phi is [K, n]
	PhiTransposed     bool
	RMSEps, PreEps    float64

	X, Phi, B, Alpha Ptr // b [n], alpha [1] float32
	Out              Ptr // [N, C] in XType, written
	W, Mix, R        Ptr // [N, n], [N, n], [N] float32, written: what the backward needs
}

// HeadBackward computes the gradients of x, phi, b and alpha from that of out in three launches.
type HeadBackward struct {
	Tokens            int64
	Streams, Channels int
	XType, PhiType    Type
	PhiTransposed     bool

	X, Phi, B, Alpha Ptr
	W, Mix, R        Ptr // from the forward
	G                Ptr // [N, C] in XType
	DX, DPhi         Ptr
	DPhiType         Type
	DB, DAlpha       Ptr // [n], [1] float32
}

// mixShape is the common part of every operator that multiplies X by phi.
type mixShape struct {
	n, k, m    int64 // tokens, rows and columns of phi
	xt, pt     Type
	transposed bool
}

// maxK is the largest K: kernels count what belongs to a row of phi in 32 bits.
const maxK = 1 << 30

func (s mixShape) check() error {
	if s.n < 0 {
		return fmt.Errorf("plan: tokens are %d, want 0 or more", s.n)
	}
	if s.k < 1 || s.k > maxK {
		return fmt.Errorf("plan: K is %d, want 1 to %d", s.k, int64(maxK))
	}
	if s.m < 1 || s.m > MaxColumns {
		return fmt.Errorf("plan: M is %d, want 1 to %d", s.m, MaxColumns)
	}
	if err := checkType("x", s.xt); err != nil {
		return err
	}
	if err := checkType("phi", s.pt); err != nil {
		return err
	}
	if s.pt != s.xt && s.pt != Float32 {
		return fmt.Errorf("plan: phi is %v with x of %v, want %v or f32", s.pt, s.xt, s.xt)
	}
	return nil
}

// strides of phi along K and M.
func (s mixShape) strides() (int64, int64) {
	if s.transposed {
		return 1, s.k
	}
	return s.m, 1
}

func (s mixShape) rowsAligned() bool { return s.k*s.xt.Size()%16 == 0 }

// parts is the number of bfloat16 parts that hold an element of phi in the forward: a bfloat16 is one and a float16 two, exactly;
// of a float32, two are as good as what a bfloat16 x deserves.
func (s mixShape) parts() int64 {
	switch {
	case s.pt == BFloat16:
		return 1
	case s.pt == Float16 || s.xt == BFloat16:
		return 2
	}
	return 3
}

// A forward block's warps own 16 tokens each at a time and multiply them by the block's range of rows of phi, which lies in
// shared memory as bfloat16 fragments, next to a ring of forwardDepth steps of 2 KB for each warp.
const (
	forwardWarps = 16 // of a multiprocessor; half as many of a small one
	forwardDepth = 3
)

// forwardSplit is the split of X phi over ranges of K (partial products, added up by the reducer) and blocks of tokens.
type forwardSplit struct {
	width, chunks int64 // of columns
	warps         int64 // of a block
	kRange        int64 // rows of phi of a block, a multiple of 64
	ranges        int64
	tokenBlocks   int64
	shared        int64 // bytes
	depth         int64 // stages, of the wide kernel
}

// fragmentBytes is the size of k rows of phi in shared memory: a padded kilobyte for 16 rows, 8 columns, two parts.
func (s mixShape) fragmentBytes(k int64) int64 {
	return k / 16 * (narrowColumns / 8) * 72 * s.parts() * 4
}

// searchForward finds the split that is estimated to be the fastest.
func (s mixShape) searchForward(lim Limits) forwardSplit {
	if s.wide() {
		return s.searchForwardWide(lim)
	}
	var best forwardSplit
	bestCost := 0.0
	tiles := max(ceil(s.n, 16), 1)
	resident := int64(forwardWarps)
	if lim.small() {
		resident /= 2
	}
	for warps := resident; warps >= 4; warps /= 2 {
		slots := int64(lim.SMs) * (resident / warps)
		rings := warps * forwardDepth * 2048
		limit := min(int64(lim.SharedPerBlock)-1024, (int64(lim.SharedPerSM)-(resident/warps)*1024)/(resident/warps))
		longest := (limit - rings) / s.fragmentBytes(64) * 64
		if longest < 64 {
			continue
		}
		fewest := ceil(s.k, longest)
		for parts := fewest; parts < fewest+512; {
			kr := roundUp(ceil(s.k, parts), 64)
			r := ceil(s.k, kr)
			shared := rings + s.fragmentBytes(kr)
			tb := min(max(slots/r, 1), ceil(tiles, warps))
			tilesPerWarp := ceil(tiles, warps*tb)
			waves := ceil(r*tb, slots)
			// Times in units of 1 us: a multiprocessor reads about 32 KB in one, shared by its warps; it turns 20 KB of fragments.
			run := 1 + float64(tilesPerWarp*kr*16*s.xt.Size()*resident)/32e3 + float64(s.fragmentBytes(kr)*resident/warps)/20e3
			// The partial sums are written to and read from the L2.
			cost := float64(waves)*run + float64(r*s.n*(narrowColumns+4)*8)/3e6 + float64(r)/32
			if bestCost == 0 || cost < bestCost {
				bestCost = cost
				best = forwardSplit{width: narrowColumns, chunks: 1, warps: warps, kRange: kr, ranges: r, tokenBlocks: tb, shared: shared}
			}
			if kr == 64 {
				break
			}
			parts = ceil(s.k, kr-64) // the fewest that make the range shorter
		}
	}
	return best
}

// A warp of the backward handles tiles of tileTokens tokens and a line of bytes of x each, with backwardDepth of them on their
// way or in use. Lines are of 128 bytes, and of 64 for few tokens of a 16-bit type: half as much work for each of more warps, and
// z of all tokens of a block in shared memory at once, which up to fewTokens allow on every device.
const (
	tileTokens    = 16
	backwardDepth = 4
	wideLine      = 128
	shortLine     = 64
	fewBytes      = 20 << 20 // of x: two fifths of an H200's L2
	fewTokens     = 32 << 10
)

// lineWarps is the number of warps of a block of the backward.
func lineWarps(lim Limits, line int64) int64 {
	switch {
	case lim.small():
		return 8
	case line == shortLine:
		return 16
	}
	return 12
}

// line is the number of bytes of a row of x that a warp of the backward handles.
func (s mixShape) line() int64 {
	if s.xt != Float32 && s.n <= fewTokens && s.n*s.k*s.xt.Size() <= fewBytes {
		return shortLine
	}
	return wideLine
}

// zRow is the number of bytes of a row of z: high and low bfloat16 parts of a chunk of columns, c, and padding that makes
// the pitch an odd multiple of 16.
func zRow(width int64) int64 { return width*4 + 16 }

// backwardSplit is the split of the pass that gives dx and dphi.
type backwardSplit struct {
	width, chunks int64
	warpColumns   int64 // rows of phi of a warp: a line of x
	colWarps      int64 // warps side by side along K
	tokenWarps    int64 // warps side by side along the tokens; colWarps*tokenWarps is all of a block
	groups        int64 // blocks along K
	splits        int64 // blocks along the tokens
	splitTokens   int64
	stageTiles    int64 // tiles of a warp between two barriers; all, of a short line
	shared        int64 // bytes: a ring of tiles a warp and the stages of z, or the sums of all warps
	depth         int64 // stages of x and z, of the wide kernels
}

// searchBackward finds the split that is estimated to be the fastest.
func (s mixShape) searchBackward(lim Limits) backwardSplit {
	if s.wide() {
		return s.searchBackwardWide(lim)
	}
	line := s.line()
	b := backwardSplit{width: narrowColumns, chunks: 1, warpColumns: line / s.xt.Size()}
	block := lineWarps(lim, line)
	// shared is the shared memory of stages of so many tiles of a warp, where there are tilesOfWarp of them in all.
	shared := func(tokenWarps, stageTiles, tilesOfWarp int64) int64 {
		buffers := int64(2)
		if stageTiles >= tilesOfWarp {
			buffers = 1
		}
		return block*backwardDepth*tileTokens*line + buffers*stageTiles*tokenWarps*tileTokens*zRow(b.width)
	}
	limit := int64(lim.SharedPerBlock) - 1024
	warps := ceil(s.k, b.warpColumns)
	tiles := max(ceil(s.n, tileTokens), 1)
	best := 0.0
	for _, cw := range []int64{4, 2, 1} {
		tw := block / cw
		groups := ceil(warps, cw)
		for splits := int64(1); splits <= 64 && splits <= tiles; splits++ {
			st := ceil(tiles, splits)
			if ceil(tiles, st) != splits || line == shortLine && shared(tw, ceil(st, tw), ceil(st, tw)) > limit {
				continue
			}
			waves := ceil(groups*splits, int64(lim.SMs))
			// Times in units of 1 us; a multiprocessor moves about 32 KB in one.
			run := float64(ceil(st, tw)*block*2*tileTokens*line)/32e3 + 2.5
			if line == shortLine { // z is as much as x, then
				run += float64(st*tileTokens*zRow(b.width)) / 40e3
			}
			part := float64(0)
			if splits > 1 {
				// A write and a read of the partial sums through the L2, and the read by the last block.
				part = 1.5 + float64(splits*s.k*b.width*8)/4e6 + float64(splits*cw*b.warpColumns*b.width*4)/80e3
			}
			cost := float64(waves)*run + part
			if best == 0 || cost < best {
				best = cost
				b.colWarps, b.tokenWarps, b.groups, b.splits, b.splitTokens = cw, tw, groups, splits, st*tileTokens
			}
		}
	}
	// Barriers are rare, and no fewer than backwardDepth - 1 tiles apart: otherwise they would drain the rings.
	tilesOfWarp := ceil(ceil(min(s.n, b.splitTokens), tileTokens), b.tokenWarps)
	b.stageTiles = max(192/(b.tokenWarps*tileTokens), backwardDepth-1)
	if line == shortLine {
		b.stageTiles = tilesOfWarp
	}
	for b.stageTiles = min(b.stageTiles, max(tilesOfWarp, 1)); ; b.stageTiles-- {
		if b.shared = shared(b.tokenWarps, b.stageTiles, tilesOfWarp); b.stageTiles == 1 || b.shared <= limit {
			break
		}
	}
	b.shared = max(b.shared, block*b.warpColumns*b.width*4)
	return b
}

// quadHistory is the size of the history that a warp keeps of the Sinkhorn of up to four streams, four lanes a token.
func quadHistory(steps int64) int64 { return (steps + 2) * 32 * 4 }

// Packed phi is made of shares of 32 rows: packedVectors vectors of 16 bytes of each lane and part.
const packedVectors = 3

func (b backwardSplit) shares() int64 { return b.groups * b.colWarps * b.warpColumns / 32 }

// gradBlock is the shape of the kernel that turns upstream gradients into z.
type gradBlock struct {
	name    string
	fast    bool // up to four streams
	blocks  int64
	threads int64
	shared  int64
	hist    int64 // bytes of global history; 0: in shared memory
}

const maxHistShared = 64 << 10

func gradShape(lim Limits, s mixShape, mode, streams, steps int64, fast bool) gradBlock {
	if shared := 4 * quadHistory(steps); fast && shared <= maxHistShared {
		return gradBlock{name: fmt.Sprintf("mhc_grad_logits_n%d", streams), fast: true, threads: 128, shared: shared,
			blocks: min(max(ceil(s.n, 32), 1), int64(lim.SMs)*8)}
	}
	g := gradBlock{name: "mhc_grad_logits", threads: 128}
	lanes := int64(32)
	if mode == modeCoeffs {
		lanes = groupLanes(streams)
		g.name = fmt.Sprintf("mhc_wide_grad_n%d", lanes)
	}
	groups := g.threads / lanes
	g.blocks = min(max(ceil(s.n, groups), 1), int64(lim.SMs)*8)
	g.shared = groups * 2 * roundUp(s.m, 4) * 4
	if mode != modeCoeffs {
		return g
	}
	hist := g.threads * steps * 4
	if g.shared+hist <= maxHistShared {
		g.shared += hist
	} else {
		g.hist = hist * g.blocks
	}
	return g
}

// groupLanes is the number of lanes that share a matrix of n rows.
func groupLanes(n int64) int64 {
	switch {
	case n <= 8:
		return 8
	case n <= 16:
		return 16
	}
	return 32
}

// kernel modes, as in the sources.
const (
	modeRMS    = 0
	modeCoeffs = 1
	modeHead   = 2
)

// partial products

func (s mixShape) forwardWorkspace(f forwardSplit) int64 {
	return f.chunks * f.ranges * s.n * (f.width + 4) * 4
}

func (s mixShape) partialLaunch(f forwardSplit, x, phi, partial Ptr) Launch {
	if s.wide() {
		return s.wideLaunch(f, x, phi, partial)
	}
	var a args
	sk, sm := s.strides()
	a.ptr(x, phi, partial)
	a.int(int64(s.pt), sk, sm, s.n, s.k, s.m, f.kRange, f.ranges)
	return Launch{
		Name:   fmt.Sprintf("mhc_mix_partial_%v_p%d_m24%s", s.xt, s.parts(), anySuffix(s.rowsAligned() && aligned16(x))),
		Grid:   Dim{uint32(f.ranges * f.tokenBlocks), 1, 1},
		Block:  Dim{uint32(32 * f.warps), 1, 1},
		Shared: uint32(f.shared),
		Args:   a,
	}
}

type reduceArgs struct {
	mode             int64
	streams          int64
	rmsEps, preEps   float64
	postMult         float64
	sinkhorn         sinkhorn.Config
	b, alpha         Ptr
	hpre, hpost, res Ptr
	mix, r           Ptr
}

func (s mixShape) reduceLaunch(lim Limits, f forwardSplit, partial Ptr, r reduceArgs) Launch {
	var a args
	tokens := int64(8) // of a block
	l := Launch{Name: "mhc_mix_reduce", Block: Dim{256, 1, 1}}
	spread := func(most int64) { // no more blocks than keep the device busy
		for tokens = 4; tokens < most && s.n > 4*tokens*int64(lim.SMs); {
			tokens *= 2
		}
	}
	switch {
	case r.mode == modeCoeffs && (r.streams < 4 || r.streams == 4 && aligned16(r.res)):
		l.Name = fmt.Sprintf("mhc_coeffs_reduce_n%d", r.streams)
		spread(32)
	case r.mode == modeCoeffs:
		lanes := groupLanes(r.streams)
		l.Name = fmt.Sprintf("mhc_wide_reduce_n%d", lanes)
		spread(128 / lanes)
		l.Shared = uint32(tokens * (f.chunks*(f.width+4) + s.m) * 4)
	}
	a.int(r.mode)
	a.ptr(partial)
	a.int(s.n, s.k, s.m, f.ranges, f.width, r.streams, tokens)
	a.float(r.rmsEps, r.preEps, r.postMult)
	a.projection(r.sinkhorn)
	a.ptr(r.b, r.alpha, r.mix, r.r, r.hpre, r.hpost, r.res)
	l.Grid = Dim{uint32(ceil(s.n, tokens)), 1, 1}
	l.Args = a
	return l
}

// gradients

type backwardPlan struct {
	s     mixShape
	split backwardSplit
	grad  gradBlock
	ws    struct{ z, part, hist, dphi, counters, packed int64 } // bytes
	cols  int64                                                 // of part: M + number of alphas
}

func (s mixShape) backwardPlan(lim Limits, mode, streams, steps, alphas int64, fast bool) backwardPlan {
	p := backwardPlan{s: s, split: s.backward(lim), grad: gradShape(lim, s, mode, streams, steps, fast)}
	p.cols = s.m + alphas
	p.ws.z = p.split.chunks * s.n * zRow(p.split.width)
	if mode != modeRMS {
		p.ws.part = p.grad.blocks * p.cols * 4
	}
	p.ws.hist = p.grad.hist
	if p.split.splits > 1 {
		p.ws.dphi = p.split.chunks * p.split.splits * p.split.groups * p.split.colWarps * p.split.warpColumns * p.split.width * 4
		p.ws.counters = p.split.chunks * p.split.groups * 8
	}
	if !s.wide() {
		p.ws.packed = p.split.shares() * packedVectors * dxParts(s.xt) * 32 * 16
	}
	return p
}

func (p backwardPlan) bytes() int64 {
	c := carve{}
	for _, b := range []int64{p.ws.z, p.ws.part, p.ws.hist, p.ws.dphi, p.ws.counters, p.ws.packed} {
		c.take(b)
	}
	return c.used
}

// backwardWorkspace is where the launches of a backward leave what the next one reads; hist is absent where it is in shared memory.
type backwardWorkspace struct{ z, part, hist, dphi, counters, packed Ptr }

type backwardArgs struct {
	mode, streams         int64
	postMult              float64
	sinkhorn              sinkhorn.Config
	x, phi, b, alpha      Ptr
	mix, r                Ptr
	gpre, gpost, gres, gr Ptr
	dx, dphi, db, dalpha  Ptr
	dphiType              Type
	headG, headW          Ptr
	channels              int64
}

func (p backwardPlan) launches(lim Limits, ws Ptr, v backwardArgs) []Launch {
	s, sp := p.s, p.split
	c := carve{base: ws}
	w := backwardWorkspace{z: c.take(p.ws.z), part: c.take(p.ws.part), hist: c.take(p.ws.hist)}
	w.dphi, w.counters, w.packed = c.take(p.ws.dphi), c.take(p.ws.counters), c.take(p.ws.packed)
	sk, sm := s.strides()
	packers, fetchers := int64(0), int64(0) // blocks
	if w.packed != 0 {
		packers = min(ceil(sp.shares()*packedVectors*32, p.grad.threads), 6*int64(lim.SMs)*32/p.grad.threads)
	}

	ahead := p.ahead(int64(v.sinkhorn.Steps()))
	if ahead > 0 {
		fetchers = int64(lim.SMs) / 2
	}

	var a args
	a.int(v.mode)
	a.ptr(v.mix, v.r, v.alpha, v.b)
	a.ptr(v.gpre, v.gpost, v.gres, v.gr)
	a.ptr(w.z, w.part, w.hist, w.counters)
	a.int(sp.chunks * sp.groups * b2i(sp.splits > 1))
	a.int(s.n, s.k, s.m, v.streams, sp.width, sp.chunks)
	a.float(v.postMult)
	a.projection(v.sinkhorn)
	a.int(p.grad.blocks, packers)
	a.ptr(v.phi, w.packed)
	a.int(int64(s.pt), sk, sm, sp.shares(), 16/s.xt.Size(), dxParts(s.xt))
	a.ptr(v.x)
	a.int(ahead)
	ls := []Launch{{Name: p.grad.name, Grid: Dim{uint32(p.grad.blocks + packers + fetchers), 1, 1}, Block: Dim{uint32(p.grad.threads), 1, 1}, Shared: uint32(p.grad.shared), Args: a}}

	if s.wide() {
		return append(ls, p.wideLaunches(lim, w, v)...)
	}
	aligned := s.rowsAligned() && aligned16(v.x, v.dx)
	name := "dx_dphi"
	if v.mode == modeHead {
		name = "head_dx_dphi"
		aligned = aligned && aligned16(v.headG) && v.channels*s.xt.Size()%16 == 0
	}
	a = nil
	a.ptr(v.x, w.packed, w.z, v.dx, v.dphi, w.dphi, w.counters, w.part, v.db, v.dalpha, v.headG, v.headW)
	a.int(int64(v.dphiType), sk, sm, s.n, s.k, s.m)
	a.int(sp.groups, sp.splits, sp.splitTokens, sp.colWarps, sp.tokenWarps)
	if s.line() == shortLine {
		name = "few_" + name
	} else {
		a.int(sp.stageTiles)
	}
	a.int(p.grad.blocks, p.cols, v.channels)
	blocks := sp.groups * sp.splits
	if v.mode != modeRMS {
		blocks++ // the last one adds up db and dalpha
	}
	return append(ls, Launch{
		Name:   fmt.Sprintf("mhc_%s_%v%s", name, s.xt, anySuffix(aligned)),
		Grid:   Dim{uint32(blocks), 1, 1},
		Block:  Dim{uint32(32 * sp.colWarps * sp.tokenWarps), 1, 1},
		Shared: uint32(sp.shared),
		Args:   a,
	})
}

// ahead is the size of the x that the first kernel brings to the L2 for the next one while Sinkhorn leaves the memory idle: all
// of it, where the tokens are few and the steps many.
func (p backwardPlan) ahead(steps int64) int64 {
	if bytes := p.s.n * p.s.k * p.s.xt.Size(); bytes <= fewBytes && steps >= 30 && p.grad.fast {
		return bytes
	}
	return 0
}

// dxParts is the number of bfloat16 parts that hold an element of phi in the product that gives dx. One costs an error of up to
// 1.7e-3, as much as the rounding of a bfloat16 dx.
func dxParts(x Type) int64 {
	if x == Float32 {
		return 2
	}
	return 1
}

// CoeffsForward

func (o *CoeffsForward) shape() mixShape {
	n := int64(o.Streams)
	return mixShape{o.Tokens, n * int64(o.Channels), n*n + 2*n, o.XType, o.PhiType, o.PhiTransposed}
}

// Check reports the first size or setting that is wrong.
func (o *CoeffsForward) Check() error {
	if err := checkSizes(o.Tokens, o.Streams, o.Channels); err != nil {
		return err
	}
	if err := checkEps("rms eps", o.RMSEps); err != nil {
		return err
	}
	if err := checkEps("pre eps", o.PreEps); err != nil {
		return err
	}
	if err := o.Sinkhorn.Validate(); err != nil {
		return err
	}
	return o.shape().check()
}

// Workspace is the number of bytes of scratch memory.
func (o *CoeffsForward) Workspace(lim Limits) (int64, error) {
	return forwardBytes(lim, o.Check(), o.shape())
}

func forwardBytes(lim Limits, err error, s mixShape) (int64, error) {
	if err == nil {
		err = lim.check()
	}
	if err != nil || s.n == 0 {
		return 0, err
	}
	c := carve{}
	c.take(s.forwardWorkspace(s.forward(lim)))
	return c.used, nil
}

func forwardLaunches(lim Limits, ws Ptr, s mixShape, x, phi Ptr, r reduceArgs) []Launch {
	f := s.forward(lim)
	return []Launch{s.partialLaunch(f, x, phi, ws), s.reduceLaunch(lim, f, ws, r)}
}

// Launches is the plan: partial products over ranges of K, then the reducer that ends in the activations and Sinkhorn.
func (o *CoeffsForward) Launches(lim Limits, ws Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"X", o.X}, named{"Phi", o.Phi}, named{"B", o.B}, named{"Alpha", o.Alpha}, named{"HPre", o.HPre},
		named{"HPost", o.HPost}, named{"HRes", o.HRes}, named{"Mix", o.Mix}, named{"R", o.R}, named{"workspace", ws}); err != nil {
		return nil, err
	}
	return forwardLaunches(lim, ws, o.shape(), o.X, o.Phi, reduceArgs{mode: modeCoeffs, streams: int64(o.Streams),
		rmsEps: o.RMSEps, preEps: o.PreEps, postMult: o.PostMult, sinkhorn: o.Sinkhorn, b: o.B, alpha: o.Alpha,
		hpre: o.HPre, hpost: o.HPost, res: o.HRes, mix: o.Mix, r: o.R}), nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// CoeffsBackward

func (o *CoeffsBackward) shape() mixShape {
	n := int64(o.Streams)
	return mixShape{o.Tokens, n * int64(o.Channels), n*n + 2*n, o.XType, o.PhiType, o.PhiTransposed}
}

// Check reports the first size or setting that is wrong.
func (o *CoeffsBackward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), o.Sinkhorn.Validate(), o.shape().check(), checkDPhi(o.PhiType, o.DPhiType))
}

func checkDPhi(phi, dphi Type) error {
	if dphi != Float32 && dphi != phi {
		return fmt.Errorf("plan: the type of dphi is %v with phi of %v, want f32 or %v", dphi, phi, phi)
	}
	return nil
}

func (o *CoeffsBackward) plan(lim Limits) backwardPlan {
	return o.shape().backwardPlan(lim, modeCoeffs, int64(o.Streams), int64(o.Sinkhorn.Steps()), 3, o.Streams <= 4)
}

// Workspace is the number of bytes of scratch memory.
func (o *CoeffsBackward) Workspace(lim Limits) (int64, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return 0, err
	}
	// The kernel for any alignment may want more history than the fast one.
	slow := o.shape().backwardPlan(lim, modeCoeffs, int64(o.Streams), int64(o.Sinkhorn.Steps()), 3, false)
	return max(o.plan(lim).bytes(), slow.bytes()), nil
}

// Launches is the plan: reverse Sinkhorn to z, then dx and dphi with the sums of the parameters' gradients.
func (o *CoeffsBackward) Launches(lim Limits, ws Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil {
		return nil, err
	}
	if err := need(named{"DPhi", o.DPhi}, named{"DB", o.DB}, named{"DAlpha", o.DAlpha}); err != nil {
		return nil, err
	}
	s := o.shape()
	if o.Tokens == 0 {
		return []Launch{zero(o.DPhi, s.k*s.m*o.DPhiType.Size()), zero(o.DB, s.m*4), zero(o.DAlpha, 12)}, nil
	}
	if err := need(named{"X", o.X}, named{"Phi", o.Phi}, named{"B", o.B}, named{"Alpha", o.Alpha}, named{"Mix", o.Mix},
		named{"R", o.R}, named{"workspace", ws}); err != nil {
		return nil, err
	}
	p := o.plan(lim)
	if o.Streams == 4 && !aligned16(o.Mix, o.GPre, o.GPost, o.GRes) {
		p = s.backwardPlan(lim, modeCoeffs, int64(o.Streams), int64(o.Sinkhorn.Steps()), 3, false)
	}
	return p.launches(lim, ws, backwardArgs{mode: modeCoeffs, streams: int64(o.Streams), postMult: o.PostMult,
		sinkhorn: o.Sinkhorn, x: o.X, phi: o.Phi, b: o.B, alpha: o.Alpha, mix: o.Mix, r: o.R, gpre: o.GPre, gpost: o.GPost,
		gres: o.GRes, dx: o.DX, dphi: o.DPhi, dphiType: o.DPhiType, db: o.DB, dalpha: o.DAlpha, channels: int64(o.Channels)}), nil
}

// MatMulRMSForward

func (o *MatMulRMSForward) shape() mixShape {
	return mixShape{o.Tokens, o.K, o.M, o.XType, o.PhiType, o.PhiTransposed}
}

// Check reports the first size or setting that is wrong.
func (o *MatMulRMSForward) Check() error {
	return firstError(o.shape().check(), checkEps("rms eps", o.RMSEps))
}

// Workspace is the number of bytes of scratch memory.
func (o *MatMulRMSForward) Workspace(lim Limits) (int64, error) {
	return forwardBytes(lim, o.Check(), o.shape())
}

// Launches is the plan: partial products, then the reducer.
func (o *MatMulRMSForward) Launches(lim Limits, ws Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"X", o.X}, named{"Phi", o.Phi}, named{"Mix", o.Mix}, named{"R", o.R}, named{"workspace", ws}); err != nil {
		return nil, err
	}
	return forwardLaunches(lim, ws, o.shape(), o.X, o.Phi, reduceArgs{mode: modeRMS, rmsEps: o.RMSEps, mix: o.Mix, r: o.R, sinkhorn: sinkhorn.Config{Iterations: 1}}), nil
}

// MatMulRMSBackward

func (o *MatMulRMSBackward) shape() mixShape {
	return mixShape{o.Tokens, o.K, o.M, o.XType, o.PhiType, o.PhiTransposed}
}

// Check reports the first size or setting that is wrong.
func (o *MatMulRMSBackward) Check() error {
	return firstError(o.shape().check(), checkDPhi(o.PhiType, o.DPhiType))
}

func (o *MatMulRMSBackward) plan(lim Limits) backwardPlan {
	return o.shape().backwardPlan(lim, modeRMS, 0, 0, 0, false)
}

// Workspace is the number of bytes of scratch memory.
func (o *MatMulRMSBackward) Workspace(lim Limits) (int64, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return 0, err
	}
	return o.plan(lim).bytes(), nil
}

// Launches is the plan: z from the upstream gradients, then dx and dphi.
func (o *MatMulRMSBackward) Launches(lim Limits, ws Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil {
		return nil, err
	}
	if err := need(named{"DPhi", o.DPhi}); err != nil {
		return nil, err
	}
	if o.Tokens == 0 {
		return []Launch{zero(o.DPhi, o.K*o.M*o.DPhiType.Size())}, nil
	}
	if err := need(named{"X", o.X}, named{"Phi", o.Phi}, named{"Mix", o.Mix}, named{"R", o.R}, named{"workspace", ws}); err != nil {
		return nil, err
	}
	return o.plan(lim).launches(lim, ws, backwardArgs{mode: modeRMS, x: o.X, phi: o.Phi, mix: o.Mix, r: o.R, gpre: o.GMix,
		gr: o.GR, dx: o.DX, dphi: o.DPhi, dphiType: o.DPhiType, sinkhorn: sinkhorn.Config{Iterations: 1}}), nil
}

// HeadForward

func (o *HeadForward) shape() mixShape {
	n := int64(o.Streams)
	return mixShape{o.Tokens, n * int64(o.Channels), n, o.XType, o.PhiType, o.PhiTransposed}
}

// Check reports the first size or setting that is wrong.
func (o *HeadForward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), o.shape().check(), checkEps("rms eps", o.RMSEps), checkEps("pre eps", o.PreEps))
}

// Workspace is the number of bytes of scratch memory.
func (o *HeadForward) Workspace(lim Limits) (int64, error) {
	return forwardBytes(lim, o.Check(), o.shape())
}

// Launches is the plan: partial products, the weights, and the weighted sum.
func (o *HeadForward) Launches(lim Limits, ws Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"X", o.X}, named{"Phi", o.Phi}, named{"B", o.B}, named{"Alpha", o.Alpha}, named{"Out", o.Out},
		named{"W", o.W}, named{"Mix", o.Mix}, named{"R", o.R}, named{"workspace", ws}); err != nil {
		return nil, err
	}
	ls := forwardLaunches(lim, ws, o.shape(), o.X, o.Phi, reduceArgs{mode: modeHead, streams: int64(o.Streams), rmsEps: o.RMSEps,
		preEps: o.PreEps, b: o.B, alpha: o.Alpha, hpre: o.W, mix: o.Mix, r: o.R, sinkhorn: sinkhorn.Config{Iterations: 1}})
	pre := PreForward{Tokens: o.Tokens, Streams: o.Streams, Channels: o.Channels, XType: o.XType, X: o.X, HPre: o.W, Out: o.Out}
	more, err := pre.Launches(lim, 0)
	return append(ls, more...), err
}

// HeadBackward

func (o *HeadBackward) shape() mixShape {
	n := int64(o.Streams)
	return mixShape{o.Tokens, n * int64(o.Channels), n, o.XType, o.PhiType, o.PhiTransposed}
}

// Check reports the first size or setting that is wrong.
func (o *HeadBackward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), o.shape().check(), checkDPhi(o.PhiType, o.DPhiType))
}

func (o *HeadBackward) plan(lim Limits) backwardPlan {
	return o.shape().backwardPlan(lim, modeHead, int64(o.Streams), 0, 1, false)
}

func (o *HeadBackward) bytes(lim Limits) (total, dw int64) {
	c := carve{}
	c.take(o.plan(lim).bytes())
	dw = o.Tokens * int64(o.Streams) * 4
	c.take(dw)
	return c.used, dw
}

// Workspace is the number of bytes of scratch memory.
func (o *HeadBackward) Workspace(lim Limits) (int64, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return 0, err
	}
	total, _ := o.bytes(lim)
	return total, nil
}

// Launches is the plan: the gradient of the weights, z from it, then dx and dphi with the sums of the parameters' gradients.
func (o *HeadBackward) Launches(lim Limits, ws Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil {
		return nil, err
	}
	if err := need(named{"DPhi", o.DPhi}, named{"DB", o.DB}, named{"DAlpha", o.DAlpha}); err != nil {
		return nil, err
	}
	s := o.shape()
	if o.Tokens == 0 {
		return []Launch{zero(o.DPhi, s.k*s.m*o.DPhiType.Size()), zero(o.DB, s.m*4), zero(o.DAlpha, 4)}, nil
	}
	if err := need(named{"X", o.X}, named{"Phi", o.Phi}, named{"B", o.B}, named{"Alpha", o.Alpha}, named{"W", o.W},
		named{"Mix", o.Mix}, named{"R", o.R}, named{"G", o.G}, named{"workspace", ws}); err != nil {
		return nil, err
	}
	p := o.plan(lim)
	c := carve{base: ws}
	main := c.take(p.bytes())
	_, dwBytes := o.bytes(lim)
	dw := c.take(dwBytes)
	pre := PreBackward{Tokens: o.Tokens, Streams: o.Streams, Channels: o.Channels, XType: o.XType, X: o.X, HPre: o.W, G: o.G, DHPre: dw}
	ls, err := pre.Launches(lim, 0)
	if err != nil {
		return nil, err
	}
	return append(ls, p.launches(lim, main, backwardArgs{mode: modeHead, streams: int64(o.Streams), x: o.X, phi: o.Phi, b: o.B,
		alpha: o.Alpha, mix: o.Mix, r: o.R, gpre: dw, dx: o.DX, dphi: o.DPhi, dphiType: o.DPhiType, db: o.DB, dalpha: o.DAlpha,
		headG: o.G, headW: o.W, channels: int64(o.Channels), sinkhorn: sinkhorn.Config{Iterations: 1}})...), nil
}
