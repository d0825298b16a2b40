package cuda

import (
	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
)

// RunAt is Run with scratch memory of the caller's.
func (s *Stream) RunAt(op Operator, work plan.Ptr) error {
	return s.with(func() error { return s.queue(op, driver.Pointer(work), s.e.launch) })
}

// Variables of the environment.
const (
	DebugVariable   = debugVariable
	RequireVariable = requireVariable
)

// NewWithImage is New with other kernels.
func NewWithImage(image []byte) (*Engine, error) {
	drv, err := driver.Open()
	if err != nil {
		return nil, err
	}
	return newEngine(drv, image)
}

// PretendSmall makes the engine plan for a device with the shared memory of an RTX 3090.
func (e *Engine) PretendSmall() {
	e.info.Limits.SharedPerBlock, e.info.Limits.SharedPerSM = plan.RTX3090.SharedPerBlock, plan.RTX3090.SharedPerSM
}
