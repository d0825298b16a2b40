package plan

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mhc-go/mhc/sinkhorn"
)

var sink = sinkhorn.Config{Iterations: 20, Eps: 1e-6}

// shapes that every device must be able to run.
func shapes(f func(tokens int64, streams, channels int, xt, pt Type)) {
	for _, tokens := range []int64{1, 15, 16, 17, 512, 2048, 8192, 1 << 21} {
		for _, streams := range []int{1, 2, 3, 4, 5, 8, 16} {
			for _, channels := range []int{1, 7, 33, 64, 1280, 4096, 8192} {
				for _, xt := range []Type{Float32, BFloat16, Float16} {
					f(tokens, streams, channels, xt, xt)
					f(tokens, streams, channels, xt, Float32)
				}
			}
		}
	}
}

const base = Ptr(1 << 40)

func forward(tokens int64, streams, channels int, xt, pt Type) *CoeffsForward {
	return &CoeffsForward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, PhiType: pt, RMSEps: 1e-6, PostMult: 2,
		Sinkhorn: sink, X: base, Phi: base, B: base, Alpha: base, HPre: base, HPost: base, HRes: base, Mix: base, R: base}
}

func backward(tokens int64, streams, channels int, xt, pt Type) *CoeffsBackward {
	return &CoeffsBackward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, PhiType: pt, PostMult: 2,
		Sinkhorn: sink, X: base, Phi: base, B: base, Alpha: base, Mix: base, R: base, GPre: base, GPost: base, GRes: base,
		DX: base, DPhi: base, DPhiType: Float32, DB: base, DAlpha: base}
}

func checkLaunches(t *testing.T, lim Limits, ls []Launch, most int) {
	t.Helper()
	if len(ls) > most {
		t.Errorf("%d launches, want at most %d", len(ls), most)
	}
	for _, l := range ls {
		if l.Grid.X == 0 || l.Grid.Y == 0 || l.Grid.Z == 0 || l.Grid.X > maxGridX || l.Grid.Y > 65535 {
			t.Errorf("%s: grid %v", l.Name, l.Grid)
		}
		if n := l.Block.X * l.Block.Y * l.Block.Z; n == 0 || n > 1024 {
			t.Errorf("%s: block %v", l.Name, l.Block)
		}
		if int(l.Shared) > lim.SharedPerBlock-1024 {
			t.Errorf("%s: %d bytes of shared memory of %d", l.Name, l.Shared, lim.SharedPerBlock)
		}
	}
}

func TestCoeffsFitEveryDevice(t *testing.T) {
	for _, lim := range []Limits{H200, A100, RTX3090} {
		shapes(func(tokens int64, streams, channels int, xt, pt Type) {
			f, b := forward(tokens, streams, channels, xt, pt), backward(tokens, streams, channels, xt, pt)
			ls, err := f.Launches(lim, base)
			if err != nil {
				t.Fatal(err)
			}
			checkLaunches(t, lim, ls, 2)
			if ls, err = b.Launches(lim, base); err != nil {
				t.Fatal(err)
			}
			most := 2
			if streams > 4 {
				most = 3
			}
			checkLaunches(t, lim, ls, most)
		})
	}
}

// least is the least that a supported device has: sm_86 and sm_89.
var least = Limits{SMs: 84, SharedPerBlock: 99 << 10, SharedPerSM: 100 << 10}

// More than four streams fit even the least shared memory of a supported device, as do as many columns as there may be.
func TestWideKernelsFitTheLeastSharedMemory(t *testing.T) {
	shapes(func(tokens int64, streams, channels int, xt, pt Type) {
		if streams <= 4 {
			return
		}
		for _, o := range []interface {
			Launches(Limits, Ptr) ([]Launch, error)
		}{
			forward(tokens, streams, channels, xt, pt), backward(tokens, streams, channels, xt, pt),
			&MatMulRMSForward{Tokens: tokens, K: int64(channels), M: MaxColumns, XType: xt, PhiType: pt, X: base, Phi: base, Mix: base, R: base},
			&MatMulRMSBackward{Tokens: tokens, K: int64(channels), M: MaxColumns, XType: xt, PhiType: pt, X: base, Phi: base, Mix: base, R: base, GMix: base, DX: base, DPhi: base},
		} {
			ls, err := o.Launches(least, base)
			if err != nil {
				t.Fatal(err)
			}
			checkLaunches(t, least, ls, 3)
		}
	})
}

