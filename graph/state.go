package graph

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/nlpodyssey/safetensors"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op"
)

// State is tensors by name, what a safetensors file holds beside its metadata.
type State map[string]*tensor.Dense

// element is how a dtype is called in a safetensors file.
type element struct {
	file   safetensors.DType
	memory tensor.Dtype
}

var elements = []element{
	{safetensors.F32, tensor.Float32}, {safetensors.F64, tensor.Float64},
	{safetensors.BF16, op.BFloat16}, {safetensors.F16, op.Float16},
	{safetensors.I64, tensor.Int64}, {safetensors.I32, tensor.Int32},
	{safetensors.I16, tensor.Int16}, {safetensors.I8, tensor.Int8},
	{safetensors.U64, tensor.Uint64}, {safetensors.U32, tensor.Uint32},
	{safetensors.U16, tensor.Uint16}, {safetensors.U8, tensor.Uint8},
	{safetensors.BOOL, tensor.Bool},
}

// elementNamed is the element of that name in a file, nil where there is none.
func elementNamed(name string) *element {
	for i := range elements {
		if elements[i].file.String() == name {
			return &elements[i]
		}
	}
	return nil
}

// ReadState reads a safetensors file: its tensors and its metadata. Only the
// tensors that keep says yes to are read (all where keep is nil), so a few
// layers of a large file cost their own size, and do not mind that others are of
// a dtype that Gorgonia has no tensors of (F8_E4M3, say).
//
// A file that is truncated, no safetensors file, or contradicts itself gives an
// error that names the tensor, where the header was whole enough to know it.
func ReadState(path string, keep func(name string) bool) (State, map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("graph: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("graph: %w", err)
	}
	state, metadata, err := readState(f, info.Size(), keep)
	if err != nil {
		return nil, nil, fmt.Errorf("graph: %s: %w", path, err)
	}
	return state, metadata, nil
}

func readState(r io.ReaderAt, size int64, keep func(name string) bool) (State, map[string]string, error) {
	h, err := readHeader(r, size)
	if err != nil {
		return nil, nil, err
	}
	state := make(State)
	for _, e := range h.tensors {
		if keep != nil && !keep(e.name) {
			continue
		}
		t, err := newTensor(e)
		if err != nil {
			return nil, nil, err
		}
		at := io.NewSectionReader(r, h.begin+int64(e.Offsets[0]), int64(len(t.Raw)))
		if _, err := io.ReadFull(at, t.Raw); err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", e.name, err)
		}
		littleEndian(t.Raw, int(t.Dtype().Size()))
		state[e.name] = t
	}
	return state, h.metadata, nil
}

// newTensor is a tensor for e's bytes.
func newTensor(e entry) (*tensor.Dense, error) {
	k := elementNamed(e.DType)
	if k == nil {
		return nil, fmt.Errorf("tensor %s is %s, which has no counterpart here", e.name, e.DType)
	}
	shape := make([]int, len(e.Shape))
	for i, d := range e.Shape {
		if d == 0 || d > math.MaxInt {
			return nil, fmt.Errorf("tensor %s has shape %v: a Gorgonia tensor cannot have that", e.name, e.Shape)
		}
		shape[i] = int(d)
	}
	return tensor.New(tensor.Of(k.memory), tensor.WithShape(shape...)), nil
}

// WriteState writes a safetensors file. It is written beside path, flushed to
// the disk and renamed, so path holds the old file or the new one, whole, and
// nothing is left beside it when the disk is full.
func WriteState(path string, state State, metadata map[string]string) error {
	views := make(map[string]view, len(state))
	for name, t := range state {
		if name == "__metadata__" || !utf8.ValidString(name) {
			return fmt.Errorf("graph: a tensor cannot be named %q in a safetensors file", name)
		}
		v, err := newView(name, t)
		if err != nil {
			return err
		}
		views[name] = v
	}
	return replaceFile(path, func(w io.Writer) error {
		return safetensors.SerializeToWriter(views, metadata, w)
	})
}

// view is a tensor as the safetensors writer wants it.
type view struct {
	dtype safetensors.DType
	t     *tensor.Dense
}

func newView(name string, t *tensor.Dense) (view, error) {
	if t == nil {
		return view{}, fmt.Errorf("graph: tensor %s is nil", name)
	}
	if err := rowMajor("tensor "+name, t); err != nil {
		return view{}, err
	}
	i := slices.IndexFunc(elements, func(k element) bool { return k.memory == t.Dtype() })
	if i < 0 {
		return view{}, fmt.Errorf("graph: tensor %s is %v, which safetensors has no name for", name, t.Dtype())
	}
	return view{dtype: elements[i].file, t: t}, nil
}

func (v view) DType() safetensors.DType { return v.dtype }

func (v view) Shape() []uint64 {
	shape := make([]uint64, v.t.Dims())
	for i, d := range v.t.Shape() {
		shape[i] = uint64(d)
	}
	return shape
}

func (v view) DataLen() uint64 { return uint64(len(v.t.Raw)) }

func (v view) Data() []byte {
	if nativeLittle {
		return v.t.Raw
	}
	data := slices.Clone(v.t.Raw)
	littleEndian(data, int(v.t.Dtype().Size()))
	return data
}

var nativeLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// littleEndian turns numbers of the given size between the machine's order of
// bytes and the file's.
func littleEndian(data []byte, size int) {
	if !nativeLittle {
		reverseEach(data, size)
	}
}

// reverseEach reverses the bytes of each number of the given size.
func reverseEach(data []byte, size int) {
	for number := range slices.Chunk(data, size) {
		slices.Reverse(number)
	}
}
