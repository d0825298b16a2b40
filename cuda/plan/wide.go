package plan

import "fmt"

// More than 24 columns of phi take other kernels, which compute up to 80 columns in one pass over x. They work on stages of x and
// of the operand beside it that a block of 256 threads shares, up to wideDepth of them in a ring.
const (
	narrowColumns  = 24
	wideDepth      = 4
	wideThreads    = 256
	forwardTokens  = 256 // of a block of the forward, 128 bytes of their columns a stage
	backwardTokens = 32  // of a stage of the backward
)

func (s mixShape) wide() bool { return s.m > narrowColumns }

// chunk is the number of columns that one pass of a wide kernel computes, and the number of passes.
func (s mixShape) chunk() (width, count int64) {
	if s.m <= 48 {
		return 48, 1
	}
	return 80, ceil(s.m, 80)
}

// wideParts is parts for the wide kernels, which multiply two operands of one 16-bit type as they are.
func (s mixShape) wideParts() int64 {
	if s.pt == s.xt && s.xt != Float32 {
		return 1
	}
	return s.parts()
}

// longestSum is the number of products that a tensor core adds up in one register at most. It cuts off what it adds: the error of
// a sum grows by about 2e-8 with each.
const longestSum = 288

// wideProducts is the number of products of parts that make one of 16 rows of phi.
func (s mixShape) wideProducts() int64 {
	switch p := s.wideParts(); {
	case s.xt == Float32:
		return 6
	case p == 3: // float16 beside float32
		return 5
	default:
		return p
	}
}

// zParts is the number of bfloat16 parts of z in the product that gives dx. One costs an error of up to 1.7e-3, as much as the
// rounding of a bfloat16 dx, which a norm over many tokens averages; with few, where memory and latency bind, there are two.
func (s mixShape) zParts() int64 {
	if s.xt != Float32 && s.n >= 1024 {
		return 1
	}
	return 2
}

// depthOf is the number of stages that fit beside fixed bytes.
func depthOf(lim Limits, stage, fixed int64) int64 {
	return min(wideDepth, (int64(lim.SharedPerBlock)-1024-fixed)/stage)
}

// searchForwardWide finds the split of the forward that is estimated to be the fastest.
func (s mixShape) searchForwardWide(lim Limits) forwardSplit {
	f := forwardSplit{warps: wideThreads / 32}
	f.width, f.chunks = s.chunk()
	tile := 128 / s.xt.Size()
	stage := forwardTokens*128 + s.wideParts()*tile*(2*f.width+16)
	f.depth = depthOf(lim, stage, 0)
	f.shared = f.depth * stage
	f.tokenBlocks = ceil(s.n, forwardTokens)
	best := 0.0
	fewest := ceil(s.k, longestSum*16/s.wideProducts())
	for r := fewest; r <= ceil(s.k, 64) && r < fewest+128; r++ {
		kr := roundUp(ceil(s.k, r), 64)
		if ceil(s.k, kr) != r {
			continue
		}
		waves := ceil(f.tokenBlocks*r*f.chunks, int64(lim.SMs))
		// Times in units of 1 us: a multiprocessor takes one for a stage; the partial sums are written to and read from the L2.
		cost := float64(waves)*(3+float64(kr/tile)) + float64(r*s.n*f.chunks*(f.width+4)*8)/3e6 + float64(r)/32
		if best == 0 || cost < best {
			best = cost
			f.kRange, f.ranges = kr, r
		}
	}
	return f
}

func (s mixShape) wideLaunch(f forwardSplit, x, phi, partial Ptr) Launch {
	var a args
	sk, sm := s.strides()
	a.ptr(x, phi, partial)
	a.int(int64(s.pt), sk, sm, s.n, s.k, s.m, f.kRange, f.ranges, f.chunks, f.depth)
	return Launch{
		Name:   fmt.Sprintf("mhc_mix_wide_%v_p%d_m%d%s", s.xt, s.wideParts(), f.width, anySuffix(s.rowsAligned() && aligned16(x))),
		Grid:   Dim{uint32(f.chunks * f.ranges * f.tokenBlocks), 1, 1},
		Block:  Dim{wideThreads, 1, 1},
		Shared: uint32(f.shared),
		Args:   a,
	}
}

