//go:build !purego

package normalize

import "github.com/mhc-go/mhc/internal/tier"

//go:generate go run -C ../../../_asm ./normalize -pkg normalize -out ../internal/kernel/normalize/normalize_amd64.s -stubs ../internal/kernel/normalize/stubs_amd64.go

// The kernels by tier.
var (
	singles = [...]kernels[float32]{
		tier.Go: portable[float32](),
		tier.AVX2: {
			shift: shiftF32AVX2, floor: floorF32AVX2, step: stepF32AVX2, reverse: reverseF32AVX2, ratio: ratioF32AVX2, balance: balanceF32AVX2,
		},
		tier.AVX512: {
			shift: shiftF32AVX512, floor: floorF32AVX512, step: stepF32AVX512, reverse: reverseF32AVX512, ratio: ratioF32AVX512, balance: balanceF32AVX512,
			steps4: steps4F32AVX512, reverse4: reverse4F32AVX512,
		},
	}
	doubles = [...]kernels[float64]{
		tier.Go: portable[float64](),
		tier.AVX2: {
			shift: shiftF64AVX2, floor: floorF64AVX2, step: stepF64AVX2, reverse: reverseF64AVX2, ratio: ratioF64AVX2, balance: balanceF64AVX2,
		},
		tier.AVX512: {
			shift: shiftF64AVX512, floor: floorF64AVX512, step: stepF64AVX512, reverse: reverseF64AVX512, ratio: ratioF64AVX512, balance: balanceF64AVX512,
			steps4: steps4F64AVX512, reverse4: reverse4F64AVX512,
		},
	}
)
