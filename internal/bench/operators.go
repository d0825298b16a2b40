package bench

import (
	"gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/op"
)

// operator is what is measured: built from this project's operators, and of the
// same inputs from Gorgonia's own.
type operator struct {
	name       string
	mhc, peers func(b *builder) error
	// linear says that the backward does not read the inputs.
	linear bool
	// device is the operator on device memory.
	device func(r *resident) (fwd, bwd []cuda.Operator)
}

var operators = []operator{
	{name: "coeffs", mhc: coeffs, peers: peerCoeffs, device: deviceCoeffs},
	{name: "matmulrms", mhc: matMulRMS, peers: peerMatMulRMS, device: deviceMatMulRMS},
	{name: "sinkhorn", mhc: sinkhorn, peers: peerSinkhorn, device: deviceSinkhorn},
	{name: "pre", mhc: pre, peers: peerPre, device: devicePre},
	{name: "postres", mhc: postRes, peers: peerPostRes, device: devicePostRes},
	{name: "streams", mhc: streams, peers: peerStreams, device: deviceStreams, linear: true},
	{name: "head", mhc: head, peers: peerHead, device: deviceHead},
	{name: "layer", mhc: layer, peers: peerLayer, device: deviceLayer},
}

// Names are those of the operators that can be measured.
func Names() []string {
	names := make([]string, len(operators))
	for i, o := range operators {
		names[i] = o.name
	}
	return names
}

// coeffsInputs are x, phi, b and alpha.
func (b *builder) coeffsInputs() (x, phi, bias, alpha *gorgonia.Node) {
	m := b.Config.Width()
	return b.x(), b.phi(m), b.coefficient("b", 0.5, m), b.coefficient("alpha", 1, 3)
}

func (b *builder) x() *gorgonia.Node {
	return b.streams("x", b.Tokens, b.Config.Streams, b.Channels)
}

func (b *builder) headInputs() (x, phi, bias, alpha *gorgonia.Node) {
	n := b.Config.Streams
	return b.x(), b.phi(n), b.coefficient("b", 0.5, n), b.coefficient("alpha", 1, 1)
}

func (b *builder) preInputs() (x, hpre *gorgonia.Node) {
	return b.x(), b.coefficient("hpre", 1, b.Tokens, b.Config.Streams)
}

func (b *builder) postResInputs() (x, f, hpost, hres *gorgonia.Node) {
	n := b.Config.Streams
	return b.x(), b.streams("f", b.Tokens, b.Channels), b.coefficient("hpost", 1, b.Tokens, n), b.coefficient("hres", 1, b.Tokens, n, n)
}

// done keeps the one output of an operator.
func (b *builder) done(out *gorgonia.Node, err error) error {
	b.outputs = append(b.outputs, out)
	return err
}

func coeffs(b *builder) error {
	x, phi, bias, alpha := b.coeffsInputs()
	c, err := op.Coeffs(x, phi, bias, alpha, b.Config)
	if err != nil {
		return err
	}
	for _, output := range []func() (*gorgonia.Node, error){c.Pre, c.Post, c.Res} {
		if err := b.done(output()); err != nil {
			return err
		}
	}
	return nil
}

func matMulRMS(b *builder) error {
	return b.done(op.MatMulRMS(b.x(), b.phi(b.Config.Width()), op.MatMulRMSConfig{RMSEps: b.Config.RMSEps, Phi: b.Config.Phi}))
}

func sinkhorn(b *builder) error {
	n := b.Config.Streams
	return b.done(op.Sinkhorn(b.coefficient("logits", 1, b.Tokens, n, n), b.Config.Sinkhorn))
}

func pre(b *builder) error { return b.done(op.Pre(b.preInputs())) }

func postRes(b *builder) error {
	x, f, hpost, hres := b.postResInputs()
	return b.done(op.PostRes(x, f, hpost, hres, b.Config.Apply))
}

func streams(b *builder) error {
	return b.done(op.Streams(b.streams("x", b.Tokens, b.Channels), b.Config.Streams))
}

func head(b *builder) error {
	x, phi, bias, alpha := b.headInputs()
	return b.done(op.Head(x, phi, bias, alpha, b.Config.Head()))
}

// layer is a layer around the identity: all that mHC adds to a network.
func layer(b *builder) error {
	x, phi, bias, alpha := b.coeffsInputs()
	c, err := op.Coeffs(x, phi, bias, alpha, b.Config)
	if err != nil {
		return err
	}
	hpre, err := c.Pre()
	if err != nil {
		return err
	}
	f, err := op.Pre(x, hpre)
	if err != nil {
		return err
	}
	hpost, err := c.Post()
	if err != nil {
		return err
	}
	hres, err := c.Res()
	if err != nil {
		return err
	}
	return b.done(op.PostRes(x, f, hpost, hres, b.Config.Apply))
}