// The split must cover all of K and all tokens, and the workspace must hold what it says.
func TestSplitsCover(t *testing.T) {
	shapes(func(tokens int64, streams, channels int, xt, pt Type) {
		s := forward(tokens, streams, channels, xt, pt).shape()
		f := s.forward(H200)
		if f.kRange%64 != 0 || f.kRange*f.ranges < s.k || f.kRange*(f.ranges-1) >= s.k || f.width*f.chunks < s.m || f.tokenBlocks < 1 {
			t.Fatalf("%+v: forward split %+v", s, f)
		}
		b := s.backward(H200)
		if b.groups*b.colWarps*b.warpColumns < s.k || b.splitTokens%tileTokens != 0 || b.splitTokens*b.splits < s.n || b.splitTokens*(b.splits-1) >= s.n {
			t.Fatalf("%+v: backward split %+v", s, b)
		}
		if s.wide() {
			if f.depth < 2 || f.tokenBlocks*forwardTokens < s.n || b.depth < 3 || b.splitTokens%backwardTokens != 0 {
				t.Fatalf("%+v: wide splits %+v, %+v", s, f, b)
			}
			// 6 products of parts at most, of 16 rows each: longer sums of float32 were off by 1.4e-5.
			if f.kRange > 4608 || xt == Float32 && f.kRange > 768 {
				t.Fatalf("%+v: sums over %d rows", s, f.kRange)
			}
		} else if b.colWarps*b.tokenWarps != lineWarps(H200, s.line()) || b.warpColumns*xt.Size() != s.line() || b.stageTiles < 1 {
			t.Fatalf("%+v: backward split %+v", s, b)
		} else if tiles := ceil(ceil(min(b.splitTokens, s.n), tileTokens), b.tokenWarps); b.stageTiles < tiles && b.stageTiles < backwardDepth-1 {
			t.Fatalf("%+v: stages of %d tiles drain the rings", s, b.stageTiles)
		}
		bytes, err := backward(tokens, streams, channels, xt, pt).Workspace(H200)
		if err != nil || bytes < b.chunks*s.n*zRow(b.width) {
			t.Fatalf("%+v: workspace of %d bytes, %v", s, bytes, err)
		}
	})
}

// The split must keep a large device busy and not write more partial sums than x has bytes.
func TestSplitsKeepBusy(t *testing.T) {
	for _, tokens := range []int64{512, 2048, 8192} {
		for _, channels := range []int{1024, 2048, 4096, 8192} {
			s := forward(tokens, 4, channels, BFloat16, BFloat16).shape()
			f, b := s.forward(H200), s.backward(H200)
			if n := f.ranges * f.tokenBlocks * f.warps; n < int64(H200.SMs)*7 {
				t.Errorf("%d x %d: %d warps in the forward", tokens, channels, n)
			}
			if n := b.groups * b.splits; n < int64(H200.SMs)*9/10 {
				t.Errorf("%d x %d: %d blocks in the backward", tokens, channels, n)
			}
			if s.forwardWorkspace(f) > s.n*s.k*2 {
				t.Errorf("%d x %d: %d bytes of partial products", tokens, channels, s.forwardWorkspace(f))
			}
		}
	}
}

