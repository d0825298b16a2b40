//go:build !amd64

package blend

func combine32(dst [][]float32, h []float32, src [][]float32, n int) { combine(dst, h, src, n) }
func combine64(dst [][]float64, h []float64, src [][]float64, n int) { combine(dst, h, src, n) }
func dots32(d []float32, g, x [][]float32, n int)                    { dots(d, g, x, n) }
func dots64(d []float64, g, x [][]float64, n int)                    { dots(d, g, x, n) }
