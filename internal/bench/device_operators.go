package bench

import (
	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
)

func (r *resident) transposed() bool { return r.Config.Phi == mhc.PhiMK }

// coefficients are the addresses of h_pre, h_post and h_res, or of their gradients.
type coefficients struct{ pre, post, res plan.Ptr }

// keptCoefficients takes memory for coefficients, named from a prefix.
func (r *resident) keptCoefficients(prefix string) coefficients {
	t, n := r.Tokens, r.Config.Streams
	return coefficients{r.kept(prefix+"hpre", t*n), r.kept(prefix+"hpost", t*n), r.kept(prefix+"hres", t*n*n)}
}

// coeffs are the operators from x to h, and from g to dx and the gradients of the
// parameters.
func (r *resident) coeffs(h, g coefficients, dx plan.Ptr) (fwd, bwd cuda.Operator) {
	t, pt := planType(r.Dtype), planType(r.phiDtype())
	mix, k := r.kept("mix", r.Tokens*r.Config.Width()), r.kept("r", r.Tokens)
	return &plan.CoeffsForward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: t, PhiType: pt, PhiTransposed: r.transposed(),
			RMSEps: r.Config.RMSEps, PreEps: r.Config.PreEps, PostMult: r.Config.PostMult, Sinkhorn: r.Config.Sinkhorn,
			X: r.at("x"), Phi: r.at("phi"), B: r.at("b"), Alpha: r.at("alpha"),
			HPre: h.pre, HPost: h.post, HRes: h.res, Mix: mix, R: k,
		}, &plan.CoeffsBackward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: t, PhiType: pt, PhiTransposed: r.transposed(),
			PostMult: r.Config.PostMult, Sinkhorn: r.Config.Sinkhorn,
			X: r.at("x"), Phi: r.at("phi"), B: r.at("b"), Alpha: r.at("alpha"), Mix: mix, R: k,
			GPre: g.pre, GPost: g.post, GRes: g.res,
			DX: dx, DPhi: r.at("dphi"), DPhiType: pt, DB: r.at("db"), DAlpha: r.at("dalpha"),
		}
}

// pre are the operators from x and hpre to out, and from g to dx and dhpre.
func (r *resident) pre(hpre, out, g, dx, dhpre plan.Ptr) (fwd, bwd cuda.Operator) {
	return &plan.PreForward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype),
			X: r.at("x"), HPre: hpre, Out: out,
		}, &plan.PreBackward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype),
			X: r.at("x"), HPre: hpre, G: g, DX: dx, DHPre: dhpre,
		}
}

// postRes are the operators from x, f and h to output0, and from upstream0 to dx,
// df and dh.
func (r *resident) postRes(f plan.Ptr, h coefficients, dx, df plan.Ptr, dh coefficients) (fwd, bwd cuda.Operator) {
	transposed := r.Config.Apply == mhc.ApplyTransposed
	return &plan.PostResForward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype), Transposed: transposed,
			X: r.at("x"), F: f, HRes: h.res, HPost: h.post, Out: r.at("output0"),
		}, &plan.PostResBackward{
			Tokens: int64(r.Tokens), Streams: r.Config.Streams, Channels: r.Channels, XType: planType(r.Dtype), Transposed: transposed,
			X: r.at("x"), F: f, HRes: h.res, HPost: h.post, G: r.at("upstream0"),
			DX: dx, DF: df, DHRes: dh.res, DHPost: dh.post,
		}
}

// pair is a forward and a backward of an operator each.
func pair(fwd, bwd cuda.Operator) (f, b []cuda.Operator) {
	return []cuda.Operator{fwd}, []cuda.Operator{bwd}
}

func deviceCoeffs(r *resident) (fwd, bwd []cuda.Operator) {
	return pair(r.coeffs(coefficients{r.at("output0"), r.at("output1"), r.at("output2")},
		coefficients{r.at("upstream0"), r.at("upstream1"), r.at("upstream2")}, r.at("dx")))
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
	return pair(r.pre(r.at("hpre"), r.at("output0"), r.at("upstream0"), r.at("dx"), r.at("dhpre")))
}

func devicePostRes(r *resident) (fwd, bwd []cuda.Operator) {
	return pair(r.postRes(r.at("f"), coefficients{post: r.at("hpost"), res: r.at("hres")},
		r.at("dx"), r.at("df"), coefficients{post: r.at("dhpost"), res: r.at("dhres")}))
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

// deviceLayer is the layer around the identity: f is what Pre reads. The three
// terms of dx, of PostRes, Pre and the coefficients, lie one after the other and
// are added up as if they were the streams of one token.
func deviceLayer(r *resident) (fwd, bwd []cuda.Operator) {
	t := planType(r.Dtype)
	numbers := r.Tokens * r.Config.Streams * r.Channels
	size := int64(numbers) * t.Size()
	h, dh := r.keptCoefficients(""), r.keptCoefficients("d")
	f, df := r.memory("f", size/int64(r.Config.Streams)), r.memory("df", size/int64(r.Config.Streams))
	terms := r.memory("terms of dx", 3*size)
	term := func(i int) plan.Ptr { return terms + plan.Ptr(int64(i)*size) }
	write, writeBack := r.postRes(f, h, term(0), df, dh)
	read, readBack := r.pre(h.pre, f, df, term(1), dh.pre)
	coeffs, coeffsBack := r.coeffs(h, dh, term(2))
	sum := &plan.StreamsBackward{Tokens: 1, Streams: 3, Channels: numbers, XType: t, G: terms, DX: r.at("dx")}
	return []cuda.Operator{coeffs, read, write}, []cuda.Operator{writeBack, readBack, coeffsBack, sum}
}
