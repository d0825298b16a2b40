package driver

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestErrorsNameTheCallAndTheCode(t *testing.T) {
	err := error(&CallError{Call: "cuMemAlloc", Code: OutOfMemory})
	assert.EqualError(t, err, "cuMemAlloc: out of device memory (CUDA_ERROR_OUT_OF_MEMORY, 2)")
	assert.ErrorIs(t, err, OutOfMemory)
	assert.NotErrorIs(t, err, NoDevice)
	var code Code
	assert.True(t, errors.As(err, &code))
	assert.Equal(t, "CUDA error 12345", Code(12345).Error())
}

func TestLostTellsAFailedKernelFromAFailedCall(t *testing.T) {
	for _, c := range []Code{700, 715, 716, 719, 214, 999} {
		assert.True(t, c.Lost(), "%v", c)
	}
	for _, c := range []Code{1, OutOfMemory, NoDevice, InvalidImage, NoBinary, NotFound, 701, 12345} {
		assert.False(t, c.Lost(), "%v", c)
	}
}
