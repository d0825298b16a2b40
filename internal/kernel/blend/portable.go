package blend

import "github.com/mhc-go/mhc/dtype"

// combineGo equals
//
//	for o, row := range dst {
//		for c := range n {
//			s := T(0)
//			for i := range src {
//				s += h[o*len(src)+i] * src[i][c]
//			}
//			row[c] = s
//		}
//	}
//
// where src has a row or more.
func combineGo[T dtype.Float](dst [][]T, h []T, src [][]T, n int) {
	for o, row := range dst {
		row, h := row[:n], h[o*len(src):][:len(src)]
		clear(row)
		i := 0
		for ; i+2 <= len(src); i += 2 {
			h0, h1, s0, s1 := h[i], h[i+1], src[i][:n], src[i+1][:n]
			for c, s := range row {
				s += h0 * s0[c]
				s += h1 * s1[c]
				row[c] = s
			}
		}
		if i < len(src) {
			h, src := h[i], src[i][:n]
			for c, v := range src {
				row[c] += h * v
			}
		}
	}
}

// dotsGo equals
//
//	for o := range g {
//		for i := range x {
//			s := T(0)
//			for c := range n {
//				s += g[o][c] * x[i][c]
//			}
//			d[o*len(x)+i] += s
//		}
//	}
//
// but that each sum is of 4 sums, of every 4th c.
func dotsGo[T dtype.Float](d []T, g, x [][]T, n int) {
	for o := range g {
		for i := range x {
			g, x := g[o][:n], x[i][:n]
			var s0, s1, s2, s3 T
			for len(g) >= 4 && len(x) >= 4 {
				s0 += g[0] * x[0]
				s1 += g[1] * x[1]
				s2 += g[2] * x[2]
				s3 += g[3] * x[3]
				g, x = g[4:], x[4:]
			}
			for c, v := range g {
				s0 += v * x[c]
			}
			d[0] += (s0 + s1) + (s2 + s3)
			d = d[1:]
		}
	}
}
