package normalize

import "github.com/mhc-go/mhc/internal/tier"

//go:generate go run -C ../../../_asm ./normalize -pkg normalize -out ../internal/kernel/normalize/normalize_amd64.s -stubs ../internal/kernel/normalize/stubs_amd64.go

var (
	avx2   = kernels[float32]{shift: shiftAVX2, floor: floorAVX2, step: stepAVX2, reverse: reverseAVX2, ratio: ratioAVX2, balance: balanceAVX2}
	avx512 = kernels[float32]{
		shift: shiftAVX512, floor: floorAVX512, step: stepAVX512, reverse: reverseAVX512, ratio: ratioAVX512, balance: balanceAVX512,
		steps4: steps4AVX512, reverse4: reverse4AVX512,
	}
)

func float32Kernels(t tier.Tier) *kernels[float32] {
	switch t {
	case tier.AVX512:
		return &avx512
	case tier.AVX2:
		return &avx2
	}
	return &portable32
}
