package rmsnorm

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/scratch"
)

const (
	// blockBytes is how much of a token lies in one block of channels: six tokens
	// and four columns of phi then share a first-level cache of 32 KiB.
	blockBytes = 2048
	// lineBytes is a cache line. Rows of a tile lie one more than a block apart, lest
	// they compete for the same few places of a cache.
	lineBytes = 64
	// packing is how many numbers of phi make a piece of work that is worth a
	// goroutine: some 5 microseconds, since more work for it follows.
	packing = 50_000
)

// layout says how K is cut into blocks and phi packed (package matmul).
type layout[A dtype.Float] struct {
	Dims
	*matmul.Kernels[A]
	columns int // M and its padding
	span    int // channels in a block; the last has fewer
	stride  int // of the rows of a tile
}

func newLayout[A dtype.Float](d Dims) layout[A] {
	size := int(unsafe.Sizeof(*new(A)))
	span := min(blockBytes/size, roundUp(d.K, matmul.Strip))
	return layout[A]{d, matmul.Of[A](), roundUp(d.M, matmul.Cols), span, span + lineBytes/size}
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// block is a range of channels.
type block struct {
	at     int // where it begins in a packed phi
	lo, hi int // channels
	width  int // hi-lo and its padding
}

func (l *layout[A]) blocks() int { return (l.K + l.span - 1) / l.span }

func (l *layout[A]) block(i int) block {
	lo, hi := i*l.span, min(l.K, (i+1)*l.span)
	return block{i * l.columns * l.stride, lo, hi, roundUp(hi-lo, matmul.Strip)}
}

// strip is the part of a block from its channel s on that is matmul.Strip wide.
func (b block) strip(s int) block {
	return block{b.at + s, b.lo + s, min(b.lo+s+matmul.Strip, b.hi), matmul.Strip}
}

// apart is the number of the block that is gone through as the i-th: first the even
// ones, then the odd. Two neighbours share the pages of x, and two processors that
// work on them at a time fetch lines of each other's.
func (l *layout[A]) apart(i int) int {
	if even := (l.blocks() + 1) / 2; i >= even {
		return 2*(i-even) + 1
	}
	return 2 * i
}

// packed is the length of a packed phi.
func (l *layout[A]) packed() int { return l.blocks() * l.columns * l.stride }

// pack returns phi packed, in a buffer to give back.
func pack[A dtype.Float, P dtype.Storage](l *layout[A], phi []P) *[]A {
	buffer := scratch.Borrow[A](&packed, l.packed())
	parallel.Blocks(l.blocks(), max(1, packing/(l.columns*l.span)), func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			packBlock(l, (*buffer), phi, l.block(i))
		}
	})
	return buffer
}

// packBlock packs one block of phi.
func packBlock[A dtype.Float, P dtype.Storage](l *layout[A], dst []A, phi []P, b block) {
	dst = dst[b.at:]
	for j := range l.columns {
		first := 0
		if j < l.M {
			first = b.hi - b.lo
		}
		clear(dst[j*l.stride+first : j*l.stride+b.width])
	}
	if l.Transposed {
		for j := range l.M {
			dtype.Widen(dst[j*l.stride:][:b.hi-b.lo], phi[j*l.K+b.lo:][:b.hi-b.lo])
		}
		return
	}
	wide := scratch.Borrow[A](&wides, matmul.Strip*l.M)
	defer scratch.GiveBack(&wides, wide)
	for k := b.lo; k < b.hi; k += matmul.Strip {
		rows := min(matmul.Strip, b.hi-k)
		src, ok := any(phi[k*l.M:]).([]A)
		if !ok {
			src = (*wide)[:rows*l.M]
			dtype.Widen(src, phi[k*l.M:][:rows*l.M])
		}
		l.Transpose(dst[k-b.lo:], l.stride, src, l.M, rows, l.M)
	}
}

// unpack writes a block of a packed matrix to dst, which has phi's layout.
func unpack[A dtype.Float, P dtype.Storage](l *layout[A], dst []P, src []A, b block) {
	if l.Transposed {
		for j := range l.M {
			dtype.Narrow(dst[j*l.K+b.lo:][:b.hi-b.lo], src[j*l.stride:][:b.hi-b.lo])
		}
		return
	}
	wide := scratch.Borrow[A](&wides, matmul.Strip*l.M)
	defer scratch.GiveBack(&wides, wide)
	for k := b.lo; k < b.hi; k += matmul.Strip {
		rows := min(matmul.Strip, b.hi-k)
		to, ok := any(dst[k*l.M:]).([]A)
		if !ok {
			to = (*wide)[:rows*l.M]
		}
		l.Transpose(to, l.M, src[k-b.lo:], l.stride, l.M, rows)
		if !ok {
			dtype.Narrow(dst[k*l.M:][:rows*l.M], to)
		}
	}
}

// load fills a tile, whose rows lie ld numbers apart, with one block of the tokens
// [t, t+rows), each multiplied by a factor and padded with zeros, and, unless
// squares is nil, sums the squares of the channels.
func load[A dtype.Float, S dtype.Storage](l *layout[A], tile []A, ld int, x []S, t, rows int, b block, factor, squares []A) {
	n := b.hi - b.lo
	matmul.Load(l.Kernels, tile, ld, x[t*l.K+b.lo:], l.K, factor, squares, rows, n)
	if n == b.width {
		return
	}
	for i := range rows {
		clear(tile[i*ld+n : i*ld+b.width])
	}
}

// coming says where a kernel fetches ahead: the address of channel k of token t,
// or of the last channel of all if there is none, and the bytes from token to
// token.
func coming[A dtype.Float, S dtype.Storage](l *layout[A], x []S, t, k int) (next *byte, step int) {
	return (*byte)(unsafe.Pointer(&x[min(t*l.K+k, len(x)-1)])), l.K * int(unsafe.Sizeof(x[0]))
}
