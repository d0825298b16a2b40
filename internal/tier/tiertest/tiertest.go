// Package tiertest runs a test or a benchmark once a tier.
package tiertest

import (
	"testing"

	"github.com/mhc-go/mhc/internal/tier"
)

// Each runs f as a subtest, or sub-benchmark, of t for every tier that this CPU
// has, with [tier.Active] set to it. Neither t nor f's argument may be parallel. It
// fails where [tier.Variable] demands a tier that is not there.
func Each[T interface {
	testing.TB
	Run(name string, f func(T)) bool
}](t T, f func(T)) {
	t.Helper()
	if err := tier.Refused(); err != nil {
		t.Fatal(err)
	}
	before := tier.Active
	defer func() { tier.Active = before }()
	for level := tier.Go; level <= tier.Available(); level++ {
		tier.Active = level
		t.Run(level.String(), f)
	}
}
