package graph

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
)

// everyDtype is a tensor of each dtype, with shapes of 0 to 3 dimensions.
func everyDtype() State {
	return State{
		"f32":    tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, -2, 3.5, float32(math.Inf(1)), 0, 1e-30})),
		"f64":    tensor.New(tensor.WithShape(1, 1, 2), tensor.WithBacking([]float64{math.Pi, -1e300})),
		"bf16":   tensor.New(tensor.WithShape(3), tensor.WithBacking([]dtype.BFloat16{0x3f80, 0xc000, 0x7f80})),
		"f16":    tensor.New(tensor.WithShape(3), tensor.WithBacking([]dtype.Float16{0x3c00, 0xc000, 0x7c00})),
		"i64":    tensor.New(tensor.WithShape(2), tensor.WithBacking([]int64{math.MinInt64, 7})),
		"i32":    tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{math.MinInt32, 7})),
		"i16":    tensor.New(tensor.WithShape(2), tensor.WithBacking([]int16{math.MinInt16, 7})),
		"i8":     tensor.New(tensor.WithShape(2), tensor.WithBacking([]int8{math.MinInt8, 7})),
		"u64":    tensor.New(tensor.WithShape(2), tensor.WithBacking([]uint64{math.MaxUint64, 7})),
		"u32":    tensor.New(tensor.WithShape(2), tensor.WithBacking([]uint32{math.MaxUint32, 7})),
		"u16":    tensor.New(tensor.WithShape(2), tensor.WithBacking([]uint16{math.MaxUint16, 7})),
		"u8":     tensor.New(tensor.WithShape(2), tensor.WithBacking([]uint8{math.MaxUint8, 7})),
		"bool":   tensor.New(tensor.WithShape(2), tensor.WithBacking([]bool{true, false})),
		"scalar": tensor.New(tensor.FromScalar(float32(2.5))),
	}
}

func assertSameState(t *testing.T, want, got State) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for name, w := range want {
		assert.Equal(t, w.Dtype(), got[name].Dtype(), name)
		assert.True(t, slices.Equal(w.Shape(), got[name].Shape()), "%s: %v, want %v", name, got[name].Shape(), w.Shape())
		assert.True(t, bytes.Equal(w.Raw, got[name].Raw), "the numbers of %s", name)
	}
}

func TestStateRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.safetensors")
	want, metadata := everyDtype(), map[string]string{"a": "1", "b": "", "ü": "\"\n"}
	require.NoError(t, WriteState(path, want, metadata))
	got, gotMetadata, err := ReadState(path, nil)
	require.NoError(t, err)
	assertSameState(t, want, got)
	assert.Equal(t, metadata, gotMetadata)

	some, _, err := ReadState(path, func(name string) bool { return name == "bf16" || name == "i8" })
	require.NoError(t, err)
	assertSameState(t, State{"bf16": want["bf16"], "i8": want["i8"]}, some)

	// The same state gives the same file, and an empty one a file too.
	again := filepath.Join(t.TempDir(), "again.safetensors")
	require.NoError(t, WriteState(again, everyDtype(), metadata))
	assert.Equal(t, read(t, path), read(t, again))
	require.NoError(t, WriteState(again, nil, nil))
	got, _, err = ReadState(again, nil)
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestReverseEach(t *testing.T) {
	data := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	reverseEach(data, 4)
	assert.Equal(t, []byte{4, 3, 2, 1, 8, 7, 6, 5}, data)
	reverseEach(data, 1)
	assert.Equal(t, []byte{4, 3, 2, 1, 8, 7, 6, 5}, data)
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func TestWriteStateRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.safetensors")
	require.NoError(t, WriteState(path, everyDtype(), nil))
	old := read(t, path)
	turned := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(make([]float32, 6)))
	require.NoError(t, turned.T())
	for _, c := range []struct {
		name string
		t    *tensor.Dense
		want string
	}{
		{"__metadata__", everyDtype()["f32"], "cannot be named"},
		{"\xff", everyDtype()["f32"], "cannot be named"},
		{"gone", nil, "tensor gone is nil"},
		{"turned", turned, "tensor turned is not contiguous in row-major order"},
		{"complex", tensor.New(tensor.WithBacking([]complex128{1})), "tensor complex is complex128, which safetensors has no name for"},
	} {
		assert.ErrorContains(t, WriteState(path, State{c.name: c.t}, nil), c.want)
	}
	assert.ErrorIs(t, WriteState(filepath.Join(dir, "no", "such"), nil, nil), os.ErrNotExist)
	assert.Equal(t, old, read(t, path))
	assert.Equal(t, []string{"state.safetensors"}, list(t, dir))
}

func list(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A file cut off anywhere is refused; the error names the tensor once the header
// is whole.
func TestReadStateTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.safetensors")
	require.NoError(t, WriteState(path, everyDtype(), nil))
	data := read(t, path)
	header := 8 + int(binary.LittleEndian.Uint64(data))
	for n := range data {
		_, _, err := readState(bytes.NewReader(data[:n]), int64(n), nil)
		switch {
		case n < 8:
			assert.ErrorContains(t, err, "no safetensors file", "%d bytes", n)
		case n < header:
			assert.ErrorContains(t, err, "truncated in the header", "%d bytes", n)
		default:
			assert.Regexp(t, "truncated in tensor (f32|f64|bf16|f16|[iu](64|32|16|8)|bool|scalar),", err.Error(), "%d bytes", n)
		}
	}
}

// file is a safetensors file of a header and so many zeros.
func file(header string, size int) []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(data, header...), make([]byte, size)...)
}

