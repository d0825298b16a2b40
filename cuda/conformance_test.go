package cuda_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/rmsnorm"
	"github.com/mhc-go/mhc/sinkhorn"
	"github.com/mhc-go/mhc/streams"
)

// The sizes at which every operator is compared with the CPU in float64.
var (
	streamCounts  = []int{1, 2, 3, 4, 5, 8, 16}
	channelCounts = []int{1, 7, 33, 64, 1000, 4096}
	tokenCounts   = []int{0, 1, 7, 33, 257, 4097}
	iterations    = []int{1, 4, 20}
	storage       = []plan.Type{plan.Float32, plan.BFloat16, plan.Float16}
)

// conform compares every operator on a device with the CPU packages in float64,
// on the same stored inputs.
func conform(t *testing.T, dev device) {
	w := worst{}
	t.Run("Coeffs", func(t *testing.T) { conformCoeffs(t, dev, w) })
	t.Run("LongHistory", func(t *testing.T) { conformLongHistory(t, dev, w) })
	t.Run("MatMulRMS", func(t *testing.T) { conformMatMulRMS(t, dev, w) })
	t.Run("Head", func(t *testing.T) { conformHead(t, dev, w) })
	t.Run("Apply", func(t *testing.T) { conformApply(t, dev, w) })
	t.Run("Sinkhorn", func(t *testing.T) { conformSinkhorn(t, dev, w) })
	t.Run("Cast", func(t *testing.T) { conformCast(t, dev) })
	for _, kind := range slices.Sorted(maps.Keys(w)) {
		t.Logf("%-58s largest error %.1e", kind, w[kind])
	}
}

// The bounds of the contract.
func dxBound(x plan.Type) float64 {
	if x == plan.Float32 {
		return 2e-5
	}
	return 4e-3 // the rounding of a bfloat16 alone is 1.6e-3
}

func sumBound(x plan.Type) float64 {
	if x == plan.Float32 {
		return 2e-5
	}
	return 1e-4
}

const coeffsBound = 1e-5

// headPreEps is large, to show where it is forgotten.
const headPreEps = 1e-3

// stored is the bound of a result of the given type whose sums are of float32
// accuracy.
func stored(typ plan.Type) float64 {
	switch typ {
	case plan.BFloat16:
		return 4e-3 // half of the last place of numbers just above a power of two
	case plan.Float16:
		return 5e-4
	}
	return 2e-6
}

// magnitude scales x: ordinary, so large that squares and their sums pass the
// largest float16, so small that the eps of the root matters.
func magnitude(level int, x plan.Type) float64 {
	switch {
	case level == 1 && x == plan.Float16:
		return 16 // its sums of squares overflow float16, its gradients do not vanish in it
	case level == 1:
		return 300
	case level == 2:
		return 1e-3
	}
	return 1
}

// phiRows are chosen rows of phi [k, m], in its layout, in float64.
func phiRows(phi array, chosen []int, k, m int, transposed bool) []float64 {
	if !transposed {
		return phi.rows(chosen, m)
	}
	out := make([]float64, m*len(chosen))
	for j := range m {
		for i, row := range chosen {
			out[j*len(chosen)+i] = phi.at(j*k + row)
		}
	}
	return out
}

// elementsOf are the elements of an x [tokens, n, C] at chosen tokens and
// channels.
func elementsOf(x array, tokens []int, n, channels int, chosen []int) []float64 {
	out := make([]float64, 0, len(tokens)*n*len(chosen))
	for _, t := range tokens {
		for i := range n {
			for _, c := range chosen {
				out = append(out, x.at((t*n+i)*channels+c))
			}
		}
	}
	return out
}

func upTo(n int) []int { return spread(n, n, 0) }

func zeros(n int) []float64 { return make([]float64, n) }

func pick(yes bool, v []float64) []float64 {
	if yes {
		return v
	}
	return nil
}

func conformCoeffs(t *testing.T, dev device, w worst) {
	levels := []int{
		len(streamCounts), len(channelCounts), len(tokenCounts), len(iterations), len(storage),
		2, // phi: as x, float32
		3, // preset
		2, // phi's layout
		7, // outputs that are used
		3, // magnitude
		2, // alignment
		2, // dphi: float32, as phi
		2, // dx wanted
	}
	for _, c := range pairwise(levels, func(c []int) bool {
		k := streamCounts[c[0]] * channelCounts[c[1]]
		n := streamCounts[c[0]]
		return k*tokenCounts[c[2]] <= 34e6 && k*max(tokenCounts[c[2]], 1)*n*(n+2) <= dev.budget()
	}) {
		n, channels, tokens, x := streamCounts[c[0]], channelCounts[c[1]], tokenCounts[c[2]], storage[c[4]]
		phiType := []plan.Type{x, plan.Float32}[c[5]]
		cfg := mhc.Presets[c[6]].Config(n)
		cfg.Sinkhorn.Iterations = iterations[c[3]]
		cfg.Phi = mhc.PhiLayout(c[7])
		shift, used := c[10], c[8]+1
		name := fmt.Sprintf("%v_phi_%v_%v_%v_n%d_C%d_N%d_T%d_used%03b_size%d_shift%d_dphi%d_dx%d",
			x, phiType, mhc.Presets[c[6]], cfg.Phi, n, channels, tokens, cfg.Sinkhorn.Iterations, used, c[9], shift, c[11], c[12])
		withLab(t, dev, name, func(t *testing.T, l *lab) {
			coeffsCase{
				cfg: cfg, tokens: tokens, channels: channels, x: x, phi: phiType,
				dphi: []plan.Type{plan.Float32, phiType}[c[11]], used: [3]bool{used&1 != 0, used&2 != 0, used&4 != 0},
				scale: magnitude(c[9], x), shift: shift, dx: c[12] == 0,
			}.run(t, l, w)
		})
	}
}

// conformLongHistory runs so many iterations that their sums pass the shared memory.
func conformLongHistory(t *testing.T, dev device, w worst) {
	for _, n := range []int{4, 5, 16} {
		withLab(t, dev, fmt.Sprintf("n%d_T200", n), func(t *testing.T, l *lab) {
			cfg := mhc.Liger.Config(n)
			cfg.Sinkhorn.Iterations = 200
			coeffsCase{
				cfg: cfg, tokens: 33, channels: 33, x: plan.Float32, phi: plan.Float32, dphi: plan.Float32,
				used: [3]bool{true, true, true}, scale: 1, dx: true,
			}.run(t, l, w)
		})
	}
}

type coeffsCase struct {
	cfg              mhc.Config
	tokens, channels int
	x, phi, dphi     plan.Type
	used             [3]bool // h_pre, h_post, h_res
	scale            float64
	shift            int // elements from alignment
	dx               bool
}

func (c coeffsCase) run(t *testing.T, l *lab, w worst) {
	n, m, k := c.cfg.Streams, c.cfg.Width(), c.cfg.Streams*c.channels
	x := uniform(c.x, c.tokens*k, 1, c.scale)
	phi := uniform(c.phi, k*m, 2, 1/math.Sqrt(float64(k)))
	b := uniform(plan.Float32, m, 3, 1)
	alpha := uniform(plan.Float32, 3, 4, 1)
	widths := [3]int{n, n, n * n}
	var up [3]array
	for i, width := range widths {
		up[i] = uniform(plan.Float32, c.tokens*width, uint64(5+i), 1)
	}

	// Forward, twice.
	fwd := plan.CoeffsForward{
		Tokens: int64(c.tokens), Streams: n, Channels: c.channels, XType: c.x, PhiType: c.phi, PhiTransposed: c.cfg.Phi == mhc.PhiMK,
		RMSEps: c.cfg.RMSEps, PreEps: c.cfg.PreEps, PostMult: c.cfg.PostMult, Sinkhorn: c.cfg.Sinkhorn,
		X: l.in("x", x, c.shift), Phi: l.in("phi", phi, c.shift), B: l.in("b", b, c.shift), Alpha: l.in("alpha", alpha, c.shift),
	}
	forward := func() (out [5]array) {
		f := fwd
		sizes := [5]int{c.tokens * n, c.tokens * n, c.tokens * n * n, c.tokens * m, c.tokens}
		for i, to := range []*plan.Ptr{&f.HPre, &f.HPost, &f.HRes, &f.Mix, &f.R} {
			*to = l.out("a coefficient", plan.Float32, sizes[i], c.shift)
		}
		l.run(&f)
		for i, p := range []plan.Ptr{f.HPre, f.HPost, f.HRes, f.Mix, f.R} {
			out[i] = l.read(p, plan.Float32, sizes[i])
		}
		return out
	}
	got, again := forward(), forward()

	// The same in float64, at some tokens.
	at := spread(c.tokens, 40, 11)
	in := coeffs.Inputs[float64, float64, float64]{X: x.rows(at, k), Phi: phi.wide(), B: b.wide(), Alpha: alpha.wide()}
	want := coeffs.Outputs[float64]{
		Pre: zeros(len(at) * n), Post: zeros(len(at) * n), Res: zeros(len(at) * n * n), Mix: zeros(len(at) * m), R: zeros(len(at)),
	}
	require.NoError(t, coeffs.Forward(want, in, len(at), c.channels, c.cfg))
	for i, ref := range [][]float64{want.Pre, want.Post, want.Res, want.Mix, want.R} {
		name := []string{"h_pre", "h_post", "h_res", "mix", "r"}[i]
		width := []int{n, n, n * n, m, 1}[i]
		assert.True(t, bytes.Equal(got[i].data, again[i].data), "%s differs between two runs", name)
		w.compare(t, "Coeffs "+c.x.String(), name, got[i].rows(at, width), ref, coeffsBound)
	}

	// Backward, twice.
	bwd := plan.CoeffsBackward{
		Tokens: fwd.Tokens, Streams: n, Channels: c.channels, XType: c.x, PhiType: c.phi, PhiTransposed: fwd.PhiTransposed,
		PostMult: c.cfg.PostMult, Sinkhorn: fwd.Sinkhorn, X: fwd.X, Phi: fwd.Phi, B: fwd.B, Alpha: fwd.Alpha, DPhiType: c.dphi,
		Mix: l.in("mix", got[3], c.shift), R: l.in("r", got[4], c.shift),
	}
	for i, to := range []*plan.Ptr{&bwd.GPre, &bwd.GPost, &bwd.GRes} {
		if c.used[i] {
			*to = l.in("an upstream gradient", up[i], c.shift)
		}
	}
	backward := func() (dx, dphi, db, dalpha array) {
		f := bwd
		if c.dx {
			f.DX = l.out("dx", c.x, c.tokens*k, c.shift)
		}
		f.DPhi = l.out("dphi", c.dphi, k*m, c.shift)
		f.DB = l.out("db", plan.Float32, m, c.shift)
		f.DAlpha = l.out("dalpha", plan.Float32, 3, c.shift)
		l.run(&f)
		if c.dx {
			dx = l.read(f.DX, c.x, c.tokens*k)
		}
		return dx, l.read(f.DPhi, c.dphi, k*m), l.read(f.DB, plan.Float32, m), l.read(f.DAlpha, plan.Float32, 3)
	}
	dx, dphi, db, dalpha := backward()
	dx2, dphi2, db2, dalpha2 := backward()
	assert.True(t, bytes.Equal(dx.data, dx2.data), "dx differs between two runs")
	assert.True(t, bytes.Equal(dphi.data, dphi2.data), "dphi differs between two runs")
	assert.True(t, bytes.Equal(db.data, db2.data), "db differs between two runs")
	assert.True(t, bytes.Equal(dalpha.data, dalpha2.data), "dalpha differs between two runs")

	// dx in float64 at the same tokens.
	upAt := func(tokens []int) coeffs.Upstream[float64] {
		return coeffs.Upstream[float64]{
			Pre:  pick(c.used[0], up[0].rows(tokens, n)),
			Post: pick(c.used[1], up[1].rows(tokens, n)),
			Res:  pick(c.used[2], up[2].rows(tokens, n*n)),
		}
	}
	ref := coeffs.Gradients[float64, float64, float64]{X: zeros(len(at) * k), B: zeros(m), Alpha: zeros(3)}
	require.NoError(t, coeffs.Backward(ref, upAt(at), in, want, len(at), c.channels, c.cfg))

	// The sums over all tokens at some channels: all columns of phi's gradient
	// depend on the tokens through mix and r alone.
	chosen := spread(c.channels, 16, 12)
	all := upTo(c.tokens)
	var rows []int
	for i := range n {
		for _, ch := range chosen {
			rows = append(rows, i*c.channels+ch)
		}
	}
	some := coeffs.Inputs[float64, float64, float64]{
		X: elementsOf(x, all, n, c.channels, chosen), Phi: phiRows(phi, rows, k, m, fwd.PhiTransposed), B: in.B, Alpha: in.Alpha,
	}
	kept := coeffs.Outputs[float64]{Mix: got[3].wide(), R: got[4].wide()}
	sums := coeffs.Gradients[float64, float64, float64]{Phi: zeros(len(rows) * m), B: zeros(m), Alpha: zeros(3)}
	require.NoError(t, coeffs.Backward(sums, upAt(all), some, kept, c.tokens, len(chosen), c.cfg))

	kind := "CoeffsBackward " + c.x.String()
	if n == 1 && !c.used[0] && !c.used[1] {
		// A projection to 1x1 is a constant 1 but for eps: its gradient is what
		// rounding leaves of zero, so no relative bound holds.
		g := norm(up[2].wide())
		assert.LessOrEqual(t, norm(db.wide()), 1e-5*g, "db")
		assert.False(t, math.IsNaN(norm(dphi.wide())), "dphi has a NaN")
		return
	}
	if c.dx && k > 1 { // x/|x| does not depend on a single x but for eps
		w.compare(t, kind+" dx", "dx", dx.rows(at, k), ref.X, dxBound(c.x))
	}
	if c.dphi == plan.Float32 {
		w.compare(t, kind+" dphi", "dphi", phiRows(dphi, rows, k, m, fwd.PhiTransposed), sums.Phi, sumBound(c.x))
	} else {
		w.compare(t, kind+" dphi in 16 bits", "dphi", phiRows(dphi, rows, k, m, fwd.PhiTransposed), sums.Phi, stored(c.dphi))
	}
	w.compare(t, kind+" db", "db", db.wide(), sums.B, sumBound(c.x))
	w.compare(t, kind+" dalpha", "dalpha", dalpha.wide(), sums.Alpha, sumBound(c.x))
}

