package graph

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"slices"
	"sort"
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

// ReadState reads a safetensors file: its tensors and its metadata. Only the
// tensors that keep says yes to are read (all where keep is nil), so a few
// layers of a large file cost their own size.
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

// maxHeader is the largest header of the format's own reader, in bytes.
const maxHeader = 100_000_000

func readState(r io.ReaderAt, size int64, keep func(name string) bool) (State, map[string]string, error) {
	header, begin, err := readHeader(r, size)
	if err != nil {
		return nil, nil, err
	}
	entries, err := layout(header, uint64(size-begin))
	if err != nil {
		return nil, nil, err
	}
	state := make(State)
	for _, e := range entries {
		if keep != nil && !keep(e.Name) {
			continue
		}
		t, err := newTensor(e)
		if err != nil {
			return nil, nil, err
		}
		at := io.NewSectionReader(r, begin+int64(e.TensorInfo.DataOffsets[0]), int64(len(t.Raw)))
		if _, err := io.ReadFull(at, t.Raw); err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", e.Name, err)
		}
		littleEndian(t.Raw, int(t.Dtype().Size()))
		state[e.Name] = t
	}
	return state, header.Metadata(), nil
}

// readHeader reads the header and says where the tensors' bytes begin.
func readHeader(r io.ReaderAt, size int64) (header safetensors.Metadata, begin int64, err error) {
	var length [8]byte
	if size < int64(len(length)) {
		return header, 0, fmt.Errorf("no safetensors file: %d bytes, want 8 or more", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return header, 0, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return header, 0, fmt.Errorf("no safetensors file: a header of %d bytes, want at most %d", n, maxHeader)
	}
	begin = 8 + int64(n)
	if begin > size {
		return header, 0, fmt.Errorf("truncated in the header: %d bytes, want %d", size, begin)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return header, 0, err
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return header, 0, fmt.Errorf("no safetensors file: %w", err)
	}
	return header, begin, nil
}

// layout is the header's tensors in the order of their bytes. They must follow
// each other without gaps, fit their shapes, and fill size bytes.
func layout(header safetensors.Metadata, size uint64) ([]safetensors.NamedTensorInfo, error) {
	var entries []safetensors.NamedTensorInfo
	for name, info := range header.Tensors() {
		entries = append(entries, safetensors.NamedTensorInfo{Name: name, TensorInfo: *info})
	}
	sort.Slice(entries, func(i, j int) bool {
		a, b := entries[i], entries[j]
		if c := slices.Compare(a.TensorInfo.DataOffsets[:], b.TensorInfo.DataOffsets[:]); c != 0 {
			return c < 0
		}
		return a.Name < b.Name
	})
	end := uint64(0)
	for _, e := range entries {
		from, to := e.TensorInfo.DataOffsets[0], e.TensorInfo.DataOffsets[1]
		if from != end || to < from {
			return nil, fmt.Errorf("tensor %s lies at bytes %d to %d, want it to begin at %d", e.Name, from, to, end)
		}
		if to > size {
			return nil, fmt.Errorf("truncated in tensor %s, which ends at byte %d of %d", e.Name, to, size)
		}
		if want, ok := byteSize(e.TensorInfo); !ok || want != to-from {
			return nil, fmt.Errorf("tensor %s has %d bytes, which are not %v of %v", e.Name, to-from, e.TensorInfo.Shape, e.TensorInfo.DType)
		}
		end = to
	}
	if end != size {
		return nil, fmt.Errorf("%d bytes follow the last tensor", size-end)
	}
	return entries, nil
}

// byteSize is the size of a tensor, and false where it is past 64 bits.
func byteSize(info safetensors.TensorInfo) (n uint64, ok bool) {
	n, ok = info.DType.Size(), true
	for _, d := range info.Shape {
		hi, lo := bits.Mul64(n, d)
		n, ok = lo, ok && hi == 0
	}
	return n, ok
}

// newTensor is a tensor for e's bytes.
func newTensor(e safetensors.NamedTensorInfo) (*tensor.Dense, error) {
	i := slices.IndexFunc(elements, func(k element) bool { return k.file == e.TensorInfo.DType })
	if i < 0 {
		return nil, fmt.Errorf("tensor %s is %v, which has no counterpart here", e.Name, e.TensorInfo.DType)
	}
	shape := make([]int, len(e.TensorInfo.Shape))
	for i, d := range e.TensorInfo.Shape {
		if d == 0 || d > math.MaxInt {
			return nil, fmt.Errorf("tensor %s has shape %v: a Gorgonia tensor cannot have that", e.Name, e.TensorInfo.Shape)
		}
		shape[i] = int(d)
	}
	return tensor.New(tensor.Of(elements[i].memory), tensor.WithShape(shape...)), nil
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
