package lanes

import "github.com/mhc-go/mhc/internal/tier"

//go:generate go run -C ../../../_asm ./lanes -pkg lanes -out ../internal/kernel/lanes/lanes_amd64.s -stubs ../internal/kernel/lanes/stubs_amd64.go

var (
	avx2   = Kernels[float32]{pack: packAVX2, unpack: unpackAVX2, mul: mulAVX2, affine: affineAVX2, accumulate: accumulateAVX2}
	avx512 = Kernels[float32]{pack: packAVX512, unpack: unpackAVX512, mul: mulAVX512, affine: affineAVX512, accumulate: accumulateAVX512}
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
