package plan

import "sync"

// memoLength bounds the shapes that a memo holds. A program runs few shapes, over and over.
const memoLength = 1024

// memo holds the splits found for the shapes seen: the search takes a microsecond or more, and a call asks for a split two
// or three times. Any goroutine may use it.
type memo[T any] struct {
	mu    sync.RWMutex
	found map[memoKey]T
}

type memoKey struct {
	shape mixShape
	lim   Limits
}

// get returns what search found for the shape and the limits, and calls it where it has not.
func (m *memo[T]) get(s mixShape, lim Limits, search func(mixShape, Limits) T) T {
	key := memoKey{s, lim}
	m.mu.RLock()
	v, ok := m.found[key]
	m.mu.RUnlock()
	if ok {
		return v
	}
	v = search(s, lim)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found == nil || len(m.found) >= memoLength {
		m.found = map[memoKey]T{}
	}
	m.found[key] = v
	return v
}

var (
	forwardSplits  memo[forwardSplit]
	backwardSplits memo[backwardSplit]
)

func (s mixShape) forward(lim Limits) forwardSplit {
	return forwardSplits.get(s, lim, mixShape.searchForward)
}

func (s mixShape) backward(lim Limits) backwardSplit {
	return backwardSplits.get(s, lim, mixShape.searchBackward)
}
