package plan

import (
	"fmt"

	"github.com/mhc-go/mhc/sinkhorn"
)

// PreForward computes out[c] = sum_i h_pre[i] x[i,c] in one launch.
type PreForward struct {
	Tokens            int64
	Streams, Channels int
	XType             Type

	X, HPre, Out Ptr // [N, n, C], [N, n] float32, [N, C] in XType, written
}

// PreBackward computes dx[i,c] = h_pre[i] g[c] and dh_pre[i] = sum_c g[c] x[i,c] in one launch.
type PreBackward struct {
	Tokens            int64
	Streams, Channels int
	XType             Type

	X, HPre, G Ptr // X may be 0 without DHPre, HPre may be 0 without DX
	DX, DHPre  Ptr // written; either may be 0: not wanted
}

// PostResForward computes out[o,c] = sum_i h_res[o,i] x[i,c] + h_post[o] f[c] in one launch.
type PostResForward struct {
	Tokens            int64
	Streams, Channels int
	XType             Type // of x, f and out
	Transposed        bool // h_res[i,o] instead of h_res[o,i]

	X, F, HRes, HPost, Out Ptr
}

// PostResBackward computes the gradients of x, f, h_res and h_post in one launch.
type PostResBackward struct {
	Tokens            int64
	Streams, Channels int
	XType             Type
	Transposed        bool

	X, F, HRes, HPost, G  Ptr // all present, as in the forward
	DX, DF, DHRes, DHPost Ptr // written; any may be 0: not wanted
}

// StreamsForward copies [N, C] to each of the n streams of [N, n, C] in one launch.
type StreamsForward struct {
	Tokens            int64
	Streams, Channels int
	XType             Type

	X, Out Ptr
}

// StreamsBackward sums [N, n, C] over its streams to [N, C] in one launch.
type StreamsBackward struct {
	Tokens            int64
	Streams, Channels int
	XType             Type

	G, DX Ptr
}

// SinkhornForward normalises [N, n, n] float32 logits, n up to MaxSinkhorn, in one launch.
type SinkhornForward struct {
	Batch    int64
	N        int
	Sinkhorn sinkhorn.Config

	A, Out Ptr
}

// SinkhornBackward computes the gradient of the logits from that of the normalised matrices in one launch.
type SinkhornBackward struct {
	Batch    int64
	N        int
	Sinkhorn sinkhorn.Config

	A, G, DA Ptr
}

// Cast converts Count elements from one storage type to another, rounding to nearest even, in one launch.
type Cast struct {
	Count    int64
	From, To Type

	In, Out Ptr
}

const maxGridX = 1<<31 - 1

// rowBlock is the block of a kernel in which threads x walk along the vectors of a row and threads y along tokens.
func rowBlock(vectors, threads int64) Dim {
	tx := min(roundUp(vectors, 32), threads)
	return Dim{uint32(tx), uint32(max(threads/tx, 1)), 1}
}

// vectors is the number of accesses to a row of channels, and whether they have 16 bytes.
func vectors(channels int, t Type, ps ...Ptr) (int64, bool) {
	c := int64(channels)
	if c*t.Size()%16 == 0 && aligned16(ps...) {
		return c * t.Size() / 16, true
	}
	return c, false
}

func checkGrid(x int64) error {
	if x > maxGridX {
		return fmt.Errorf("plan: %d blocks pass the limit of a grid", x)
	}
	return nil
}

func applyName(op string, t Type, streams int, fast, aligned bool) string {
	n := "n16"
	if fast {
		n = "n4"
	}
	return fmt.Sprintf("mhc_%s_%v_%s%s", op, t, n, anySuffix(aligned))
}

func one(l Launch) ([]Launch, error) {
	if err := checkGrid(int64(l.Grid.X)); err != nil {
		return nil, err
	}
	return []Launch{l}, nil
}

// PreForward

// Check reports the first size or setting that is wrong.
func (o *PreForward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), checkType("x", o.XType))
}

