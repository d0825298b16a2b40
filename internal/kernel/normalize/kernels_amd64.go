package normalize

import "github.com/mhc-go/mhc/internal/tier"

func float32Kernels(tier.Tier) *kernels[float32] { return &portable32 }
