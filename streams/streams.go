// Package streams applies the coefficients of an mHC layer on plain slices
// (arXiv 2512.24880, eq. 3 and the kernels of section 4.3). It makes n residual
// streams out of one (Expand), reads them for a layer (Pre), mixes them and
// writes the layer's output to them (PostRes), and reads them at the end of a
// stack (Head); each with its exact backward.
//
//	Expand    out[i,c]  = x[c]
//	Pre       xin[c]    = sum_i hpre[i] x[i,c]
//	PostRes   xout[o,c] = sum_i hres[o,i] x[i,c] + hpost[o] f[c]
//	Head      out[c]    = sum_i w[i] x[i,c],   w = sigmoid(alpha r (X phi) + b) + pre_eps
//
// Tensors are row-major, without gaps: a token's streams lie one after the other,
// and x[t,i,c] is x[(t*n+i)*C+c].
//
//	           C channels
//	token 0    stream 0 | stream 1 | ... | stream n-1
//	token 1    stream 0 | stream 1 | ... | stream n-1
//	...
//
// Streams, and what has their type, are of type S. Coefficients are of type A,
// which is float64 where S is, else float32. 16-bit streams are widened to
// float32, computed with, and rounded once.
//
// A function checks its arguments before it writes anything; an error names the
// first that does not fit. Results must not overlap operands, nor each other.
// Work is spread over the tokens, and the same arguments give the same bits
// whatever GOMAXPROCS is. A NaN makes those results NaN that it is a term of,
// also where its factor is zero.
package streams

// Dims are the sizes of a batch of streams.
type Dims struct {
	Tokens   int // N; 0 is valid
	Streams  int // n, 1 or more
	Channels int // C, 1 or more
}
