package tier

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		want string
		have Tier
		get  Tier
		err  string
	}{
		{"", Go, Go, ""},
		{"", AVX2, AVX2, ""},
		{"", AVX512, AVX512, ""},
		{"go", Go, Go, ""},
		{"go", AVX512, Go, ""},
		{"avx2", AVX2, AVX2, ""},
		{"avx2", AVX512, AVX2, ""},
		{"avx512", AVX512, AVX512, ""},
		{"avx2", Go, Go, `MHC_CPU is "avx2", which this CPU or build lacks; using go`},
		{"avx512", AVX2, AVX2, `MHC_CPU is "avx512", which this CPU or build lacks; using avx2`},
		{"AVX2", AVX512, AVX512, `MHC_CPU is "AVX2", want go, avx2 or avx512; using avx512`},
		{"sse", Go, Go, `MHC_CPU is "sse", want go, avx2 or avx512; using go`},
	} {
		get, err := choose(c.want, c.have)
		assert.Equal(t, c.get, get, "%q on %v", c.want, c.have)
		if c.err == "" {
			assert.NoError(t, err, "%q on %v", c.want, c.have)
		} else {
			assert.EqualError(t, err, c.err)
		}
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, []string{"go", "avx2", "avx512"}, []string{Go.String(), AVX2.String(), AVX512.String()})
}

// The variable is read once at program start, so the test starts itself.
func TestVariable(t *testing.T) {
	if os.Getenv("TIER_TEST_CHILD") != "" {
		require.Equal(t, Go, Active)
		require.NoError(t, Refused())
		return
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(exe, "-test.run=^TestVariable$", "-test.v")
	child.Env = append(os.Environ(), Variable+"=go", "TIER_TEST_CHILD=1")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestVariable")
}

func TestRefused(t *testing.T) {
	t.Setenv(Variable, "sse")
	assert.EqualError(t, Refused(), `MHC_CPU is "sse", want go, avx2 or avx512; using `+Available().String())
	t.Setenv(Variable, Available().String())
	assert.NoError(t, Refused())
}
