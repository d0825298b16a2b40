package mhc

import (
	"fmt"
	"math"

	"github.com/mhc-go/mhc/sinkhorn"
)

// Config holds every setting of the coefficients of one mHC layer. The zero
// value is not valid; start from a [Preset].
type Config struct {
	// Streams is n, the number of residual streams: 1 or more.
	Streams int
	// RMSEps is added to the mean square of a token before the root.
	RMSEps float64
	// PreEps is added to h_pre after the sigmoid.
	PreEps float64
	// PostMult scales the sigmoid of h_post.
	PostMult float64
	// Sinkhorn projects the residual logits to h_res.
	Sinkhorn sinkhorn.Config
	// Apply says which index of h_res is summed when streams are mixed.
	Apply Apply
	// Phi says how the projection matrix is laid out.
	Phi PhiLayout
}

// Apply says which index of h_res [n,n] is summed over when it mixes streams.
type Apply int

const (
	// ApplyRows is out[o] = sum_i h_res[o,i] x[i].
	ApplyRows Apply = iota
	// ApplyTransposed is out[o] = sum_i h_res[i,o] x[i].
	ApplyTransposed
)

func (a Apply) String() string {
	switch a {
	case ApplyRows:
		return "rows"
	case ApplyTransposed:
		return "transposed"
	}
	return fmt.Sprintf("Apply(%d)", int(a))
}

// PhiLayout is the layout of phi, whose K = n*C rows of the token meet M columns
// of coefficients.
type PhiLayout int

const (
	// PhiKM is phi [K, M].
	PhiKM PhiLayout = iota
	// PhiMK is phi stored as its transpose [M, K].
	PhiMK
)

func (l PhiLayout) String() string {
	switch l {
	case PhiKM:
		return "KM"
	case PhiMK:
		return "MK"
	}
	return fmt.Sprintf("PhiLayout(%d)", int(l))
}

// Width is M = n*n + 2*n, the number of coefficients of a token: n of h_pre, n
// of h_post, then n*n of h_res, row-major.
func (c Config) Width() int { return c.Streams * (c.Streams + 2) }

// Validate returns an error that names the first setting out of range.
func (c Config) Validate() error {
	if c.Streams < 1 {
		return fmt.Errorf("mhc: Streams is %d, want 1 or more", c.Streams)
	}
	if err := c.Head().Validate(); err != nil {
		return err
	}
	if math.IsNaN(c.PostMult) || math.IsInf(c.PostMult, 0) {
		return fmt.Errorf("mhc: PostMult is %v, want a finite number", c.PostMult)
	}
	if c.Apply != ApplyRows && c.Apply != ApplyTransposed {
		return fmt.Errorf("mhc: Apply is %v, want rows or transposed", c.Apply)
	}
	if err := c.Sinkhorn.Validate(); err != nil {
		return fmt.Errorf("mhc: Sinkhorn: %w", err)
	}
	return nil
}
