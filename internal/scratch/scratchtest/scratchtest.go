// Package scratchtest checks that calls allocate nothing that grows with their
// operands.
package scratchtest

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// limit is what a call may allocate, in bytes: goroutines, closures, lists of
// arguments.
const limit = 4 << 10

// RequireSteady fails t if f, once it has run a few times, allocates more than a
// call costs whatever its operands are.
func RequireSteady(t testing.TB, f func()) {
	t.Helper()
	if race {
		t.Skip("under the race detector, sync.Pool drops what it is given at random")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := uint64(math.MaxUint64)
	for range 12 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	require.LessOrEqual(t, least, uint64(limit), "bytes allocated by a call")
}
