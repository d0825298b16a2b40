// Package fused writes Gorgonia operators that have several inputs, several
// outputs and one backward that computes all gradients at once. It knows nothing
// of mHC: anyone's operator can be described as an [Operator].
//
// Gorgonia's nodes have one output and its operators one gradient an input. Here
// an operator's node returns a [Bundle] of all its results, an output is a node
// that hands out one of them without a copy, and both of Gorgonia's ways to
// differentiate meet in the one Backward:
//
//   - Grad (symbolic, for TapeMachine): the operator's SymDiff looks up which of
//     its output nodes have a gradient and makes one backward node, whose Bundle
//     holds the gradients of the inputs.
//   - LispMachine: an output node's DoDiff leaves its gradient in the Bundle, and
//     the operator's DoDiff runs Backward once and adds the results to the
//     gradients of the inputs.
//
// No state of a run lives in an operator: clones of a graph share operators, and
// machines run them at the same time.
//
// # What Gorgonia asks of its users
//
// Nothing here can change these traits of Gorgonia v0.9.18:
//
//   - Input nodes of one name, type and shape are one node, silently, and so are
//     two inputs without a name. Apply refuses one node in two places.
//   - Call Grad once on a graph: a second call skips what has a gradient already.
//   - LispMachine wants every root of the graph to be scalar, so an output node
//     must be used once it exists. Outputs are made when asked for, not before.
//   - Two machines that run at the same time need a graph each (ExprGraph.Clone).
package fused
