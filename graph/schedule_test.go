package graph

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSchedules(t *testing.T) {
	constant := Constant(0.4, 4)
	for step, want := range []float64{0.1, 0.2, 0.3, 0.4, 0.4, 0.4} {
		assert.InDelta(t, want, constant(step), 1e-15, "step %d", step)
	}
	assert.Equal(t, 0.4, Constant(0.4, 0)(0))

	// Two steps of warm-up, then half a cosine over steps 2 to 6.
	cosine := Cosine(1, 0.2, 2, 7)
	for step, want := range []float64{0.5, 1, 1, 0.6 + 0.4*math.Sqrt2/2, 0.6, 0.6 - 0.4*math.Sqrt2/2, 0.2, 0.2, 0.2} {
		assert.InDelta(t, want, cosine(step), 1e-15, "step %d", step)
	}
	// Nothing between warm-up and end.
	assert.Equal(t, 0.2, Cosine(1, 0.2, 3, 4)(3))
	assert.Equal(t, 1.0, Cosine(1, 0.2, 3, 4)(2))
	assert.Equal(t, 0.2, Cosine(1, 0.2, 0, 1)(0))
}
