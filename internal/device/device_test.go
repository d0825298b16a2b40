package device_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/device"
)

func TestCPU(t *testing.T) {
	d, err := device.Open("cpu")
	require.NoError(t, err)
	assert.Equal(t, "cpu", d.Name)
	assert.Regexp(t, `.+, \d+ threads, (go|avx2|avx512) kernels`, d.Description)
	assert.Empty(t, d.Options())
	assert.Equal(t, [2]string{"cpu", d.Description}, device.List()[0])

	took, err := d.Time(func() error { time.Sleep(2 * time.Millisecond); return nil })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, 2*time.Millisecond)
	_, err = d.Time(func() error { return errors.New("no") })
	assert.EqualError(t, err, "no")
	assert.NoError(t, d.Close())
}

// A GPU, or the reason why there is none.
func TestCUDA(t *testing.T) {
	line := device.List()[1]
	assert.Equal(t, "cuda", line[0])
	d, err := device.Open("cuda")
	if err != nil {
		assert.ErrorContains(t, err, "cuda: ")
		assert.Contains(t, line[1], "cuda: ")
		return
	}
	assert.Equal(t, "cuda", d.Name)
	assert.Contains(t, d.Description, "sm_")
	assert.Equal(t, line[1], d.Description)
	assert.Len(t, d.Options(), 1)
	assert.NoError(t, d.Close())
}

func TestUnknownDevices(t *testing.T) {
	for _, name := range []string{"", "tpu", "cpu:x", "tpu:0", "cuda:"} {
		_, err := device.Open(name)
		assert.EqualError(t, err, `device "`+name+`", want one of cpu, cuda, cuda:INDEX`)
	}
	_, err := device.Open("cpu:1")
	assert.EqualError(t, err, "device cpu:1, want cpu")
	_, err = device.Open("cuda:-1")
	assert.ErrorContains(t, err, "cuda: ")
}
