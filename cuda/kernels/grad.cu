// From upstream gradients to z = r * dmix and c, the operands of the pass that gives dx and dphi, with per-block partial sums
// of db and dalpha.
//
//     G      gradient of the logits: sigmoid slopes, reverse Sinkhorn      dmix = G * (alpha of the column)
//     z      = r * dmix                                                    c    = -(r^2/K) sum(dmix * mix) - (r^3/K) dr
//     part   [block][M + alphas]: sums over the block's tokens of G, and of G * mix over the columns of each alpha
//
// A row of z is what the next kernel copies to shared memory as it is: W high bfloat16 parts, W low ones, c, padding to 4W + 16
// bytes (an odd multiple of 16: no bank conflicts); rows of one chunk of W columns after those of another.
// Nothing of the forward but mix and r is read: the Sinkhorn iterations are run again here, then reversed. Blocks past the first
// `blocks` pack phi for the next kernel meanwhile.
#include "sinkhorn.cuh"

// Arguments of both kernels: mode (0: g_pre is the gradient of mix, 1: coefficients, 2: g_pre is that of head weights); mix
// [N, M], r [N], alpha, b; g_pre, g_post, g_res, g_r: any may be 0; z, part, hist (0: in shared memory), counters to be zeroed
// for the next kernel and their number; N, K, M, streams, W, chunks; post_mult; Sinkhorn start, steps, eps; blocks; phi, packed
// (0: not wanted), type and strides of phi, warps' shares of columns, n blocks of 8 columns of a share (8, or 4 of float32),
// parts.
#define GRAD_ARGS                                                                                                              \
    i64 mode, const float *mix, const float *r, const float *alpha, const float *b, const float *gpre, const float *gpost,     \
        const float *gres, const float *gr, char *z, float *part, float *hist, unsigned long long *counters, i64 ncounters,    \
        i64 N, i64 K, i64 M, i64 n, i64 width, i64 chunks, double post_mult, i64 start, i64 steps, double sink_eps, i64 blocks, \
        const void *phi, uint4 *packed, i64 type, i64 sk, i64 sm, i64 shares, i64 nj, i64 parts

__device__ __forceinline__ void zero_counters(unsigned long long *counters, i64 n, i64 blocks) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blocks * blockDim.x) counters[i] = 0;
}

// pack_phi writes phi as right operands of dx, W = 24: for each share of columns, each four of the 3*nj words of a lane (word
// 3j + q: column of block j, rows m = 8q + 2t and 8q + 2t + 1 of phi^T), each part where there are two, 16 bytes of each lane.
__device__ __forceinline__ void pack_phi(i64 K, i64 M, i64 blocks, const void *phi, uint4 *packed, int type, i64 sk, i64 sm, i64 shares, int nj, int parts) {
    const int vec = nj, per = 3 * nj / 4; // 16-byte vectors of a part
    const i64 count = shares * per * 32;
    for (i64 i = (blockIdx.x - blocks) * blockDim.x + threadIdx.x; i < count; i += (gridDim.x - blocks) * blockDim.x) {
        const int lane = (int)(i & 31), v = (int)(i / 32 % per), g = lane >> 2, t = lane & 3;
        const i64 share = i / 32 / per;
        float a[4], b[4];
        auto at = [&](int e, i64 &k, i64 &m) {
            const int w = 4 * v + e, j = w / 3;
            m = w % 3 * 8 + 2 * t;
            k = share * 8 * nj + j / (vec / 2) * 4 * vec + (g >> 1) * vec + 2 * (j % (vec / 2)) + (g & 1);
        };
        with_type(type, [&](auto tag) {
            typedef decltype(tag) PT;
            const typename PT::elem *src = (const typename PT::elem *)phi;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                i64 k, m;
                at(e, k, m);
                const typename PT::elem *q = src + k * sk + m * sm;
                a[e] = k < K && m < M ? PT::get(__ldg(q)) : 0.f;
                b[e] = k < K && m + 1 < M ? PT::get(__ldg(q + sm)) : 0.f;
            }
        });
        u32 hi[4], lo[4];
#pragma unroll
        for (int e = 0; e < 4; e++) split2(a[e], b[e], hi[e], lo[e]);
        uint4 *p = packed + share * per * parts * 32 + v * 32 + lane;
        p[0] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
        if (parts == 2) p[per * 32] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
    }
}

