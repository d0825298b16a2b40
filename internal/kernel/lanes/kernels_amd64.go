//go:build !purego

package lanes

import "github.com/mhc-go/mhc/internal/tier"

//go:generate go run -C ../../../_asm ./lanes -pkg lanes -out ../internal/kernel/lanes/lanes_amd64.s -stubs ../internal/kernel/lanes/stubs_amd64.go

// The kernels by tier.
var (
	singles = [...]Kernels[float32]{
		tier.Go:     portable[float32](),
		tier.AVX2:   {pack: packF32AVX2, unpack: unpackF32AVX2, mul: mulF32AVX2, affine: affineF32AVX2, accumulate: accumulateF32AVX2},
		tier.AVX512: {pack: packF32AVX512, unpack: unpackF32AVX512, mul: mulF32AVX512, affine: affineF32AVX512, accumulate: accumulateF32AVX512},
	}
	doubles = [...]Kernels[float64]{
		tier.Go:     portable[float64](),
		tier.AVX2:   {pack: packF64AVX2, unpack: unpackF64AVX2, mul: mulF64AVX2, affine: affineF64AVX2, accumulate: accumulateF64AVX2},
		tier.AVX512: {pack: packF64AVX2, unpack: unpackF64AVX2, mul: mulF64AVX512, affine: affineF64AVX512, accumulate: accumulateF64AVX512},
	}
)
