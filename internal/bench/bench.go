// Package bench measures the time and memory of the operators and the layer. On
// the CPU they run on a TapeMachine, beside the same computation composed of
// Gorgonia's own operators:
//
//   - Inputs are standard normal numbers from a seed. Outputs have upstream
//     gradients of such numbers, at no cost.
//   - Forward, and full (forward and backward as one), run in turn with the
//     peer's and with a copy of as many bytes, round after round, so that the
//     machine's moods meet all of them. Backward is the difference of the two in
//     the same round.
//   - Every round runs each often enough to fill a set time; the quantiles are
//     over the rounds' means.
//
// On a GPU they run on device memory, by themselves:
//
//   - The inputs are the same. Forward, backward and full are measured each, full
//     as one.
//   - Two CUDA events are around a run. Before the first a buffer larger than the
//     L2 cache is written, so that inputs come from memory.
//   - A round is 10 runs of warming up and 100 that are measured; the quantiles
//     are over the rounds' medians.
//   - The sum of the kernels' times comes from CUPTI's records of as many more
//     runs, traced after all times are taken: a traced launch takes longer.
//     Without CUPTI it is measured between events around each kernel.
//   - The floor is that of a large copy on the device.
//   - Results are compared with those of the CPU in float64, of the same inputs.
package bench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/internal/parallel"
)

// Options say how problems are measured.
type Options struct {
	Device *device.Device
	// Rounds is the number of rounds, RoundTime what each of them gives every
	// measurement at least.
	Rounds    int
	RoundTime time.Duration
	// Peers also measures Gorgonia's own operators.
	Peers bool
}

// Result is one measurement. Times are in microseconds, of one run.
type Result struct {
	Operator string `json:"operator"`
	Pass     string `json:"pass"` // forward, backward or full
	By       string `json:"by"`   // mhc or gorgonia
	Device   string `json:"device"`
	Dtype    string `json:"dtype"`
	N        int    `json:"N"` // tokens
	Streams  int    `json:"n"`
	Channels int    `json:"C"`
	T        int    `json:"T"`                  // Sinkhorn iterations
	WidePhi  bool   `json:"wide_phi,omitempty"` // phi is float32 beside 16-bit streams

	Rounds int     `json:"rounds"`
	Runs   int     `json:"runs"` // in a round
	P20    float64 `json:"p20_us"`
	P50    float64 `json:"p50_us"`
	P80    float64 `json:"p80_us"`

	// Bytes is the size of what must be read and written, each tensor once: of
	// the inputs and outputs, and backward of the upstream gradients, the inputs
	// (unless the operator is linear) and their gradients. Floor is the median time of copying as much.
	Bytes int64   `json:"bytes"`
	Floor float64 `json:"floor_us"`

	// Launches is the number of kernels of a run and Kernels the sum of their
	// times, on a GPU. KernelsBy says how it was measured: by "cupti", from the
	// records of a profiler, or by "events" around each kernel, which add 2 to 3 us to
	// each.
	Launches  int     `json:"launches,omitempty"`
	Kernels   float64 `json:"kernels_us,omitempty"`
	KernelsBy string  `json:"kernels_by,omitempty"`

	// Allocated is what a run allocates, Peak that and the tensors that it is
	// given: no more than this is in use at a time. On a GPU the results and the
	// scratch memory count as allocated. Of a backward alone on the CPU they are
	// not known.
	Allocated int64 `json:"allocated_bytes,omitempty"`
	Peak      int64 `json:"peak_bytes,omitempty"`

	// Ratio is the median over the rounds of Gorgonia's time over this, in mhc's
	// rows. Difference is the largest norm of a difference between the two sides'
	// results, over the norm, of all outputs and gradients.
	Ratio      float64 `json:"ratio,omitempty"`
	Difference float64 `json:"difference,omitempty"`

	// Errors are those of a GPU's results against float64, by tensor, in the rows
	// of the full pass: the norm of the difference over the norm.
	Errors map[string]float64 `json:"errors,omitempty"`
}

// describe says what was measured.
func (r *Result) describe(operator, by string, p Problem, opts Options) {
	r.Operator, r.By, r.Device, r.Dtype = operator, by, opts.Device.Name, strings.ToLower(p.Dtype.Name())
	r.N, r.Streams, r.Channels, r.T = p.Tokens, p.Config.Streams, p.Channels, p.Config.Sinkhorn.Iterations
	r.WidePhi = p.phiDtype() != p.Dtype
}

// times sets the quantiles of a run's times over the rounds.
func (r *Result) times(rounds []float64) {
	t := slices.Sorted(slices.Values(rounds))
	r.Rounds, r.P20, r.P50, r.P80 = len(t), quantile(0.2, t), quantile(0.5, t), quantile(0.8, t)
}

// OverFloor is the median time in units of the floor.
func (r Result) OverFloor() float64 { return r.P50 / r.Floor }

