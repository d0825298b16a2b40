// The gradient of one token's logits, of S streams up to 4, in the registers of a quad: sigmoid slopes and the reverse of
// Sinkhorn, and what they give for dx and dphi: z = r * dmix and c, see grad.cu. Lane q has column q of h_pre and of h_post, and
// row q of h_res.
#pragma once
#include "sinkhorn.cuh"

// quad_load reads row q of S floats by distance; 16 bytes at a time where S is 4. Entries that are not there are 0.
template <int S>
__device__ __forceinline__ void quad_load(const float *p, float (&f)[4]) {
    if constexpr (S == 4) {
        const float4 v = *(const float4 *)p;
        f[0] = v.x, f[1] = v.y, f[2] = v.z, f[3] = v.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) f[i] = i < S ? p[i] : 0.f;
    }
    quad_order(f);
}

// quad_store writes row q.
template <int S>
__device__ __forceinline__ void quad_store(float *p, float (&f)[4]) {
    quad_order(f);
    if constexpr (S == 4) {
        *(float4 *)p = make_float4(f[0], f[1], f[2], f[3]);
    } else {
#pragma unroll
        for (int i = 0; i < S; i++) p[i] = f[i];
    }
}

// A lane's part of what belongs to the columns of mix: of the matrix its row by distance, see sinkhorn.cuh.
struct Columns {
    float pre, post, res[4];

    // load reads a row of M columns; lanes past S read what lane S-1 does.
    template <int S>
    __device__ __forceinline__ void load(const float *row) {
        const int q = min((int)threadIdx.x & 3, S - 1);
        pre = row[q], post = row[S + q];
        quad_load<S>(row + 2 * S + S * q, res);
    }
};

template <int S>
struct TokenGrad {
    static const int M = S * S + 2 * S, SUMS = 9;
    Columns mix, G; // G: upstream gradients after load, gradients of the logits after run
    float r;

    // load reads what belongs to a token; a token that is not live counts as zero.
    __device__ __forceinline__ void load(i64 tok, bool live, const float *mixes, const float *rs, const float *gpre, const float *gpost, const float *gres) {
        const int q = min((int)threadIdx.x & 3, S - 1);
        r = rs[tok];
        mix.load<S>(mixes + tok * M);
        G.pre = G.post = G.res[0] = G.res[1] = G.res[2] = G.res[3] = 0.f;
        if (!live || (threadIdx.x & 3) >= S) return;
        if (gpre) G.pre = gpre[tok * S + q];
        if (gpost) G.post = gpost[tok * S + q];
        if (gres) quad_load<S>(gres + (tok * S + q) * S, G.res);
    }

    // run needs a history of sink_backward. Sums, of SUMS, get G and the products G * mix of the three alphas.
    __device__ __forceinline__ void run(const Columns &b, const float (&alpha)[3], bool res, float post_mult, int start, int steps, float eps,
                                        float *hist, float (&sums)[SUMS]) {
        G.pre *= sigmoid_slope(fmaf(alpha[0], mix.pre, b.pre));
        G.post *= post_mult * sigmoid_slope(fmaf(alpha[1], mix.post, b.post));
        if (res) {
            float a[4];
#pragma unroll
            for (int d = 0; d < 4; d++) a[d] = fmaf(alpha[2], mix.res[d], b.res[d]);
            sink_backward<S>(a, G.res, start, steps, eps, hist);
        }
        if ((threadIdx.x & 3) >= S) G.pre = G.post = G.res[0] = G.res[1] = G.res[2] = G.res[3] = 0.f;
        sums[0] += G.pre, sums[1] += G.post;
#pragma unroll
        for (int d = 0; d < 4; d++) sums[2 + d] += G.res[d];
        sums[6] = fmaf(G.pre, mix.pre, sums[6]);
        sums[7] = fmaf(G.post, mix.post, sums[7]);
#pragma unroll
        for (int d = 0; d < 4; d++) sums[8] = fmaf(G.res[d], mix.res[d], sums[8]);
    }

    // put_z writes a row of z of 24 columns, 112 bytes, to shared memory.
    __device__ __forceinline__ void put_z(char *row, const float (&alpha)[3], i64 K) const {
        const int q = threadIdx.x & 3;
        float dot = alpha[0] * (G.pre * mix.pre) + alpha[1] * (G.post * mix.post);
#pragma unroll
        for (int d = 0; d < 4; d++) dot = fmaf(alpha[2] * G.res[d], mix.res[d], dot);
        dot = quad_sum(dot);
        if (S < 4) { // columns that are not there
            for (int i = M + q; i < 24; i += 4) ((u16 *)row)[i] = ((u16 *)row)[24 + i] = 0;
            if (q >= S) return;
        }
        auto put = [&](int m, float a) {
            const float hi = round_bf16(a);
            ((u16 *)row)[m] = BF16::put(hi), ((u16 *)row)[24 + m] = BF16::put(a - hi);
        };
        put(q, r * (G.pre * alpha[0])), put(S + q, r * (G.post * alpha[1]));
        float z[4];
#pragma unroll
        for (int d = 0; d < 4; d++) z[d] = r * (G.res[d] * alpha[2]);
        quad_order(z);
        if constexpr (S == 4) {
            uint2 hi, lo;
            split2(z[0], z[1], hi.x, lo.x), split2(z[2], z[3], hi.y, lo.y);
            ((uint2 *)row)[2 + q] = hi, ((uint2 *)row)[8 + q] = lo;
        } else {
#pragma unroll
            for (int i = 0; i < S; i++) put(2 * S + S * q + i, z[i]);
        }
        if (q == 0) ((uint4 *)row)[6] = make_uint4(__float_as_uint(-(r * r / (float)K) * dot), 0, 0, 0);
    }

    // put_sums adds the sums of a warp's lanes and writes M + 3: those of G by column, then those of the alphas.
    static __device__ __forceinline__ void put_sums(float (&sums)[SUMS], float *out) {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            if (i >= 6) sums[i] = quad_sum(sums[i]);
#pragma unroll
            for (int d = 4; d < 32; d *= 2) sums[i] += __shfl_xor_sync(~0u, sums[i], d);
        }
        if (lane >= S) return;
        out[lane] = sums[0], out[S + lane] = sums[1];
        float res[4] = {sums[2], sums[3], sums[4], sums[5]};
        quad_store<S>(out + 2 * S + S * lane, res);
        if (lane == 0) out[M] = sums[6], out[M + 1] = sums[7], out[M + 2] = sums[8];
    }
};

// load_alphas reads the three alphas.
__device__ __forceinline__ void load_alphas(const float *p, float (&alpha)[3]) {
#pragma unroll
    for (int i = 0; i < 3; i++) alpha[i] = __ldg(p + i);
}
