// Sinkhorn normalisation and its exact reverse, as device code for all kernels.
//
// Contract (spec of the operators): P starts as softmax of the rows + eps (START_SOFTMAX) or exp(A - column maximum)
// (START_EXP). Then `steps` normalisations P / (s + eps) alternate, columns first. Element (o, i) of a matrix is row o; column
// sums run over o.
//
// Ideas
// - The reverse carries G = dP * P. One reversed normalisation is then G -= Y * sum(G) with the normalised Y: no division, and
//   bounded whatever the sums were. Y is walked back from the saved sums (or scales) alone.
// - Divisions are multiplications by a reciprocal with an error of one unit in the last place; the next normalisation
//   corrects the scale.
// - Without eps a sum may underflow. A matrix in which a sum falls below 1e-6 (+ eps) is done again with logarithms, in place too
//   (L = log P, L -= log(s + eps)): rare, slow, right.
// - Two layouts: n up to 4 in the registers of four lanes, any n up to 64 in shared memory with a group of lanes a matrix, each
//   of which owns whole rows and whole columns.
#pragma once
#include "common.cuh"

enum { START_SOFTMAX = 0, START_EXP = 1 };

#define SINK_LOW 1e-6f

__device__ __forceinline__ float log_add(float a, float b) {
    float m = fmaxf(a, b), d = fabsf(a - b);
    return a == b ? m + 0.69314718f : m + log1pf(expf(-d));
}

// softmax_gradient is the gradient of the logits of softmax p from g, that of log p, whose sum is t: g -= p * t. If an entry rules its
// row, that cancels; so the greatest is minus the sum of the others.
template <int L>
__device__ __forceinline__ void softmax_gradient(const float (&p)[L], float (&g)[L], float t) {
    float most = p[0], rest = 0.f;
    bool ruled = false, rules[L];
#pragma unroll
    for (int k = 1; k < L; k++) most = fmaxf(most, p[k]);
#pragma unroll
    for (int k = 0; k < L; k++) {
        rules[k] = !ruled && p[k] == most;
        ruled = ruled || rules[k];
        g[k] = fmaf(-p[k], t, g[k]);
        rest += rules[k] ? 0.f : g[k];
    }
#pragma unroll
    for (int k = 0; k < L; k++)
        if (rules[k]) g[k] = -rest;
}

// n = S up to 4: the four lanes of a quad share a matrix, lane q has row q. Every lane of the warp must call.
//
// The state is K, the matrix of the start, with a scale for each row and each column: P = diag(u) K diag(v). A normalisation
// P / (s + eps) of the columns is v = 1/w with w[j] = sum_o u[o] K[o,j] + eps w'[j], where w' is that of the column step before
// (1 at first); rows likewise. K stays as it is, and no rounding adds up. Lane q owns u[q] and v[q]: a step is some 20
// instructions, and waits for one reciprocal and one shuffle. (A matrix a thread takes 40 and more, of which a warp starts one
// in two cycles.)
//
// A lane's arrays of four go by distance: entry d of lane q belongs to q ^ d. So a shuffle by d brings what entry d needs,
// and a transpose is a shuffle of each entry. Rows and columns past S are those of the identity matrix.

// quad_order puts entries in the order of distance, and back.
__device__ __forceinline__ void quad_order(float (&x)[4]) {
    const bool one = threadIdx.x & 1, two = threadIdx.x & 2;
    const float a = one ? x[1] : x[0], b = one ? x[0] : x[1], c = one ? x[3] : x[2], d = one ? x[2] : x[3];
    x[0] = two ? c : a, x[1] = two ? d : b, x[2] = two ? a : c, x[3] = two ? b : d;
}

// quad_all gives the values of the quad's lanes.
__device__ __forceinline__ void quad_all(float v, float (&o)[4]) {
    o[0] = v;
#pragma unroll
    for (int d = 1; d < 4; d++) o[d] = __shfl_xor_sync(~0u, v, d);
}

// quad_transpose turns the rows that the lanes hold into columns, and back.
__device__ __forceinline__ void quad_transpose(float (&x)[4]) {
#pragma unroll
    for (int d = 1; d < 4; d++) x[d] = __shfl_xor_sync(~0u, x[d], d);
}