// Tolerance is how much the two sides' results may differ: Gorgonia's operators
// add up in the dtype itself.
func Tolerance(dt tensor.Dtype) float64 {
	if dt == tensor.Float64 {
		return 1e-10
	}
	return 1e-4
}

const (
	forward = iota
	full
	passes
)

// Measure measures an operator on one problem.
func Measure(name string, p Problem, opts Options) ([]Result, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, fmt.Errorf("operator %q, want one of %v", name, Names())
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if opts.Rounds < 1 {
		return nil, fmt.Errorf("%d rounds, want 1 or more", opts.Rounds)
	}
	if opts.Peers && p.Dtype != tensor.Float32 && p.Dtype != tensor.Float64 {
		return nil, fmt.Errorf("gorgonia's operators compute in float32 and float64, not in %v", p.Dtype)
	}
	if e, ok := opts.Device.Engine.(*cuda.Engine); ok {
		return onDevice(e, operators[i], p, opts)
	}
	o := operators[i]
	builds := []func(*builder) error{o.mhc}
	if opts.Peers {
		builds = append(builds, o.peers)
	}
	var sides []*side
	for j, build := range builds {
		s, err := newSide(build, o.linear, p, opts)
		if err != nil {
			return nil, fmt.Errorf("%s by %s: %w", name, by[j], err)
		}
		defer s.close()
		sides = append(sides, s)
	}
	var difference float64
	if opts.Peers {
		var err error
		if difference, err = differ(builds, p, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	floors := [passes][]float64{}
	for round := range opts.Rounds {
		runtime.GC()
		for k := range sides {
			s := sides[(k+round)%len(sides)]
			for pass := range passes {
				if err := s.measure(pass); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		for pass := range passes {
			floors[pass] = append(floors[pass], copyTime(sides[0].bytes[pass], opts.RoundTime))
		}
	}

	var results []Result
	for j, s := range sides {
		for _, r := range s.results(floors) {
			r.describe(name, by[j], p, opts)
			if opts.Peers && j == 0 {
				r.Ratio, r.Difference = ratio(sides[1].times(r.Pass), s.times(r.Pass)), difference
			}
			results = append(results, r)
		}
	}
	return results, nil
}

var by = []string{"mhc", "gorgonia"}

// side is one of the two implementations, ready to run.
type side struct {
	device    *device.Device
	machines  [passes]*machine.Machine
	runs      [passes]int
	rounds    [passes][]float64 // microseconds of a run
	bytes     [passes]int64     // that must be read and written
	given     [passes]int64     // bytes of the tensors that a run is given
	allocated [passes]int64     // bytes that a run allocates
}

func newSide(build func(*builder) error, linear bool, p Problem, opts Options) (*side, error) {
	s := &side{device: opts.Device}
	for pass := range passes {
		b, m, err := newMachine(build, p, pass, opts.Device.Options()...)
		if err != nil {
			return nil, err
		}
		s.machines[pass] = m
		in, out := bytes(b.inputs), bytes(b.outputs)
		s.bytes[pass], s.given[pass] = in+out, in
		if pass == full {
			s.bytes[pass], s.given[pass] = in+out+backwardBytes(b, linear), in+out
		}
		if err := s.prepare(pass, opts.RoundTime); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// backwardBytes is the size of what a backward must read and write.
func backwardBytes(b *builder, linear bool) int64 {
	all := bytes(b.outputs) + bytes(b.inputs)
	if !linear {
		all += bytes(b.inputs)
	}
	return all
}

// newMachine makes one side's machine for a pass, which discards its results.
func newMachine(build func(*builder) error, p Problem, pass int, opts ...gorgonia.VMOpt) (*builder, *machine.Machine, error) {
	b, loss, err := newGraph(build, p)
	if err != nil {
		return nil, nil, err
	}
	program := machine.Program{Graph: b.graph, Discard: true}
	if pass == full {
		if program.Loss, err = loss(); err != nil {
			return nil, nil, err
		}
		program.Inputs = b.inputs
	}
	m, err := machine.New(machine.Tape, program, opts...)
	return b, m, err
}

// newGraph builds one side's graph; loss completes it for the backward pass.
func newGraph(build func(*builder) error, p Problem) (b *builder, loss func() (*gorgonia.Node, error), err error) {
	b = &builder{Problem: p, graph: gorgonia.NewGraph()}
	if err := build(b); err != nil {
		return nil, nil, err
	}
	return b, b.loss, nil
}

func (s *side) close() {
	for _, m := range s.machines {
		_ = m.Close()
	}
}

// prepare warms up, and finds what a run allocates and how many of them fill a
// round.
func (s *side) prepare(pass int, roundTime time.Duration) error {
	run := func() error { return s.run(pass, 1) }
	if err := run(); err != nil {
		return err
	}
	var err error
	if s.allocated[pass], err = allocated(run); err != nil {
		return err
	}
	once, err := s.device.Time(run)
	s.runs[pass] = int(min(max(roundTime/max(once, 1), 1), 10000))
	return err
}

func (s *side) run(pass, times int) error {
	for range times {
		if _, err := s.machines[pass].Run(); err != nil {
			return err
		}
	}
	return nil
}

// measure adds a round.
func (s *side) measure(pass int) error {
	took, err := s.device.Time(func() error { return s.run(pass, s.runs[pass]) })
	s.rounds[pass] = append(s.rounds[pass], microseconds(took)/float64(s.runs[pass]))
	return err
}

// times are those of a run in each round.
func (s *side) times(pass string) []float64 {
	switch pass {
	case "forward":
		return s.rounds[forward]
	case "full":
		return s.rounds[full]
	}
	return floats.SubTo(make([]float64, len(s.rounds[full])), s.rounds[full], s.rounds[forward])
}

func (s *side) results(floors [passes][]float64) []Result {
	var all []Result
	add := func(pass string, runs int, bytes int64, floor []float64) *Result {
		all = append(all, Result{Pass: pass, Runs: runs, Bytes: bytes, Floor: median(floor)})
		r := &all[len(all)-1]
		r.times(s.times(pass))
		return r
	}
	f := add("forward", s.runs[forward], s.bytes[forward], floors[forward])
	f.Allocated, f.Peak = s.allocated[forward], s.allocated[forward]+s.given[forward]
	add("backward", s.runs[full], s.bytes[full]-s.bytes[forward], floats.SubTo(make([]float64, len(floors[full])), floors[full], floors[forward]))
	b := add("full", s.runs[full], s.bytes[full], floors[full])
	b.Allocated, b.Peak = s.allocated[full], s.allocated[full]+s.given[full]
	return all
}

// differ runs both sides once and compares all outputs and gradients.
func differ(builds []func(*builder) error, p Problem, opts Options) (worst float64, err error) {
	var values [2][]gorgonia.Value
	for j, build := range builds {
		b, loss, err := newGraph(build, p)
		if err != nil {
			return 0, err
		}
		if values[j], err = compute(b, loss, opts.Device.Options()...); err != nil {
			return 0, err
		}
	}
	for i, v := range values[0] {
		a, err := wide(v)
		if err != nil {
			return 0, err
		}
		b, err := wide(values[1][i])
		if err != nil {
			return 0, err
		}
		if len(a) != len(b) {
			return 0, fmt.Errorf("result %d has %d numbers by mhc and %d by gorgonia", i, len(a), len(b))
		}
		worst = max(worst, relative(b, a)) // NaN stays
	}
	return worst, nil
}

// compute runs a graph once and returns its outputs and the gradients.
func compute(b *builder, loss func() (*gorgonia.Node, error), opts ...gorgonia.VMOpt) ([]gorgonia.Value, error) {
	program := machine.Program{Graph: b.graph, Outputs: b.outputs, Inputs: b.inputs}
	var err error
	if program.Loss, err = loss(); err != nil {
		return nil, err
	}
	m, err := machine.New(machine.Tape, program, opts...)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r, err := m.Run()
	return append(r.Outputs, r.Gradients...), err
}

// relative is the norm of got - want over that of want.
func relative(got, want []float64) float64 {
	if d := floats.Distance(got, want, 2); d != 0 {
		return d / floats.Norm(want, 2)
	}
	return 0
}

// wide is a copy of a tensor's numbers in float64.
func wide(v gorgonia.Value) ([]float64, error) {
	t, err := graph.Convert(v.(*tensor.Dense), tensor.Float64)
	if err != nil {
		return nil, err
	}
	return t.Float64s(), nil
}

// allocated is the number of bytes that f allocates, with the collector off.
func allocated(f func() error) (int64, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), err
}

// copyTime is the time in microseconds of reading and writing size bytes
// together, on all processors.
func copyTime(size int64, roundTime time.Duration) float64 {
	src, dst := make([]byte, size/2+1), make([]byte, size/2+1)
	copyAll(dst, src)
	start, runs := time.Now(), 0
	for runs < 3 || time.Since(start) < roundTime/4 {
		copyAll(dst, src)
		runs++
	}
	return microseconds(time.Since(start)) / float64(runs)
}

// pieceBytes is what a goroutine reads, or copies, at a time.
const pieceBytes = 256 << 10

// copyAll copies on all processors.
func copyAll(dst, src []byte) {
	parallel.Blocks(len(src), pieceBytes, func(_, lo, hi int) { copy(dst[lo:hi], src[lo:hi]) })
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func ratio(a, b []float64) float64 { return median(floats.DivTo(make([]float64, len(a)), a, b)) }

func median(x []float64) float64 { return quantile(0.5, slices.Sorted(slices.Values(x))) }

func quantile(p float64, sorted []float64) float64 {
	return stat.Quantile(p, stat.Empirical, sorted, nil)
}
