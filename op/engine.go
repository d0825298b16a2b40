package op

import (
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/sinkhorn"
)

// Engine is a tensor engine that takes over the mHC operators. An op asks the
// engines of its input tensors whether one implements Engine, and computes on the
// CPU if none does; so a machine made with gorgonia.WithEngine(e) runs the same
// graph on e. Tensors of two such engines do not meet: that is an error.
type Engine interface {
	tensor.Engine
	Operators
}

// Operators are the computations behind the ops.
//
// Every method checks nothing about shapes that the constructors of this package
// have checked, reads its inputs and never writes them or their headers, and
// returns tensors that it has allocated. Inputs are contiguous and row-major.
// They, and the results, may lie in memory that Go cannot reach, where the
// engine's built-in operators can. Any goroutine may call. Shapes, dtypes and
// equations are those of the constructors; a panic, or a result of another shape
// or dtype, becomes the op's error.
//
// A method that has no implementation for these operands (a dtype or a number
// of streams that the engine does not know) returns an error that wraps
// [errors.ErrUnsupported], before it has done anything; Do then computes on the
// CPU. Any other error is the result of Do.
type Operators interface {
	// Coeffs computes the coefficients and what their backward keeps.
	Coeffs(in CoeffsInputs, cfg mhc.Config) (CoeffsOutputs, error)
	// CoeffsBackward computes the gradients of in. Of kept it reads Mix and R.
	CoeffsBackward(in CoeffsInputs, kept CoeffsOutputs, up CoeffsUpstream, cfg mhc.Config) (CoeffsGradients, error)

	// MatMulRMS computes mix [..., M] and r [...] of x and phi.
	MatMulRMS(x, phi tensor.Tensor, cfg MatMulRMSConfig) (mix, r tensor.Tensor, err error)
	// MatMulRMSBackward computes the gradients of x and phi from that of mix.
	MatMulRMSBackward(x, phi, mix, r, dmix tensor.Tensor, cfg MatMulRMSConfig) (dx, dphi tensor.Tensor, err error)

	// Sinkhorn projects logits [..., n, n].
	Sinkhorn(logits tensor.Tensor, cfg sinkhorn.Config) (tensor.Tensor, error)
	// SinkhornBackward computes the gradient of logits from that of the projection.
	SinkhornBackward(logits, dout tensor.Tensor, cfg sinkhorn.Config) (tensor.Tensor, error)

	// Pre reads the streams: x [..., n, C] and hpre [..., n] to [..., C].
	Pre(x, hpre tensor.Tensor) (tensor.Tensor, error)
	// PreBackward computes the gradients of x and hpre from g [..., C].
	PreBackward(x, hpre, g tensor.Tensor) (dx, dhpre tensor.Tensor, err error)

	// PostRes mixes the streams and writes f to them, [..., n, C].
	PostRes(in PostResInputs, apply mhc.Apply) (tensor.Tensor, error)
	// PostResBackward computes the gradients of in from g [..., n, C].
	PostResBackward(in PostResInputs, g tensor.Tensor, apply mhc.Apply) (PostResInputs, error)

	// Streams copies x [..., C] to n streams [..., n, C].
	Streams(x tensor.Tensor, n int) (tensor.Tensor, error)
	// StreamsBackward sums g [..., n, C] over the streams, [..., C].
	StreamsBackward(g tensor.Tensor) (tensor.Tensor, error)

	// Head computes the way out of a stack and what its backward keeps.
	Head(in HeadInputs, cfg mhc.HeadConfig) (HeadOutputs, error)
	// HeadBackward computes the gradients of in from g [..., C]. Of kept it reads
	// Mix and R.
	HeadBackward(in HeadInputs, kept HeadOutputs, g tensor.Tensor, cfg mhc.HeadConfig) (HeadInputs, error)

	// Cast converts x to another dtype, rounding to nearest even.
	Cast(x tensor.Tensor, to tensor.Dtype) (tensor.Tensor, error)

	// AddAll adds tensors of one shape and dtype in float32 or wider and rounds
	// once. The gradients of a 16-bit node with several uses meet here, since the
	// built-in Add does not know 16-bit dtypes. There is at least one term. (A
	// method named Sum would hide that of the tensor.StdEng that an engine embeds.)
	AddAll(terms ...tensor.Tensor) (tensor.Tensor, error)
}

// MatMulRMSConfig holds the settings of MatMulRMS.
type MatMulRMSConfig struct {
	// RMSEps is added to the mean square of a token before the root.
	RMSEps float64
	// Phi is the layout of phi.
	Phi mhc.PhiLayout
}

// CoeffsInputs are the operands of Coeffs.
type CoeffsInputs struct {
	X     tensor.Tensor // [..., n, C]
	Phi   tensor.Tensor // [K, M], or [M, K] where the Config says so
	B     tensor.Tensor // [M]
	Alpha tensor.Tensor // [3]
}

// CoeffsOutputs are the results of Coeffs.
type CoeffsOutputs struct {
	Pre  tensor.Tensor // [..., n]
	Post tensor.Tensor // [..., n]
	Res  tensor.Tensor // [..., n, n]
	Mix  tensor.Tensor // [..., M]
	R    tensor.Tensor // [...]; [1] where X is one token
}

// CoeffsUpstream are the gradients of the loss by the coefficients; nil where an
// output is not used, and its work is skipped.
type CoeffsUpstream struct{ Pre, Post, Res tensor.Tensor }

// CoeffsGradients are the gradients of the loss by the operands of Coeffs, in
// their shapes and dtypes.
type CoeffsGradients = CoeffsInputs

// PostResInputs are the operands of PostRes, or their gradients.
type PostResInputs struct {
	X     tensor.Tensor // [..., n, C]
	F     tensor.Tensor // [..., C]
	HPost tensor.Tensor // [..., n]
	HRes  tensor.Tensor // [..., n, n]
}

// HeadInputs are the operands of Head, or their gradients.
type HeadInputs struct {
	X     tensor.Tensor // [..., n, C]
	Phi   tensor.Tensor // [K, n], or [n, K] where the HeadConfig says so
	B     tensor.Tensor // [n]
	Alpha tensor.Tensor // [1]
}

// HeadOutputs are the results of Head.
type HeadOutputs struct {
	Out tensor.Tensor // [..., C]
	Mix tensor.Tensor // [..., n]
	R   tensor.Tensor // [...]; [1] where X is one token
}