func conformMatMulRMS(t *testing.T, dev device, w worst) {
	columns := []int{1, 7, 24, 25, 40, 41, 100, 320}
	widths := []int{1, 7, 33, 64, 1000, 16384}
	levels := []int{len(tokenCounts), len(widths), len(columns), len(storage), 2, 2, 2, 2}
	for _, c := range pairwise(levels, func(c []int) bool {
		return tokenCounts[c[0]]*widths[c[1]] <= 34e6 && max(tokenCounts[c[0]], 1)*widths[c[1]]*columns[c[2]] <= min(dev.budget(), 1e9)
	}) {
		tokens, k, m, x := tokenCounts[c[0]], widths[c[1]], columns[c[2]], storage[c[3]]
		phiType := []plan.Type{x, plan.Float32}[c[4]]
		transposed, shift, wantDX := c[5] == 1, c[6], c[7] == 0
		name := fmt.Sprintf("%v_phi_%v_N%d_K%d_M%d_transposed%v_shift%d_dx%v", x, phiType, tokens, k, m, transposed, shift, wantDX)
		withLab(t, dev, name, func(t *testing.T, l *lab) {
			const eps = 1e-6
			d := rmsnorm.Dims{Tokens: tokens, K: k, M: m, Transposed: transposed}
			xs := uniform(x, tokens*k, 1, 1)
			phi := uniform(phiType, k*m, 2, 1/math.Sqrt(float64(k)))
			g := uniform(plan.Float32, tokens*m, 3, 1)
			fwd := plan.MatMulRMSForward{
				Tokens: int64(tokens), K: int64(k), M: int64(m), XType: x, PhiType: phiType, PhiTransposed: transposed, RMSEps: eps,
				X: l.in("x", xs, shift), Phi: l.in("phi", phi, shift),
				Mix: l.out("mix", plan.Float32, tokens*m, shift), R: l.out("r", plan.Float32, tokens, shift),
			}
			l.run(&fwd)
			mix, r := l.read(fwd.Mix, plan.Float32, tokens*m), l.read(fwd.R, plan.Float32, tokens)
			wantMix, wantR := zeros(tokens*m), zeros(tokens)
			require.NoError(t, rmsnorm.Forward(wantMix, wantR, xs.wide(), phi.wide(), d, eps))
			w.compare(t, "MatMulRMS "+x.String(), "mix", mix.wide(), wantMix, coeffsBound)
			w.compare(t, "MatMulRMS "+x.String(), "r", r.wide(), wantR, coeffsBound)

			bwd := plan.MatMulRMSBackward{
				Tokens: fwd.Tokens, K: fwd.K, M: fwd.M, XType: x, PhiType: phiType, PhiTransposed: transposed, DPhiType: plan.Float32,
				X: fwd.X, Phi: fwd.Phi, Mix: l.in("mix", mix, shift), R: l.in("r", r, shift), GMix: l.in("dmix", g, shift),
			}
			backward := func() (dx, dphi array) {
				b := bwd
				if wantDX {
					b.DX = l.out("dx", x, tokens*k, shift)
				}
				b.DPhi = l.out("dphi", plan.Float32, k*m, shift)
				l.run(&b)
				if wantDX {
					dx = l.read(b.DX, x, tokens*k)
				}
				return dx, l.read(b.DPhi, plan.Float32, k*m)
			}
			dx, dphi := backward()
			dx2, dphi2 := backward()
			assert.True(t, bytes.Equal(dx.data, dx2.data), "dx differs between two runs")
			assert.True(t, bytes.Equal(dphi.data, dphi2.data), "dphi differs between two runs")
			wantDx, wantDphi := zeros(tokens*k), zeros(k*m)
			require.NoError(t, rmsnorm.Backward(wantDx, wantDphi, xs.wide(), phi.wide(), wantMix, wantR, g.wide(), d))
			if k == 1 {
				// x/|x| does not depend on a single x but for eps: no relative bound holds.
				assert.False(t, math.IsNaN(norm(dx.wide())), "dx has a NaN")
			} else if wantDX {
				w.compare(t, "MatMulRMSBackward "+x.String()+" dx", "dx", dx.wide(), wantDx, dxBound(x))
			}
			w.compare(t, "MatMulRMSBackward "+x.String()+" dphi", "dphi", dphi.wide(), wantDphi, sumBound(x))
		})
	}
}

