package cli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mhc-go/mhc/internal/cli"
)

func TestLongFlags(t *testing.T) {
	in := []string{"verify", "-vm", "tape", "--json", "-o", "f", "-n=4", "-steps=10", "-5", "-1e3", "-", "--", "-file"}
	want := []string{"verify", "--vm", "tape", "--json", "-o", "f", "-n=4", "--steps=10", "-5", "-1e3", "-", "--", "-file"}
	given := append([]string(nil), in...)
	assert.Equal(t, want, cli.LongFlags(in))
	assert.Equal(t, given, in, "the arguments are not changed in place")
	assert.Empty(t, cli.LongFlags(nil))
}
