//go:build !linux

package matmul

import (
	"slices"
	"testing"

	"github.com/mhc-go/mhc/dtype"
)

// ending copies numbers. On Linux the copy is in memory that ends with them.
func ending[A dtype.Storage](_ *testing.T, s []A) []A { return slices.Clone(s) }
