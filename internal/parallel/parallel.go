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
	workers := min(blocks, runtime.GOMAXPROCS(0))
	if workers == 1 {
		for b := range blocks {
			f(b, b*size, min(n, (b+1)*size))
		}
		return
	}
	w := &work{n: n, size: size, blocks: blocks, f: f}
	w.wg.Add(workers)
	for range workers - 1 {
		go w.run()
	}
	w.run()
	w.wg.Wait()
	if p := w.caught.Load(); p != nil {
		panic(*p)
	}
}

// work is what the goroutines of one call share.
type work struct {
	n, size, blocks int
	f               func(block, lo, hi int)
	next            atomic.Int64
	wg              sync.WaitGroup
	caught          atomic.Pointer[any]
}

// run takes pieces until there are none.
func (w *work) run() {
	defer w.wg.Done()
	defer func() {
		if p := recover(); p != nil {
			w.caught.CompareAndSwap(nil, &p)
		}
	}()
	for {
		b := int(w.next.Add(1)) - 1
		if b >= w.blocks || w.caught.Load() != nil {
			return
		}
		w.f(b, b*w.size, min(w.n, (b+1)*w.size))
	}
}
