package normalize

import (
	"math/bits"
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
)

// single says that T is float32.
func single[T dtype.Float]() bool { return unsafe.Sizeof(T(0)) == 4 }

// wide is a block of float64 that redoes lanes of one of float32.
type wide struct {
	*Block[float64]
	logits, dout, result []float64
}

// redo computes the projection, or with dout the gradient, of the lanes whose
// entries come near to underflow: float32 ones in float64, float64 ones in the log
// domain.
func (b *Block[T]) redo(low uint16, result, logits, dout []T) {
	if !single[T]() {
		for ; low != 0; low &= low - 1 {
			if lane := bits.TrailingZeros16(low); dout == nil {
				b.logForward(result, logits, lane)
			} else {
				b.logBackward(result, logits, dout, lane)
			}
		}
		return
	}
	if b.wide == nil {
		size := len(logits)
		b.wide = &wide{New[float64](b.Projection, b.y != nil), make([]float64, size), make([]float64, size), make([]float64, size)}
	}
	w := b.wide
	dtype.Widen(w.logits, logits)
	if dout == nil {
		w.forward(w.result, w.logits, low)
	} else {
		dtype.Widen(w.dout, dout)
		w.backward(w.result, w.logits, w.dout, low)
	}
	for ; low != 0; low &= low - 1 {
		for k := bits.TrailingZeros16(low); k < len(result); k += width {
			result[k] = T(w.result[k])
		}
	}
}
