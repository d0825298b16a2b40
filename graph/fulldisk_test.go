//go:build linux

package graph

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"gorgonia.org/tensor"
)

// The same on a file system that really is full.
func TestWriteStateOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("mhc", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small tmpfs: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, 0)) })
	path := filepath.Join(dir, "state.safetensors")
	require.NoError(t, WriteState(path, State{"x": tensor.New(tensor.WithBacking(make([]float32, 100)))}, nil))
	old := read(t, path)
	err := WriteState(path, State{"x": tensor.New(tensor.WithBacking(make([]float32, 100_000)))}, nil)
	assert.ErrorIs(t, err, unix.ENOSPC)
	assert.Equal(t, old, read(t, path))
	assert.Equal(t, []string{"state.safetensors"}, list(t, dir))
}