// An x is brought to the L2 ahead where it fits beside all else, and Sinkhorn leaves the time.
func TestFewTokensAreFetchedAhead(t *testing.T) {
	for _, c := range []struct {
		tokens            int64
		streams, channels int
		iterations        int
		want              uint64
	}{{1, 4, 64, 20, 512}, {512, 4, 1024, 20, 4 << 20}, {512, 2, 8192, 20, 16 << 20}, {2048, 4, 2048, 20, 0}, {512, 4, 1024, 8, 0}, {512, 8, 512, 20, 0}} {
		o := backward(c.tokens, c.streams, c.channels, BFloat16, BFloat16)
		o.Sinkhorn.Iterations = c.iterations
		ls, err := o.Launches(H200, base)
		if err != nil {
			t.Fatal(err)
		}
		args := ls[0].Args
		if args[len(args)-2] != uint64(base) || args[len(args)-1] != c.want {
			t.Errorf("%+v: %d bytes from %x", c, args[len(args)-1], args[len(args)-2])
		}
		// Blocks that fetch come behind those of the tokens and of phi.
		others, want := args[24]+args[25], uint64(0)
		if c.want > 0 {
			want = 66
		}
		if got := uint64(ls[0].Grid.X) - others; got != want {
			t.Errorf("%+v: %d blocks fetch, want %d", c, got, want)
		}
	}
}

// Few tokens of a 16-bit type take the kernels with short lines.
func TestFewTokensTakeShortLines(t *testing.T) {
	for _, c := range []struct {
		tokens   int64
		channels int
		xt       Type
		want     string
	}{
		{512, 1024, BFloat16, "mhc_few_dx_dphi_bf16"}, {2560, 1024, Float16, "mhc_few_dx_dphi_f16"},
		{2561, 1024, BFloat16, "mhc_dx_dphi_bf16"}, {512, 1024, Float32, "mhc_dx_dphi_f32"},
		{512, 1023, BFloat16, "mhc_few_dx_dphi_bf16_any"},
		{32 << 10, 4, BFloat16, "mhc_few_dx_dphi_bf16"}, {32<<10 + 1, 4, BFloat16, "mhc_dx_dphi_bf16"},
	} {
		ls, err := backward(c.tokens, 4, c.channels, c.xt, c.xt).Launches(H200, base)
		if err != nil {
			t.Fatal(err)
		}
		if ls[1].Name != c.want {
			t.Errorf("%+v: %s", c, ls[1].Name)
		}
	}
}

// A block with short lines has z of all its tokens in shared memory, on every device.
func TestShortLinesHoldAllOfZ(t *testing.T) {
	for _, lim := range []Limits{H200, A100, RTX3090, least} {
		for _, tokens := range []int64{1, 16, 500, 512, 2048, 5000, 20000, 32 << 10} {
			for _, channels := range []int{1, 3, 8, 64, 1024, 5120} {
				s := backward(tokens, 4, channels, BFloat16, BFloat16).shape()
				if s.line() != shortLine {
					continue
				}
				b := s.backward(lim)
				ring := b.colWarps * b.tokenWarps * backwardDepth * tileTokens * shortLine
				if z := roundUp(min(b.splitTokens, tokens), tileTokens) * zRow(24); b.splitTokens < 1 || b.shared < ring+z || b.shared > int64(lim.SharedPerBlock)-1024 {
					t.Errorf("%d x %d, %d multiprocessors: %+v", tokens, channels, lim.SMs, b)
				}
			}
		}
	}
}

func TestLongestRows(t *testing.T) {
	o := MatMulRMSForward{Tokens: 1, K: 1 << 30, M: 24, XType: BFloat16, PhiType: BFloat16}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
	o.K++
	if err := o.Check(); err == nil || err.Error() != "plan: K is 1073741825, want 1 to 1073741824" {
		t.Error(err)
	}
}

// The history of up to four streams lies in shared memory: where it is too long, the kernel for up to eight takes over.
func TestLongHistoriesTakeTheWideKernel(t *testing.T) {
	for _, c := range []struct {
		iterations int
		want       string
	}{{20, "mhc_grad_logits_n4"}, {60, "mhc_grad_logits_n4"}, {400, "mhc_wide_grad_n8"}} {
		o := backward(64, 4, 64, BFloat16, BFloat16)
		o.Sinkhorn.Iterations = c.iterations
		ls, err := o.Launches(H200, base)
		if err != nil {
			t.Fatal(err)
		}
		if ls[0].Name != c.want {
			t.Errorf("%d iterations: %s, want %s", c.iterations, ls[0].Name, c.want)
		}
	}
}

