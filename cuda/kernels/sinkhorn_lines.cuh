// Sinkhorn normalisation and its exact reverse for n up to 16 in the registers of a group of S lanes (8 or 16) a matrix.
//
// See sinkhorn.cuh for what is computed. Lane i of a group holds row i and column i of the matrix, which lies there twice.
// - A sum along either axis is a lane's own; a normalisation then passes each lane's factor to the others: S independent
//   shuffles, nothing else crosses lanes.
// - Both copies go through the same operations, so they stay equal to the bit.
// - Logits past n are -infinity, so that elements past n are zero; lanes past n normalise by 1.
// - `own` is the copy whose lines are summed, `other` the one across: columns and rows for a column step.
// Every lane of the warp must call; all groups of a warp have the same n.
#pragma once
#include "sinkhorn.cuh"

// lines_gather: the values of all lanes of the group.
template <int S>
__device__ __forceinline__ void lines_gather(float v, float (&all)[S]) {
#pragma unroll
    for (int k = 0; k < S; k++) all[k] = __shfl_sync(~0u, v, k, S);
}

template <int S>
__device__ __forceinline__ float lines_sum(const float (&a)[S]) {
    float s[4] = {a[0], a[1], a[2], a[3]};
#pragma unroll
    for (int k = 4; k < S; k++) s[k & 3] += a[k];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

// A lane's index in its group, and the rows of the matrix.
struct Line {
    int li, n;
    __device__ __forceinline__ bool in() const { return li < n; }
    __device__ __forceinline__ bool in(int k) const { return k < n && li < n; }
};

// lines_max is the maximum of a line of logits, 0 past n.
template <int S>
__device__ __forceinline__ float lines_max(Line l, const float (&a)[S]) {
    float m = a[0];
#pragma unroll
    for (int k = 1; k < S; k++) m = fmaxf(m, a[k]);
    return l.in() ? m : 0.f;
}

// lines_load reads row and column of a matrix with dense rows; `none` past n, and everywhere if !live. a must be readable even then.
template <int S>
__device__ __forceinline__ void lines_load(Line l, bool live, const float *a, float none, float (&row)[S], float (&col)[S]) {
    const float *r = a + (l.in() ? l.li * l.n : 0), *c = a + (l.in() ? l.li : 0);
#pragma unroll
    for (int k = 0; k < S; k++) row[k] = col[k] = none;
#pragma unroll
    for (int k = 0; k < S; k++)
        if (k < l.n) row[k] = r[k], col[k] = c[k * l.n];
#pragma unroll
    for (int k = 0; k < S; k++)
        if (!live || !l.in()) row[k] = col[k] = none;
}

// lines_start: p is the matrix before the first step: softmax along own lines of a, + eps, or exp(a - maximum of the own line).
template <int S>
__device__ __forceinline__ void lines_start(Line l, const float (&own)[S], const float (&other)[S], float (&pown)[S], float (&pother)[S], bool softmax, float eps) {
    const float m = lines_max<S>(l, own), e = softmax ? eps : 0.f;
#pragma unroll
    for (int k = 0; k < S; k++) pown[k] = expf(own[k] - m);
    const float r = softmax && l.in() ? reciprocal(lines_sum<S>(pown)) : 1.f;
    float ms[S], rs[S];
    lines_gather<S>(m, ms);
    lines_gather<S>(r, rs);
#pragma unroll
    for (int k = 0; k < S; k++) {
        const float ek = l.in(k) ? e : 0.f;
        pown[k] = fmaf(pown[k], r, ek);
        pother[k] = fmaf(expf(other[k] - ms[k]), rs[k], ek);
    }
}

// lines_step is one normalisation; it returns the sum + eps of the lane's own line.
template <int S>
__device__ __forceinline__ float lines_step(Line l, float (&own)[S], float (&other)[S], float eps) {
    const float s = l.in() ? lines_sum<S>(own) + eps : 1.f, y = reciprocal(s);
    float ys[S];
    lines_gather<S>(y, ys);
#pragma unroll
    for (int k = 0; k < S; k++) own[k] *= y, other[k] *= ys[k];
    return s;
}

// lines_run starts and does all steps, and saves the sums of step k at hist[32*k] if HIST. It returns, for the group, whether
// logarithms are needed.
template <int S, bool HIST>
__device__ __forceinline__ bool lines_run(Line l, const float (&arow)[S], const float (&acol)[S], float (&row)[S], float (&col)[S], int start, int steps, float eps, float *hist) {
    if (start == START_SOFTMAX)
        lines_start<S>(l, arow, acol, row, col, true, eps);
    else
        lines_start<S>(l, acol, arow, col, row, false, eps);
    float low = 2.f + eps;
    auto save = [&](int k, float s) {
        if (HIST) hist[32 * k] = s;
        low = fminf(low, s);
    };
    int k = 0;
#pragma unroll 1
    for (; k + 1 < steps; k += 2) {
        save(k, lines_step<S>(l, col, row, eps));
        save(k + 1, lines_step<S>(l, row, col, eps));
    }
    if (k < steps) save(k, lines_step<S>(l, col, row, eps));
    if (!sink_may_underflow(start, eps)) return false;
#pragma unroll
    for (int d = S / 2; d; d /= 2) low = fminf(low, __shfl_xor_sync(~0u, low, d));
    return low < SINK_LOW + eps;
}

// lines_log turns logits into log P after all steps, in place. Where save, hist gets log(s + eps).
template <int S>
__device__ __noinline__ void lines_log(Line l, bool save, float (&row)[S], float (&col)[S], int start, int steps, float eps, float *hist) {
    const float leps = eps > 0.f ? logf(eps) : 0.f, none = -INFINITY;
    auto total = [&](const float(&own)[S], float m) {
        float s = 0.f;
#pragma unroll
        for (int k = 0; k < S; k++) s += expf(own[k] - m);
        return s;
    };
    auto begin = [&](float(&own)[S], float(&other)[S]) {
        float v = lines_max<S>(l, own), vs[S];
        const float t = start == START_SOFTMAX && l.in() ? logf(total(own, v)) : 0.f;
        float ts[S];
        lines_gather<S>(v, vs);
        lines_gather<S>(t, ts);
#pragma unroll
        for (int k = 0; k < S; k++) {
            own[k] = own[k] - v - t, other[k] = other[k] - vs[k] - ts[k];
            if (start == START_SOFTMAX && eps > 0.f) own[k] = log_add(own[k], leps), other[k] = log_add(other[k], leps);
            if (!l.in(k)) own[k] = other[k] = none;
        }
    };
    auto step = [&](float(&own)[S], float(&other)[S]) {
        float v = 0.f, vs[S];
        if (l.in()) {
            const float m = lines_max<S>(l, own);
            v = m + logf(total(own, m));
            if (eps > 0.f) v = log_add(v, leps);
        }
        lines_gather<S>(v, vs);
#pragma unroll
        for (int k = 0; k < S; k++) own[k] -= v, other[k] -= vs[k];
        return v;
    };
    if (start == START_SOFTMAX)
        begin(row, col);
    else
        begin(col, row);
#pragma unroll 1
    for (int k = 0; k < steps; k++) {
        const float v = k & 1 ? step(row, col) : step(col, row);
        if (save) hist[32 * k] = v;
    }
}

// lines_forward: row and col = Sinkhorn of the logits arow and acol.
template <int S>
__device__ __forceinline__ void lines_forward(Line l, const float (&arow)[S], const float (&acol)[S], float (&row)[S], float (&col)[S], int start, int steps, float eps) {
    const bool slow = lines_run<S, false>(l, arow, acol, row, col, start, steps, eps, 0);
    if (!__any_sync(~0u, slow)) return;
    float r[S], c[S]; // copies, so that the logits stay in registers on the fast path
#pragma unroll
    for (int k = 0; k < S; k++) r[k] = arow[k], c[k] = acol[k];
    lines_log<S>(l, false, r, c, start, steps, eps, 0);
#pragma unroll
    for (int k = 0; k < S; k++)
        if (slow) row[k] = expf(r[k]), col[k] = expf(c[k]);
}

// lines_undo reverses one normalisation: G and Y from after it to before it. sums: those of the step, of all lanes of the group.
template <int S>
__device__ __forceinline__ void lines_undo(Line l, float (&gown)[S], float (&gother)[S], float (&yown)[S], float (&yother)[S], const float *sums) {
    float ss[S], ts[S];
#pragma unroll
    for (int k = 0; k < S; k += 4) {
        const float4 v = *(const float4 *)(sums + k);
        ss[k] = v.x, ss[k + 1] = v.y, ss[k + 2] = v.z, ss[k + 3] = v.w;
    }
    const float s = sums[l.li], t = lines_sum<S>(gown);
    lines_gather<S>(t, ts);
#pragma unroll
    for (int k = 0; k < S; k++) {
        gown[k] = fmaf(-yown[k], t, gown[k]), gother[k] = fmaf(-yother[k], ts[k], gother[k]);
        yown[k] *= s, yother[k] *= ss[k];
    }
}

// lines_reverse_slow: g in as the gradient of the result, out as G before the first step.
template <int S>
__device__ __noinline__ void lines_reverse_slow(Line l, bool on, float (&row)[S], float (&col)[S], float (&grow)[S], float (&gcol)[S], int start, int steps, float eps, float *hist, const float *sums) {
    lines_log<S>(l, on, row, col, start, steps, eps, hist);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < S; k++) grow[k] *= expf(row[k]), gcol[k] *= expf(col[k]);
    auto undo = [&](float(&gown)[S], float(&gother)[S], float(&yown)[S], float(&yother)[S], const float *s) {
        float ts[S];
        const float t = lines_sum<S>(gown), own = s[l.li];
        lines_gather<S>(t, ts);
#pragma unroll
        for (int k = 0; k < S; k++) {
            gown[k] = fmaf(-expf(yown[k]), t, gown[k]), gother[k] = fmaf(-expf(yother[k]), ts[k], gother[k]);
            yown[k] += own, yother[k] += s[k];
        }
    };
#pragma unroll 1
    for (int k = steps - 1; k >= 0; k--) {
        if (k & 1)
            undo(grow, gcol, row, col, sums + 32 * k);
        else
            undo(gcol, grow, col, row, sums + 32 * k);
    }
}

