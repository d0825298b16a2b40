// From upstream gradients to z = r * dmix and c, the operands of the pass that gives dx and dphi, with per-block partial sums
// of db and dalpha.
//
//     G      gradient of the logits: sigmoid slopes, reverse Sinkhorn      dmix = G * (alpha of the column)
//     z      = r * dmix                                                    c    = -(r^2/K) sum(dmix * mix) - (r^3/K) dr
//     part   [block][M + alphas]: sums over the block's tokens of G, and of G * mix over the columns of each alpha
//
// A row of z is what the next kernel copies to shared memory as it is: W high bfloat16 parts, W low ones, c, padding to 4W + 16
// bytes (an odd multiple of 16: no bank conflicts); rows of one chunk of W columns after those of another.
// Nothing of the forward but mix and r is read: the Sinkhorn iterations are run again here, then reversed. Behind the first
// `blocks`, `packers` blocks pack phi for the next kernel meanwhile, and the others fetch x for it.
#include "token.cuh"

// Arguments of both kernels: mode (0: g_pre is the gradient of mix, 1: coefficients, 2: g_pre is that of head weights); mix [N,
// M], r [N], alpha, b; g_pre, g_post, g_res, g_r: any may be 0; z, part, hist (0: in shared memory), counters to be zeroed for
// the next kernel and their number; N, K, M, streams, W, chunks; post_mult; Sinkhorn start, steps, eps; blocks, packers; phi,
// packed (0: not wanted), type and strides of phi, shares of 32 columns, elements of 16 bytes of x, parts of phi; x, and the
// bytes of it to bring to the L2 ahead of the next kernel. Kernels for up to 4 streams use no hist, the one for any number no
// x.
#define GRAD_ARGS                                                                                                              \
    i64 mode, const float *mix, const float *r, const float *alpha, const float *b, const float *gpre, const float *gpost,     \
        const float *gres, const float *gr, char *z, float *part, float *hist, unsigned long long *counters, i64 ncounters,    \
        i64 N, i64 K, i64 M, i64 n, i64 width, i64 chunks, double post_mult, i64 start, i64 steps, double sink_eps, i64 blocks, \
        i64 packers, const void *phi, uint4 *packed, i64 type, i64 sk, i64 sm, i64 shares, i64 vec, i64 parts,                      \
        const char *x, i64 ahead

__device__ __forceinline__ void zero_counters(unsigned long long *counters, i64 n, i64 blocks) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blocks * blockDim.x) counters[i] = 0;
}

// pack_phi writes phi as right operands of dx, W = 24: for each share of 32 columns, each four of the 12 words of a lane (word
// 3j + q: column of n block j, see block_column, rows m = 8q + 2t and 8q + 2t + 1 of phi^T), each part where there are two, 16 bytes
// of each lane.
__device__ __forceinline__ void pack_phi(i64 K, int M, i64 blocks, i64 packers, const void *phi, uint4 *packed, int type, i64 sk, i64 sm, i64 shares, int vec, int parts) {
    const bool pairs = sm == 1 && sk % 2 == 0 && M % 2 == 0 && ((unsigned long long)phi & 7) == 0;
    const u32 count = (u32)shares * 3 * 32;
    for (u32 i = (blockIdx.x - (u32)blocks) * blockDim.x + threadIdx.x; i < count; i += (u32)packers * blockDim.x) {
        const int lane = (int)(i & 31), v = (int)(i / 32 % 3), g = lane >> 2, t = lane & 3;
        const i64 share = i / 96;
        float f[4][2];
        with_type(type, [&](auto tag) {
            typedef decltype(tag) PT;
            const typename PT::elem *p[4];
            typename PT::elem in[4][2];
            int m[4];
            bool live[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int w = 4 * v + e, j = w / 3;
                const i64 k = share * 32 + (vec == 8 ? (g >> 1) * 8 + 2 * j : (j >> 1) * 16 + (g >> 1) * 4 + 2 * (j & 1)) + (g & 1);
                m[e] = w % 3 * 8 + 2 * t, live[e] = k < K;
                p[e] = (const typename PT::elem *)phi + min(k, K - 1) * sk;
            }
            if (pairs) {
#pragma unroll
                for (int e = 0; e < 4; e++) PT::pair(p[e] + min(m[e], M - 2), in[e]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) in[e][0] = __ldg(p[e] + min(m[e], M - 1) * sm), in[e][1] = __ldg(p[e] + min(m[e] + 1, M - 1) * sm);
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int i = 0; i < 2; i++) f[e][i] = live[e] && m[e] + i < M ? PT::get(in[e][i]) : 0.f;
        });
        u32 hi[4], lo[4];
#pragma unroll
        for (int e = 0; e < 4; e++) split2(f[e][0], f[e][1], hi[e], lo[e]);
        uint4 *p = packed + share * 3 * parts * 32 + v * 32 + lane;
        p[0] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
        if (parts == 2) p[3 * 32] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
    }
}

