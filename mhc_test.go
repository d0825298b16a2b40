package mhc_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/sinkhorn"
)

func TestPresets(t *testing.T) {
	assert.Equal(t, mhc.Config{
		Streams: 4, RMSEps: 1e-6, PostMult: 2,
		Sinkhorn: sinkhorn.Config{Start: sinkhorn.RowSoftmax, End: sinkhorn.Columns, Iterations: 20, Eps: 1e-6},
	}, mhc.Liger.Config(4))
	assert.Equal(t, mhc.Config{
		Streams: 4, RMSEps: 1e-6, PreEps: 1e-6, PostMult: 2, Apply: mhc.ApplyTransposed, Phi: mhc.PhiMK,
		Sinkhorn: sinkhorn.Config{Start: sinkhorn.RowSoftmax, End: sinkhorn.Columns, Iterations: 20, Eps: 1e-6},
	}, mhc.DeepSeekV4.Config(4))
	assert.Equal(t, mhc.Config{
		Streams: 3, RMSEps: 1e-20, PostMult: 2,
		Sinkhorn: sinkhorn.Config{Start: sinkhorn.Exp, End: sinkhorn.Rows, Iterations: 20},
	}, mhc.Paper.Config(3))
	for _, p := range mhc.Presets {
		require.NoError(t, p.Config(1).Validate())
	}
	assert.Error(t, mhc.Preset(99).Config(4).Validate())
}

func TestPresetText(t *testing.T) {
	for _, want := range mhc.Presets {
		text, err := want.MarshalText()
		require.NoError(t, err)
		got := mhc.Preset(-1)
		require.NoError(t, got.UnmarshalText(text))
		assert.Equal(t, want, got)
	}
	var p mhc.Preset
	assert.EqualError(t, p.UnmarshalText([]byte("ligre")), `mhc: preset "ligre", want one of liger, deepseek-v4, paper`)
}

func TestConfigValidate(t *testing.T) {
	for _, tc := range []struct {
		want   string
		change func(*mhc.Config)
	}{
		{"mhc: Streams is 0, want 1 or more", func(c *mhc.Config) { c.Streams = 0 }},
		{"mhc: RMSEps is -1, want a finite number of 0 or more", func(c *mhc.Config) { c.RMSEps = -1 }},
		{"mhc: RMSEps is NaN, want a finite number of 0 or more", func(c *mhc.Config) { c.RMSEps = math.NaN() }},
		{"mhc: PreEps is +Inf, want a finite number of 0 or more", func(c *mhc.Config) { c.PreEps = math.Inf(1) }},
		{"mhc: PostMult is NaN, want a finite number", func(c *mhc.Config) { c.PostMult = math.NaN() }},
		{"mhc: Apply is Apply(7), want rows or transposed", func(c *mhc.Config) { c.Apply = 7 }},
		{"mhc: Phi is PhiLayout(-1), want KM or MK", func(c *mhc.Config) { c.Phi = -1 }},
		{"mhc: Sinkhorn: sinkhorn: Iterations is 0, want 1 or more", func(c *mhc.Config) { c.Sinkhorn.Iterations = 0 }},
		{"mhc: Sinkhorn: sinkhorn: Eps is NaN, want a finite number of 0 or more", func(c *mhc.Config) { c.Sinkhorn.Eps = math.NaN() }},
		{"mhc: Sinkhorn: sinkhorn: Start is Start(2), want row-softmax or exp", func(c *mhc.Config) { c.Sinkhorn.Start = 2 }},
		{"mhc: Sinkhorn: sinkhorn: End is Axis(5), want columns or rows", func(c *mhc.Config) { c.Sinkhorn.End = 5 }},
	} {
		c := mhc.Liger.Config(4)
		tc.change(&c)
		assert.EqualError(t, c.Validate(), tc.want)
	}
}

func TestHeadConfig(t *testing.T) {
	c := mhc.DeepSeekV4.Config(4)
	assert.Equal(t, mhc.HeadConfig{RMSEps: 1e-6, PreEps: 1e-6, Phi: mhc.PhiMK}, c.Head())
	h := c.Head()
	h.PreEps = -2
	assert.EqualError(t, h.Validate(), "mhc: PreEps is -2, want a finite number of 0 or more")
}

func TestStrings(t *testing.T) {
	assert.Equal(t, "rows transposed Apply(2)", fmt.Sprint(mhc.ApplyRows, mhc.ApplyTransposed, mhc.Apply(2)))
	assert.Equal(t, "KM MK PhiLayout(2)", fmt.Sprint(mhc.PhiKM, mhc.PhiMK, mhc.PhiLayout(2)))
	assert.Equal(t, "Preset(9)", mhc.Preset(9).String())
}

func ExamplePreset_Config() {
	c := mhc.Liger.Config(4)
	fmt.Println(c.Width(), c.Sinkhorn.Iterations, c.Validate())
	c.Sinkhorn.Iterations = 0
	fmt.Println(c.Validate())
	// Output:
	// 24 20 <nil>
	// mhc: Sinkhorn: sinkhorn: Iterations is 0, want 1 or more
}
