package graph

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
)

// header is what a safetensors file begins with. It is read here and not by
// package safetensors, which refuses a file with any tensor of a dtype that it
// does not know: those of large models have some of 8 bits and fewer beside the
// ones that are wanted.
type header struct {
	tensors  []entry // in the order of their bytes
	metadata map[string]string
	begin    int64 // where the tensors' bytes begin
}

// entry is a tensor of a header.
type entry struct {
	name    string
	DType   string   `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"` // from and to, in bytes
}

// maxHeader is the largest header of the format's own reader, in bytes.
const maxHeader = 100_000_000

// readHeader reads and checks the header of a file of size bytes.
func readHeader(r io.ReaderAt, size int64) (*header, error) {
	var length [8]byte
	if size < int64(len(length)) {
		return nil, fmt.Errorf("no safetensors file: %d bytes, want 8 or more", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("no safetensors file: a header of %d bytes, want at most %d", n, maxHeader)
	}
	h := &header{begin: 8 + int64(n)}
	if h.begin > size {
		return nil, fmt.Errorf("truncated in the header: %d bytes, want %d", size, h.begin)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, err
	}
	if err := h.parse(text); err != nil {
		return nil, fmt.Errorf("no safetensors file: %w", err)
	}
	return h, h.checkLayout(uint64(size - h.begin))
}

func (h *header) parse(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for name, value := range all {
		if name == "__metadata__" {
			if err := json.Unmarshal(value, &h.metadata); err != nil {
				return fmt.Errorf("metadata: %w", err)
			}
			continue
		}
		e := entry{name: name}
		if err := json.Unmarshal(value, &e); err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
		if e.DType == "" || e.Shape == nil || len(e.Offsets) != 2 {
			return fmt.Errorf("tensor %s is %s, want a dtype, a shape and two data_offsets", name, value)
		}
		h.tensors = append(h.tensors, e)
	}
	slices.SortFunc(h.tensors, func(a, b entry) int {
		if c := slices.Compare(a.Offsets, b.Offsets); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return nil
}

// checkLayout returns an error unless the tensors follow each other without gaps,
// fit their shapes, and fill size bytes.
func (h *header) checkLayout(size uint64) error {
	end := uint64(0)
	for _, e := range h.tensors {
		from, to := e.Offsets[0], e.Offsets[1]
		if from != end || to < from {
			return fmt.Errorf("tensor %s lies at bytes %d to %d, want it to begin at %d", e.name, from, to, end)
		}
		if to > size {
			return fmt.Errorf("truncated in tensor %s, which ends at byte %d of %d", e.name, to, size)
		}
		if !e.fits(to - from) {
			return fmt.Errorf("tensor %s has %d bytes, which are not %v of %v", e.name, to-from, e.Shape, e.DType)
		}
		end = to
	}
	if end != size {
		return fmt.Errorf("%d bytes follow the last tensor", size-end)
	}
	return nil
}

// fits says whether a tensor of e's shape has so many bytes, as far as its dtype
// is known.
func (e entry) fits(size uint64) bool {
	k := elementNamed(e.DType)
	if k == nil {
		return true
	}
	n := k.file.Size()
	for _, d := range e.Shape {
		hi, lo := bits.Mul64(n, d)
		if hi != 0 {
			return false
		}
		n = lo
	}
	return n == size
}
