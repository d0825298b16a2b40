// Package guard puts a test's slices into memory that shows whether a kernel
// wrote outside of them.
package guard

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
)

// margin is the number of guards on each side, more than any vector has lanes.
const margin = 40

// Memory is a slice between guards, NaNs that also spoil every result that they
// get into.
type Memory[T dtype.Storage] struct {
	Data          []T
	whole, before []T
}

// Place copies data between guards, offset numbers away from where memory is
// aligned.
func Place[T dtype.Storage](data []T, offset int) *Memory[T] {
	m := &Memory[T]{whole: make([]T, margin+offset+len(data)+margin)}
	dtype.Narrow(m.whole, slices.Repeat([]float64{math.NaN()}, len(m.whole)))
	m.Data = m.whole[margin+offset:][:len(data):len(data)]
	copy(m.Data, data)
	m.before = slices.Clone(m.whole)
	return m
}

// RequireIntact fails t if a guard has changed.
func (m *Memory[T]) RequireIntact(t testing.TB) {
	t.Helper()
	copy(m.before[len(m.whole)-margin-len(m.Data):], m.Data)
	m.RequireUnchanged(t)
}

// RequireUnchanged fails t if a guard or the data have changed.
func (m *Memory[T]) RequireUnchanged(t testing.TB) {
	t.Helper()
	now, before := bits(m.whole), bits(m.before)
	for i, b := range now {
		require.True(t, b == before[i], "number %d of %d is %v, was %v", i-(len(m.whole)-margin-len(m.Data)), len(m.Data), m.whole[i], m.before[i])
	}
}

// bits are those of the numbers, widened.
func bits[T dtype.Storage](s []T) []uint64 {
	wide, b := make([]float64, len(s)), make([]uint64, len(s))
	dtype.Widen(wide, s)
	for i, v := range wide {
		b[i] = math.Float64bits(v)
	}
	return b
}
