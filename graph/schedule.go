package graph

import (
	"fmt"
	"math"
)

// Schedule is the learning rate of a step, counted from 0.
type Schedule func(step int) float64

// Constant rises over the first warmup steps in equal parts to rate, and stays
// there. The first step already has rate/warmup, so none is wasted on 0.
func Constant(rate float64, warmup int) Schedule {
	return func(step int) float64 {
		if step < warmup {
			return rate * float64(step+1) / float64(warmup)
		}
		return rate
	}
}

// Cosine rises like [Constant] to peak, then falls along half a cosine to floor,
// which it reaches at step total-1 and keeps.
func Cosine(peak, floor float64, warmup, total int) Schedule {
	rise := Constant(peak, warmup)
	return func(step int) float64 {
		switch {
		case step < warmup:
			return rise(step)
		case step >= total-1:
			return floor
		}
		done := float64(step-warmup) / float64(total-1-warmup)
		return floor + (peak-floor)*(1+math.Cos(math.Pi*done))/2
	}
}

// checkRate returns an error unless rate is a learning rate.
func checkRate(rate float64) error {
	if !(rate >= 0) || math.IsInf(rate, 1) {
		return fmt.Errorf("the learning rate is %v, want a finite number of 0 or more", rate)
	}
	return nil
}
