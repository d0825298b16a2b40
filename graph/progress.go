package graph

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far a run is.
type progress struct {
	w           io.Writer
	bar         *progressbar.ProgressBar // nil where w is no terminal
	first, last int                      // steps taken before the run and at its end
	every       int                      // steps between plain lines
	began       time.Time
	tokens      int
	busy        time.Duration // in steps alone
	eval        float64       // NaN before the first evaluation
}

// progressLines is about how many plain lines a run writes.
const progressLines = 40

func newProgress(w io.Writer, first, last int) *progress {
	p := &progress{w: w, first: first, last: last, began: time.Now(), eval: math.NaN()}
	p.every = max(1, (last-first)/progressLines)
	if isTerminal(w) && first < last {
		p.bar = progressbar.NewOptions(last-first,
			progressbar.OptionSetWriter(w),
			progressbar.OptionFullWidth(),
			progressbar.OptionShowElapsedTimeOnFinish(),
			progressbar.OptionThrottle(100*time.Millisecond))
	}
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (p *progress) step(m Metrics) error {
	if p.w == nil {
		return nil
	}
	p.tokens += m.Tokens
	p.busy += m.Elapsed
	evaluated := !math.IsNaN(m.Eval)
	if evaluated {
		p.eval = m.Eval
	}
	if p.bar != nil {
		// The bar itself shows the time left.
		p.bar.Describe(p.describe(m))
		return p.bar.Add(1)
	}
	if m.Step%p.every != 0 && m.Step != p.last && !evaluated {
		return nil
	}
	done := time.Since(p.began)
	left := done / time.Duration(m.Step-p.first) * time.Duration(p.last-m.Step)
	_, err := fmt.Fprintf(p.w, "step %s, %v left\n", p.describe(m), left.Round(time.Second))
	return err
}

// describe leaves the bar some room on a terminal of 80 columns.
func (p *progress) describe(m Metrics) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d, loss %.4f", m.Step, p.last, m.Loss)
	if !math.IsNaN(p.eval) {
		fmt.Fprintf(&b, ", eval %.4f", p.eval)
	}
	if s := p.busy.Seconds(); p.tokens > 0 && s > 0 {
		fmt.Fprintf(&b, ", %.0f tokens/s", float64(p.tokens)/s)
	}
	return b.String()
}

// close ends the bar's line.
func (p *progress) close() error {
	if p.bar == nil {
		return nil
	}
	if err := p.bar.Exit(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(p.w)
	return err
}
