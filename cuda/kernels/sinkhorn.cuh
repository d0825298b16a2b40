// Sinkhorn normalisation and its exact reverse, as device code for all kernels.
//
// Contract (spec of the operators): P starts as softmax of the rows + eps (START_SOFTMAX) or exp(A - column maximum)
// (START_EXP). Then `steps` normalisations P / (s + eps) alternate, columns first. Element (o, i) of a matrix is row o; column
// sums run over o.
//
// Ideas
// - The reverse carries G = dP * P. One reversed normalisation is then G -= Y * sum(G) with the normalised Y: no division, and
//   bounded whatever the sums were. Y is walked back by Y * (s + eps), from the saved sums alone.
// - Divisions are multiplications by a reciprocal with an error of one unit in the last place; the next normalisation
//   corrects the scale.
// - Without eps a sum may underflow. A matrix in which a sum falls below 1e-6 (+ eps) is done again with logarithms, in place too
//   (L = log P, L -= log(s + eps)): rare, slow, right.
// - Two layouts: n up to 4 in the registers of one thread, any n up to 64 in shared memory with a group of lanes a matrix, each
//   of which owns whole rows and whole columns.
#pragma once
#include "common.cuh"

enum { START_SOFTMAX = 0, START_EXP = 1 };

#define SINK_LOW 1e-6f

__device__ __forceinline__ float log_add(float a, float b) {
    float m = fmaxf(a, b), d = fabsf(a - b);
    return a == b ? m + 0.69314718f : m + log1pf(expf(-d));
}

// n = S up to 4, one thread. A history slot is a float4, whatever S.

template <int S>
__device__ __forceinline__ float sink_max(const float (&a)[S * S], int b, int d) {
    float m = a[b];
#pragma unroll
    for (int k = 1; k < S; k++) m = fmaxf(m, a[b + k * d]);
    return m;
}

template <int S>
__device__ __forceinline__ float sink_sum(const float (&a)[S * S], int b, int d) {
    if (S == 4) return (a[b] + a[b + d]) + (a[b + 2 * d] + a[b + (S - 1) * d]);
    float s = a[b];
#pragma unroll
    for (int k = 1; k < S; k++) s += a[b + k * d];
    return s;
}

template <int S>
__device__ __forceinline__ void sink_softmax(const float (&a)[S * S], float (&p)[S * S]) {
#pragma unroll
    for (int o = 0; o < S; o++) {
        const float m = sink_max<S>(a, S * o, 1);
#pragma unroll
        for (int i = 0; i < S; i++) p[S * o + i] = expf(a[S * o + i] - m);
        const float s = reciprocal(sink_sum<S>(p, S * o, 1));
#pragma unroll
        for (int i = 0; i < S; i++) p[S * o + i] *= s;
    }
}

template <int S>
__device__ __forceinline__ void sink_start(const float (&a)[S * S], float (&p)[S * S], int start, float eps) {
    if (start == START_SOFTMAX) {
        sink_softmax<S>(a, p);
#pragma unroll
        for (int i = 0; i < S * S; i++) p[i] += eps;
        return;
    }
#pragma unroll
    for (int i = 0; i < S; i++) {
        const float m = sink_max<S>(a, i, S);
#pragma unroll
        for (int o = 0; o < S; o++) p[S * o + i] = expf(a[S * o + i] - m);
    }
}

// sink_step is one normalisation; s gets the sums + eps.
template <int S, bool COL>
__device__ __forceinline__ void sink_step(float (&p)[S * S], float eps, float (&s)[4]) {
    float y[4];
#pragma unroll
    for (int j = 0; j < S; j++) s[j] = sink_sum<S>(p, COL ? j : S * j, COL ? S : 1) + eps;
    // One reciprocal serves two sums: the unit that gives them is the slowest part of a step.
#pragma unroll
    for (int j = 0; j + 1 < S; j += 2) {
        const float q = reciprocal(s[j] * s[j + 1]);
        y[j] = s[j + 1] * q, y[j + 1] = s[j] * q;
    }
    if (S & 1) y[S - 1] = reciprocal(s[S - 1]);
#pragma unroll
    for (int j = 0; j < S; j++) {
        const int b = COL ? j : S * j, d = COL ? S : 1;
#pragma unroll
        for (int k = 0; k < S; k++) p[b + k * d] *= y[j];
    }
}

template <int S>
__device__ __forceinline__ float sink_min(float m, const float (&s)[4]) {
#pragma unroll
    for (int j = 0; j < S; j++) m = fminf(m, s[j]);
    return m;
}

// sink_loop does all steps, saves the sums of step k at hist[k*stride] if HIST, and returns whether logarithms are needed.
template <int S, bool HIST, bool CHECK>
__device__ __forceinline__ bool sink_loop(float (&p)[S * S], int steps, float eps, float4 *hist, int stride) {
    float low = 2.f + eps, c[4] = {1.f, 1.f, 1.f, 1.f}, r[4] = {1.f, 1.f, 1.f, 1.f};
    int k = 0;
    for (; k + 1 < steps; k += 2) {
        sink_step<S, true>(p, eps, c);
        if (HIST) hist[k * stride] = make_float4(c[0], c[1], c[2], c[3]);
        sink_step<S, false>(p, eps, r);
        if (HIST) hist[(k + 1) * stride] = make_float4(r[0], r[1], r[2], r[3]);
        if (CHECK) low = sink_min<S>(sink_min<S>(low, c), r);
    }
    if (k < steps) {
        sink_step<S, true>(p, eps, c);
        if (HIST) hist[k * stride] = make_float4(c[0], c[1], c[2], c[3]);
        if (CHECK) low = sink_min<S>(low, c);
    }
    return CHECK && low < SINK_LOW + eps;
}

// With an eps of 1e-6 or more, the softmax start keeps every element and so every sum far from underflow.
__device__ __forceinline__ bool sink_may_underflow(int start, float eps) { return eps < SINK_LOW || start == START_EXP; }

template <int S, bool HIST>
__device__ __forceinline__ bool sink_run(float (&p)[S * S], int start, int steps, float eps, float4 *hist, int stride) {
    if (sink_may_underflow(start, eps)) return sink_loop<S, HIST, true>(p, steps, eps, hist, stride);
    return sink_loop<S, HIST, false>(p, steps, eps, hist, stride);
}

// sink_log turns logits a into log P after all steps, in place, and saves log(s + eps). The slow functions take n at run time.
__device__ __noinline__ void sink_log(int n, float *a, int start, int steps, float eps, float4 *hist, int stride) {
    const float leps = eps > 0.f ? logf(eps) : 0.f;
    for (int j = 0; j < n; j++) {
        const int b = start == START_EXP ? j : n * j, d = start == START_EXP ? n : 1;
        float m = a[b], s = 0.f;
        for (int k = 1; k < n; k++) m = fmaxf(m, a[b + k * d]);
        for (int k = 0; k < n; k++) s += expf(a[b + k * d] -= m);
        if (start == START_SOFTMAX)
            for (int k = 0; k < n; k++) {
                a[b + k * d] -= logf(s);
                if (eps > 0.f) a[b + k * d] = log_add(a[b + k * d], leps);
            }
    }
    for (int k = 0; k < steps; k++) {
        float l[4] = {0.f, 0.f, 0.f, 0.f};
        for (int j = 0; j < n; j++) {
            const int b = k & 1 ? n * j : j, d = k & 1 ? 1 : n;
            float m = a[b], s = 0.f;
            for (int q = 1; q < n; q++) m = fmaxf(m, a[b + q * d]);
            for (int q = 0; q < n; q++) s += expf(a[b + q * d] - m);
            float v = m + logf(s);
            if (eps > 0.f) v = log_add(v, leps);
            for (int q = 0; q < n; q++) a[b + q * d] -= v;
            l[j] = v;
        }
        if (hist) hist[k * stride] = make_float4(l[0], l[1], l[2], l[3]);
    }
}

// sink_forward: p = Sinkhorn(a).
template <int S>
__device__ __forceinline__ void sink_forward(const float (&a)[S * S], float (&p)[S * S], int start, int steps, float eps) {
    sink_start<S>(a, p, start, eps);
    if (sink_run<S, false>(p, start, steps, eps, 0, 0)) {
        float l[S * S]; // a copy, so that a stays in registers on the fast path
#pragma unroll
        for (int i = 0; i < S * S; i++) l[i] = a[i];
        sink_log(S, l, start, steps, eps, 0, 0);
#pragma unroll
        for (int i = 0; i < S * S; i++) p[i] = expf(l[i]);
    }
}

// sink_undo reverses one normalisation: G and Y from after it to before it.
template <int S, bool COL>
__device__ __forceinline__ void sink_undo(float (&g)[S * S], float (&y)[S * S], float4 s4) {
    const float s[4] = {s4.x, s4.y, s4.z, s4.w};
#pragma unroll
    for (int j = 0; j < S; j++) {
        const int b = COL ? j : S * j, d = COL ? S : 1;
        const float t = sink_sum<S>(g, b, d);
#pragma unroll
        for (int k = 0; k < S; k++) {
            g[b + k * d] -= y[b + k * d] * t;
            y[b + k * d] *= s[j];
        }
    }
}

// sink_reverse_slow: g in as the gradient of the result, out as G before the first step.
__device__ __noinline__ void sink_reverse_slow(int n, float *a, float *g, int start, int steps, float eps, float4 *hist, int stride) {
    sink_log(n, a, start, steps, eps, hist, stride);
    for (int i = 0; i < n * n; i++) g[i] *= expf(a[i]);
    for (int k = steps - 1; k >= 0; k--) {
        const float4 h = hist[k * stride];
        const float l[4] = {h.x, h.y, h.z, h.w};
        for (int j = 0; j < n; j++) {
            const int b = k & 1 ? n * j : j, d = k & 1 ? 1 : n;
            float t = 0.f;
            for (int q = 0; q < n; q++) t += g[b + q * d];
            for (int q = 0; q < n; q++) {
                g[b + q * d] -= expf(a[b + q * d]) * t;
                a[b + q * d] += l[j];
            }
        }
    }
}

// sink_backward: g in as the gradient of the result, out as that of the logits a. hist has steps + 4 slots, `stride` apart.
template <int S>
__device__ __forceinline__ void sink_backward(float (&a)[S * S], float (&g)[S * S], int start, int steps, float eps, float4 *hist, int stride) {
    float y[S * S];
    sink_start<S>(a, y, start, eps);
    float4 *logits = hist + steps * stride; // kept out of registers
#pragma unroll
    for (int i = 0; i < S * S; i++) ((float *)(logits + i / 4 * stride))[i % 4] = a[i];
    if (sink_run<S, true>(y, start, steps, eps, hist, stride)) {
        float al[S * S], gl[S * S];
#pragma unroll
        for (int i = 0; i < S * S; i++) al[i] = ((float *)(logits + i / 4 * stride))[i % 4], gl[i] = g[i];
        sink_reverse_slow(S, al, gl, start, steps, eps, hist, stride);
#pragma unroll
        for (int i = 0; i < S * S; i++) g[i] = gl[i];
    } else {
#pragma unroll
        for (int i = 0; i < S * S; i++) g[i] *= y[i];
        int k = steps - 1;
        if (!(k & 1)) sink_undo<S, true>(g, y, hist[k * stride]), k--;
        float4 r = hist[max(k, 0) * stride], c = hist[max(k - 1, 0) * stride];
        for (; k > 0; k -= 2) {
            const float4 rn = hist[max(k - 2, 0) * stride], cn = hist[max(k - 3, 0) * stride]; // of the next round
            sink_undo<S, false>(g, y, r);
            sink_undo<S, true>(g, y, c);
            r = rn, c = cn;
        }
    }
    if (start == START_EXP && eps == 0.f) return;
#pragma unroll
    for (int i = 0; i < S * S; i++) a[i] = ((float *)(logits + i / 4 * stride))[i % 4];
    if (start == START_EXP) {
        // The shift depends on A where eps keeps the first normalisation from cancelling it.
#pragma unroll
        for (int i = 0; i < S; i++) {
            const float m = sink_max<S>(a, i, S), t = sink_sum<S>(g, i, S);
            bool done = false;
#pragma unroll
            for (int o = 0; o < S; o++)
                if (!done && a[S * o + i] == m) g[S * o + i] -= t, done = true;
        }
        return;
    }
    sink_softmax<S>(a, y);
#pragma unroll
    for (int o = 0; o < S; o++) {
#pragma unroll
        for (int i = 0; i < S; i++)
            if (eps > 0.f) g[S * o + i] *= y[S * o + i] * reciprocal(y[S * o + i] + eps);
        const float t = sink_sum<S>(g, S * o, 1);
#pragma unroll
        for (int i = 0; i < S; i++) g[S * o + i] -= y[S * o + i] * t;
    }
}

// Any n, a group of `lanes` lanes a matrix, matrices in shared memory with rows `pitch` apart. Every lane of the warp must
// call; `li` is the lane's index in its group. Each function starts and ends with the warp in step.

struct SinkGroup {
    int n, pitch, li, lanes;
};

__device__ __forceinline__ int sink_groups(int n) { return n <= 8 ? 8 : n <= 16 ? 16 : 32; }

// line gives the base and the distance of the elements of column j or row j.
__device__ __forceinline__ void sink_line(const SinkGroup &s, bool col, int j, int &b, int &d) {
    b = col ? j : j * s.pitch;
    d = col ? s.pitch : 1;
}

__device__ __forceinline__ void sinkn_softmax(const SinkGroup &s, const float *a, float *p) {
    for (int j = s.li; j < s.n; j += s.lanes) {
        const float *x = a + j * s.pitch;
        float *y = p + j * s.pitch, m = x[0], t = 0.f;
        for (int k = 1; k < s.n; k++) m = fmaxf(m, x[k]);
        for (int k = 0; k < s.n; k++) t += y[k] = expf(x[k] - m);
        t = reciprocal(t);
        for (int k = 0; k < s.n; k++) y[k] *= t;
    }
    __syncwarp();
}

// sinkn_linear: p = Sinkhorn(a) in the linear domain; hist[k*n + j] gets s + eps where hist is present. Returns, for the
// whole warp, whether a sum of this group's matrix was too low.
__device__ __forceinline__ bool sinkn_linear(const SinkGroup &s, const float *a, float *p, int start, int steps, float eps, float *hist) {
    float low = 2.f + eps;
    __syncwarp();
    if (start == START_SOFTMAX) {
        sinkn_softmax(s, a, p);
        for (int j = s.li; j < s.n; j += s.lanes)
            for (int k = 0; k < s.n; k++) p[j * s.pitch + k] += eps;
    } else {
        for (int j = s.li; j < s.n; j += s.lanes) {
            float m = a[j];
            for (int k = 1; k < s.n; k++) m = fmaxf(m, a[k * s.pitch + j]);
            for (int k = 0; k < s.n; k++) p[k * s.pitch + j] = expf(a[k * s.pitch + j] - m);
        }
    }
    __syncwarp();
    for (int step = 0; step < steps; step++) {
        for (int j = s.li; j < s.n; j += s.lanes) {
            int b, d;
            sink_line(s, !(step & 1), j, b, d);
            float t = 0.f;
            for (int k = 0; k < s.n; k++) t += p[b + k * d];
            t += eps;
            low = fminf(low, t);
            if (hist) hist[step * s.n + j] = t;
            t = reciprocal(t);
            for (int k = 0; k < s.n; k++) p[b + k * d] *= t;
        }
        __syncwarp();
    }
    if (!sink_may_underflow(start, eps)) return false;
    for (int i = s.lanes / 2; i; i /= 2) low = fminf(low, __shfl_xor_sync(~0u, low, i, 32));
    return low < SINK_LOW + eps;
}

// sinkn_log: p = log of Sinkhorn(a), for the groups that are `on`; hist gets log(s + eps).
__device__ __noinline__ void sinkn_log(const SinkGroup s, bool on, const float *a, float *p, int start, int steps, float eps, float *hist) {
    const float leps = eps > 0.f ? logf(eps) : 0.f;
    __syncwarp();
    for (int j = s.li; on && j < s.n; j += s.lanes) {
        int b, d;
        sink_line(s, start == START_EXP, j, b, d);
        float m = a[b], t = 0.f;
        for (int k = 1; k < s.n; k++) m = fmaxf(m, a[b + k * d]);
        for (int k = 0; k < s.n; k++) t += expf(p[b + k * d] = a[b + k * d] - m);
        t = logf(t);
        for (int k = 0; start == START_SOFTMAX && k < s.n; k++) {
            p[b + k * d] -= t;
            if (eps > 0.f) p[b + k * d] = log_add(p[b + k * d], leps);
        }
    }
    __syncwarp();
    for (int step = 0; step < steps; step++) {
        for (int j = s.li; on && j < s.n; j += s.lanes) {
            int b, d;
            sink_line(s, !(step & 1), j, b, d);
            float m = p[b], t = 0.f;
            for (int k = 1; k < s.n; k++) m = fmaxf(m, p[b + k * d]);
            for (int k = 0; k < s.n; k++) t += expf(p[b + k * d] - m);
            t = m + logf(t);
            if (eps > 0.f) t = log_add(t, leps);
            if (hist) hist[step * s.n + j] = t;
            for (int k = 0; k < s.n; k++) p[b + k * d] -= t;
        }
        __syncwarp();
    }
}

// sinkn_load copies a matrix with dense rows; zeros where there is none.
__device__ __forceinline__ void sinkn_load(const SinkGroup &s, const float *src, float *p) {
    for (int k = s.li; k < s.n * s.n; k += s.lanes) p[k / s.n * s.pitch + k % s.n] = src ? src[k] : 0.f;
}

// sinkn_forward: p = Sinkhorn of the logits at src, which has dense rows and may be absent.
__device__ __forceinline__ void sinkn_forward(const SinkGroup &s, const float *src, float *p, int start, int steps, float eps) {
    sinkn_load(s, src, p);
    bool slow = sinkn_linear(s, p, p, start, steps, eps, 0);
    if (__any_sync(~0u, slow)) {
        if (slow) sinkn_load(s, src, p);
        sinkn_log(s, slow, p, p, start, steps, eps, 0);
        for (int j = s.li; slow && j < s.n; j += s.lanes)
            for (int k = 0; k < s.n; k++) p[j * s.pitch + k] = expf(p[j * s.pitch + k]);
        __syncwarp();
    }
}

// sinkn_backward: g in as the gradient of the result, out as that of the logits a; y is scratch, hist has steps*n floats.
__device__ __forceinline__ void sinkn_backward(const SinkGroup &s, const float *a, float *g, float *y, int start, int steps, float eps, float *hist) {
    bool slow = sinkn_linear(s, a, y, start, steps, eps, hist);
    if (__any_sync(~0u, slow)) sinkn_log(s, slow, a, y, start, steps, eps, hist);
    for (int j = s.li; j < s.n; j += s.lanes)
        for (int k = 0; k < s.n; k++) {
            float v = y[j * s.pitch + k];
            g[j * s.pitch + k] *= slow ? expf(v) : v;
        }
    __syncwarp();
    for (int step = steps - 1; step >= 0; step--) {
        for (int j = s.li; j < s.n; j += s.lanes) {
            int b, d;
            sink_line(s, !(step & 1), j, b, d);
            float t = 0.f, h = hist[step * s.n + j];
            for (int k = 0; k < s.n; k++) t += g[b + k * d];
            for (int k = 0; k < s.n; k++) {
                float v = y[b + k * d];
                g[b + k * d] -= (slow ? expf(v) : v) * t;
                y[b + k * d] = slow ? v + h : v * h;
            }
        }
        __syncwarp();
    }
    if (start == START_EXP) {
        for (int j = s.li; eps > 0.f && j < s.n; j += s.lanes) {
            int at = 0;
            float t = g[j];
            for (int k = 1; k < s.n; k++) {
                t += g[k * s.pitch + j];
                if (a[k * s.pitch + j] > a[at * s.pitch + j]) at = k;
            }
            g[at * s.pitch + j] -= t;
        }
        __syncwarp();
        return;
    }
    sinkn_softmax(s, a, y);
    for (int j = s.li; j < s.n; j += s.lanes) {
        float *gr = g + j * s.pitch, *pr = y + j * s.pitch, t = 0.f;
        for (int k = 0; k < s.n; k++) {
            if (eps > 0.f) gr[k] *= pr[k] * reciprocal(pr[k] + eps);
            t += gr[k];
        }
        for (int k = 0; k < s.n; k++) gr[k] -= pr[k] * t;
    }
    __syncwarp();
}
