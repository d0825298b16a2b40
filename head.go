package mhc

import (
	"fmt"
	"math"
)

// HeadConfig holds the settings of the way out of a stack:
// w = sigmoid(alpha * r * (X phi) + b) + PreEps, out = sum_i w[i] x[i].
type HeadConfig struct {
	// RMSEps is added to the mean square of a token before the root.
	RMSEps float64
	// PreEps is added to the weights after the sigmoid.
	PreEps float64
	// Phi is the layout of phi [K, n].
	Phi PhiLayout
}

// Head is the configuration of a stack's head that goes with c.
func (c Config) Head() HeadConfig {
	return HeadConfig{RMSEps: c.RMSEps, PreEps: c.PreEps, Phi: c.Phi}
}

// Validate returns an error that names the first setting out of range.
func (c HeadConfig) Validate() error {
	if err := checkEps("RMSEps", c.RMSEps); err != nil {
		return err
	}
	if err := checkEps("PreEps", c.PreEps); err != nil {
		return err
	}
	if c.Phi != PhiKM && c.Phi != PhiMK {
		return fmt.Errorf("mhc: Phi is %v, want KM or MK", c.Phi)
	}
	return nil
}

func checkEps(name string, eps float64) error {
	if !(eps >= 0) || math.IsInf(eps, 1) {
		return fmt.Errorf("mhc: %s is %v, want a finite number of 0 or more", name, eps)
	}
	return nil
}
