// Package parallel splits work over goroutines so that the result does not
// depend on how many there are: the pieces are cut by the shape of the work
// alone, and GOMAXPROCS only decides who takes which.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Blocks calls f(block, lo, hi) for every piece [lo, hi) of [0, n) of the given
// size, 1 or more (the last piece may be shorter), on at most GOMAXPROCS
// goroutines. Pieces run in no set order and concurrently; with one piece, or one
// processor, f runs on the caller's goroutine, in order. The first panic in f
// ends the work and is raised on the caller's goroutine, once no other runs.
func Blocks(n, size int, f func(block, lo, hi int)) {
	if n <= 0 {
		return
	}
	size = min(size, n)
	blocks := (n + size - 1) / size
	call := func(b int) { f(b, b*size, min(n, (b+1)*size)) }
	workers := min(blocks, runtime.GOMAXPROCS(0))
	if workers == 1 {
		for b := range blocks {
			call(b)
		}
		return
	}
	var (
		next   atomic.Int64
		wg     sync.WaitGroup
		caught atomic.Pointer[any]
	)
	work := func() {
		defer func() {
			if p := recover(); p != nil {
				caught.CompareAndSwap(nil, &p)
			}
		}()
		for {
			b := int(next.Add(1)) - 1
			if b >= blocks || caught.Load() != nil {
				return
			}
			call(b)
		}
	}
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if p := caught.Load(); p != nil {
		panic(*p)
	}
}