// quad_sum adds over a quad.
__device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

// quad_live is whether entry d of this lane lies within S rows and columns.
template <int S>
__device__ __forceinline__ bool quad_live(int d) {
    const int q = threadIdx.x & 3;
    return S == 4 || q < S && (q ^ d) < S;
}

__device__ __forceinline__ float sum4(const float (&x)[4]) { return (x[0] + x[1]) + (x[2] + x[3]); }

// dot4 is t + x y. The first entries are the lane's own, and known first.
__device__ __forceinline__ float dot4(const float (&x)[4], const float (&y)[4], float t) {
    return fmaf(x[1], y[1], fmaf(x[0], y[0], t)) + fmaf(x[3], y[3], x[2] * y[2]);
}

#define SINK_MINUS_INFINITY __int_as_float(0xff800000)

// SinkQuad is a matrix in a quad: the lane's row and column of K, its scales and those of all rows and columns.
template <int S>
struct SinkQuad {
    float row[4], col[4], us[4], vs[4];
    float soft[4]; // the row of the softmax that K starts from

    // start: K = softmax of the rows of a + eps, or exp(a - column maximum).
    __device__ __forceinline__ void start(const float (&a)[4], int start, float eps) {
        float shift[4], scale = 1.f, more = 0.f;
#pragma unroll
        for (int d = 0; d < 4; d++) row[d] = quad_live<S>(d) ? a[d] : SINK_MINUS_INFINITY;
        if (start == START_EXP) {
#pragma unroll
            for (int d = 0; d < 4; d++) col[d] = row[d];
            quad_transpose(col);
            const float m = fmaxf(fmaxf(col[0], col[1]), fmaxf(col[2], col[3]));
            quad_all(m, shift);
        } else {
            shift[0] = shift[1] = shift[2] = shift[3] = fmaxf(fmaxf(row[0], row[1]), fmaxf(row[2], row[3]));
        }
#pragma unroll
        for (int d = 0; d < 4; d++) row[d] = quad_live<S>(d) ? expf(row[d] - shift[d]) : 0.f;
        if (start == START_SOFTMAX) scale = reciprocal(sum4(row)), more = eps;
#pragma unroll
        for (int d = 0; d < 4; d++) soft[d] = row[d] * scale, row[d] = quad_live<S>(d) ? soft[d] + more : 0.f;
        if (S < 4 && (threadIdx.x & 3) >= S) row[0] = 1.f;
#pragma unroll
        for (int d = 0; d < 4; d++) col[d] = row[d];
        quad_transpose(col);
    }

    // run does all steps, keeps the lane's scale of step k at hist[32*k] if HIST, and returns whether the quad needs logarithms.
    template <bool HIST>
    __device__ __forceinline__ bool run(int steps, float eps, float *hist) {
        float wu = 1.f, wv = 1.f, low = 2.f + eps, least = 1.f, most = 1.f;
#pragma unroll
        for (int d = 0; d < 4; d++) us[d] = vs[d] = 1.f;
        auto step = [&](const float (&k)[4], const float (&other)[4], float &w, float (&scale)[4]) {
            const float before = scale[0];
            w = dot4(k, other, eps * w);
            quad_all(reciprocal(w), scale);
            low = fminf(low, w * before), least = fminf(least, w), most = fmaxf(most, w);
        };
#pragma unroll 1
        for (;;) {
            step(col, us, wv, vs);
            if (HIST) hist[0] = vs[0];
            if (--steps == 0) break;
            step(row, vs, wu, us);
            if (HIST) hist[32] = us[0], hist += 64;
            if (--steps == 0) break;
        }
        const bool mine = low < SINK_LOW + eps || least < 1e-18f || most > 1e18f;
        return __ballot_sync(~0u, mine) >> (threadIdx.x & 28) & 15;
    }
};

