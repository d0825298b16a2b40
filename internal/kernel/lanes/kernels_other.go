//go:build !amd64

package lanes

import "github.com/mhc-go/mhc/internal/tier"

func float32Kernels(tier.Tier) *Kernels[float32] { return &portable32 }
