package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
)

// Event marks a place in a stream's queue, to time what lies between two. Close
// it, or the engine.
type Event struct {
	e      *Engine
	handle atomic.Uintptr // 0 once it is closed
}

var errEventClosed = errors.New("cuda: the event is closed")

// open is the driver's event, unless it is closed.
func (v *Event) open() (driver.Event, error) {
	if handle := v.handle.Load(); handle != 0 {
		return driver.Event(handle), nil
	}
	return 0, errEventClosed
}

// destroy frees the driver's event, unless it is closed.
func (v *Event) destroy() error {
	if handle := v.handle.Swap(0); handle != 0 {
		return failed("free an event", v.e.drv.DestroyEvent(driver.Event(handle)))
	}
	return nil
}

// NewEvent makes an event.
func (e *Engine) NewEvent() (*Event, error) {
	v := &Event{e: e}
	err := e.do(func() error {
		handle, err := e.drv.NewEvent()
		if err != nil {
			return failed("create an event", err)
		}
		v.handle.Store(uintptr(handle))
		e.mu.Lock()
		defer e.mu.Unlock()
		e.events[v] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Close frees the event. A second Close does nothing.
func (v *Event) Close() error {
	err := v.e.do(func() error {
		v.e.mu.Lock()
		delete(v.e.events, v)
		v.e.mu.Unlock()
		return v.destroy()
	})
	if errors.Is(err, ErrClosed) {
		return nil // which has closed the event
	}
	return err
}

// Record puts the event behind the work queued so far.
func (s *Stream) Record(v *Event) error {
	return s.with(func() error {
		event, err := v.open()
		if err != nil {
			return err
		}
		return failed("record an event", s.e.drv.Record(event, s.handle))
	})
}

// Since waits for the event and returns the device's time from start, which was
// recorded before it, to it. Its resolution is about half a microsecond.
func (v *Event) Since(start *Event) (time.Duration, error) {
	var d time.Duration
	err := v.e.do(func() error {
		from, err := start.open()
		if err != nil {
			return err
		}
		to, err := v.open()
		if err != nil {
			return err
		}
		d, err = v.e.elapsed(from, to)
		return err
	})
	return d, err
}

func (e *Engine) elapsed(start, end driver.Event) (time.Duration, error) {
	if err := e.drv.SyncEvent(end); err != nil {
		return 0, fmt.Errorf("cuda: %w%s", err, e.hint())
	}
	ms, err := e.drv.Elapsed(start, end)
	return time.Duration(ms * float64(time.Millisecond)), failed("read the time between two events", err)
}

// KernelTime is the time of one kernel of an operator.
type KernelTime struct {
	Launch plan.Launch
	Time   time.Duration
}

// Profile runs an operator with an event around every kernel, waits, and returns
// the kernels' times. Each holds some overhead of its events: the time of a
// whole operator is better taken with two events around Run.
func (s *Stream) Profile(op Operator) ([]KernelTime, error) {
	if op == nil {
		return nil, errNoOperator
	}
	var times []KernelTime
	var events []driver.Event
	err := s.with(func() error {
		defer func() {
			for _, v := range events {
				s.e.drv.DestroyEvent(v)
			}
		}()
		mark := func() error {
			v, err := s.e.drv.NewEvent()
			if err != nil {
				return failed("create an event", err)
			}
			events = append(events, v)
			return failed("record an event", s.e.drv.Record(v, s.handle))
		}
		bytes, err := op.Workspace(s.e.info.Limits)
		if err != nil {
			return err
		}
		if err := s.reserve(bytes); err != nil {
			return err
		}
		err = s.queue(op, s.work, func(l plan.Launch, op Operator, stream driver.Stream) error {
			if len(times) == 0 { // here, or the first time would have that of the plan
				if err := mark(); err != nil {
					return err
				}
			}
			times = append(times, KernelTime{Launch: l})
			return errors.Join(s.e.launch(l, op, stream), mark())
		})
		for i := range times {
			if err == nil {
				times[i].Time, err = s.e.elapsed(events[i], events[i+1])
			}
		}
		return err
	})
	return times, err
}
