package mhc

import (
	"fmt"
	"strings"

	"github.com/mhc-go/mhc/sinkhorn"
)

// Preset names one of the published conventions, which differ silently.
type Preset int

const (
	// Liger is the convention of the published Triton kernels: row softmax plus
	// eps, first and last step over columns.
	Liger Preset = iota
	// DeepSeekV4 is Liger's projection with h_res applied transposed, an eps on
	// h_pre, and phi stored as [M, K].
	DeepSeekV4
	// Paper is arXiv 2512.24880, eq. 9: exp, then columns and rows, no eps.
	Paper
)

// Presets lists every preset, in order.
var Presets = []Preset{Liger, DeepSeekV4, Paper}

func (p Preset) String() string {
	switch p {
	case Liger:
		return "liger"
	case DeepSeekV4:
		return "deepseek-v4"
	case Paper:
		return "paper"
	}
	return fmt.Sprintf("Preset(%d)", int(p))
}

// UnmarshalText reads a preset's name as String writes it.
func (p *Preset) UnmarshalText(text []byte) error {
	names := make([]string, len(Presets))
	for i, q := range Presets {
		if q.String() == string(text) {
			*p = q
			return nil
		}
		names[i] = q.String()
	}
	return fmt.Errorf("mhc: preset %q, want one of %s", text, strings.Join(names, ", "))
}

// MarshalText writes the preset's name.
func (p Preset) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Config is the preset's settings for the given number of streams, with 20
// Sinkhorn iterations. An unknown preset gives a Config that does not validate.
func (p Preset) Config(streams int) Config {
	switch p {
	case Liger, DeepSeekV4:
		c := Config{
			Streams: streams, RMSEps: 1e-6, PostMult: 2,
			Sinkhorn: sinkhorn.Config{Start: sinkhorn.RowSoftmax, End: sinkhorn.Columns, Iterations: 20, Eps: 1e-6},
		}
		if p == DeepSeekV4 {
			c.PreEps = 1e-6
			c.Apply = ApplyTransposed
			c.Phi = PhiMK
		}
		return c
	case Paper:
		return Config{
			Streams: streams, RMSEps: 1e-20, PostMult: 2,
			Sinkhorn: sinkhorn.Config{Start: sinkhorn.Exp, End: sinkhorn.Rows, Iterations: 20},
		}
	}
	return Config{}
}
