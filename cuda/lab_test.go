package cuda_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
)

// device is what the conformance tests run on: a GPU, or the CPU packages that
// stand in for one where the tests themselves are tested.
type device interface {
	limits() plan.Limits
	alloc(bytes int64) (plan.Ptr, error)
	free(p plan.Ptr)
	Write(dst plan.Ptr, src []byte) error
	Read(dst []byte, src plan.Ptr) error
	RunAt(op cuda.Operator, work plan.Ptr) error
	// budget is the number of products x*phi that one case may have.
	budget() int
}

// lab holds the memory of one case. Every piece lies between guard bands, at a
// chosen distance from alignment; results and scratch memory are full of NaN at
// first.
type lab struct {
	t      *testing.T
	dev    device
	pieces []piece
}

type piece struct {
	name  string
	base  plan.Ptr
	shift int
	bytes int
	input []byte // what must still be there at the end; nil for a result
}

const guard = 512 // bytes of a band

// place makes a piece of n bytes, shift bytes away from alignment.
func (l *lab) place(name string, n, shift int, input []byte) plan.Ptr {
	base, err := l.dev.alloc(int64(2*guard + shift + n))
	require.NoError(l.t, err)
	all := bytes.Repeat([]byte{0xff}, 2*guard+shift+n)
	copy(all[guard+shift:], input)
	require.NoError(l.t, l.dev.Write(base, all))
	l.pieces = append(l.pieces, piece{name, base, shift, n, input})
	return base + guard + plan.Ptr(shift)
}

func (l *lab) in(name string, a array, elements int) plan.Ptr {
	return l.place(name, len(a.data), elements*int(a.typ.Size()), a.data)
}

func (l *lab) out(name string, typ plan.Type, n, elements int) plan.Ptr {
	return l.place(name, n*int(typ.Size()), elements*int(typ.Size()), nil)
}

func (l *lab) read(p plan.Ptr, typ plan.Type, n int) array {
	a := newArray(typ, n)
	require.NoError(l.t, l.dev.Read(a.data, p))
	return a
}

// run runs op with scratch memory of exactly the size that it asks for.
func (l *lab) run(op cuda.Operator) {
	l.t.Helper()
	n, err := op.Workspace(l.dev.limits())
	require.NoError(l.t, err)
	require.NoError(l.t, l.dev.RunAt(op, l.place("scratch memory", int(n), 0, nil)))
}

// close checks the guard bands and the inputs, and frees the memory.
func (l *lab) close() {
	for _, p := range l.pieces {
		all := make([]byte, 2*guard+p.shift+p.bytes)
		require.NoError(l.t, l.dev.Read(all, p.base))
		band := func(b []byte) bool { return len(bytes.Trim(b, "\xff")) == 0 }
		assert.True(l.t, band(all[:guard+p.shift]), "%s: written before its start", p.name)
		assert.True(l.t, band(all[guard+p.shift+p.bytes:]), "%s: written past its end", p.name)
		if p.input != nil {
			assert.True(l.t, bytes.Equal(p.input, all[guard+p.shift:][:p.bytes]), "%s: an input was written", p.name)
		}
		l.dev.free(p.base)
	}
}

// worst collects the largest error of each kind of result.
type worst map[string]float64

// compare notes the relative error of got, and fails where it passes the bound.
// The norm of a few numbers can by chance be small beside that of the terms that
// they are sums of, which is what they are rounded to: they get more room.
func (w worst) compare(t *testing.T, kind, name string, got, want []float64, bound float64) {
	t.Helper()
	if len(want) < 8 {
		kind, bound = kind+" (few)", 3*bound
	}
	err := relative(got, want)
	key := fmt.Sprintf("%s (bound %.1e)", kind, bound)
	w[key] = max(w[key], err)
	assert.LessOrEqual(t, err, bound, "%s: relative error of %s", kind, name)
}

// withLab runs one case as a subtest.
func withLab(t *testing.T, dev device, name string, f func(t *testing.T, l *lab)) {
	t.Run(name, func(t *testing.T) {
		l := &lab{t: t, dev: dev}
		f(t, l)
		l.close()
	})
}
