// Package parallel splits work over goroutines so that the result does not
// depend on how many there are: the pieces are cut by the shape of the work
// alone, and GOMAXPROCS only decides who takes which.
package parallel

import (
	"runtime"
	"sync/atomic"
	"time"
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
	w := &work{n: n, size: size, blocks: blocks, f: f, left: make(chan struct{}, 1)}
	for range workers - 1 {
		help(w)
	}
	w.run()
	w.end()
	if p := w.caught.Load(); p != nil {
		panic(*p)
	}
}

// linger is how long a goroutine watches for what it waits for before it sleeps:
// as long as a processor that has gone to sleep may take to wake. A call of an
// operator has several parts, and their ends are a few microseconds apart.
const linger = 100 * time.Microsecond

// within watches until ready is true, at most as long as linger.
func within(ready func() bool) bool {
	for start := time.Now(); !ready(); runtime.Gosched() {
		if time.Since(start) > linger {
			return false
		}
	}
	return true
}

// work is what the goroutines of one call share.
type work struct {
	n, size, blocks int
	f               func(block, lo, hi int)
	next            atomic.Int64
	caught          atomic.Pointer[any]
	// helpers is the number of helpers at work, and ended once the caller lets no
	// more in; who then is the last to leave says so to left.
	helpers atomic.Int64
	left    chan struct{}
}

const ended = 1 << 32

// run takes pieces until there are none.
func (w *work) run() {
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

// end returns when no helper is at work, nor will be.
func (w *work) end() {
	within(func() bool { return w.helpers.Load() == 0 })
	if w.helpers.Add(ended) != ended {
		<-w.left
	}
}

// help runs pieces unless the work has ended.
func (w *work) help() {
	for {
		n := w.helpers.Load()
		if n >= ended {
			return
		}
		if w.helpers.CompareAndSwap(n, n+1) {
			break
		}
	}
	w.run()
	if w.helpers.Add(-1) == ended {
		w.left <- struct{}{}
	}
}