// GRAD_WARPS is the number of warps of a block of grad_logits.
#define GRAD_WARPS 4

// x is fetched FETCH_CYCLES after a block's start: earlier, the kernel takes up to 3 us more, as if what the tokens wait for came
// behind all of x. What is more than FETCH_BURST would come too late, then, and is fetched in that time, evenly.
#define FETCH_CYCLES 4200
#define FETCH_BURST 15000000 // bytes

// fetch_ahead brings x to the L2 while the memory has little else to do; of `fetchers` blocks, block `me`.
__device__ __forceinline__ void fetch_ahead(const char *x, i64 bytes, int me, int fetchers) {
    const i64 start = clock64();
    const int lines = (int)((bytes + 127) / 128), early = max(lines - FETCH_BURST / 128, 0);
    const float pace = (float)FETCH_CYCLES / (float)max(early, 1);
    for (int l = me * blockDim.x + threadIdx.x; l < lines; l += fetchers * blockDim.x) {
        const int due = l < early ? (int)(l * pace) : FETCH_CYCLES;
        while (clock64() - start < due) __nanosleep(20);
        asm volatile("prefetch.global.L2 [%0];" ::"l"(x + (i64)l * 128));
    }
}

// grad_logits: coefficients of S streams, up to 4; a quad a token. Shared: the history of Sinkhorn of all warps.
template <int S>
__device__ __forceinline__ void grad_logits(const float *mix, const float *r, const float *alpha, const float *b, const float *gpre,
                                            const float *gpost, const float *gres, char *z, float *part, i64 N, i64 K,
                                            float post_mult, int start, int steps, float eps, i64 blocks) {
    extern __shared__ float history[];
    __shared__ __align__(16) char rows[GRAD_WARPS][8 * 112];
    __shared__ __align__(16) float sums[GRAD_WARPS][28];
    typedef TokenGrad<S> Token;
    const int lane = threadIdx.x & 31, warp = uniform_warp();
    float al[3], mine[Token::SUMS];
    Columns bias;
    load_alphas(alpha, al);
    bias.load<S>(b);
#pragma unroll
    for (int i = 0; i < Token::SUMS; i++) mine[i] = 0.f;
    for (i64 base = ((i64)blockIdx.x * GRAD_WARPS + warp) * 8; base < N; base += blocks * GRAD_WARPS * 8) {
        const i64 tok = base + (lane >> 2);
        Token t;
        t.load(min(tok, N - 1), tok < N, mix, r, gpre, gpost, gres);
        t.run(bias, al, gres != 0, post_mult, start, steps, eps, history + warp * (steps + 2) * 32, mine);
        t.put_z(rows[warp] + (lane >> 2) * 112, al, K);
        __syncwarp();
        const int count = (int)min(N - base, (i64)8) * 7; // rows leave in whole lines
        for (int i = lane; i < count; i += 32) ((uint4 *)(z + base * 112))[i] = ((const uint4 *)rows[warp])[i];
        __syncwarp();
    }
    Token::put_sums(mine, sums[warp]);
    __syncthreads();
    if (threadIdx.x >= Token::M + 3) return;
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < GRAD_WARPS; w++) s += sums[w][threadIdx.x];
    part[(i64)blockIdx.x * (Token::M + 3) + threadIdx.x] = s;
}

#define GRAD_LOGITS(S)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * GRAD_WARPS, 4) mhc_grad_logits_n##S(GRAD_ARGS) {                         \
        if (blockIdx.x >= blocks + packers) {                                                                                  \
            fetch_ahead(x, ahead, (int)(blockIdx.x - blocks - packers), (int)(gridDim.x - blocks - packers));                  \
            return;                                                                                                            \
        }                                                                                                                      \
        if (blockIdx.x >= blocks) {                                                                                            \
            pack_phi(K, (int)M, blocks, packers, phi, packed, (int)type, sk, sm, shares, (int)vec, (int)parts);                \
            return;                                                                                                            \
        }                                                                                                                      \
        zero_counters(counters, ncounters, blocks);                                                                            \
        grad_logits<S>(mix, r, alpha, b, gpre, gpost, gres, z, part, N, K, (float)post_mult, (int)start, (int)steps,           \
                       (float)sink_eps, blocks);                                                                               \
    }
