package bench

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/op"
)

// The runs of one round on a GPU.
const (
	warmUps      = 10
	measurements = 100
)

// checked is the most numbers in x that results are compared with the CPU for.
const checked = 1 << 26

// resident is an operator on device memory, and everything that it works with.
type resident struct {
	*builder
	engine  *cuda.Engine
	stream  *cuda.Stream
	buffers map[string]*cuda.Buffer // inputs, upstream gradients, results, by name
	given   int64                   // bytes of what was there before the run
	results int64                   // bytes of outputs, gradients and what operators hand on
	fwd     []cuda.Operator
	bwd     []cuda.Operator
	start   []*cuda.Event // one of each for every measurement
	end     []*cuda.Event
	flush   *cuda.Buffer
	err     error // of the first allocation or copy that failed
}

// onDevice measures an operator on device memory.
func onDevice(e *cuda.Engine, o operator, p Problem, opts Options) (results []Result, err error) {
	if opts.Peers || p.Dtype == tensor.Float64 {
		return nil, fmt.Errorf("%s: on a GPU, operators are measured by themselves, without a peer, and in float32, bfloat16 or float16", o.name)
	}
	b, loss, err := newGraph(o.mhc, p)
	if err != nil {
		return nil, err
	}
	if _, err := loss(); err != nil {
		return nil, err
	}
	r := &resident{builder: b, engine: e, buffers: map[string]*cuda.Buffer{}}
	defer r.free()
	if r.stream, err = e.NewStream(); err != nil {
		return nil, err
	}
	for _, n := range b.graph.Inputs() {
		r.upload(n)
	}
	for i, n := range b.outputs {
		r.result(outputName(i), n)
	}
	for _, n := range b.inputs {
		r.result("d"+n.Name(), n)
	}
	r.fwd, r.bwd = o.device(r)
	r.prepare()
	if r.err != nil {
		return nil, r.err
	}
	bandwidth, err := r.bandwidth()
	if err != nil {
		return nil, err
	}
	forth, back := bytes(b.inputs)+bytes(b.outputs), backwardBytes(b, o.linear)
	kinds := []struct {
		pass  string
		run   []cuda.Operator
		bytes int64
	}{
		{"forward", r.fwd, forth},
		{"backward", r.bwd, back},
		{"full", slices.Concat(r.fwd, r.bwd), forth + back},
	}
	rounds := make([][]float64, len(kinds))
	for round := range opts.Rounds {
		for k := range kinds {
			i := (k + round) % len(kinds)
			t, err := r.round(kinds[i].run)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], t)
		}
	}
	for i, k := range kinds {
		row := Result{Pass: k.pass, Runs: measurements, Bytes: k.bytes, Floor: float64(k.bytes) / bandwidth}
		row.describe(o.name, by[0], p, opts)
		row.times(rounds[i])
		if err := r.kernels(&row, k.run, opts.Rounds); err != nil {
			return nil, err
		}
		scratch, err := r.scratch(k.run)
		if err != nil {
			return nil, err
		}
		row.Allocated = r.results + scratch
		row.Peak = row.Allocated + r.given
		results = append(results, row)
	}
	if p.Tokens*p.Config.Streams*p.Channels <= checked {
		if results[len(results)-1].Errors, err = r.errors(o); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func outputName(i int) string { return fmt.Sprintf("output%d", i) }

// fail keeps the first error.
func (r *resident) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// alloc takes memory for a name.
func (r *resident) alloc(name string, bytes int64) *cuda.Buffer {
	if r.err != nil {
		return nil
	}
	b, err := r.engine.NewBuffer(bytes)
	r.fail(err)
	r.buffers[name] = b
	return b
}

// upload copies an input's value to the device.
func (r *resident) upload(n *gorgonia.Node) {
	host := hostBytes(n.Value().Data())
	if b := r.alloc(n.Name(), int64(len(host))); b != nil {
		r.fail(r.stream.Write(b.Ptr(), host))
		r.given += b.Len()
	}
}

// result takes memory for a result of a node's shape and dtype.
func (r *resident) result(name string, n *gorgonia.Node) {
	r.memory(name, bytes(gorgonia.Nodes{n}))
}

// memory takes memory for what operators of the run hand on.
func (r *resident) memory(name string, bytes int64) plan.Ptr {
	b := r.alloc(name, bytes)
	if b == nil {
		return 0
	}
	r.results += b.Len()
	return b.Ptr()
}

// kept takes memory for count float32 numbers.
func (r *resident) kept(name string, count int) plan.Ptr { return r.memory(name, 4*int64(count)) }

// at is the address of an input, of "upstream0" and so on, of "output0" and so
// on, or of a gradient, "dx" say.
func (r *resident) at(name string) plan.Ptr {
	if b := r.buffers[name]; b != nil {
		return b.Ptr()
	}
	r.fail(fmt.Errorf("%s is not on the device", name))
	return 0
}

// prepare makes the events, and the buffer that is written between runs.
func (r *resident) prepare() {
	for range measurements {
		for _, list := range []*[]*cuda.Event{&r.start, &r.end} {
			event, err := r.engine.NewEvent()
			if err != nil {
				r.fail(err)
				return
			}
			*list = append(*list, event)
		}
	}
	r.flush = r.alloc("flush", max(2*int64(r.engine.Info().L2), 64<<20))
}

func (r *resident) free() {
	for _, event := range slices.Concat(r.start, r.end) {
		_ = event.Close()
	}
	if r.stream != nil {
		_ = r.stream.Close() // waits
	}
	for _, b := range r.buffers {
		if b != nil {
			b.Free()
		}
	}
}

func (r *resident) run(operators []cuda.Operator) error {
	for _, o := range operators {
		if err := r.stream.Run(o); err != nil {
			return err
		}
	}
	return nil
}

// cold fills the cache with something else.
func (r *resident) cold() error { return r.stream.Fill(r.flush.Ptr(), 0, r.flush.Len()/4) }

// round is the median time of a run in microseconds.
func (r *resident) round(operators []cuda.Operator) (float64, error) {
	for range warmUps {
		if err := r.run(operators); err != nil {
			return 0, err
		}
	}
	return r.events(measurements, true, func() error { return r.run(operators) })
}

// events is the median time between two events around f, which queues work.
func (r *resident) events(count int, cold bool, f func() error) (float64, error) {
	for i := range count {
		if cold {
			if err := r.cold(); err != nil {
				return 0, err
			}
		}
		if err := r.stream.Record(r.start[i]); err != nil {
			return 0, err
		}
		if err := f(); err != nil {
			return 0, err
		}
		if err := r.stream.Record(r.end[i]); err != nil {
			return 0, err
		}
	}
	times := make([]float64, count)
	for i := range times {
		d, err := r.end[i].Since(r.start[i])
		if err != nil {
			return 0, err
		}
		times[i] = microseconds(d)
	}
	return median(times), nil
}

// bandwidth is that of a large copy, in bytes read and written a microsecond.
func (r *resident) bandwidth() (float64, error) {
	const size = 1 << 30
	from, err := r.engine.NewBuffer(size)
	if err != nil {
		return 0, err
	}
	defer from.Free()
	to, err := r.engine.NewBuffer(size)
	if err != nil {
		return 0, err
	}
	defer to.Free()
	t, err := r.events(20, false, func() error { return r.stream.Copy(to.Ptr(), from.Ptr(), size) })
	return 2 * size / t, err
}

// scratch is the most scratch memory that an operator of a run asks for.
func (r *resident) scratch(operators []cuda.Operator) (most int64, err error) {
	for _, o := range operators {
		n, err := o.Workspace(r.engine.Info().Limits)
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// errors are those of the results against the CPU's in float64, by name.
func (r *resident) errors(o operator) (map[string]float64, error) {
	p := r.Problem
	p.Dtype = tensor.Float64
	b, loss, err := newGraph(o.mhc, p)
	if err != nil {
		return nil, err
	}
	wideLoss := func() (*gorgonia.Node, error) {
		l, err := loss()
		if err != nil {
			return nil, err
		}
		// The same inputs: those of float64 have not been rounded.
		for _, n := range r.graph.Inputs() {
			same, err := graph.Convert(n.Value().(*tensor.Dense), tensor.Float64)
			if err != nil {
				return nil, err
			}
			if err := gorgonia.Let(b.graph.ByName(n.Name())[0], same); err != nil {
				return nil, err
			}
		}
		return l, nil
	}
	want, err := compute(b, wideLoss)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(want))
	nodes := slices.Concat(r.outputs, r.inputs)
	for i := range r.outputs {
		names = append(names, outputName(i))
	}
	for _, n := range r.inputs {
		names = append(names, "d"+n.Name())
	}
	errors := map[string]float64{}
	for i, name := range names {
		got := tensor.New(tensor.Of(nodes[i].Dtype()), tensor.WithShape(nodes[i].Shape().Clone()...))
		if err := r.stream.Read(hostBytes(got.Data()), r.at(name)); err != nil {
			return nil, err
		}
		numbers, err := wide(got)
		if err != nil {
			return nil, err
		}
		errors[name] = relative(numbers, want[i].(*tensor.Dense).Float64s())
	}
	return errors, nil
}

// hostBytes is the memory of a slice.
func hostBytes(slice any) []byte {
	v := reflect.ValueOf(slice)
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
}

// planType is a dtype's name in package plan.
func planType(dt tensor.Dtype) plan.Type {
	switch dt {
	case op.BFloat16:
		return plan.BFloat16
	case op.Float16:
		return plan.Float16
	}
	return plan.Float32
}