// load_floats reads COUNT floats; 16 bytes at a time where S is 4.
template <int S, int COUNT>
__device__ __forceinline__ void load_floats(const float *p, float *f) {
    if constexpr (S == 4) {
#pragma unroll
        for (int q = 0; q < COUNT / 4; q++) {
            const float4 v = ((const float4 *)p)[q];
            f[4 * q] = v.x, f[4 * q + 1] = v.y, f[4 * q + 2] = v.z, f[4 * q + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) f[i] = p[i];
    }
}

// grad_logits: coefficients of S streams, up to 4. Blocks of one warp, a thread a token. Shared: 32*28 floats, then hist.
template <int S>
__device__ __forceinline__ void grad_logits(const float *mix, const float *r, const float *alpha, const float *b, const float *gpre,
                                            const float *gpost, const float *gres, char *z, float *part, float *hist, i64 N, i64 K,
                                            float post_mult, int start, int steps, float eps, i64 blocks) {
    extern __shared__ float4 sh4[];
    const int M = S * S + 2 * S;
    float *sums = (float *)sh4; // [32][28]: G, and sums of G * mix for each alpha
    const int lane = threadIdx.x;
    float4 *h = (hist ? (float4 *)hist + (i64)blockIdx.x * (steps + 4) * 32 : sh4 + 32 * 7) + lane;
    float al[3], bias[M];
#pragma unroll
    for (int i = 0; i < 3; i++) al[i] = __ldg(alpha + i);
#pragma unroll
    for (int i = 0; i < M; i++) bias[i] = __ldg(b + i);
    float total = 0.f;
    for (i64 base = (i64)blockIdx.x * 32; base < N; base += blocks * 32) {
        const i64 tok = base + lane, at = min(tok, N - 1); // lanes past the end repeat the last token, and count as zero
        float G[M], mx[M];
        const float rr = r[at];
        load_floats<S, M>(mix + at * M, mx);
#pragma unroll
        for (int i = 0; i < M; i++) G[i] = 0.f;
        if (gpre) load_floats<S, S>(gpre + at * S, G);
        if (gpost) load_floats<S, S>(gpost + at * S, G + S);
        if (gres) load_floats<S, S * S>(gres + at * S * S, G + 2 * S);
#pragma unroll
        for (int i = 0; i < S; i++) {
            G[i] *= sigmoid_slope(fmaf(al[0], mx[i], bias[i]));
            G[S + i] *= post_mult * sigmoid_slope(fmaf(al[1], mx[S + i], bias[S + i]));
        }
        if (gres) {
            float a[S * S], g[S * S];
#pragma unroll
            for (int i = 0; i < S * S; i++) a[i] = fmaf(al[2], mx[2 * S + i], bias[2 * S + i]), g[i] = G[2 * S + i];
            sink_backward<S>(a, g, start, steps, eps, h, 32);
#pragma unroll
            for (int i = 0; i < S * S; i++) G[2 * S + i] = g[i];
        }
        float s3[3] = {0.f, 0.f, 0.f}, zz[24];
#pragma unroll
        for (int i = 0; i < 24; i++) zz[i] = 0.f;
#pragma unroll
        for (int i = 0; i < M; i++) {
            const int k = i < S ? 0 : i < 2 * S ? 1 : 2;
            if (tok >= N) G[i] = 0.f;
            s3[k] = fmaf(G[i], mx[i], s3[k]);
            zz[i] = rr * (G[i] * al[k]);
        }
        if (tok < N) {
            const float c = -(rr * rr / (float)K) * ((al[0] * s3[0] + al[1] * s3[1]) + al[2] * s3[2]);
            uint4 *row = (uint4 *)(z + tok * 112);
            u32 hi[12], lo[12];
#pragma unroll
            for (int i = 0; i < 12; i++) split2(zz[2 * i], zz[2 * i + 1], hi[i], lo[i]);
#pragma unroll
            for (int i = 0; i < 3; i++) {
                row[i] = make_uint4(hi[4 * i], hi[4 * i + 1], hi[4 * i + 2], hi[4 * i + 3]);
                row[3 + i] = make_uint4(lo[4 * i], lo[4 * i + 1], lo[4 * i + 2], lo[4 * i + 3]);
            }
            row[6] = make_uint4(__float_as_uint(c), 0, 0, 0);
        }
        float4 *mine = sh4 + lane * 7;
        float all[28];
#pragma unroll
        for (int i = 0; i < 28; i++) all[i] = i < M ? G[i < M ? i : 0] : i < M + 3 ? s3[i >= M && i < M + 3 ? i - M : 0] : 0.f;
#pragma unroll
        for (int q = 0; q < 7; q++) mine[q] = make_float4(all[4 * q], all[4 * q + 1], all[4 * q + 2], all[4 * q + 3]);
        __syncwarp();
        if (lane < M + 3) {
            float s[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
            for (int i = 0; i < 32; i++) s[i & 3] += sums[i * 28 + lane];
            total += (s[0] + s[1]) + (s[2] + s[3]);
        }
        __syncwarp();
    }
    if (lane < M + 3) part[(i64)blockIdx.x * (M + 3) + lane] = total;
}

#define GRAD_LOGITS(S)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(32) mhc_grad_logits_n##S(GRAD_ARGS) {                                         \
        if (blockIdx.x >= blocks) {                                                                                            \
            pack_phi(K, M, blocks, phi, packed, (int)type, sk, sm, shares, (int)nj, (int)parts);                               \
            return;                                                                                                            \
        }                                                                                                                      \
        zero_counters(counters, ncounters, blocks);                                                                            \
        grad_logits<S>(mix, r, alpha, b, gpre, gpost, gres, z, part, hist, N, K, (float)post_mult, (int)start, (int)steps,     \
                       (float)sink_eps, blocks);                                                                               \
    }
GRAD_LOGITS(1)
GRAD_LOGITS(2)
GRAD_LOGITS(3)
GRAD_LOGITS(4)

// mhc_grad_logits: any mode, any n, any M. Blocks of 128 threads, groups of 8, 16 or 32 lanes a token (32 where there is no
// Sinkhorn). Shared: for each group two rows of P = roundup(M, 4) floats, three matrices with padded rows, the history.
extern "C" __global__ void __launch_bounds__(128) mhc_grad_logits(GRAD_ARGS) {
    extern __shared__ float sh[];
    if (blockIdx.x >= blocks) {
        pack_phi(K, M, blocks, phi, packed, (int)type, sk, sm, shares, (int)nj, (int)parts);
        return;
    }
    const int m = (int)M, P = (m + 3) & ~3, W = (int)width;
    SinkGroup s;
    s.n = mode == 1 ? (int)n : 0, s.pitch = s.n | 1;
    s.lanes = mode == 1 ? sink_groups(s.n) : 32;
    s.li = threadIdx.x % s.lanes;
    const int slot = threadIdx.x / s.lanes, slots = blockDim.x / s.lanes, size = s.n * s.pitch;
    float *rows = sh, *row = rows + slot * 2 * P; // G, G * mix
    float *mat = sh + slots * 2 * P + slot * 3 * size, *g = mat + size, *y = g + size;
    float *h = hist ? hist + ((i64)blockIdx.x * slots + slot) * steps * n : sh + slots * (2 * P + 3 * size) + slot * steps * n;
    zero_counters(counters, ncounters, blocks);
    float tg[3] = {0.f, 0.f, 0.f}, tm[3] = {0.f, 0.f, 0.f}; // columns threadIdx.x + 128*i
    for (i64 base = (i64)blockIdx.x * slots; base < N; base += blocks * slots) {
        const i64 tok = base + slot;
        const bool live = tok < N;
        const float rr = live ? r[tok] : 0.f;
        if (mode == 1 && gres) {
            for (int k = s.li; k < s.n * s.n; k += s.lanes) {
                const int at = k / s.n * s.pitch + k % s.n;
                mat[at] = live ? fmaf(alpha[2], mix[tok * M + 2 * n + k], b[2 * n + k]) : 0.f;
                g[at] = live ? gres[tok * n * n + k] : 0.f;
            }
            __syncwarp();
            sinkn_backward(s, mat, g, y, (int)start, (int)steps, (float)sink_eps, h);
        }
        float dot = 0.f;
        for (int j = s.li; j < W * (int)chunks; j += s.lanes) {
            float G = 0.f, gm = 0.f, zz = 0.f;
            if (live && j < m) {
                const float mx = mix[tok * M + j];
                float a = 1.f;
                if (mode == 0) {
                    if (gpre) G = gpre[tok * M + j];
                } else if (mode == 2) {
                    a = alpha[0];
                    if (gpre) G = gpre[tok * M + j] * sigmoid_slope(fmaf(a, mx, b[j]));
                } else if (j < s.n) {
                    a = alpha[0];
                    if (gpre) G = gpre[tok * n + j] * sigmoid_slope(fmaf(a, mx, b[j]));
                } else if (j < 2 * s.n) {
                    a = alpha[1];
                    if (gpost) G = gpost[tok * n + j - n] * (float)post_mult * sigmoid_slope(fmaf(a, mx, b[j]));
                } else {
                    a = alpha[2];
                    const int k = j - 2 * s.n;
                    if (gres) G = g[k / s.n * s.pitch + k % s.n];
                }
                gm = G * mx;
                dot = fmaf(a, gm, dot);
                zz = rr * (G * a);
            }
            if (j < m) row[j] = G, row[P + j] = gm;
            if (live) {
                u16 *p = (u16 *)(z + ((i64)(j / W) * N + tok) * (4 * W + 16)) + j % W;
                const float hi = round_bf16(zz);
                p[0] = BF16::put(hi), p[W] = BF16::put(zz - hi);
            }
        }
        for (int i = s.lanes / 2; i; i /= 2) dot += __shfl_xor_sync(~0u, dot, i);
        if (live && s.li == 0) {
            float c = -(rr * rr / (float)K) * dot;
            if (gr) c -= rr * rr * rr / (float)K * gr[tok];
            for (int q = 0; q < (int)chunks; q++) *(uint4 *)(z + ((i64)q * N + tok) * (4 * W + 16) + 4 * W) = make_uint4(__float_as_uint(c), 0, 0, 0);
        }
        if (part) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < 3; i++) {
                const int j = threadIdx.x + 128 * i;
                for (int q = 0; j < m && q < slots; q++) tg[i] += rows[q * 2 * P + j], tm[i] += rows[q * 2 * P + P + j];
            }
            __syncthreads();
        } else {
            __syncwarp();
        }
    }
    if (!part) return;
    const int alphas = mode == 1 ? 3 : 1;
    float *mine = part + (i64)blockIdx.x * (m + alphas);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int j = threadIdx.x + 128 * i;
        if (j < m) mine[j] = tg[i], rows[j] = tm[i];
    }
    __syncthreads();
    if ((int)threadIdx.x < alphas) {
        const int k = threadIdx.x;
        const int from = mode == 1 ? k * (int)n : 0, to = mode == 2 || k == 2 ? m : (k + 1) * (int)n;
        float t = 0.f;
        for (int j = from; j < to; j++) t += rows[j];
        mine[m + k] = t;
    }
}