GRAD_LOGITS(1)
GRAD_LOGITS(2)
GRAD_LOGITS(3)
GRAD_LOGITS(4)

// put_z writes the parts of column j of z of a token, put_c its factor of x for every chunk.
__device__ __forceinline__ void put_z(char *z, i64 N, int W, i64 tok, int j, float v) {
    u16 *p = (u16 *)(z + ((i64)(j / W) * N + tok) * (4 * W + 16)) + j % W;
    const float hi = round_bf16(v);
    p[0] = BF16::put(hi), p[W] = BF16::put(v - hi);
}
__device__ __forceinline__ void put_c(char *z, i64 N, int W, int chunks, i64 tok, float c) {
    for (int q = 0; q < chunks; q++) *(uint4 *)(z + ((i64)q * N + tok) * (4 * W + 16) + 4 * W) = make_uint4(__float_as_uint(c), 0, 0, 0);
}

// GradSums adds G and G * mix over the tokens of a block of 128 threads: thread i the columns i + 128*k. rows: for each token two
// rows of P floats in shared memory.
struct GradSums {
    const int P, m;
    float g[3] = {0.f, 0.f, 0.f}, gm[3] = {0.f, 0.f, 0.f};
    __device__ __forceinline__ GradSums(int P, int m) : P(P), m(m) {}
    __device__ __forceinline__ void add(const float *rows, int tokens) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const int j = threadIdx.x + 128 * i;
            for (int q = 0; j < m && q < tokens; q++) g[i] += rows[q * 2 * P + j], gm[i] += rows[q * 2 * P + P + j];
        }
        __syncthreads();
    }
    // write: the sums of G, then those of G * mix over the columns of each alpha: n, n and the rest for three of them, all for one.
    __device__ __forceinline__ void write(float *rows, float *out, int alphas, int n) {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const int j = threadIdx.x + 128 * i;
            if (j < m) out[j] = g[i], rows[j] = gm[i];
        }
        __syncthreads();
        const int k = threadIdx.x;
        if (k >= alphas) return;
        float t = 0.f;
        for (int j = k * n; j < (k == alphas - 1 ? m : (k + 1) * n); j++) t += rows[j];
        out[m + k] = t;
    }
};

// mhc_grad_logits: modes 0 and 2, any M. Blocks of 128 threads, a warp a token. Shared: for each warp two rows of
// P = roundup(M, 4) floats.
extern "C" __global__ void __launch_bounds__(128) mhc_grad_logits(GRAD_ARGS) {
    extern __shared__ float sh[];
    const int m = (int)M, P = (m + 3) & ~3, W = (int)width;
    if (blockIdx.x >= blocks) {
        pack_phi(K, (int)M, blocks, packers, phi, packed, (int)type, sk, sm, shares, (int)vec, (int)parts);
        return;
    }
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *rows = sh, *row = rows + warp * 2 * P; // G, G * mix
    zero_counters(counters, ncounters, blocks);
    GradSums sums(P, m);
    for (i64 base = (i64)blockIdx.x * 4; base < N; base += blocks * 4) {
        const i64 tok = base + warp;
        const bool live = tok < N;
        const float rr = live ? r[tok] : 0.f, a = mode == 0 ? 1.f : alpha[0];
        float dot = 0.f;
        for (int j = lane; j < W * (int)chunks; j += 32) {
            float G = 0.f, gm = 0.f, zz = 0.f;
            if (live && j < m) {
                const float mx = mix[tok * M + j];
                if (gpre) G = gpre[tok * M + j];
                if (mode == 2) G *= sigmoid_slope(fmaf(a, mx, b[j]));
                gm = G * mx;
                dot = fmaf(a, gm, dot);
                zz = rr * (G * a);
            }
            if (j < m) row[j] = G, row[P + j] = gm;
            if (live) put_z(z, N, W, tok, j, zz);
        }
        for (int i = 16; i; i /= 2) dot += __shfl_xor_sync(~0u, dot, i);
        if (live && lane == 0) {
            float c = -(rr * rr / (float)K) * dot;
            if (gr) c -= rr * rr * rr / (float)K * gr[tok];
            put_c(z, N, W, (int)chunks, tok, c);
        }
        if (part) sums.add(rows, 4);
    }
    if (part) sums.write(rows, part + (i64)blockIdx.x * (m + 1), 1, 0);
}