func TestReadStateRefuses(t *testing.T) {
	const entry = `"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}`
	one := func(dt, shape, offsets string) string { return "{" + fmt.Sprintf(entry, "x", dt, shape, offsets) + "}" }
	two := func(a, b string) string {
		return "{" + fmt.Sprintf(entry, "x", "F32", "[1]", a) + "," + fmt.Sprintf(entry, "y", "F32", "[1]", b) + "}"
	}
	for _, c := range []struct {
		want string
		data []byte
	}{
		{"no safetensors file: 0 bytes", nil},
		{"no safetensors file: a header of 9187201950435737471 bytes", bytes.Repeat([]byte{0x7f}, 100)},
		{"truncated in the header: 9 bytes, want 10", append(binary.LittleEndian.AppendUint64(nil, 2), '{')},
		{"no safetensors file", file("PK\x03\x04 and so on", 0)},
		{"no safetensors file", file(`["x"]`, 0)},
		{"no safetensors file", file(`{"x":null}`, 0)},
		{"tensor x is F99, which has no counterpart here", file(one("F99", "[1]", "[0,4]"), 4)},
		{"no safetensors file: tensor x is {}, want a dtype, a shape and two data_offsets", file(`{"x":{}}`, 0)},
		{"want a dtype, a shape and two data_offsets", file(one("F32", "[1]", "[4]"), 4)},
		{"no safetensors file", file(`{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4)},
		{"no safetensors file", file(`{"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`, 4)},
		{"no safetensors file", file(`{"__metadata__":{"a":1}}`, 0)},
		{"tensor x lies at bytes 4 to 8, want it to begin at 0", file(one("F32", "[1]", "[4,8]"), 8)},
		{"tensor y lies at bytes 0 to 4, want it to begin at 4", file(two("[0,4]", "[0,4]"), 8)},
		{"tensor y lies at bytes 8 to 12, want it to begin at 4", file(two("[0,4]", "[8,12]"), 12)},
		{"tensor x has 4 bytes, which are not [2] of F32", file(one("F32", "[2]", "[0,4]"), 4)},
		{"tensor x has 0 bytes, which are not [4294967296 4294967296 4294967296] of F32", file(one("F32", "[4294967296,4294967296,4294967296]", "[0,0]"), 0)},
		{"truncated in tensor x, which ends at byte 18446744073709551615 of 4", file(one("F32", "[1]", "[0,18446744073709551615]"), 4)},
		{"1 bytes follow the last tensor", file(one("F32", "[1]", "[0,4]"), 5)},
		{"tensor x has shape [0 18446744073709551615]: a Gorgonia tensor cannot have that", file(one("F32", "[0,18446744073709551615]", "[0,0]"), 0)},
	} {
		_, _, err := readState(bytes.NewReader(c.data), int64(len(c.data)), nil)
		assert.ErrorContains(t, err, c.want)
	}
	_, _, err := ReadState(filepath.Join(t.TempDir(), "gone"), nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = ReadState(t.TempDir(), nil)
	assert.Error(t, err)
}

// A file with a tensor of a dtype unknown here gives its others.
func TestReadStateBesideUnknownDtypes(t *testing.T) {
	data := file(`{"w":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},"base":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}}`, 11)
	copy(data[len(data)-4:], []byte{0, 0, 0x80, 0x3f})
	state, _, err := readState(bytes.NewReader(data), int64(len(data)), func(name string) bool { return name == "base" })
	require.NoError(t, err)
	assertSameState(t, State{"base": tensor.New(tensor.WithBacking([]float32{0, 1}))}, state)
	_, _, err = readState(bytes.NewReader(data), int64(len(data)), nil)
	assert.EqualError(t, err, "tensor w is F8_E4M3, which has no counterpart here")
}

// Whatever the bytes, there is an error or a state whose file is the same again.
func FuzzReadState(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.safetensors")
	require.NoError(f, WriteState(path, everyDtype(), map[string]string{"a": "b"}))
	f.Add(read(f, path))
	f.Add(file(`{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, 0))
	f.Add(file(`{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,18446744073709551615]}}`, 4))
	f.Fuzz(func(t *testing.T, data []byte) {
		state, metadata, err := readState(bytes.NewReader(data), int64(len(data)), nil)
		if err != nil {
			return
		}
		again := filepath.Join(t.TempDir(), "again")
		require.NoError(t, WriteState(again, state, metadata))
		got, gotMetadata, err := ReadState(again, nil)
		require.NoError(t, err)
		assertSameState(t, state, got)
		assert.Equal(t, len(metadata), len(gotMetadata))
	})
}

// A full disk, at whatever byte, leaves the old file and nothing beside it.
func TestReplaceFileSurvivesAFullDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
	full := errors.New("no space left")
	for _, n := range []int{0, 1, 5000, 2 << 20} {
		err := replaceFile(path, func(w io.Writer) error {
			if _, err := w.Write(make([]byte, n)); err != nil {
				return err
			}
			return full
		})
		assert.ErrorIs(t, err, full)
		assert.ErrorContains(t, err, path+" is not written")
		assert.Equal(t, "old", string(read(t, path)))
		assert.Equal(t, []string{"file"}, list(t, dir))
	}
	// A program that was killed while writing left its file; the next one replaces it.
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".file.partial"), make([]byte, 100), 0o644))
	require.NoError(t, replaceFile(path, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }))
	assert.Equal(t, "new", string(read(t, path)))
	assert.Equal(t, []string{"file"}, list(t, dir))
	// A path that cannot be replaced.
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "folder", "full"), 0o755))
	assert.Error(t, replaceFile(filepath.Join(dir, "folder"), func(io.Writer) error { return nil }))
	assert.Equal(t, []string{"file", "folder"}, list(t, dir))
}
