package normalize

import (
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/lanes"
	"github.com/mhc-go/mhc/internal/tier"
)

// kernels are the steps of the projection for one type and tier. A line is the
// entries that one sum runs over: line i is entries i*line + j*along, j < n.
type kernels[T dtype.Float] struct {
	shift   func(p, a []T, n, line, along int)
	floor   func(p []T, eps, tiny T) uint16
	step    func(p, sums []T, n, line, along int, eps T)
	reverse func(g, y, sums []T, n, line, along int)
	ratio   func(g, soft []T, eps T)
	balance func(g, a []T, n, line, along int)
	// steps4 and reverse4 do all steps of a 4 x 4 block at once; they are nil
	// where there are too few registers for that.
	steps4   func(p, sums []T, steps, advance int, eps T)
	reverse4 func(g, y, sums []T, steps int)
}

func portable[T dtype.Float]() kernels[T] {
	return kernels[T]{shift: shift[T], floor: floor[T], step: step[T], reverse: reverse[T], ratio: ratio[T], balance: balance[T]}
}

func active[T dtype.Float]() *kernels[T] {
	var k any = &doubles[tier.Active]
	if single[T]() {
		k = &singles[tier.Active]
	}
	return k.(*kernels[T])
}

const width = lanes.Width

// entry is the lanes of entry k.
func entry[T dtype.Float](p []T, k int) *[width]T { return (*[width]T)(p[k*width:]) }

// shift equals, in every lane,
//
//	for i := range n {
//		top := the maximum of a's line i
//		p[i*line+j*along] = a[i*line+j*along] - top, for j < n
//	}
//
// The maximum of a line with a NaN may be any number.
func shift[T dtype.Float](p, a []T, n, line, along int) {
	for i := range n {
		top := *entry(a, i*line)
		for j := 1; j < n; j++ {
			for l, v := range entry(a, i*line+j*along) {
				if v > top[l] {
					top[l] = v
				}
			}
		}
		for j := range n {
			p, a := entry(p, i*line+j*along), entry(a, i*line+j*along)
			for l := range p {
				p[l] = a[l] - top[l]
			}
		}
	}
}

// floor adds eps to every number of p and returns the lanes in which a result is
// not at least tiny (below it, or NaN), lane l as bit l:
//
//	for i := range p {
//		p[i] += eps
//		if !(p[i] >= tiny) {
//			low |= 1 << (i % 16)
//		}
//	}
func floor[T dtype.Float](p []T, eps, tiny T) (low uint16) {
	for k := range len(p) / width {
		p := entry(p, k)
		for l := range p {
			p[l] += eps
			if !(p[l] >= tiny) {
				low |= 1 << l
			}
		}
	}
	return low
}

// step normalises the lines of p and writes each line's sum to sums. It equals,
// in every lane,
//
//	for i := range n {
//		sum := eps
//		for j := range n {
//			sum += p[i*line+j*along]
//		}
//		sums[i] = sum
//		for j := range n {
//			p[i*line+j*along] *= 1 / sum
//		}
//	}
func step[T dtype.Float](p, sums []T, n, line, along int, eps T) {
	for i := range n {
		sum := entry(sums, i)
		for l := range sum {
			sum[l] = eps
		}
		for j := range n {
			for l, v := range entry(p, i*line+j*along) {
				sum[l] += v
			}
		}
		var inverse [width]T
		for l, s := range sum {
			inverse[l] = 1 / s
		}
		for j := range n {
			p := entry(p, i*line+j*along)
			for l := range p {
				p[l] *= inverse[l]
			}
		}
	}
}

// reverse takes the log-gradient g from behind a step to before it, and the
// step's result y with it. It equals, in every lane,
//
//	for i := range n {
//		sum := 0
//		for j := range n {
//			sum += g[i*line+j*along]
//		}
//		for j := range n {
//			g[i*line+j*along] -= y[i*line+j*along] * sum
//			y[i*line+j*along] *= sums[i]
//		}
//	}
func reverse[T dtype.Float](g, y, sums []T, n, line, along int) {
	for i := range n {
		var sum [width]T
		for j := range n {
			for l, v := range entry(g, i*line+j*along) {
				sum[l] += v
			}
		}
		s := entry(sums, i)
		for j := range n {
			g, y := entry(g, i*line+j*along), entry(y, i*line+j*along)
			for l := range g {
				g[l] -= y[l] * sum[l]
				y[l] *= s[l]
			}
		}
	}
}

// ratio takes the log-gradient from soft+eps to soft. It equals
//
//	for i := range g {
//		g[i] *= soft[i] / (soft[i] + eps)
//	}
func ratio[T dtype.Float](g, soft []T, eps T) {
	for i, p := range soft[:len(g)] {
		g[i] *= p / (p + eps)
	}
}

// balance makes the lines of g sum to 0. It equals, in every lane,
//
//	for i := range n {
//		top := the first j of the maximum of a[i*line+j*along]
//		g[i*line+top*along] = -(the sum of g[i*line+j*along], j != top)
//	}
//
// The maximum of a line with a NaN may be any number.
func balance[T dtype.Float](g, a []T, n, line, along int) {
	for i := range n {
		top, at, held := *entry(a, i*line), [width]int{}, *entry(g, i*line)
		var rest [width]T
		for j := 1; j < n; j++ {
			a, g := entry(a, i*line+j*along), entry(g, i*line+j*along)
			for l, v := range a {
				if v > top[l] {
					rest[l] += held[l]
					top[l], at[l], held[l] = v, j, g[l]
				} else {
					rest[l] += g[l]
				}
			}
		}
		for l, j := range at {
			g[(i*line+j*along)*width+l] = -rest[l]
		}
	}
}
