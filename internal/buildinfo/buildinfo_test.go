package buildinfo_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mhc-go/mhc/internal/buildinfo"
)

// A test binary has neither its commit nor its modules recorded.
func TestRead(t *testing.T) {
	b := buildinfo.Read()
	assert.NotEmpty(t, b.Version)
	assert.Equal(t, buildinfo.Unknown, b.Commit)
	assert.Empty(t, b.Time)
	assert.False(t, b.Modified)
	assert.NotNil(t, b.Modules)
}
