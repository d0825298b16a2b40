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

	took, err := d.Time(func() error { time.Sleep(2 * time.Millisecond); return nil })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, 2*time.Millisecond)
	_, err = d.Time(func() error { return errors.New("no") })
	assert.EqualError(t, err, "no")
	assert.NoError(t, d.Close())
}

func TestUnknownDevice(t *testing.T) {
	assert.Equal(t, "cpu", device.Names()[0])
	_, err := device.Open("tpu")
	assert.ErrorContains(t, err, `device "tpu", want one of cpu`)
}
