package tests

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program of another module builds with the versions that this module asks
// for, starts (Gorgonia's own requirements panic there), and trains.
func TestConsumer(t *testing.T) {
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "consumer"
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "after a change of this module's requirements run go mod tidy in tests/consumer\n%s", out)
	assert.Regexp(t, `^loss \d\.\d{4} after 1 step, \d\.\d{4} after 10\n$`, string(out))
}