func conformHead(t *testing.T, dev device, w worst) {
	levels := []int{len(streamCounts), len(channelCounts), len(tokenCounts), len(storage), 2, 2, 2}
	for _, c := range pairwise(levels, func(c []int) bool {
		n := streamCounts[c[0]]
		size := n * channelCounts[c[1]] * tokenCounts[c[2]]
		return size <= 17e6 && size*n <= min(dev.budget(), 1e8)
	}) {
		n, channels, tokens, x := streamCounts[c[0]], channelCounts[c[1]], tokenCounts[c[2]], storage[c[3]]
		phiType := []plan.Type{x, plan.Float32}[c[4]]
		cfg := mhc.HeadConfig{RMSEps: 1e-6, PreEps: headPreEps, Phi: mhc.PhiLayout(c[5])}
		shift := c[6]
		name := fmt.Sprintf("%v_phi_%v_%v_n%d_C%d_N%d_shift%d", x, phiType, cfg.Phi, n, channels, tokens, shift)
		withLab(t, dev, name, func(t *testing.T, l *lab) {
			k := n * channels
			d := streams.Dims{Tokens: tokens, Streams: n, Channels: channels}
			xs := uniform(x, tokens*k, 1, 1)
			phi := uniform(phiType, k*n, 2, 1/math.Sqrt(float64(k)))
			b, alpha := uniform(plan.Float32, n, 3, 1), uniform(plan.Float32, 1, 4, 1)
			g := uniform(x, tokens*channels, 5, 1)
			fwd := plan.HeadForward{
				Tokens: int64(tokens), Streams: n, Channels: channels, XType: x, PhiType: phiType, PhiTransposed: cfg.Phi == mhc.PhiMK,
				RMSEps: cfg.RMSEps, PreEps: cfg.PreEps,
				X: l.in("x", xs, shift), Phi: l.in("phi", phi, shift), B: l.in("b", b, shift), Alpha: l.in("alpha", alpha, shift),
				Out: l.out("out", x, tokens*channels, shift), W: l.out("w", plan.Float32, tokens*n, shift),
				Mix: l.out("mix", plan.Float32, tokens*n, shift), R: l.out("r", plan.Float32, tokens, shift),
			}
			l.run(&fwd)
			in := streams.HeadInputs[float64, float64, float64]{X: xs.wide(), Phi: phi.wide(), B: b.wide(), Alpha: alpha.wide()}
			out, kept := zeros(tokens*channels), streams.HeadKept[float64]{Mix: zeros(tokens * n), R: zeros(tokens)}
			require.NoError(t, streams.Head(out, kept, in, d, cfg))
			w.compare(t, "Head "+x.String()+" out", "out", l.read(fwd.Out, x, tokens*channels).wide(), out, stored(x))
			w.compare(t, "Head "+x.String(), "mix", l.read(fwd.Mix, plan.Float32, tokens*n).wide(), kept.Mix, coeffsBound)
			w.compare(t, "Head "+x.String(), "r", l.read(fwd.R, plan.Float32, tokens).wide(), kept.R, coeffsBound)

			bwd := plan.HeadBackward{
				Tokens: fwd.Tokens, Streams: n, Channels: channels, XType: x, PhiType: phiType, PhiTransposed: fwd.PhiTransposed,
				X: fwd.X, Phi: fwd.Phi, B: fwd.B, Alpha: fwd.Alpha, W: fwd.W, Mix: fwd.Mix, R: fwd.R, G: l.in("g", g, shift),
				DPhiType: plan.Float32,
			}
			backward := func() (got [4]array) {
				f := bwd
				f.DX, f.DPhi = l.out("dx", x, tokens*k, shift), l.out("dphi", plan.Float32, k*n, shift)
				f.DB, f.DAlpha = l.out("db", plan.Float32, n, shift), l.out("dalpha", plan.Float32, 1, shift)
				l.run(&f)
				return [4]array{
					l.read(f.DX, x, tokens*k), l.read(f.DPhi, plan.Float32, k*n), l.read(f.DB, plan.Float32, n), l.read(f.DAlpha, plan.Float32, 1),
				}
			}
			got, again := backward(), backward()
			want := streams.HeadInputs[float64, float64, float64]{X: zeros(tokens * k), Phi: zeros(k * n), B: zeros(n), Alpha: zeros(1)}
			require.NoError(t, streams.HeadBackward(want, in, kept, g.wide(), d, cfg))
			for i, ref := range [][]float64{want.X, want.Phi, want.B, want.Alpha} {
				name := []string{"dx", "dphi", "db", "dalpha"}[i]
				assert.True(t, bytes.Equal(got[i].data, again[i].data), "%s differs between two runs", name)
				bound := sumBound(x)
				if i == 0 {
					bound = dxBound(x)
				}
				w.compare(t, "HeadBackward "+x.String()+" "+name, name, got[i].wide(), ref, bound)
			}
		})
	}
}

