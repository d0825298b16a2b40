package matmul

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
)

// The portable kernels: the loops in the comments of [Kernels], with the sums of
// a small tile held in local variables.

func dotGo[A dtype.Float](c, x []A, ldx int, phi []A, ld, m, w int, _ *byte, _ int) {
	for j := 0; j < m; j += 4 {
		p0, p1, p2, p3 := phi[j*ld:][:w], phi[(j+1)*ld:][:w], phi[(j+2)*ld:][:w], phi[(j+3)*ld:][:w]
		for r := 0; r < Rows; r += 2 {
			x0, x1 := x[r*ldx:][:w], x[(r+1)*ldx:][:w]
			var a0, a1, a2, a3, b0, b1, b2, b3 A
			for k := range w {
				u, v := x0[k], x1[k]
				p := p0[k]
				a0 += u * p
				b0 += v * p
				p = p1[k]
				a1 += u * p
				b1 += v * p
				p = p2[k]
				a2 += u * p
				b2 += v * p
				p = p3[k]
				a3 += u * p
				b3 += v * p
			}
			addFour(c[r*m+j:], a0, a1, a2, a3)
			addFour(c[(r+1)*m+j:], b0, b1, b2, b3)
		}
	}
}

func addFour[A dtype.Float](c []A, a0, a1, a2, a3 A) {
	c = c[:4]
	c[0] += a0
	c[1] += a1
	c[2] += a2
	c[3] += a3
}

func outerGo[A dtype.Float](d []A, ld int, x, g []A, m, rows int, _ *byte, _ int) {
	for j := 0; j < m; j += 2 {
		for k := 0; k < Strip; k += 4 {
			var a0, a1, a2, a3, b0, b1, b2, b3 A
			for t := range rows {
				v := x[t*Strip+k:][:4]
				g := g[t*m+j:][:2]
				p, q := g[0], g[1]
				a0 += p * v[0]
				b0 += q * v[0]
				a1 += p * v[1]
				b1 += q * v[1]
				a2 += p * v[2]
				b2 += q * v[2]
				a3 += p * v[3]
				b3 += q * v[3]
			}
			addFour(d[j*ld+k:], a0, a1, a2, a3)
			addFour(d[(j+1)*ld+k:], b0, b1, b2, b3)
		}
	}
}

func expandGo[A dtype.Float](dst []A, ldd int, x, b, g, phi []A, ld, m, rows int, _ bool) {
	for t := 0; t < rows; t += 2 {
		g0, g1 := g[t*m:][:m], g[(t+1)*m:][:m]
		for k := 0; k < Strip; k += 4 {
			u, v := x[t*Strip+k:][:4], x[(t+1)*Strip+k:][:4]
			a0, a1, a2, a3 := b[t]*u[0], b[t]*u[1], b[t]*u[2], b[t]*u[3]
			b0, b1, b2, b3 := b[t+1]*v[0], b[t+1]*v[1], b[t+1]*v[2], b[t+1]*v[3]
			for j := range m {
				p := phi[j*ld+k:][:4]
				p0, p1 := g0[j], g1[j]
				a0 += p0 * p[0]
				b0 += p1 * p[0]
				a1 += p0 * p[1]
				b1 += p1 * p[1]
				a2 += p0 * p[2]
				b2 += p1 * p[2]
				a3 += p0 * p[3]
				b3 += p1 * p[3]
			}
			u, v = dst[t*ldd+k:][:4], dst[(t+1)*ldd+k:][:4]
			u[0], u[1], u[2], u[3] = a0, a1, a2, a3
			v[0], v[1], v[2], v[3] = b0, b1, b2, b3
		}
	}
}

func addGo[A dtype.Float](dst, src []A) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] += v
	}
}

func squaresGo[A dtype.Float](dst, src []A, lds, rows, n int) {
	for t := range rows {
		var sum A
		for _, v := range src[t*lds:][:n] {
			sum += v * v
		}
		dst[t] = sum
	}
}

func loadGo[A dtype.Float, S dtype.Storage](dst []A, ldd int, src []S, lds int, factor, squares []A, rows, n int) {
	for t := range rows {
		row, f := dst[t*ldd:][:n], factor[t]
		dtype.Widen(row, src[t*lds:][:n])
		var sum A
		for k, v := range row {
			sum += v * v
			row[k] = f * v
		}
		if squares != nil {
			squares[t] = sum
		}
	}
}

// loadBitsGo is loadGo for 16-bit numbers that are given as their bits.
func loadBitsGo[A dtype.Float, S dtype.BFloat16 | dtype.Float16](dst []A, ldd int, src []uint16, lds int, factor, squares []A, rows, n int) {
	loadGo(dst, ldd, unsafe.Slice((*S)(unsafe.Pointer(unsafe.SliceData(src))), len(src)), lds, factor, squares, rows, n)
}

func transposeGo[A dtype.Float](dst []A, ldd int, src []A, lds, rows, cols int) {
	for i := range rows {
		for j, v := range src[i*lds:][:cols] {
			dst[j*ldd+i] = v
		}
	}
}