// lines_backward: g in as the gradient of the result, out as that of the logits a: in grow for the softmax start, else in gcol.
// hist: the warp's steps*32 floats, the lane's own place in each step; sums: the same of the first lane of the group.
template <int S>
__device__ __forceinline__ void lines_backward(Line l, const float (&arow)[S], const float (&acol)[S], float (&grow)[S], float (&gcol)[S], int start, int steps, float eps, float *hist, const float *sums) {
    float row[S], col[S];
    const bool slow = lines_run<S, true>(l, arow, acol, row, col, start, steps, eps, hist);
#pragma unroll
    for (int k = 0; k < S; k++)
        if (!slow) grow[k] *= row[k], gcol[k] *= col[k];
    if (__any_sync(~0u, slow)) {
        float ar[S], ac[S], gr[S], gc[S];
#pragma unroll
        for (int k = 0; k < S; k++) ar[k] = arow[k], ac[k] = acol[k], gr[k] = grow[k], gc[k] = gcol[k];
        lines_reverse_slow<S>(l, slow, ar, ac, gr, gc, start, steps, eps, hist, sums);
        if (slow) { // nothing is left to reverse
#pragma unroll
            for (int k = 0; k < S; k++) grow[k] = gr[k], gcol[k] = gc[k], row[k] = col[k] = 0.f;
        }
    }
    __syncwarp();
    int k = steps - 1;
    if (!(k & 1)) lines_undo<S>(l, gcol, grow, col, row, sums + 32 * k), k--;
#pragma unroll 1
    for (; k > 0; k -= 2) {
        lines_undo<S>(l, grow, gcol, row, col, sums + 32 * k);
        lines_undo<S>(l, gcol, grow, col, row, sums + 32 * (k - 1));
    }
    if (start == START_EXP) {
        // The shift depends on A where eps keeps the first normalisation from cancelling it.
        if (eps == 0.f) return;
        const float m = lines_max<S>(l, acol), t = lines_sum<S>(gcol);
        bool done = false;
#pragma unroll
        for (int k = 0; k < S; k++)
            if (l.in(k) && !done && acol[k] == m) gcol[k] -= t, done = true;
        return;
    }
    const float m = lines_max<S>(l, arow);
#pragma unroll
    for (int k = 0; k < S; k++) row[k] = expf(arow[k] - m);
    const float r = l.in() ? reciprocal(lines_sum<S>(row)) : 1.f;
#pragma unroll
    for (int k = 0; k < S; k++) {
        row[k] *= r;
        if (eps > 0.f && l.in(k)) grow[k] *= row[k] * reciprocal(row[k] + eps);
    }
    softmax_gradient(row, grow, lines_sum<S>(grow));
}
