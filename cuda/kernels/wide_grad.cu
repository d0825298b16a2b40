// As grad.cu, for the coefficients of n streams, up to S = 8 or 16, of any alignment and any number of iterations: a group of S lanes
// a token, blocks of 128 threads. Shared: for each token two rows of P = roundup(M, 4) floats (G, G * mix), then the history: for
// each warp and step 32 floats.
#include "sinkhorn_lines.cuh"

template <int S>
__device__ __forceinline__ void wide_grad(const float *mix, const float *r, const float *alpha, const float *b, const float *gpre,
                                          const float *gpost, const float *gres, char *z, float *part, float *hist, i64 N, i64 K,
                                          int M, int n, int W, int chunks, float post_mult, int start, int steps, float eps, i64 blocks) {
    extern __shared__ float4 sh4[];
    const int P = (M + 3) & ~3, slots = 128 / S, slot = threadIdx.x / S, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Line l = {(int)threadIdx.x % S, n};
    float *sh = (float *)sh4, *rows = sh, *row = rows + slot * 2 * P;
    float *h = hist ? hist + ((i64)blockIdx.x * 4 + warp) * steps * 32 : sh + slots * 2 * P + warp * steps * 32;
    const float al[3] = {__ldg(alpha), __ldg(alpha + 1), __ldg(alpha + 2)};
    GradSums sums(P, M);
    for (i64 base = (i64)blockIdx.x * slots; base < N; base += blocks * slots) {
        const i64 tok = base + slot;
        const bool live = tok < N;
        const float rr = live ? r[tok] : 0.f;
        const i64 at = live ? tok : N - 1; // to read from
        const float *mx = mix + at * M;
        if (gres) {
            float arow[S], acol[S], brow[S], bcol[S], grow[S], gcol[S];
            lines_load<S>(l, true, mx + 2 * n, -INFINITY, arow, acol);
            lines_load<S>(l, true, b + 2 * n, 0.f, brow, bcol);
            lines_load<S>(l, live, gres + at * n * n, 0.f, grow, gcol);
#pragma unroll
            for (int k = 0; k < S; k++) {
                arow[k] = l.in(k) ? fmaf(al[2], arow[k], brow[k]) : arow[k];
                acol[k] = l.in(k) ? fmaf(al[2], acol[k], bcol[k]) : acol[k];
            }
            lines_backward<S>(l, arow, acol, grow, gcol, start, steps, eps, h + lane, h + lane / S * S);
#pragma unroll
            for (int k = 0; k < S; k++) {
                if (!l.in(k)) continue;
                if (start == START_EXP)
                    row[2 * n + k * n + l.li] = gcol[k];
                else
                    row[2 * n + l.li * n + k] = grow[k];
            }
            __syncwarp();
        }
        float dot = 0.f;
#pragma unroll 2
        for (int j = l.li; j < W * chunks; j += S) {
            const int jm = min(j, M - 1), k = j < n ? 0 : j < 2 * n ? 1 : 2;
            const float v = mx[jm], a = k == 0 ? al[0] : k == 1 ? al[1] : al[2];
            const float *up = k == 0 ? gpre : k == 1 ? gpost : 0;
            float G = 0.f;
            if (live && up) G = up[tok * n + j - k * n] * (k ? post_mult : 1.f) * sigmoid_slope(fmaf(a, v, __ldg(b + jm)));
            if (live && k == 2 && gres && j < M) G = row[j];
            const float gm = G * v, zz = rr * (G * a);
            dot = fmaf(a, gm, dot);
            if (j < M) row[j] = G, row[P + j] = gm;
            if (live) put_z(z, N, W, tok, j, zz);
        }
#pragma unroll
        for (int i = S / 2; i; i /= 2) dot += __shfl_xor_sync(~0u, dot, i);
        if (live && l.li == 0) put_c(z, N, W, chunks, tok, -(rr * rr / (float)K) * dot);
        sums.add(rows, slots);
    }
    sums.write(rows, part + (i64)blockIdx.x * (M + 3), 3, n);
}

#define WIDE_GRAD(S)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(128) mhc_wide_grad_n##S(GRAD_ARGS) {                                           \
        if (blockIdx.x >= blocks) {                                                                                             \
            pack_phi(K, (int)M, blocks, packers, phi, packed, (int)type, sk, sm, shares, (int)vec, (int)parts);                      \
            return;                                                                                                             \
        }                                                                                                                       \
        zero_counters(counters, ncounters, blocks);                                                                             \
        wide_grad<S>(mix, r, alpha, b, gpre, gpost, gres, z, part, hist, N, K, (int)M, (int)n, (int)width, (int)chunks,         \
                     (float)post_mult, (int)start, (int)steps, (float)sink_eps, blocks);                                        \
    }
WIDE_GRAD(8)
WIDE_GRAD(16)
