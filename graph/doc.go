// Package graph is what a model builder touches: mHC layers and stacks for a
// Gorgonia expression graph, a trainer with AdamW and checkpoints, weights from
// and for other frameworks, export, and diagnostics.
//
// A [Layer] wraps a function F: [..., C] -> [..., C] in a manifold-constrained
// hyper-connection,
//
//	x -> PostRes(x, F(Pre(x, h_pre)), h_post, h_res)      x is [..., n, C]
//
// and a [Stack] adds the way in (Streams) and the way out (a [Head]). Their nodes
// are ordinary nodes: Grad, every machine and every solver of Gorgonia work on
// them. A [Trainer] is the training loop written once, with what Gorgonia leaves
// to its user taken care of.
//
// # A loop of one's own
//
// What there is to know of Gorgonia v0.9.18 then:
//
//   - Call gorgonia.Grad once on a graph, and on a cost of float32 or float64: for
//     any other it returns neither gradients nor an error.
//   - Make what is to be read ([WatchGain], gorgonia.Read) before the machine,
//     which is compiled from the graph as it stands and reuses the memory of nodes
//     that nothing reads.
//   - Call Reset after each RunAll: on a finished machine RunAll does nothing.
//   - A machine with BindDualValues adds to the gradients that are there. Gorgonia's
//     solvers and [AdamW] set them to zero after their step; a run without a step
//     does not.
//   - Give every input node a name of its own: nodes of one name, type and shape are
//     one node. [NewLayer] and its kin refuse a name that is taken.
package graph
