package rmsnorm

import "github.com/mhc-go/mhc/internal/scratch"

// What is kept between calls.
var (
	tiles     scratch.Buffers // of tokens, one for each goroutine
	wides     scratch.Buffers // a strip of phi or dphi as it is stored, widened
	products  scratch.Buffers // x phi for some tokens
	squares   scratch.Buffers // sums of squares, of float64
	packed    scratch.Buffers // phi
	partials  scratch.Buffers // sums of dphi
	upstreams scratch.Buffers // dmix and what comes of it
)
