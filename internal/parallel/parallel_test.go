package parallel

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	caller, during := goroutine(), ""
	Blocks(5, 5, func(_, _, _ int) { during = goroutine() })
	assert.Equal(t, caller, during)
}

// goroutine is the number of the goroutine that calls it.
func goroutine() string {
	var b [64]byte
	return strings.Fields(string(b[:runtime.Stack(b[:], false)]))[1]
}

// Any number of calls at a time have helpers of their own.
func TestCallsAtATime(t *testing.T) {
	withProcs(t, 7)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for n := range 200 {
				var sum atomic.Int64
				Blocks(n, 3, func(_, lo, hi int) {
					for i := lo; i < hi; i++ {
						sum.Add(int64(i))
					}
				})
				assert.EqualValues(t, n*(n-1)/2, sum.Load())
			}
		})
	}
	wg.Wait()
}

// Helpers that nobody needs end, and a helper that comes late finds the work done.
func TestHelpersEnd(t *testing.T) {
	withProcs(t, 4)
	Blocks(100, 1, func(_, _, _ int) { time.Sleep(10 * time.Microsecond) })
	assert.Eventually(t, func() bool {
		waiting.Lock()
		defer waiting.Unlock()
		return len(waiting.helpers) == 0
	}, 5*time.Second, time.Millisecond)

	w := &work{n: 1, size: 1, blocks: 1, f: func(_, _, _ int) { t.Error("ran") }, left: make(chan struct{}, 1)}
	w.end()
	w.help()
	assert.EqualValues(t, ended, w.helpers.Load())
}

// A caller that has waited long sleeps until its last helper has left.
func TestSlowHelper(t *testing.T) {
	withProcs(t, 2)
	var slow atomic.Bool
	caller, started := goroutine(), make(chan struct{})
	Blocks(2, 1, func(_, _, _ int) {
		if goroutine() == caller {
			<-started
			return
		}
		close(started)
		time.Sleep(20 * linger)
		slow.Store(true)
	})
	assert.True(t, slow.Load())
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
