package parallel

import (
	"slices"
	"sync"
	"sync/atomic"
)

// helper is a goroutine that helps with one work after the other, and ends when it
// has waited for the next in vain.
type helper struct{ next atomic.Pointer[work] }

// waiting are the helpers that wait.
var waiting struct {
	sync.Mutex
	helpers []*helper
}

// help gives w to a helper: one that waits, or a new one.
func help(w *work) {
	waiting.Lock()
	defer waiting.Unlock()
	last := len(waiting.helpers) - 1
	if last < 0 {
		go new(helper).serve(w)
		return
	}
	waiting.helpers[last].next.Store(w)
	waiting.helpers[last] = nil
	waiting.helpers = waiting.helpers[:last]
}

func (h *helper) serve(w *work) {
	for w != nil {
		w.help()
		w = h.wait()
	}
}

// wait returns the next work, nil if there is none soon.
func (h *helper) wait() *work {
	waiting.Lock()
	waiting.helpers = append(waiting.helpers, h)
	waiting.Unlock()
	within(func() bool { return h.next.Load() != nil })
	waiting.Lock()
	defer waiting.Unlock()
	if w := h.next.Swap(nil); w != nil {
		return w
	}
	i := slices.Index(waiting.helpers, h)
	waiting.helpers = slices.Delete(waiting.helpers, i, i+1)
	return nil
}