func TestEmpty(t *testing.T) {
	if ls, err := forward(0, 4, 64, BFloat16, BFloat16).Launches(H200, 0); err != nil || len(ls) != 0 {
		t.Errorf("forward of no tokens: %v, %v", ls, err)
	}
	ls, err := backward(0, 4, 64, BFloat16, BFloat16).Launches(H200, 0)
	if err != nil || len(ls) != 3 {
		t.Fatalf("backward of no tokens: %v, %v", ls, err)
	}
	for i, want := range []uint64{256 * 24 * 4, 24 * 4, 3 * 4} {
		if ls[i].Name != "mhc_zero" || ls[i].Args[1] != want {
			t.Errorf("launch %d: %s of %d bytes, want %d", i, ls[i].Name, ls[i].Args[1], want)
		}
	}
}

func TestAlignmentPicksTheKernel(t *testing.T) {
	name := func(o *CoeffsForward) string {
		ls, err := o.Launches(H200, base)
		if err != nil {
			t.Fatal(err)
		}
		return ls[0].Name
	}
	o := forward(64, 4, 64, BFloat16, BFloat16)
	if n := name(o); strings.HasSuffix(n, "_any") {
		t.Error(n)
	}
	o.X += 2
	if n := name(o); !strings.HasSuffix(n, "_any") {
		t.Error(n)
	}
	if n := name(forward(64, 4, 33, BFloat16, BFloat16)); !strings.HasSuffix(n, "_any") {
		t.Error(n)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*CoeffsBackward)
	}{
		{"tokens", func(o *CoeffsBackward) { o.Tokens = -1 }},
		{"streams", func(o *CoeffsBackward) { o.Streams = 17 }},
		{"channels", func(o *CoeffsBackward) { o.Channels = 0 }},
		{"Iterations", func(o *CoeffsBackward) { o.Sinkhorn.Iterations = 0 }},
		{"Eps", func(o *CoeffsBackward) { o.Sinkhorn.Eps = -1 }},
		{"phi", func(o *CoeffsBackward) { o.PhiType = Float16 }},
		{"dphi", func(o *CoeffsBackward) { o.DPhiType = Float16 }},
		{"DPhi", func(o *CoeffsBackward) { o.DPhi = 0 }},
		{"Mix", func(o *CoeffsBackward) { o.Mix = 0 }},
	} {
		o := backward(64, 4, 64, BFloat16, BFloat16)
		c.change(o)
		if _, err := o.Launches(H200, base); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one about %s", err, c.want)
		}
	}
}

