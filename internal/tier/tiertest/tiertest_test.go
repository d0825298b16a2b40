package tiertest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

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