func conformApply(t *testing.T, dev device, w worst) {
	levels := []int{
		len(streamCounts), len(channelCounts), len(tokenCounts), len(storage), 2, // transposed
		3, // aligned, f and g misaligned, all misaligned
		4, // results not wanted: none, the big ones, the small ones, every second one
	}
	for _, c := range pairwise(levels, func(c []int) bool {
		n := streamCounts[c[0]]
		size := n * channelCounts[c[1]] * tokenCounts[c[2]]
		return size <= 34e6 && size*n <= dev.budget()
	}) {
		n, channels, tokens, x := streamCounts[c[0]], channelCounts[c[1]], tokenCounts[c[2]], storage[c[3]]
		name := fmt.Sprintf("%v_n%d_C%d_N%d_transposed%d_shift%d_unwanted%d", x, n, channels, tokens, c[4], c[5], c[6])
		withLab(t, dev, name, func(t *testing.T, l *lab) {
			applyCase{
				n: n, channels: channels, tokens: tokens, x: x, apply: mhc.Apply(c[4]),
				shift: min(c[5], 1), xshift: max(c[5]-1, 0),
				wanted: [][4]bool{{true, true, true, true}, {false, false, true, true}, {true, true, false, false}, {true, false, true, false}}[c[6]],
			}.run(t, l, w)
		})
	}
}

type applyCase struct {
	n, channels, tokens int
	x                   plan.Type
	apply               mhc.Apply
	shift, xshift       int // elements from alignment
	wanted              [4]bool
}

