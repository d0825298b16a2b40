package bench

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/internal/cupti"
)

// kernelPrefix begins the names of this project's kernels.
const kernelPrefix = "mhc_"

// profiler is the machine's CUPTI, tried once. It cannot trace where another
// profiler already does.
var profiler = sync.OnceValues(func() (*cupti.Profiler, error) {
	p, err := cupti.Open()
	if err == nil {
		_, err = p.Trace(func() error { return nil })
	}
	return p, err
})

// kernels sets the number of launches of a run and the sum of its kernels' times.
func (r *resident) kernels(row *Result, run []cuda.Operator, rounds int) error {
	names, err := r.launches(run)
	if err != nil {
		return err
	}
	row.Launches = len(names)
	if p, without := profiler(); without != nil {
		row.KernelsBy = "events"
		row.Kernels, err = r.betweenEvents(run)
	} else {
		row.KernelsBy = "cupti"
		row.Kernels, err = r.traced(p, names, run, rounds)
	}
	return err
}

// launches are the names of the kernels of a run, as planned.
func (r *resident) launches(run []cuda.Operator) (names []string, err error) {
	for _, o := range run {
		list, err := o.Launches(r.engine.Info().Limits, r.flush.Ptr()) // any scratch memory, since nothing is launched
		if err != nil {
			return nil, err
		}
		for _, l := range list {
			names = append(names, l.Name)
		}
	}
	return names, nil
}

// traced is the sum of the kernels' times in microseconds: the median over the
// rounds of the median run. Every launch must have left its record.
func (r *resident) traced(p *cupti.Profiler, names []string, run []cuda.Operator, rounds int) (float64, error) {
	medians := make([]float64, rounds)
	for round := range medians {
		kernels, err := p.Trace(func() error {
			var err error
			for i := 0; i < warmUps+measurements && err == nil; i++ {
				err = errors.Join(r.cold(), r.run(run))
			}
			return errors.Join(err, r.stream.Synchronize())
		})
		if err != nil {
			return 0, err
		}
		sums, err := cupti.Runs(kernels, kernelPrefix, names, warmUps+measurements)
		if err != nil {
			return 0, err
		}
		times := make([]float64, measurements)
		for i, sum := range sums[warmUps:] {
			times[i] = microseconds(sum)
		}
		medians[round] = median(times)
	}
	return median(medians), nil
}

// betweenEvents adds up the kernels' times in microseconds, each measured between
// events of its own: of each the median of some runs with a cold cache.
func (r *resident) betweenEvents(run []cuda.Operator) (total float64, err error) {
	for _, o := range run {
		var kernels [][]float64
		for range 10 {
			if err := r.cold(); err != nil {
				return 0, err
			}
			times, err := r.stream.Profile(o)
			if err != nil {
				return 0, err
			}
			kernels = slices.Grow(kernels, len(times))[:len(times)]
			for i, t := range times {
				kernels[i] = append(kernels[i], float64(t.Time)/float64(time.Microsecond))
			}
		}
		for _, times := range kernels {
			total += median(times)
		}
	}
	return total, nil
}