// sink_log turns logits a of n = up to 4 into log P after all steps, in place, and saves log(s + eps) of step k at hist[32*k].
// One lane does it, at its leisure.
__device__ __noinline__ void sink_log(int n, float *a, int start, int steps, float eps, float *hist) {
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
    for (int k = 0; k < steps; k++)
        for (int j = 0; j < n; j++) {
            const int b = k & 1 ? n * j : j, d = k & 1 ? 1 : n;
            float m = a[b], s = 0.f;
            for (int q = 1; q < n; q++) m = fmaxf(m, a[b + q * d]);
            for (int q = 0; q < n; q++) s += expf(a[b + q * d] - m);
            float v = m + logf(s);
            if (eps > 0.f) v = log_add(v, leps);
            for (int q = 0; q < n; q++) a[b + q * d] -= v;
            if (hist) hist[32 * k + j] = v;
        }
}

// sink_reverse_log: g in as the gradient of the result, out as G before the first step.
__device__ __noinline__ void sink_reverse_log(int n, float *a, float *g, int start, int steps, float eps, float *hist) {
    sink_log(n, a, start, steps, eps, hist);
    for (int i = 0; i < n * n; i++) g[i] *= expf(a[i]);
    for (int k = steps - 1; k >= 0; k--)
        for (int j = 0; j < n; j++) {
            const int b = k & 1 ? n * j : j, d = k & 1 ? 1 : n;
            float t = 0.f;
            for (int q = 0; q < n; q++) t += g[b + q * d];
            for (int q = 0; q < n; q++) {
                g[b + q * d] -= expf(a[b + q * d]) * t;
                a[b + q * d] += hist[32 * k + j];
            }
        }
}

// quad_matrix gives every lane the whole matrix of its quad, quad_row a lane's row of the first lane's matrix.
template <int S>
__device__ __forceinline__ void quad_matrix(const float (&row)[4], float (&m)[S * S]) {
    float x[4] = {row[0], row[1], row[2], row[3]};
    quad_order(x);
#pragma unroll
    for (int i = 0; i < S * S; i++) m[i] = __shfl_sync(~0u, x[i % S], i / S, 4);
}
template <int S>
__device__ __forceinline__ void quad_row(const float (&m)[S * S], float (&row)[4]) {
    row[0] = row[1] = row[2] = row[3] = 0.f;
#pragma unroll
    for (int i = 0; i < S * S; i++) {
        const float v = __shfl_sync(~0u, m[i], 0, 4);
        if ((threadIdx.x & 3) == i / S) row[i % S] = v;
    }
    quad_order(row);
}

// sink_forward: p = Sinkhorn(a), rows in, rows out, by distance.
template <int S>
__device__ __forceinline__ void sink_forward(const float (&a)[4], float (&p)[4], int start, int steps, float eps) {
    SinkQuad<S> m;
    m.start(a, start, eps);
    const bool slow = m.template run<false>(steps, eps, 0);
#pragma unroll
    for (int d = 0; d < 4; d++) p[d] = m.row[d] * (m.us[0] * m.vs[d]);
    if (__any_sync(~0u, slow)) {
        float l[S * S], row[4];
        quad_matrix<S>(a, l);
        if (slow && (threadIdx.x & 3) == 0) sink_log(S, l, start, steps, eps, 0);
        quad_row<S>(l, row);
#pragma unroll
        for (int d = 0; d < 4; d++)
            if (slow) p[d] = expf(row[d]);
    }
}

