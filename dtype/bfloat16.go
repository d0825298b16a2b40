package dtype

import "math"

// BFloat16 holds the upper half of a float32: 1 sign, 8 exponent and 7 fraction
// bits. It is a storage type and has no arithmetic.
type BFloat16 uint16

// BFloat16FromFloat32 rounds f to the nearest BFloat16, ties to even. A value
// past the largest BFloat16 becomes an infinity; a NaN stays a NaN of the same
// sign, made quiet.
func BFloat16FromFloat32(f float32) BFloat16 {
	bits := math.Float32bits(f)
	if bits&(1<<31-1) > 0x7f800000 { // a NaN
		return BFloat16(bits>>16 | 0x40)
	}
	return BFloat16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 is b's exact value.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }
