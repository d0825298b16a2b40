package cuda_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
)

// array is a tensor in storage.
type array struct {
	typ  plan.Type
	data []byte
}

func newArray(typ plan.Type, n int) array { return array{typ, make([]byte, n*int(typ.Size()))} }

func (a array) len() int { return len(a.data) / int(a.typ.Size()) }

func (a array) at(i int) float64 {
	switch a.typ {
	case plan.BFloat16:
		return float64(dtype.BFloat16(binary.LittleEndian.Uint16(a.data[2*i:])).Float32())
	case plan.Float16:
		return float64(dtype.Float16(binary.LittleEndian.Uint16(a.data[2*i:])).Float32())
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(a.data[4*i:])))
}

func (a array) set(i int, v float64) {
	switch a.typ {
	case plan.BFloat16:
		binary.LittleEndian.PutUint16(a.data[2*i:], uint16(dtype.BFloat16FromFloat32(float32(v))))
	case plan.Float16:
		var h [1]dtype.Float16
		dtype.Narrow(h[:], []float32{float32(v)})
		binary.LittleEndian.PutUint16(a.data[2*i:], uint16(h[0]))
	default:
		binary.LittleEndian.PutUint32(a.data[4*i:], math.Float32bits(float32(v)))
	}
}

// wide are the elements in float64.
func (a array) wide() []float64 { return a.take(0, a.len()) }

func (a array) take(from, to int) []float64 {
	out := make([]float64, to-from)
	parallel.Blocks(len(out), 1<<14, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			out[i] = a.at(from + i)
		}
	})
	return out
}

// rows are chosen rows, of the given width, in float64; all if chosen is nil.
func (a array) rows(chosen []int, width int) []float64 {
	out := make([]float64, 0, len(chosen)*width)
	for _, r := range chosen {
		for i := range width {
			out = append(out, a.at(r*width+i))
		}
	}
	return out
}

// uniform fills an array with numbers of mean 0 and the given deviation.
func uniform(typ plan.Type, n int, seed uint64, deviation float64) array {
	a := newArray(typ, n)
	parallel.Blocks(n, 1<<14, func(block, lo, hi int) {
		rng := rand.New(rand.NewPCG(seed, uint64(block)))
		for i := lo; i < hi; i++ {
			a.set(i, (2*rng.Float64()-1)*math.Sqrt(3)*deviation)
		}
	})
	return a
}

func norm(v []float64) float64 {
	var s float64
	for _, e := range v {
		s += e * e
	}
	return math.Sqrt(s)
}

// relative is ||got - want|| / ||want||, 0 for two zeros, NaN where a number is.
func relative(got, want []float64) float64 {
	d := make([]float64, len(want))
	for i := range d {
		d[i] = got[i] - want[i]
	}
	if e := norm(d); e != 0 {
		return e / norm(want)
	}
	return 0
}

// spread chooses at most count of n indices: the first, the last, and those of
// blocks' ends among others.
func spread(n, count int, seed uint64) []int {
	if n <= count {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all
	}
	rng := rand.New(rand.NewPCG(seed, 77))
	seen := map[int]bool{}
	var chosen []int
	for _, i := range []int{0, 1, 15, 16, 31, 32, 127, 128, n - 17, n - 2, n - 1} {
		if i >= 0 && i < n && !seen[i] {
			seen[i], chosen = true, append(chosen, i)
		}
	}
	for len(chosen) < count {
		if i := rng.IntN(n); !seen[i] {
			seen[i], chosen = true, append(chosen, i)
		}
	}
	return chosen[:count]
}

// pairwise chooses combinations of levels so that every two levels of two
// factors that allowed permits meet in one. The choice is always the same.
func pairwise(levels []int, allowed func(c []int) bool) [][]int {
	type pair struct{ f, a, g, b int }
	open := map[pair]bool{}
	var order []pair
	for f := range levels {
		for g := f + 1; g < len(levels); g++ {
			for a := range levels[f] {
				for b := range levels[g] {
					open[pair{f, a, g, b}] = true
					order = append(order, pair{f, a, g, b})
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(2512, 24880))
	covers := func(c []int) (n int) {
		for f := range c {
			for g := f + 1; g < len(c); g++ {
				if open[pair{f, c[f], g, c[g]}] {
					n++
				}
			}
		}
		return n
	}
	var chosen [][]int
	for _, p := range order {
		if !open[p] {
			continue
		}
		var best []int
		for range 200 {
			c := make([]int, len(levels))
			for i, n := range levels {
				c[i] = rng.IntN(n)
			}
			c[p.f], c[p.g] = p.a, p.b
			if allowed(c) && (best == nil || covers(c) > covers(best)) {
				best = c
			}
		}
		if best == nil {
			delete(open, p)
			continue
		}
		for f := range best {
			for g := f + 1; g < len(best); g++ {
				delete(open, pair{f, best[f], g, best[g]})
			}
		}
		chosen = append(chosen, best)
	}
	return chosen
}