// sink_backward: g in as the gradient of the result, out as that of the logits a, rows by distance. The history of a warp is a
// float of each lane and step, after two such that are 1.
//
// Reversing a normalisation is G -= Y * t with Y = diag(u) K diag(v) and t the sums of G along it. K times what is added up is
// taken from G at the end, so that only the sums of G along rows and columns go from step to step.
template <int S>
__device__ __forceinline__ void sink_backward(const float (&a)[4], float (&g)[4], int start, int steps, float eps, float *hist) {
    SinkQuad<S> m;
    m.start(a, start, eps);
    hist += threadIdx.x & 31;
    hist[0] = hist[32] = 1.f;
    const bool slow = m.template run<true>(steps, eps, hist + 64);
    float up[4], gc[4], takes_row[4] = {0.f, 0.f, 0.f, 0.f}, takes_col[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int d = 0; d < 4; d++) up[d] = g[d], gc[d] = g[d] = quad_live<S>(d) ? g[d] * (m.row[d] * (m.us[0] * m.vs[d])) : 0.f;
    quad_transpose(gc);
    float tr = sum4(g), tc = sum4(gc), u = m.us[0], v = m.vs[0];
    // undo hands on the scale times t; the scale goes back to that of the step before on its side, t to what eps leaves of it.
    const float *saved = hist + 32 * (steps - 1); // of the step two before
    auto undo = [&](float &scale, float &t, const float (&k)[4], float other, float (&takes)[4], float &tother) {
        float x[4];
        quad_all(scale * t, x);
        const float back = *saved;
        t = eps * x[0] * reciprocal(back), scale = back;
        tother = fmaf(-other, dot4(k, x, 0.f), tother);
#pragma unroll
        for (int d = 0; d < 4; d++) takes[d] = fmaf(other, x[d], takes[d]);
        saved -= 32;
    };
    int left = steps;
    bool rows = !(left & 1); // an even number of steps ends on rows
#pragma unroll 1
    for (;;) {
        if (rows) undo(u, tr, m.col, v, takes_col, tc), left--;
        rows = true;
        undo(v, tc, m.row, u, takes_row, tr);
        if (--left == 0) break;
    }
    quad_transpose(takes_col);
#pragma unroll
    for (int d = 0; d < 4; d++) g[d] = fmaf(-m.row[d], takes_row[d] + takes_col[d], g[d]);
    if (__any_sync(~0u, slow)) {
        float l[S * S], gl[S * S], row[4];
        quad_matrix<S>(a, l), quad_matrix<S>(up, gl);
        __syncwarp(); // the history is the first lane's now
        if (slow && (threadIdx.x & 3) == 0) sink_reverse_log(S, l, gl, start, steps, eps, hist + 64);
        quad_row<S>(gl, row);
#pragma unroll
        for (int d = 0; d < 4; d++)
            if (slow) g[d] = row[d];
    }
    if (start == START_EXP) {
        if (eps == 0.f) return;
        // The shift depends on A where eps keeps the first normalisation from cancelling it: minus the sum of a column's gradient
        // goes to the first of its greatest elements.
        float ac[4];
#pragma unroll
        for (int d = 0; d < 4; d++) ac[d] = quad_live<S>(d) ? a[d] : SINK_MINUS_INFINITY;
        quad_transpose(ac), quad_transpose(g);
        const float most = fmaxf(fmaxf(ac[0], ac[1]), fmaxf(ac[2], ac[3])), t = sum4(g);
        int at = 4;
#pragma unroll
        for (int d = 0; d < 4; d++)
            if (ac[d] == most) at = min(at, (int)(threadIdx.x & 3) ^ d);
#pragma unroll
        for (int d = 0; d < 4; d++)
            if (((threadIdx.x & 3) ^ d) == at) g[d] -= t;
        quad_transpose(g);
        return;
    }
    if (eps > 0.f) {
#pragma unroll
        for (int d = 0; d < 4; d++) g[d] = quad_live<S>(d) ? g[d] * (m.soft[d] * reciprocal(m.row[d])) : 0.f;
    }
    softmax_gradient(m.soft, g, sum4(g));
}

// sink_may_underflow: with an eps of 1e-6 or more, the softmax start keeps every element and so every sum far from underflow.
__device__ __forceinline__ bool sink_may_underflow(int start, float eps) { return eps < SINK_LOW || start == START_EXP; }

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
        float *gr = g + j * s.pitch, *pr = y + j * s.pitch, t = 0.f, rest = 0.f;
        int most = 0;
        for (int k = 0; k < s.n; k++) {
            if (eps > 0.f) gr[k] *= pr[k] * reciprocal(pr[k] + eps);
            t += gr[k];
            if (pr[k] > pr[most]) most = k;
        }
        for (int k = 0; k < s.n; k++) {
            gr[k] -= pr[k] * t;
            if (k != most) rest += gr[k];
        }
        gr[most] = -rest; // see softmax_gradient
    }
    __syncwarp();
}
