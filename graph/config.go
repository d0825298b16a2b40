package graph

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

// Config holds what the layers of a stack have in common.
type Config struct {
	// MHC are the settings of the coefficients; [mhc.Preset.Config] has the
	// published ones.
	MHC mhc.Config
	// Channels is C, the width of a stream: 1 or more.
	Channels int
	// Dtype is that of the parameters: tensor.Float32 (the default) or
	// tensor.Float64.
	Dtype tensor.Dtype
	// Init says what the parameters start from.
	Init Init
	// Rand is what phi is drawn from. Layers that share it draw one after the
	// other, so the same seed and the same program give the same model, in either
	// dtype.
	Rand rand.Source
}

// maxPhi is far more numbers than a phi has, and so few that no size overflows.
const maxPhi = 1 << 40

// Init says what the parameters start from.
type Init int

const (
	// Residual starts as a plain residual network: phi is 0.02 times a standard
	// normal and alpha 0.01, so the coefficients hardly depend on the streams, and
	// b makes h_pre 1/n, h_post PostMult/2, and h_res close to the identity. The
	// head starts as the mean of the streams. (With one stream h_pre would need an
	// infinite b; it starts at 1 - 5e-5.)
	Residual Init = iota
	// Liger starts as the published module: phi is 0.02 times a standard normal,
	// b is 0 and alpha 1.
	Liger
)

func (i Init) String() string {
	switch i {
	case Residual:
		return "residual"
	case Liger:
		return "liger"
	}
	return fmt.Sprintf("Init(%d)", int(i))
}

// validate returns an error that names the first setting out of range.
func (c Config) validate() error {
	if err := c.MHC.Validate(); err != nil {
		return err
	}
	if c.Channels < 1 {
		return fmt.Errorf("graph: Channels is %d, want 1 or more", c.Channels)
	}
	if n := float64(c.MHC.Streams); n*n*(n+2)*float64(c.Channels) > maxPhi {
		return fmt.Errorf("graph: phi of %d streams of %d channels has more than 2^40 numbers", c.MHC.Streams, c.Channels)
	}
	if dt := c.dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return fmt.Errorf("graph: Dtype is %v, want float32 or float64 (16-bit parameters cannot be trained)", dt)
	}
	if c.Init != Residual && c.Init != Liger {
		return fmt.Errorf("graph: Init is %v, want residual or liger", c.Init)
	}
	if c.Rand == nil {
		return fmt.Errorf("graph: Rand is nil, want a source of math/rand/v2")
	}
	return nil
}

func (c Config) dtype() tensor.Dtype {
	if c.Dtype.Type == nil {
		return tensor.Float32
	}
	return c.Dtype
}
