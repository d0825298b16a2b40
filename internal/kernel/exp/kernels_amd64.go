package exp

import "github.com/mhc-go/mhc/internal/tier"

//go:generate go run -C ../../../_asm ./exp -pkg exp -out ../internal/kernel/exp/exp_amd64.s -stubs ../internal/kernel/exp/stubs_amd64.go

var (
	avx2   = Kernels[float32]{Exp: expAVX2, Sigmoid: sigmoidAVX2, Slope: slopeAVX2}
	avx512 = Kernels[float32]{Exp: expAVX512, Sigmoid: sigmoidAVX512, Slope: slopeAVX512}
)

func float32Kernels(t tier.Tier) *Kernels[float32] {
	switch t {
	case tier.AVX512:
		return &avx512
	case tier.AVX2:
		return &avx2
	}
	return &portable32
}
