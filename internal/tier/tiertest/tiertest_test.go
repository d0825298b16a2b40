package tiertest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/tier"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

func TestEach(t *testing.T) {
	before := tier.Active
	var ran []tier.Tier
	tiertest.Each(t, func(t *testing.T) { ran = append(ran, tier.Active) })
	want := []tier.Tier{tier.Go, tier.AVX2, tier.AVX512}
	assert.Equal(t, want[:tier.Available()+1], ran)
	assert.Equal(t, before, tier.Active)
}

// A run that demands a tier fails if there is none. The test starts itself, for
// a failure of its own to be seen from outside.
func TestDemandedTierIsMissing(t *testing.T) {
	if os.Getenv("TIERTEST_CHILD") != "" {
		tiertest.Each(t, func(*testing.T) {})
		return
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	for demand, passes := range map[string]bool{"go": true, tier.Available().String(): true, "avx1024": false} {
		child := exec.Command(exe, "-test.run=^TestDemandedTierIsMissing$")
		child.Env = append(os.Environ(), tier.Variable+"="+demand, "TIERTEST_CHILD=1")
		out, err := child.CombinedOutput()
		assert.Equal(t, passes, err == nil, "%s: %s", demand, out)
	}
}