// Workspace is 0.
func (o *PreForward) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *PreForward) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"X", o.X}, named{"HPre", o.HPre}, named{"Out", o.Out}); err != nil {
		return nil, err
	}
	v, al := vectors(o.Channels, o.XType, o.X, o.Out)
	b := rowBlock(v, 256)
	var a args
	a.ptr(o.X, o.HPre, o.Out)
	a.int(o.Tokens, int64(o.Streams), int64(o.Channels))
	return rows(applyName("pre_fwd", o.XType, o.Streams, o.Streams == 4 && aligned16(o.HPre), al), o.Tokens, ceil(v, int64(b.X)), b, a)
}

// rows is a launch with blocks of b.Y tokens along x and pieces of a row along y.
func rows(name string, tokens, pieces int64, b Dim, a args) ([]Launch, error) {
	x := ceil(tokens, int64(b.Y))
	if err := checkGrid(x); err != nil {
		return nil, err
	}
	return []Launch{{Name: name, Grid: Dim{uint32(x), uint32(min(pieces, 65535)), 1}, Block: b, Args: a}}, nil
}

// PreBackward

// Check reports the first size or setting that is wrong.
func (o *PreBackward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), checkType("x", o.XType))
}

// Workspace is 0.
func (o *PreBackward) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *PreBackward) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	ps := []named{{"G", o.G}}
	if o.DX != 0 {
		ps = append(ps, named{"HPre", o.HPre})
	}
	if o.DHPre != 0 {
		ps = append(ps, named{"X", o.X})
	}
	if err := need(ps...); err != nil {
		return nil, err
	}
	v, al := vectors(o.Channels, o.XType, o.X, o.G, o.DX)
	b := rowBlock(v, reduceThreads)
	var a args
	a.ptr(o.X, o.HPre, o.G, o.DX, o.DHPre)
	a.int(o.Tokens, int64(o.Streams), int64(o.Channels))
	return rows(applyName("pre_bwd", o.XType, o.Streams, o.Streams == 4 && aligned16(o.HPre, o.DHPre), al), o.Tokens, 1, b, a)
}

// reduceThreads is the number of threads of a block of the kernels that sum over channels.
const reduceThreads = 128

// PostResForward

// Check reports the first size or setting that is wrong.
func (o *PostResForward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), checkType("x", o.XType))
}

// Workspace is 0.
func (o *PostResForward) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *PostResForward) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"X", o.X}, named{"F", o.F}, named{"HRes", o.HRes}, named{"HPost", o.HPost}, named{"Out", o.Out}); err != nil {
		return nil, err
	}
	v, al := vectors(o.Channels, o.XType, o.X, o.F, o.Out)
	b := rowBlock(v, 256)
	var a args
	a.ptr(o.X, o.F, o.HRes, o.HPost, o.Out)
	a.int(o.Tokens, int64(o.Streams), int64(o.Channels), b2i(o.Transposed))
	return rows(applyName("postres_fwd", o.XType, o.Streams, o.Streams == 4 && aligned16(o.HRes, o.HPost), al), o.Tokens, ceil(v, int64(b.X)), b, a)
}

// PostResBackward

// Check reports the first size or setting that is wrong.
func (o *PostResBackward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), checkType("x", o.XType))
}

// Workspace is 0.
func (o *PostResBackward) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *PostResBackward) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"X", o.X}, named{"F", o.F}, named{"HRes", o.HRes}, named{"HPost", o.HPost}, named{"G", o.G}); err != nil {
		return nil, err
	}
	v, al := vectors(o.Channels, o.XType, o.X, o.F, o.G, o.DX, o.DF)
	b := rowBlock(v, reduceThreads)
	var a args
	a.ptr(o.X, o.F, o.HRes, o.HPost, o.G, o.DX, o.DF, o.DHRes, o.DHPost)
	a.int(o.Tokens, int64(o.Streams), int64(o.Channels), b2i(o.Transposed))
	fast := o.Streams == 4 && aligned16(o.HRes, o.HPost, o.DHRes, o.DHPost)
	roles := int64(1)
	if !fast {
		roles = ceil(int64(o.Streams), 4) // each gives four rows of dh_res and four streams of dx
	}
	return rows(applyName("postres_bwd", o.XType, o.Streams, fast, al), o.Tokens, roles, b, a)
}