func (c applyCase) run(t *testing.T, l *lab, w worst) {
	n, ch, N := c.n, c.channels, c.tokens
	at := spread(N, 40, 21)
	d := streams.Dims{Tokens: len(at), Streams: n, Channels: ch}
	x := uniform(c.x, N*n*ch, 1, 1)
	f := uniform(c.x, N*ch, 2, 1)
	g := uniform(c.x, N*n*ch, 3, 1)
	g1 := uniform(c.x, N*ch, 4, 1)
	pre, post, res := uniform(plan.Float32, N*n, 5, 1), uniform(plan.Float32, N*n, 6, 1), uniform(plan.Float32, N*n*n, 7, 1)
	px, pf, pg, pg1 := l.in("x", x, c.xshift), l.in("f", f, c.shift), l.in("g", g, c.shift), l.in("g", g1, c.shift)
	ppre, ppost, pres := l.in("h_pre", pre, c.shift), l.in("h_post", post, c.shift), l.in("h_res", res, c.shift)
	tokens := int64(N)
	x64, f64, g64, g164 := x.rows(at, n*ch), f.rows(at, ch), g.rows(at, n*ch), g1.rows(at, ch)
	pre64, post64, res64 := pre.rows(at, n), post.rows(at, n), res.rows(at, n*n)
	check := func(kind string, p plan.Ptr, typ plan.Type, width int, want []float64) {
		bound := stored(typ)
		if typ == plan.Float32 && width <= n*n {
			bound = sumBound(typ) // sums over the channels
		}
		w.compare(t, kind+" "+typ.String(), kind, l.read(p, typ, N*width).rows(at, width), want, bound)
	}
	out := func(i, width int, typ plan.Type) plan.Ptr {
		if i >= 0 && !c.wanted[i] {
			return 0
		}
		return l.out("a result", typ, N*width, c.xshift)
	}

	o1 := plan.PreForward{Tokens: tokens, Streams: n, Channels: ch, XType: c.x, X: px, HPre: ppre, Out: out(-1, ch, c.x)}
	l.run(&o1)
	want := zeros(len(at) * ch)
	require.NoError(t, streams.Pre(want, x64, pre64, d))
	check("Pre", o1.Out, c.x, ch, want)

	o2 := plan.PreBackward{Tokens: tokens, Streams: n, Channels: ch, XType: c.x, X: px, HPre: ppre, G: pg1, DX: out(0, n*ch, c.x), DHPre: out(2, n, plan.Float32)}
	if o2.DX == 0 && o2.DHPre == 0 {
		o2.DX = out(-1, n*ch, c.x)
	}
	l.run(&o2)
	dx, dpre := zeros(len(at)*n*ch), zeros(len(at)*n)
	require.NoError(t, streams.PreBackward(dx, dpre, x64, pre64, g164, d))
	if o2.DX != 0 {
		check("PreBackward dx", o2.DX, c.x, n*ch, dx)
	}
	if o2.DHPre != 0 {
		check("PreBackward dh_pre", o2.DHPre, plan.Float32, n, dpre)
	}

	o3 := plan.PostResForward{
		Tokens: tokens, Streams: n, Channels: ch, XType: c.x, Transposed: c.apply == mhc.ApplyTransposed,
		X: px, F: pf, HRes: pres, HPost: ppost, Out: out(-1, n*ch, c.x),
	}
	l.run(&o3)
	want = zeros(len(at) * n * ch)
	require.NoError(t, streams.PostRes(want, x64, f64, post64, res64, d, c.apply))
	check("PostRes", o3.Out, c.x, n*ch, want)

	backward := func() plan.PostResBackward {
		o := plan.PostResBackward{
			Tokens: tokens, Streams: n, Channels: ch, XType: c.x, Transposed: c.apply == mhc.ApplyTransposed,
			X: px, F: pf, HRes: pres, HPost: ppost, G: pg,
			DX: out(0, n*ch, c.x), DF: out(1, ch, c.x), DHPost: out(2, n, plan.Float32), DHRes: out(3, n*n, plan.Float32),
		}
		l.run(&o)
		return o
	}
	o4, o5 := backward(), backward()
	grad := streams.PostResGradients[float64, float64]{X: zeros(len(at) * n * ch), F: zeros(len(at) * ch), HPost: zeros(len(at) * n), HRes: zeros(len(at) * n * n)}
	require.NoError(t, streams.PostResBackward(grad, x64, f64, post64, res64, g64, d, c.apply))
	for i, r := range []struct {
		kind  string
		p, p2 plan.Ptr
		typ   plan.Type
		width int
		want  []float64
	}{
		{"PostResBackward dx", o4.DX, o5.DX, c.x, n * ch, grad.X},
		{"PostResBackward df", o4.DF, o5.DF, c.x, ch, grad.F},
		{"PostResBackward dh_post", o4.DHPost, o5.DHPost, plan.Float32, n, grad.HPost},
		{"PostResBackward dh_res", o4.DHRes, o5.DHRes, plan.Float32, n * n, grad.HRes},
	} {
		if c.wanted[i] {
			check(r.kind, r.p, r.typ, r.width, r.want)
			assert.True(t, bytes.Equal(l.read(r.p, r.typ, N*r.width).data, l.read(r.p2, r.typ, N*r.width).data), "%s differs between two runs", r.kind)
		}
	}

	o6 := plan.StreamsForward{Tokens: tokens, Streams: n, Channels: ch, XType: c.x, X: pf, Out: out(-1, n*ch, c.x)}
	l.run(&o6)
	want = zeros(len(at) * n * ch)
	require.NoError(t, streams.Expand(want, f64, d))
	assert.Equal(t, want, l.read(o6.Out, c.x, N*n*ch).rows(at, n*ch), "Streams copies")

	o7 := plan.StreamsBackward{Tokens: tokens, Streams: n, Channels: ch, XType: c.x, G: pg, DX: out(-1, ch, c.x)}
	l.run(&o7)
	want = zeros(len(at) * ch)
	require.NoError(t, streams.ExpandBackward(want, g64, d))
	check("StreamsBackward", o7.DX, c.x, ch, want)
}

