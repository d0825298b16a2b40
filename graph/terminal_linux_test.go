package graph

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

// terminal opens a pseudo-terminal: what a program would write to, and where it
// comes out.
func terminal(t *testing.T) (program, out *os.File) {
	t.Helper()
	out, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("opening a pseudo-terminal: %v", err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(int(out.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("opening a pseudo-terminal: %v", err)
	}
	require.NoError(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	return program, out
}

func TestProgressBarOnATerminal(t *testing.T) {
	program, out := terminal(t)
	defer out.Close()
	var shown bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(&shown, out) // ends with EIO when the program's side is closed
	}()
	m := newTiny(t, mhc.Liger, tensor.Float32, 1)
	ctx, cancel := context.WithCancel(t.Context())
	tr := newTestTrainer(t, m, WithProgress(program), WithCallback(func(m Metrics) error {
		if m.Step == 10 {
			cancel()
		}
		return nil
	}))
	require.ErrorIs(t, tr.Run(ctx, 20, m.numbered(5)), context.Canceled)
	require.NoError(t, tr.Run(t.Context(), 20, m.numbered(5)))
	require.NoError(t, program.Close())
	<-done
	text := strings.ReplaceAll(shown.String(), "\r", "")
	assert.Regexp(t, `^1/20, loss [0-9.]+, [0-9]+ tokens/s +0% \| {10}`, text)
	assert.Regexp(t, `\n11/20, .*20/20, loss [0-9.]+, [0-9]+ tokens/s +100% \|█{10,}\|[^\n]*\n$`, text)
}