// StreamsForward

// Check reports the first size or setting that is wrong.
func (o *StreamsForward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), checkType("x", o.XType))
}

// Workspace is 0.
func (o *StreamsForward) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *StreamsForward) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"X", o.X}, named{"Out", o.Out}); err != nil {
		return nil, err
	}
	v, al := vectors(o.Channels, o.XType, o.X, o.Out)
	b := rowBlock(v, 256)
	var a args
	a.ptr(o.X, o.Out)
	a.int(o.Tokens, int64(o.Streams), int64(o.Channels))
	return rows(fmt.Sprintf("mhc_streams_fwd_%v%s", o.XType, anySuffix(al)), o.Tokens, ceil(v, int64(b.X)), b, a)
}

// StreamsBackward

// Check reports the first size or setting that is wrong.
func (o *StreamsBackward) Check() error {
	return firstError(checkSizes(o.Tokens, o.Streams, o.Channels), checkType("x", o.XType))
}

// Workspace is 0.
func (o *StreamsBackward) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *StreamsBackward) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Tokens == 0 {
		return nil, err
	}
	if err := need(named{"G", o.G}, named{"DX", o.DX}); err != nil {
		return nil, err
	}
	v, al := vectors(o.Channels, o.XType, o.G, o.DX)
	b := rowBlock(v, 256)
	var a args
	a.ptr(o.G, o.DX)
	a.int(o.Tokens, int64(o.Streams), int64(o.Channels))
	return rows(fmt.Sprintf("mhc_streams_bwd_%v%s", o.XType, anySuffix(al)), o.Tokens, ceil(v, int64(b.X)), b, a)
}

// SinkhornForward

func checkSinkhorn(batch int64, n int, s sinkhorn.Config) error {
	switch {
	case batch < 0:
		return fmt.Errorf("plan: the batch is %d, want 0 or more", batch)
	case n < 1 || n > MaxSinkhorn:
		return fmt.Errorf("plan: matrices are %d x %d, want 1 to %d", n, n, MaxSinkhorn)
	}
	return s.Validate()
}

// Check reports the first size or setting that is wrong.
func (o *SinkhornForward) Check() error { return checkSinkhorn(o.Batch, o.N, o.Sinkhorn) }

// Workspace is 0.
func (o *SinkhornForward) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *SinkhornForward) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Batch == 0 {
		return nil, err
	}
	if err := need(named{"A", o.A}, named{"Out", o.Out}); err != nil {
		return nil, err
	}
	n := int64(o.N)
	var a args
	a.ptr(o.A, o.Out)
	a.int(o.Batch, n)
	a.projection(o.Sinkhorn)
	if n < 4 || n == 4 && aligned16(o.A, o.Out) {
		return one(Launch{Name: fmt.Sprintf("mhc_sinkhorn_fwd_n%d", n), Grid: Dim{uint32(min(ceil(o.Batch, 32), int64(lim.SMs)*16)), 1, 1}, Block: Dim{128, 1, 1}, Args: a})
	}
	if n <= 16 {
		lanes := groupLanes(n)
		return one(Launch{Name: fmt.Sprintf("mhc_wide_sinkhorn_fwd_n%d", lanes),
			Grid: Dim{uint32(min(ceil(o.Batch, 128/lanes), int64(lim.SMs)*16)), 1, 1}, Block: Dim{128, 1, 1}, Args: a})
	}
	threads := int64(128)
	if n > 32 {
		threads = 64
	}
	groups := threads / groupLanes(n)
	return one(Launch{Name: "mhc_sinkhorn_fwd", Grid: Dim{uint32(min(ceil(o.Batch, groups), int64(lim.SMs)*16)), 1, 1},
		Block: Dim{uint32(threads), 1, 1}, Shared: uint32(groups * n * (n | 1) * 4), Args: a})
}

// SinkhornBackward