func conformSinkhorn(t *testing.T, dev device, w worst) {
	sizes := []int{1, 2, 3, 4, 5, 8, 16, 33, 64}
	batches := []int{0, 1, 7, 257, 1000}
	starts := []sinkhorn.Start{sinkhorn.RowSoftmax, sinkhorn.Exp}
	ends := []sinkhorn.Axis{sinkhorn.Columns, sinkhorn.Rows}
	steps := []int{1, 4, 20, 200} // the last one has a history beyond shared memory
	levels := []int{len(sizes), len(batches), len(starts), len(ends), len(steps), 2, 2}
	for _, c := range pairwise(levels, func(c []int) bool {
		return sizes[c[0]]*sizes[c[0]]*batches[c[1]]*steps[c[4]] <= dev.budget()
	}) {
		n, batch, shift := sizes[c[0]], batches[c[1]], c[6]
		cfg := sinkhorn.Config{Start: starts[c[2]], End: ends[c[3]], Iterations: steps[c[4]], Eps: []float64{1e-6, 0}[c[5]]}
		name := fmt.Sprintf("n%d_N%d_%v_%v_T%d_eps%v_shift%d", n, batch, cfg.Start, cfg.End, cfg.Iterations, cfg.Eps, shift)
		withLab(t, dev, name, func(t *testing.T, l *lab) {
			a, g := uniform(plan.Float32, batch*n*n, 1, 1.5), uniform(plan.Float32, batch*n*n, 2, 1)
			fwd := plan.SinkhornForward{Batch: int64(batch), N: n, Sinkhorn: cfg, A: l.in("logits", a, shift), Out: l.out("out", plan.Float32, batch*n*n, shift)}
			l.run(&fwd)
			want, dwant := zeros(batch*n*n), zeros(batch*n*n)
			require.NoError(t, sinkhorn.Forward(want, a.wide(), n, cfg))
			require.NoError(t, sinkhorn.Backward(dwant, a.wide(), g.wide(), n, cfg))
			w.compare(t, "Sinkhorn", "out", l.read(fwd.Out, plan.Float32, batch*n*n).wide(), want, coeffsBound)
			bwd := plan.SinkhornBackward{Batch: int64(batch), N: n, Sinkhorn: cfg, A: fwd.A, G: l.in("g", g, shift), DA: l.out("da", plan.Float32, batch*n*n, shift)}
			l.run(&bwd)
			got := l.read(bwd.DA, plan.Float32, batch*n*n).wide()
			if n == 1 { // the gradient of a constant, but for eps
				assert.LessOrEqual(t, norm(got), 1e-4*norm(g.wide()))
				return
			}
			w.compare(t, "SinkhornBackward", "da", got, dwant, sumBound(plan.Float32))
		})
	}
	for _, n := range []int{4, 8, 16} {
		withLab(t, dev, fmt.Sprintf("extreme_logits_n%d", n), func(t *testing.T, l *lab) {
			const batch = 64
			size := n * n
			for _, preset := range mhc.Presets {
				cfg := preset.Config(n).Sinkhorn
				a := uniform(plan.Float32, batch*size, 3, 1e4)
				a.set(5*size+3, math.NaN())
				g := uniform(plan.Float32, batch*size, 4, 1)
				fwd := plan.SinkhornForward{Batch: batch, N: n, Sinkhorn: cfg, A: l.in("logits", a, 0), Out: l.out("out", plan.Float32, batch*size, 0)}
				l.run(&fwd)
				bwd := plan.SinkhornBackward{Batch: batch, N: n, Sinkhorn: cfg, A: fwd.A, G: l.in("g", g, 0), DA: l.out("da", plan.Float32, batch*size, 0)}
				l.run(&bwd)
				out, da := l.read(fwd.Out, plan.Float32, batch*size), l.read(bwd.DA, plan.Float32, batch*size)
				for token := range batch {
					o, d := norm(out.take(token*size, (token+1)*size)), norm(da.take(token*size, (token+1)*size))
					if token == 5 {
						assert.True(t, math.IsNaN(o) && math.IsNaN(d), "%v: a NaN logit gives NaN", preset)
					} else {
						assert.False(t, math.IsNaN(o+d) || math.IsInf(o+d, 0), "%v: token %d of finite logits is not finite", preset, token)
					}
				}
			}
		})
	}
}

func conformCast(t *testing.T, dev device) {
	special := []float64{
		0, math.Copysign(0, -1), 1, -1, 1.00390625, 1.01171875, 65504, 65519, 65520, 1e30, -1e30, 3.3895e38, 3.4e38, 6e-8, 2.9e-8, 3e-8, 1e-40, 5.9e-5,
		math.Inf(1), math.Inf(-1), math.NaN(),
	}
	for _, from := range storage {
		for _, to := range storage {
			for _, count := range []int{0, 1, 7, 1000, 100003} {
				for shift := range 2 {
					withLab(t, dev, fmt.Sprintf("%v_to_%v_N%d_shift%d", from, to, count, shift), func(t *testing.T, l *lab) {
						a := uniform(from, count, 1, 100)
						for i, v := range special {
							if i < count {
								a.set(i, v)
							}
						}
						o := plan.Cast{Count: int64(count), From: from, To: to, In: l.in("in", a, shift), Out: l.out("out", to, count, shift)}
						l.run(&o)
						got, want := l.read(o.Out, to, count), newArray(to, count)
						for i := range count {
							want.set(i, a.at(i))
							if math.IsNaN(want.at(i)) {
								assert.True(t, math.IsNaN(got.at(i)), "element %d", i)
								want.set(i, 0)
								got.set(i, 0)
							}
						}
						assert.True(t, bytes.Equal(want.data, got.data), "the bits are those of package dtype")
					})
				}
			}
		}
	}
}
