// Package op has the mHC operators as Gorgonia ops: nodes of an ExprGraph that
// Grad, TapeMachine, LispMachine and any solver work on like on built-in ones.
//
//	[Streams]    the way into a stack of layers       [..., C] -> [..., n, C]
//	[Coeffs]     h_pre, h_post and h_res of a layer   one backward for all
//	[Pre]        what the layer reads                 [..., n, C] -> [..., C]
//	[PostRes]    what it leaves in the streams        [..., n, C]
//	[Head]       the way out of a stack               [..., n, C] -> [..., C]
//	[MatMulRMS]  the projection alone
//	[Sinkhorn]   the doubly stochastic matrix alone
//	[Cast]       to and from 16-bit storage
//
// A layer around a function f is
//
//	x_out = PostRes(x, f(Pre(x, h_pre)), h_post, h_res)
//
// Package graph makes layers, parameters and training loops of these.
//
// # Dtypes
//
// Nodes are float32 or float64. Streams (x, f) and phi can also be stored as
// [BFloat16] or [Float16]: they are widened to float32, computed with, and the
// results rounded once. Built-in operators do not know these dtypes, so [Cast]
// stands between; a node of them can have any number of uses, whose gradients
// are added in float32.
//
// # Devices
//
// The engine of the tensors is the backend: a machine made with
// gorgonia.WithEngine(e) computes on e if it is an [Engine], and on the CPU
// otherwise. Nothing in a graph changes. On the CPU, an [Arena] saves a training
// loop the allocation of the ops' results.
//
// # Gradients
//
// Every op has one backward that computes the gradients of all its operands, and
// skips what belongs to unused outputs. There are no second derivatives. The
// mechanism, and what Gorgonia asks of its users (unique names, one call of Grad,
// no unused outputs on a LispMachine), is in package
// [github.com/mhc-go/mhc/op/fused].
//
// Constructors return errors that name the op, the operand, what it is and what is
// wanted; an op's errors when it runs are those of the machine. Nothing panics.
package op
