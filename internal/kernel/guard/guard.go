// Package guard puts a test's slices into memory that shows whether a kernel
// wrote outside of them.
package guard

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
)

// margin is the number of guards on each side, more than any vector has lanes.
const margin = 40

// Memory is a slice between guards, NaNs that also spoil every result that they
// get into.
type Memory[T dtype.Float] struct {
	Data          []T
	whole, before []T
}

// Place copies data between guards, offset numbers away from where memory is
// aligned.
func Place[T dtype.Float](data []T, offset int) *Memory[T] {
	m := &Memory[T]{whole: make([]T, margin+offset+len(data)+margin)}
	for i := range m.whole {
		m.whole[i] = T(math.NaN())
	}
	m.Data = m.whole[margin+offset:][:len(data):len(data)]
	copy(m.Data, data)
	m.before = append([]T(nil), m.whole...)
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
	for i, v := range m.whole {
		same := math.Float64bits(float64(v)) == math.Float64bits(float64(m.before[i]))
		require.True(t, same, "number %d of %d is %v, was %v", i-(len(m.whole)-margin-len(m.Data)), len(m.Data), v, m.before[i])
	}
}
