package bench

import (
	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
)

func (r *resident) transposed() bool { return r.Config.Phi == mhc.PhiMK }

func deviceCoeffs(r *resident) (fwd, bwd []cuda.Operator) {
	t, pt := planType(r.Dtype), planType(r.phiDtype())
	mix, k := r.kept("mix", r.Tokens*r.Config.Width()), r.kept("r", r.Tokens)
	return []cuda.Operator{&plan.CoeffsForward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: t, PhiType: pt, PhiTransposed: r.transposed(),
			RMSEps: r.Config.RMSEps, PreEps: r.Config.PreEps, PostMult: r.Config.PostMult, Sinkhorn: r.Config.Sinkhorn,
			X: r.at("x"), Phi: r.at("phi"), B: r.at("b"), Alpha: r.at("alpha"),
			HPre: r.at("output0"), HPost: r.at("output1"), HRes: r.at("output2"), Mix: mix, R: k,
		}}, []cuda.Operator{&plan.CoeffsBackward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: t, PhiType: pt, PhiTransposed: r.transposed(),
			PostMult: r.Config.PostMult, Sinkhorn: r.Config.Sinkhorn,
			X: r.at("x"), Phi: r.at("phi"), B: r.at("b"), Alpha: r.at("alpha"), Mix: mix, R: k,
			GPre: r.at("upstream0"), GPost: r.at("upstream1"), GRes: r.at("upstream2"),
			DX: r.at("dx"), DPhi: r.at("dphi"), DPhiType: pt, DB: r.at("db"), DAlpha: r.at("dalpha"),
		}}
}

func deviceMatMulRMS(r *resident) (fwd, bwd []cuda.Operator) {
	t, pt := planType(r.Dtype), planType(r.phiDtype())
	k, m := int64(r.Config.Streams*r.Channels), int64(r.Config.Width())
	root := r.kept("r", r.Tokens)
	return []cuda.Operator{&plan.MatMulRMSForward{
			Tokens: int64(r.Tokens), K: k, M: m, XType: t, PhiType: pt, PhiTransposed: r.transposed(), RMSEps: r.Config.RMSEps,
			X: r.at("x"), Phi: r.at("phi"), Mix: r.at("output0"), R: root,
		}}, []cuda.Operator{&plan.MatMulRMSBackward{
			Tokens: int64(r.Tokens), K: k, M: m, XType: t, PhiType: pt, PhiTransposed: r.transposed(),
			X: r.at("x"), Phi: r.at("phi"), Mix: r.at("output0"), R: root, GMix: r.at("upstream0"),
			DX: r.at("dx"), DPhi: r.at("dphi"), DPhiType: pt,
		}}
}

func deviceSinkhorn(r *resident) (fwd, bwd []cuda.Operator) {
	batch, n := int64(r.Tokens), r.Config.Streams
	return []cuda.Operator{&plan.SinkhornForward{Batch: batch, N: n, Sinkhorn: r.Config.Sinkhorn, A: r.at("logits"), Out: r.at("output0")}},
		[]cuda.Operator{&plan.SinkhornBackward{Batch: batch, N: n, Sinkhorn: r.Config.Sinkhorn, A: r.at("logits"), G: r.at("upstream0"), DA: r.at("dlogits")}}
}

func devicePre(r *resident) (fwd, bwd []cuda.Operator) {
	return []cuda.Operator{&plan.PreForward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype),
			X: r.at("x"), HPre: r.at("hpre"), Out: r.at("output0"),
		}}, []cuda.Operator{&plan.PreBackward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype),
			X: r.at("x"), HPre: r.at("hpre"), G: r.at("upstream0"), DX: r.at("dx"), DHPre: r.at("dhpre"),
		}}
}

func devicePostRes(r *resident) (fwd, bwd []cuda.Operator) {
	transposed := r.Config.Apply == mhc.ApplyTransposed
	return []cuda.Operator{&plan.PostResForward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype), Transposed: transposed,
			X: r.at("x"), F: r.at("f"), HRes: r.at("hres"), HPost: r.at("hpost"), Out: r.at("output0"),
		}}, []cuda.Operator{&plan.PostResBackward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype), Transposed: transposed,
			X: r.at("x"), F: r.at("f"), HRes: r.at("hres"), HPost: r.at("hpost"), G: r.at("upstream0"),
			DX: r.at("dx"), DF: r.at("df"), DHRes: r.at("dhres"), DHPost: r.at("dhpost"),
		}}
}

func deviceStreams(r *resident) (fwd, bwd []cuda.Operator) {
	return []cuda.Operator{&plan.StreamsForward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype), X: r.at("x"), Out: r.at("output0"),
		}}, []cuda.Operator{&plan.StreamsBackward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype), G: r.at("upstream0"), DX: r.at("dx"),
		}}
}

func deviceHead(r *resident) (fwd, bwd []cuda.Operator) {
	t, pt := planType(r.Dtype), planType(r.phiDtype())
	n := r.Config.Streams
	w, mix, k := r.kept("w", r.Tokens*n), r.kept("mix", r.Tokens*n), r.kept("r", r.Tokens)
	return []cuda.Operator{&plan.HeadForward{
			Tokens: int64(r.Tokens), Streams: n, Channels: r.Channels, XType: t, PhiType: pt, PhiTransposed: r.transposed(),
			RMSEps: r.Config.RMSEps, PreEps: r.Config.PreEps,
			X: r.at("x"), Phi: r.at("phi"), B: r.at("b"), Alpha: r.at("alpha"), Out: r.at("output0"), W: w, Mix: mix, R: k,
		}}, []cuda.Operator{&plan.HeadBackward{
			Tokens: int64(r.Tokens), Streams: n, Channels: r.Channels, XType: t, PhiType: pt, PhiTransposed: r.transposed(),
			X: r.at("x"), Phi: r.at("phi"), B: r.at("b"), Alpha: r.at("alpha"), W: w, Mix: mix, R: k, G: r.at("upstream0"),
			DX: r.at("dx"), DPhi: r.at("dphi"), DPhiType: pt, DB: r.at("db"), DAlpha: r.at("dalpha"),
		}}
}
