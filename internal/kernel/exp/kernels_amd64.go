//go:build !purego

package exp

import "github.com/mhc-go/mhc/internal/tier"

//go:generate go run -C ../../../_asm ./exp -pkg exp -out ../internal/kernel/exp/exp_amd64.s -stubs ../internal/kernel/exp/stubs_amd64.go

// The kernels by tier.
var (
	singles = [...]Kernels[float32]{
		tier.Go:     portable[float32](),
		tier.AVX2:   {Exp: expF32AVX2, Sigmoid: sigmoidF32AVX2, Slope: slopeF32AVX2},
		tier.AVX512: {Exp: expF32AVX512, Sigmoid: sigmoidF32AVX512, Slope: slopeF32AVX512},
	}
	doubles = [...]Kernels[float64]{
		tier.Go:     portable[float64](),
		tier.AVX2:   {Exp: expF64AVX2, Sigmoid: sigmoidF64AVX2, Slope: slopeF64AVX2},
		tier.AVX512: {Exp: expF64AVX512, Sigmoid: sigmoidF64AVX512, Slope: slopeF64AVX512},
	}
)