// searchBackwardWide finds the split of the backward that is estimated to be the fastest. Where one chunk holds all columns, half
// of a block's warps give dx.
func (s mixShape) searchBackwardWide(lim Limits) backwardSplit {
	b := backwardSplit{tokenWarps: 1, colWarps: 8, warpColumns: 128 / s.xt.Size()}
	b.width, b.chunks = s.chunk()
	fixed := int64(0)
	if b.chunks == 1 {
		b.colWarps = 4
		fixed = b.colWarps * b.warpColumns * (2*b.width + 16) * dxParts(s.xt) // rows of phi
	}
	stage := b.colWarps*backwardTokens*128 + backwardTokens*zRow(b.width)
	b.depth = depthOf(lim, stage, fixed)
	b.shared = max(b.depth*stage+fixed, 4*b.warpColumns*b.width*4) // at least the sums of dphi, of four warps at a time
	b.groups = ceil(s.k, b.colWarps*b.warpColumns)
	tiles := max(ceil(s.n, backwardTokens), 1)
	best := 0.0
	for splits := int64(1); splits <= 64 && splits <= tiles; splits++ {
		st := ceil(tiles, splits)
		if ceil(tiles, st) != splits {
			continue
		}
		waves := ceil(b.groups*splits*b.chunks, int64(lim.SMs))
		// Times in units of 1 us: a multiprocessor takes one for a stage; sums of several blocks go through the L2, then the last
		// block reads them.
		cost := float64(waves) * (4 + 1.2*float64(st))
		if splits > 1 {
			cost += float64(splits*s.k*b.chunks*b.width*8)/4e6 + float64(splits*b.colWarps*b.warpColumns*b.width*4)/80e3
		}
		if best == 0 || cost < best {
			best = cost
			b.splits, b.splitTokens = splits, st*backwardTokens
		}
	}
	return b
}

// wideLaunches is the pass that gives dphi, and dx with it where one chunk holds all columns; otherwise a second pass gives dx.
func (p backwardPlan) wideLaunches(lim Limits, w backwardWorkspace, v backwardArgs) []Launch {
	s, sp := p.s, p.split
	sk, sm := s.strides()
	aligned := anySuffix(s.rowsAligned() && aligned16(v.x, v.dx))
	name := fmt.Sprintf("mhc_wide_dphi_%v%s", s.xt, aligned)
	if sp.chunks == 1 {
		name = fmt.Sprintf("mhc_wide_dx_dphi_%v_m%d%s", s.xt, sp.width, aligned)
	}
	var a args
	a.ptr(v.x, v.phi, w.z, v.dx, v.dphi, w.dphi, w.counters, w.part, v.db, v.dalpha)
	a.int(int64(s.pt), int64(v.dphiType), sk, sm, s.n, s.k, s.m)
	a.int(sp.groups, sp.splits, sp.splitTokens, sp.depth, s.zParts())
	a.int(p.grad.blocks, p.cols)
	ls := []Launch{{
		Name:   name,
		Grid:   Dim{uint32(sp.groups*sp.splits + b2i(v.mode != modeRMS)), uint32(sp.chunks), 1}, // one more adds up db and dalpha
		Block:  Dim{wideThreads, 1, 1},
		Shared: uint32(sp.shared),
		Args:   a,
	}}
	if sp.chunks == 1 || v.dx == 0 {
		return ls
	}
	// A block has all of phi for its shares of 128 bytes of columns, beside stages of z of 64 tokens.
	const tokens = 64
	stage := tokens * (s.zParts()*2*sp.width + 16)
	shares, phi := int64(4), dxParts(s.xt)*sp.warpColumns*(roundUp(s.m, 16)*2+16)
	for shares > 1 && depthOf(lim, stage, shares*phi) < 3 {
		shares /= 2
	}
	depth := depthOf(lim, stage, shares*phi)
	groups := ceil(s.k, shares*sp.warpColumns)
	a = nil
	a.ptr(v.x, v.phi, w.z, v.dx)
	a.int(int64(s.pt), sk, sm, s.n, s.k, s.m, sp.chunks, depth, s.zParts())
	return append(ls, Launch{
		Name:   fmt.Sprintf("mhc_wide_dx_%v%s", s.xt, aligned),
		Grid:   Dim{uint32(groups), uint32(min(ceil(s.n, tokens), ceil(int64(lim.SMs), groups))), 1},
		Block:  Dim{uint32(shares * 64), 1, 1},
		Shared: uint32(depth*stage + shares*phi),
		Args:   a,
	})
}