// many calls every operator with both kinds of alignment.
func many(f func([]Launch, error)) {
	shapes(func(tokens int64, streams, channels int, xt, pt Type) {
		if tokens > 512 {
			return
		}
		for _, p := range []Ptr{base, base + 4} {
			fw, bw := forward(tokens, streams, channels, xt, pt), backward(tokens, streams, channels, xt, pt)
			fw.X, bw.X, bw.Mix, fw.HRes = p, p, p, p
			f(fw.Launches(H200, base))
			f(bw.Launches(H200, base))
			b := base
			f((&HeadForward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, PhiType: pt, X: p, Phi: b, B: b, Alpha: b, Out: b, W: b, Mix: b, R: b}).Launches(H200, b))
			f((&HeadBackward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, PhiType: pt, X: p, Phi: b, B: b, Alpha: b, W: b, Mix: b, R: b, G: b, DX: b, DPhi: b, DB: b, DAlpha: b}).Launches(H200, b))
			m := int64(streams * 20)
			f((&MatMulRMSForward{Tokens: tokens, K: int64(channels), M: m, XType: xt, PhiType: pt, X: p, Phi: b, Mix: b, R: b}).Launches(H200, b))
			f((&MatMulRMSBackward{Tokens: tokens, K: int64(channels), M: m, XType: xt, PhiType: pt, X: p, Phi: b, Mix: b, R: b, GMix: b, DX: b, DPhi: b}).Launches(H200, b))
			f((&PreForward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, X: p, HPre: b, Out: b}).Launches(H200, 0))
			f((&PreBackward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, X: p, HPre: b, G: b, DX: b, DHPre: b}).Launches(H200, 0))
			f((&PostResForward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, X: p, F: b, HRes: b, HPost: b, Out: b}).Launches(H200, 0))
			f((&PostResBackward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, X: p, F: b, HRes: b, HPost: b, G: b, DX: b, DF: b, DHRes: b, DHPost: b}).Launches(H200, 0))
			f((&StreamsForward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, X: p, Out: b}).Launches(H200, 0))
			f((&StreamsBackward{Tokens: tokens, Streams: streams, Channels: channels, XType: xt, G: p, DX: b}).Launches(H200, 0))
			f((&SinkhornForward{Batch: tokens, N: streams, Sinkhorn: sink, A: p, Out: b}).Launches(H200, 0))
			f((&SinkhornForward{Batch: tokens, N: streams * 4, Sinkhorn: sink, A: p, Out: b}).Launches(H200, 0))
			f((&SinkhornBackward{Batch: tokens, N: streams * 4, Sinkhorn: sink, A: p, G: b, DA: b}).Launches(H200, b))
			f((&SinkhornBackward{Batch: tokens, N: streams, Sinkhorn: sink, A: p, G: b, DA: b}).Launches(H200, b))
			f((&Cast{Count: tokens, From: xt, To: pt, In: p, Out: b}).Launches(H200, 0))
		}
	})
	f(backward(0, 4, 64, BFloat16, BFloat16).Launches(H200, 0))
}

// Every kernel that a plan names must be in the fatbin, with as many arguments as its signature has.
func TestKernelsExist(t *testing.T) {
	fatbin, err := os.ReadFile("../kernels/symbols.txt")
	if err != nil {
		t.Fatal(err)
	}
	params := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^(mhc_\w+) (\d+)$`).FindAllStringSubmatch(string(fatbin), -1) {
		params[m[1]], _ = strconv.Atoi(m[2])
	}
	used := map[string]bool{}
	many(func(ls []Launch, err error) {
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			used[l.Name] = true
			if n, ok := params[l.Name]; !ok {
				t.Fatalf("no kernel %s", l.Name)
			} else if n != len(l.Args) {
				t.Fatalf("%s: %d arguments, its signature has %d", l.Name, len(l.Args), n)
			}
		}
	})
	for name := range params {
		if !used[name] {
			t.Errorf("no plan uses %s", name)
		}
	}
}

func TestArgumentsAreSlots(t *testing.T) {
	ls, err := (&Cast{Count: 5, From: Float32, To: BFloat16, In: base, Out: base + 64}).Launches(H200, 0)
	if err != nil || len(ls) != 1 {
		t.Fatal(ls, err)
	}
	want := []uint64{uint64(base), uint64(base) + 64, uint64(Float32), uint64(BFloat16), 5, 1}
	for i, w := range want {
		if ls[0].Args[i] != w {
			t.Errorf("argument %d is %d, want %d", i, ls[0].Args[i], w)
		}
	}
}

// The kernels know the conventions by number.
func TestArgumentsOfTheProjection(t *testing.T) {
	for _, c := range []struct {
		cfg  sinkhorn.Config
		want args
	}{
		{sinkhorn.Config{Start: sinkhorn.RowSoftmax, End: sinkhorn.Columns, Iterations: 20}, args{0, 39, 0}},
		{sinkhorn.Config{Start: sinkhorn.Exp, End: sinkhorn.Rows, Iterations: 20}, args{1, 40, 0}},
	} {
		var got args
		got.projection(c.cfg)
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.cfg, got, c.want)
		}
	}
}
