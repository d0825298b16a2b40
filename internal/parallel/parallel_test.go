package parallel

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// withProcs sets GOMAXPROCS for the rest of the test.
func withProcs(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

type piece struct{ block, lo, hi int }

func pieces(n, size int) []piece {
	var (
		mu  sync.Mutex
		got []piece
	)
	Blocks(n, size, func(block, lo, hi int) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, piece{block, lo, hi})
	})
	slices.SortFunc(got, func(a, b piece) int { return a.block - b.block })
	return got
}

func TestBlocks(t *testing.T) {
	for _, procs := range []int{1, 2, 7} {
		withProcs(t, procs)
		assert.Empty(t, pieces(0, 3))
		assert.Empty(t, pieces(-1, 3))
		assert.Equal(t, []piece{{0, 0, 1}}, pieces(1, 3))
		assert.Equal(t, []piece{{0, 0, 3}}, pieces(3, 3))
		assert.Equal(t, []piece{{0, 0, 3}, {1, 3, 6}, {2, 6, 7}}, pieces(7, 3))
		assert.Equal(t, []piece{{0, 0, 7}}, pieces(7, math.MaxInt))
	}
}

func TestBlocksCoverEveryIndexOnce(t *testing.T) {
	withProcs(t, 7)
	rapid.Check(t, func(t *rapid.T) {
		n, size := rapid.IntRange(0, 500).Draw(t, "n"), rapid.IntRange(1, 60).Draw(t, "size")
		seen := make([]atomic.Int32, n)
		Blocks(n, size, func(block, lo, hi int) {
			if lo != block*size {
				t.Errorf("block %d begins at %d, want %d", block, lo, block*size)
			}
			for i := lo; i < hi; i++ {
				seen[i].Add(1)
			}
		})
		for i := range seen {
			if got := seen[i].Load(); got != 1 {
				t.Errorf("index %d was visited %d times", i, got)
			}
		}
	})
}

func TestOnePieceRunsOnTheCaller(t *testing.T) {
	withProcs(t, 4)
	before := runtime.NumGoroutine()
	during := 0
	Blocks(5, 5, func(_, _, _ int) { during = runtime.NumGoroutine() })
	assert.Equal(t, before, during)
}

func TestPanicReachesTheCaller(t *testing.T) {
	boom := errors.New("boom")
	fail := func(block, _, _ int) {
		if block == 3 {
			panic(boom)
		}
	}
	for _, procs := range []int{1, 4} {
		withProcs(t, procs)
		assert.PanicsWithValue(t, boom, func() { Blocks(1000, 1, fail) }, "%d processors", procs)
		assert.PanicsWithValue(t, boom, func() { Blocks(4, 1, fail) }, "%d processors, the last block", procs)
		assert.NotPanics(t, func() { Blocks(3, 1, fail) })
	}
}

func TestPanicEndsTheWork(t *testing.T) {
	withProcs(t, 1)
	last := 0
	assert.Panics(t, func() {
		Blocks(1000, 1, func(block, _, _ int) {
			last = block
			if block == 3 {
				panic("stop")
			}
		})
	})
	assert.Equal(t, 3, last)
}

func TestNoGoroutineOutlivesAPanic(t *testing.T) {
	withProcs(t, 4)
	var running atomic.Int32
	assert.Panics(t, func() {
		Blocks(64, 1, func(block, _, _ int) {
			running.Add(1)
			defer running.Add(-1)
			if block == 1 {
				panic("stop")
			}
			runtime.Gosched()
		})
	})
	assert.Zero(t, running.Load())
}