// Check reports the first size or setting that is wrong.
func (o *SinkhornBackward) Check() error { return checkSinkhorn(o.Batch, o.N, o.Sinkhorn) }

type sinkhornShape struct {
	name                          string
	blocks, threads, shared, hist int64
}

func (o *SinkhornBackward) shape(lim Limits) sinkhornShape {
	n := int64(o.N)
	steps := int64(o.Sinkhorn.Steps())
	s := sinkhornShape{name: "mhc_sinkhorn_bwd", threads: 128}
	if n > 32 {
		s.threads = 32
	}
	lanes := groupLanes(n)
	groups := s.threads / lanes
	s.blocks = min(ceil(o.Batch, groups), int64(lim.SMs)*16)
	hist := groups * steps * n * 4
	if n <= 16 {
		s.name = fmt.Sprintf("mhc_wide_sinkhorn_bwd_n%d", lanes)
		hist = s.threads * steps * 4
	} else {
		s.shared = groups * 3 * n * (n | 1) * 4
	}
	if s.shared+hist <= 96<<10 {
		s.shared += hist
	} else {
		s.hist = hist * s.blocks
	}
	return s
}

// fastShape is the shape of the kernel for up to four streams, and reports whether it can be used.
func (o *SinkhornBackward) fastShape(lim Limits) (sinkhornShape, bool) {
	s := sinkhornShape{name: fmt.Sprintf("mhc_sinkhorn_bwd_n%d", o.N), threads: 128, blocks: min(ceil(o.Batch, 32), int64(lim.SMs)*16), shared: 4 * quadHistory(int64(o.Sinkhorn.Steps()))}
	return s, s.shared <= maxHistShared && (o.N < 4 || o.N == 4 && aligned16(o.A, o.G, o.DA))
}

// Workspace is the number of bytes of scratch memory: 0 unless the history of many iterations passes the shared memory.
func (o *SinkhornBackward) Workspace(lim Limits) (int64, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Batch == 0 {
		return 0, err
	}
	return o.shape(lim).hist, nil
}

// Launches is the plan.
func (o *SinkhornBackward) Launches(lim Limits, ws Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Batch == 0 {
		return nil, err
	}
	if err := need(named{"A", o.A}, named{"G", o.G}, named{"DA", o.DA}); err != nil {
		return nil, err
	}
	s := o.shape(lim)
	if fast, ok := o.fastShape(lim); ok {
		s = fast
	}
	if s.hist == 0 {
		ws = 0
	} else if ws == 0 {
		return nil, need(named{"workspace", ws})
	}
	var a args
	a.ptr(o.A, o.G, o.DA, ws)
	a.int(o.Batch, int64(o.N))
	a.projection(o.Sinkhorn)
	return one(Launch{Name: s.name, Grid: Dim{uint32(s.blocks), 1, 1}, Block: Dim{uint32(s.threads), 1, 1}, Shared: uint32(s.shared), Args: a})
}

// Cast

// Check reports the first size or setting that is wrong.
func (o *Cast) Check() error {
	if o.Count < 0 {
		return fmt.Errorf("plan: the count is %d, want 0 or more", o.Count)
	}
	return firstError(checkType("the input", o.From), checkType("the output", o.To))
}

// Workspace is 0.
func (o *Cast) Workspace(Limits) (int64, error) { return 0, o.Check() }

// Launches is the plan.
func (o *Cast) Launches(lim Limits, _ Ptr) ([]Launch, error) {
	if err := firstError(o.Check(), lim.check()); err != nil || o.Count == 0 {
		return nil, err
	}
	if err := need(named{"In", o.In}, named{"Out", o.Out}); err != nil {
		return nil, err
	}
	var a args
	a.ptr(o.In, o.Out)
	a.int(int64(o.From), int64(o.To), o.Count, b2i(aligned16(o.In, o.Out)))
	return one(Launch{Name: "mhc_cast", Grid: Dim{uint32(min(ceil(o.Count, 256*8), int64(lim.SMs)*16)), 1, 1}, Block: Dim{256, 1, 1}, Args: a})
}
