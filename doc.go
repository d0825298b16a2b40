// Package mhc holds the settings of manifold-constrained hyper-connections
// (mHC, arXiv 2512.24880).
//
// A network's residual stream becomes n streams of C channels. At every layer
// coefficients computed from the streams themselves say how they are read
// (h_pre), written (h_post) and mixed (h_res):
//
//	r      = 1 / sqrt(mean(x^2) + rms_eps)          x is the token's n*C numbers
//	mix    = r * (x phi)                            n + n + n*n columns
//	h_pre  = sigmoid(alpha_pre * mix + b) + pre_eps
//	h_post = post_mult * sigmoid(alpha_post * mix + b)
//	h_res  = Sinkhorn(alpha_res * mix + b)          doubly stochastic
//	x_out  = h_res x + h_post f(h_pre x)
//
// Package op has these as Gorgonia ops, package graph as layers with a trainer,
// packages [github.com/mhc-go/mhc/sinkhorn], [github.com/mhc-go/mhc/rmsnorm],
// [github.com/mhc-go/mhc/coeffs] and [github.com/mhc-go/mhc/streams] as
// functions on plain slices.
package mhc
