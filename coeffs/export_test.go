package coeffs

import (
	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
)

// FromMix is the part of Forward behind the matmul.
func FromMix[A dtype.Float](out Outputs[A], bias, alpha []A, tokens int, cfg mhc.Config) {
	fromMix(out, bias, alpha, tokens, cfg)
}
