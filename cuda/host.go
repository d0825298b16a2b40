package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/dtype"
)

// hostCall runs one operator on tensors in host memory. Its inputs, then its
// results, then the scratch memory lie in one block of device memory; the inputs
// go there, and the results come back, as one range each.
type hostCall struct {
	e        *Engine
	in, out  []field
	inBytes  int64
	outBytes int64
	err      error
}

// field is an operand: where the operator wants its address, its host memory
// (none for scratch), and its place in its range.
type field struct {
	ptr *plan.Ptr
	segment
}

// alignment of an operand in device memory, in bytes.
const alignment = 256

func align(n int64) int64 { return (n + alignment - 1) / alignment * alignment }

func (e *Engine) call() *hostCall { return &hostCall{e: e} }

// read makes t an input, whose address goes to ptr, and returns its type. A nil
// t leaves the address 0.
func (c *hostCall) read(name string, ptr *plan.Ptr, t tensor.Tensor) plan.Type {
	if t == nil {
		return plan.Float32
	}
	data, typ, err := contents(t)
	if err != nil {
		c.fail(fmt.Errorf("cuda: %s: %w", name, err))
		return typ
	}
	c.in = append(c.in, field{ptr, segment{c.inBytes, data}})
	c.inBytes += align(int64(len(data)))
	return typ
}

// read32 is read for a tensor that the kernels know in float32 only.
func (c *hostCall) read32(name string, ptr *plan.Ptr, t tensor.Tensor) {
	c.like(name, ptr, t, plan.Float32)
}

// like is read for a tensor that the kernels know in one type only.
func (c *hostCall) like(name string, ptr *plan.Ptr, t tensor.Tensor, want plan.Type) {
	if typ := c.read(name, ptr, t); typ != want {
		c.fail(fmt.Errorf("cuda: %s is %v, want %v: %w", name, t.Dtype(), want, errors.ErrUnsupported))
	}
}

// write makes a new tensor a result, whose address goes to ptr.
func (c *hostCall) write(ptr *plan.Ptr, dt tensor.Dtype, shape ...int) tensor.Tensor {
	if c.err != nil {
		return nil
	}
	t := tensor.New(tensor.Of(dt), tensor.WithShape(shape...), tensor.WithEngine(c.e))
	data, _, err := contents(t)
	if err != nil {
		c.fail(fmt.Errorf("cuda: result: %w", err))
		return nil
	}
	c.out = append(c.out, field{ptr, segment{c.outBytes, data}})
	c.outBytes += align(int64(len(data)))
	return t
}

func (c *hostCall) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// run runs op, whose fields are those given to read and write.
func (c *hostCall) run(op Operator) error {
	if c.err != nil {
		return c.err
	}
	if err := op.Check(); err != nil {
		// The ops have checked shapes and settings, so this one is beyond the kernels.
		return fmt.Errorf("cuda: %w: %w", errors.ErrUnsupported, err)
	}
	work, err := op.Workspace(c.e.info.Limits)
	if err != nil {
		return err
	}
	s := <-c.e.idle
	defer func() { c.e.idle <- s }()
	return c.e.do(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.open(); err != nil {
			return err
		}
		block, err := c.e.pool.get(c.inBytes + c.outBytes + work)
		if err != nil {
			return err
		}
		defer c.e.pool.put(block)
		return errors.Join(c.queue(op, s, block), s.sync())
	})
}

func (c *hostCall) queue(op Operator, s *Stream, block driver.Pointer) error {
	results := block + driver.Pointer(c.inBytes)
	for _, f := range c.in {
		*f.ptr = plan.Ptr(block) + plan.Ptr(f.offset)
	}
	for _, f := range c.out {
		*f.ptr = plan.Ptr(results) + plan.Ptr(f.offset)
	}
	if err := s.upload(block, segments(c.in), c.inBytes); err != nil {
		return err
	}
	if err := s.queue(op, results+driver.Pointer(c.outBytes), c.e.launch); err != nil {
		return err
	}
	return s.download(segments(c.out), results, c.outBytes)
}

func segments(fields []field) []segment {
	segs := make([]segment, len(fields))
	for i, f := range fields {
		segs[i] = f.segment
	}
	return segs
}

// contents are the bytes of a contiguous tensor in host memory, and its type.
func contents(t tensor.Tensor) ([]byte, plan.Type, error) {
	if t.RequiresIterator() || t.DataOrder().IsColMajor() {
		return nil, 0, fmt.Errorf("a tensor of shape %v is not contiguous", t.Shape())
	}
	var data []byte
	var typ plan.Type
	switch d := t.Data().(type) {
	case []float32:
		data, typ = bytesOf(d), plan.Float32
	case []dtype.BFloat16:
		data, typ = bytesOf(d), plan.BFloat16
	case []dtype.Float16:
		data, typ = bytesOf(d), plan.Float16
	default:
		return nil, 0, fmt.Errorf("no kernels for %v: %w", t.Dtype(), errors.ErrUnsupported)
	}
	if want := int64(t.Shape().TotalSize()) * typ.Size(); int64(len(data)) != want {
		return nil, 0, fmt.Errorf("a tensor of shape %v has %d bytes, want %d", t.Shape(), len(data), want)
	}
	return data, typ, nil
}

func bytesOf[T dtype.Storage](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// tokens cuts the last dimensions of a shape off: those of the tokens, their
// number, and the last ones.
func tokens(s tensor.Shape, last int) (lead tensor.Shape, count int64, rest tensor.Shape) {
	lead, rest = s[:len(s)-last], s[len(s)-last:]
	return lead, int64(lead.TotalSize()), rest
}

// shape joins the dimensions of the tokens and those of one. One token without
// dimensions has shape [1].
func shape(lead tensor.Shape, last ...int) []int {
	if len(lead)+len(last) == 0 {
		return []int{1}
	}
	return slices.Concat(lead, last)
}
