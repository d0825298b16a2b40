package normalize

import "math"

// logDomain projects one matrix in float64 with logarithms for entries, so that
// no finite difference of logits is too large. It mirrors the steps of a Block:
// a division is a subtraction here.
type logDomain struct {
	l     []float64 // log P
	soft  []float64 // log of the softmax
	g     []float64
	sums  []float64 // log(s + eps), N a step
	tops  []int     // the entries of the maxima that the start subtracts
	valid bool      // no entry became NaN
}

func (b *Block[T]) logForward(out, logits []T, lane int) {
	d := b.logRun(logits, lane)
	for k, l := range d.l {
		if d.valid {
			out[k*width+lane] = T(math.Exp(l))
		} else {
			out[k*width+lane] = T(math.NaN())
		}
	}
}

func (b *Block[T]) logBackward(grad, logits, dout []T, lane int) {
	d := b.logRun(logits, lane)
	n := b.N
	for k, l := range d.l {
		d.g[k] = float64(dout[k*width+lane]) * math.Exp(l)
	}
	for s := b.Steps - 1; s >= 0; s-- {
		line, along := b.lines(s)
		for i := range n {
			sum := 0.0
			for j := range n {
				sum += d.g[i*line+j*along]
			}
			log := d.sums[s*n+i]
			for j := range n {
				k := i*line + j*along
				d.g[k] -= math.Exp(d.l[k]) * sum
				d.l[k] += log
			}
		}
	}
	line, along := b.start()
	for i := range n {
		sum := 0.0
		for j := 0; b.Softmax && j < n; j++ {
			k := i*line + j*along
			if b.Eps != 0 {
				d.g[k] *= math.Exp(d.soft[k] - logAdd(d.soft[k], math.Log(b.Eps)))
			}
			sum += d.g[k]
		}
		rest := 0.0
		for j := range n {
			if k := i*line + j*along; k != d.tops[i] {
				d.g[k] -= math.Exp(d.soft[k]) * sum
				rest -= d.g[k]
			}
		}
		d.g[d.tops[i]] = rest
	}
	for k, g := range d.g {
		if !d.valid {
			g = math.NaN()
		}
		grad[k*width+lane] = T(g)
	}
}

// logRun does the start and the steps of one lane.
func (b *Block[T]) logRun(logits []T, lane int) *logDomain {
	n := b.N
	if b.log == nil {
		nn := n * n
		b.log = &logDomain{
			l: make([]float64, nn), soft: make([]float64, nn), g: make([]float64, nn),
			sums: make([]float64, b.Steps*n), tops: make([]int, n),
		}
	}
	d, logEps := b.log, math.Log(b.Eps)
	for k := range d.l {
		d.l[k] = float64(logits[k*width+lane])
	}
	line, along := b.start()
	for i := range n {
		d.tops[i] = d.shift(n, i*line, along)
		if b.Softmax {
			log := d.logSum(n, i*line, along)
			for j := range n {
				k := i*line + j*along
				d.soft[k] = d.l[k] - log
				d.l[k] = logAdd(d.soft[k], logEps)
			}
		}
	}
	for s := range b.Steps {
		line, along := b.lines(s)
		for i := range n {
			log := logAdd(d.logSum(n, i*line, along), logEps)
			d.sums[s*n+i] = log
			for j := range n {
				d.l[i*line+j*along] -= log
			}
		}
	}
	d.valid = true
	for _, l := range d.l {
		d.valid = d.valid && l == l
	}
	return d
}

// shift subtracts its maximum from a line and returns the index of that. A
// difference of finite numbers stays finite.
func (d *logDomain) shift(n, first, along int) (top int) {
	top = first
	for k, j := first, 0; j < n; k, j = k+along, j+1 {
		if d.l[k] > d.l[top] {
			top = k
		}
	}
	m := d.l[top]
	for k, j := first, 0; j < n; k, j = k+along, j+1 {
		if !math.IsInf(d.l[k], -1) {
			d.l[k] = max(d.l[k]-m, -math.MaxFloat64)
		} else {
			d.l[k] -= m
		}
	}
	return top
}

// logSum is the logarithm of the sum of a line's entries.
func (d *logDomain) logSum(n, first, along int) float64 {
	top := math.Inf(-1)
	for k, j := first, 0; j < n; k, j = k+along, j+1 {
		top = max(top, d.l[k])
	}
	if math.IsInf(top, -1) {
		return top
	}
	sum := 0.0
	for k, j := first, 0; j < n; k, j = k+along, j+1 {
		if x := d.l[k] - top; x == 0 {
			sum++
		} else if !(x < -746) { // where the exponential is 0, but not of a NaN
			sum += math.Exp(x)
		}
	}
	if sum == 1 {
		return top
	}
	return top + math.Log(sum)
}

// logAdd is log(exp(x) + exp(y)).
func logAdd(x, y float64) float64 {
	if math.IsInf(y, -1) {
		return x
	}
	top := max(x, y)
	return top + math.Log1p(math.Exp(min(x, y)-top))
}
