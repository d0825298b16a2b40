package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
)

// Event marks a place in a stream's queue, to time what lies between two.
type Event struct {
	e      *Engine
	handle driver.Event
	closed atomic.Bool
}

// NewEvent makes an event.
func (e *Engine) NewEvent() (*Event, error) {
	v := &Event{e: e}
	err := e.do(func() (err error) {
		v.handle, err = e.drv.NewEvent()
		return err
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Close frees the event. A second Close does nothing.
func (v *Event) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	err := v.e.do(func() error { return v.e.drv.DestroyEvent(v.handle) })
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// Record puts the event behind the work queued so far.
func (s *Stream) Record(v *Event) error {
	return s.with(func() error { return s.e.drv.Record(v.handle, s.handle) })
}

// Since waits for the event and returns the device's time from start, which was
// recorded before it, to it. Its resolution is about half a microsecond.
func (v *Event) Since(start *Event) (time.Duration, error) {
	var d time.Duration
	err := v.e.do(func() (err error) {
		d, err = v.e.elapsed(start.handle, v.handle)
		return err
	})
	return d, err
}

func (e *Engine) elapsed(start, end driver.Event) (time.Duration, error) {
	if err := e.drv.SyncEvent(end); err != nil {
		return 0, fmt.Errorf("cuda: %w%s", err, e.hint())
	}
	ms, err := e.drv.Elapsed(start, end)
	return time.Duration(ms * float64(time.Millisecond)), err
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
				return err
			}
			events = append(events, v)
			return s.e.drv.Record(v, s.handle)
		}
		bytes, err := op.Workspace(s.e.info.Limits)
		if err != nil {
			return err
		}
		if err := s.reserve(bytes); err != nil {
			return err
		}
		if err := mark(); err != nil {
			return err
		}
		err = s.queue(op, s.work, func(l plan.Launch, op Operator, stream driver.Stream) error {
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
