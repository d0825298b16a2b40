// Package graph is what a model builder touches: mHC layers and stacks for a
// Gorgonia expression graph, a trainer with AdamW and checkpoints, weights from
// and for other frameworks, export, and diagnostics.
//
// A [Layer] wraps a function F: [..., C] -> [..., C] in a manifold-constrained
// hyper-connection,
//
//	x -> PostRes(x, F(Pre(x, h_pre)), h_post, h_res)      x is [..., n, C]
//
// and a [Stack] adds the way in (Streams) and the way out (Head). Their nodes are
// ordinary nodes: Grad, every machine and every solver of Gorgonia work on them,
// and a training loop of one's own needs nothing else from this package. A
// [Trainer] is that loop written once, with what Gorgonia leaves to its user
// taken care of.
package graph
