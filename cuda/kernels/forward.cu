// mix = r * (X phi), r = 1/sqrt(mean(x^2) + eps) and what follows from them: coefficients, head weights.
//
// Two launches. The first writes partial products over ranges of K, and the sums of squares of the same reads; the second
// adds the ranges in a fixed order and ends in the activations and Sinkhorn. Nothing is added atomically.
//
// Ideas
// - A warp owns 16 tokens and walks along its block's range of K, 128 bytes a step. x comes in whole lines through a ring of
//   asynchronous copies that the warp has for itself: no barriers. A contraction may run over K in any order: lane t of a quad
//   takes 8 neighbouring columns (4 of float32) and calls them the columns that the tensor core wants of it; phi is permuted to
//   match.
// - The block's rows of phi lie in shared memory as ready operand fragments, one access a lane and product.
// - Elements that are not bfloat16 are split: a float16 is two bfloat16, exactly, a float32 three. Products of parts that
//   matter are added: two with a float32 phi and bfloat16 x, four or five with float16, six with float32.
// - The sum of squares of bfloat16 rows is the diagonal of x x^T, two products more.
#include "common.cuh"
#include "token.cuh"

// FDEPTH is the number of tiles of a warp on their way or in use.
#define FDEPTH 3

// mix_partial: partial[range][token][W + 4]: W = 24 columns, the sum of squares, zeros. P parts of phi.
template <class T, int P, bool AL>
__device__ __forceinline__ void mix_partial(const void *xv, const void *phi, float *partial, int type, i64 sk, i64 sm,
                                            i64 N, i64 K, i64 M, int range, int ranges) {
    extern __shared__ __align__(128) uint4 shared[]; // rings, then fragments
    typedef typename T::elem E;
    const int VEC = T::VEC, NB = 3, W = NB * 8, TILE = 8 * VEC, PITCH = 72 * P;
    const bool MMASQ = T::PARTS == 1; // sums of squares on the tensor cores too: x x^T, of which the diagonal counts
    const E *x = (const E *)xv;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, g = lane >> 2, t = lane & 3;
    const int r = blockIdx.x % ranges, tb = blockIdx.x / ranges, tbs = gridDim.x / ranges;
    const i64 k0 = (i64)r * range;
    const int len = (int)min((i64)range, K - k0), steps = (len + TILE - 1) / TILE, whole = len / TILE;
    u32 *frag = (u32 *)(shared + warps * FDEPTH * 128); // [k step][n block], PITCH apart: [lane][part][2], rows 0-1 and 2-3 of a lane

    // Positions of the loads and of the products: a tile of 16 tokens and a step of 128 bytes of the range.
    const i64 tiles = (N + 15) / 16, full = N / 16, stride = (i64)tbs * warps;
    i64 lt = (i64)tb * warps + warp, pt = lt;
    int ls = 0, ps = 0;
    const u32 ring = shared_address(shared + warp * FDEPTH * 128), own = ring + tile_own(lane), line = ring + tile_line(lane);
    u32 lslot = 0, pslot = 0;
    const E *src = x + (lt * 16 + (lane >> 3)) * K + k0 + (lane & 7) * VEC;
    auto load = [&]() {
        if (AL && lt < full && ls < whole) {
#pragma unroll
            for (int q = 0; q < 4; q++) copy16(line + lslot + q * 512, src + q * 4 * K);
        } else if (lt < tiles) {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const bool in = lt * 16 + (lane >> 3) + 4 * q < N;
                const int col = ls * TILE + (lane & 7) * VEC;
                if (AL)
                    copy16_or_zero(line + lslot + q * 512, in && col < len ? src + q * 4 * K : x, in && col < len ? 16 : 0);
                else
                    st_shared(line + lslot + q * 512, load_row<T, AL>(src + q * 4 * K - col, col, len, in));
            }
        }
        copy_commit();
        src += TILE;
        if (++ls == steps) ls = 0, lt += stride, src += stride * 16 * K - (i64)steps * TILE;
        lslot = lslot == (FDEPTH - 1) * 2048 ? 0 : lslot + 2048;
    };
    // phi to shared memory. A task is four rows and eight columns: what a lane of each of 8 quads takes for a product. The first
    // loads go before those of x, which would keep them waiting.
    {
        const bool fast = sm == 1 && M % 8 == 0 && ((unsigned long long)phi & 15) == 0;
        const int tasks = steps * (VEC / 2) * NB * 4, size = type == TYPE_F32 ? 4 : 2, threads = blockDim.x;
        auto row_of = [&](int task) {
            const int step = (task >> 2) / NB;
            return step / (VEC / 4) * 4 * VEC + (task & 3) * VEC + step % (VEC / 4) * 4;
        };
        const int R = 2;
        uint4 raw[R][4]; // two tasks of 16-bit elements, or the halves of one of float32
        auto fetch = [&](int task) {
#pragma unroll
            for (int u = 0; u < R; u++) {
                const int tk = size == 2 ? task + u * threads : task, row = row_of(tk);
                const i64 m = (tk >> 2) % NB * 8;
                const char *p = (const char *)phi + ((k0 + row) * sk + m) * size + (size == 4 ? u * 16 : 0);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    raw[u][i] = tk < tasks && m < M && row + i < len ? __ldg((const uint4 *)(p + i * sk * size)) : make_uint4(0, 0, 0, 0);
            }
        };
        if (fast) fetch(threadIdx.x);
#pragma unroll 1
        for (int i = 0; i < FDEPTH - 1; i++) load();
        auto put = [&](int task, const float (&f)[4][8]) {
            u32 *p = frag + (task >> 2) * PITCH + (task & 3) * (2 * P);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                u32 a[P], b[P];
                split_pair<P>(f[0][i], f[1][i], a);
                split_pair<P>(f[2][i], f[3][i], b);
                if constexpr (P == 2) {
                    *(uint4 *)(p + i * 8 * P) = make_uint4(a[0], b[0], a[1], b[1]);
                } else {
#pragma unroll
                    for (int q = 0; q < P; q++) *(uint2 *)(p + i * 8 * P + 2 * q) = make_uint2(a[q], b[q]);
                }
            }
        };
        if (fast && P == 1) { // bfloat16: halves of words change places
#pragma unroll 1
            for (int task = threadIdx.x; task < tasks; task += R * threads) {
                if (task != (int)threadIdx.x) fetch(task);
#pragma unroll
                for (int u = 0; u < R; u++) {
                    const int tk = task + u * threads;
                    if (tk >= tasks) continue;
                    u32 *p = frag + (tk >> 2) * PITCH + (tk & 3) * 2;
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        const int s = i & 1 ? 0x7632 : 0x5410;
                        auto word = [&](const uint4 &v) { return i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w; };
                        *(uint2 *)(p + i * 8) = make_uint2(__byte_perm(word(raw[u][0]), word(raw[u][1]), s), __byte_perm(word(raw[u][2]), word(raw[u][3]), s));
                    }
                }
            }
        } else if (fast) {
            with_type(type, [&](auto tag) {
                typedef decltype(tag) PT;
                const int U = PT::VEC / 4;
#pragma unroll 1
                for (int task = threadIdx.x; task < tasks; task += U * threads) {
                    if (task != (int)threadIdx.x) fetch(task);
#pragma unroll
                    for (int u = 0; u < U; u++) {
                        float f[4][8];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            float e[PT::VEC];
#pragma unroll
                            for (int h = 0; h < 8 / PT::VEC; h++) {
                                PT::unpack(raw[U == 2 ? u : h][i], e);
#pragma unroll
                                for (int j = 0; j < PT::VEC; j++) f[i][h * PT::VEC + j] = e[j];
                            }
                        }
                        if (task + u * threads < tasks) put(task + u * threads, f);
                    }
                }
            });
        } else {
            with_type(type, [&](auto tag) {
                typedef decltype(tag) PT;
                const typename PT::elem *ph = (const typename PT::elem *)phi + k0 * sk;
#pragma unroll 1
                for (int task = threadIdx.x; task < tasks; task += threads) {
                    const int row = row_of(task);
                    const i64 m = (task >> 2) % NB * 8;
                    float f[4][8];
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 8; j++) f[i][j] = row + i < len && m + j < M ? PT::get(ph[(row + i) * sk + (m + j) * sm]) : 0.f;
                    put(task, f);
                }
            });
        }
    }
    __syncthreads();

    float acc[NB][4], s0 = 0.f, s1 = 0.f; // s0, s1: squares of rows g and g + 8
#pragma unroll
    for (int j = 0; j < NB; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.f;

    const u32 *fp = frag + lane * (2 * P);
#pragma unroll 1
    while (pt < tiles) {
        copy_wait<FDEPTH - 2>();
        __syncwarp();
        uint4 b[2][2]; // [half of the columns][row g, g + 8]
        b[0][0] = ld_shared(own + pslot), b[0][1] = ld_shared(own + pslot + 1024);
        b[1][0] = ld_shared((own + pslot) ^ 64), b[1][1] = ld_shared(((own + pslot) ^ 64) + 1024);
        pslot = pslot == (FDEPTH - 1) * 2048 ? 0 : pslot + 2048;
        load();
        float sq[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}}; // short sums: the tensor core cuts off what it adds
#pragma unroll
        for (int l = 0; l < 2; l++) {
            u32 a[VEC / 2][T::PARTS], c[VEC / 2][T::PARTS];
            parts<T, T::PARTS>(b[l][0], a);
            parts<T, T::PARTS>(b[l][1], c);
            if (!MMASQ) {
                float f[VEC];
                T::unpack(b[l][0], f);
#pragma unroll
                for (int i = 0; i < VEC; i++) s0 = fmaf(f[i], f[i], s0);
                T::unpack(b[l][1], f);
#pragma unroll
                for (int i = 0; i < VEC; i++) s1 = fmaf(f[i], f[i], s1);
            }
#pragma unroll
            for (int s = 0; s < VEC / 4; s++) {
                const u32 *q = fp + (l * (VEC / 4) + s) * NB * PITCH;
                if (MMASQ) {
                    mma16816(sq[0], a[2 * s][0], c[2 * s][0], a[2 * s + 1][0], c[2 * s + 1][0], a[2 * s][0], a[2 * s + 1][0]);
                    mma16816(sq[1], a[2 * s][0], c[2 * s][0], a[2 * s + 1][0], c[2 * s + 1][0], c[2 * s][0], c[2 * s + 1][0]);
                }
#pragma unroll
                for (int j = 0; j < NB; j++) {
                    uint2 w[P];
                    if constexpr (P == 2) {
                        const uint4 v = *(const uint4 *)(q + j * PITCH);
                        w[0] = make_uint2(v.x, v.y), w[1] = make_uint2(v.z, v.w);
                    } else {
#pragma unroll
                        for (int p = 0; p < P; p++) w[p] = *(const uint2 *)(q + j * PITCH + 2 * p);
                    }
                    // Products of parts down to the precision that is kept: part i of x, part p of phi.
#pragma unroll
                    for (int p = P - 1; p >= 0; p--)
#pragma unroll
                        for (int i = T::PARTS - 1; i >= 0; i--)
                            if (i + p < 3)
                                mma16816(acc[j], a[2 * s][i], c[2 * s][i], a[2 * s + 1][i], c[2 * s + 1][i], w[p].x, w[p].y);
                }
            }
        }
        if (MMASQ && t == g >> 1) { // lane (g, t) holds columns 2t and 2t+1 of row g, g + 8
            s0 += g & 1 ? sq[0][1] : sq[0][0];
            s1 += g & 1 ? sq[1][3] : sq[1][2];
        }
        fp += (VEC / 2) * NB * PITCH;
        if (++ps < steps) continue;
        // The tile is done.
        const i64 row = pt * 16 + g;
        float *p = partial + ((i64)r * N + row) * (W + 4) + 2 * t;
#pragma unroll
        for (int j = 0; j < NB; j++) {
            if (row < N) *(float2 *)(p + j * 8) = make_float2(acc[j][0], acc[j][1]);
            if (row + 8 < N) *(float2 *)(p + 8 * (W + 4) + j * 8) = make_float2(acc[j][2], acc[j][3]);
            acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.f;
        }
        s0 += __shfl_xor_sync(~0u, s0, 1), s1 += __shfl_xor_sync(~0u, s1, 1);
        s0 += __shfl_xor_sync(~0u, s0, 2), s1 += __shfl_xor_sync(~0u, s1, 2);
        if (t == 0) {
            if (row < N) *(float4 *)(p + W) = make_float4(s0, 0.f, 0.f, 0.f);
            if (row + 8 < N) *(float4 *)(p + 8 * (W + 4) + W) = make_float4(s1, 0.f, 0.f, 0.f);
        }
        s0 = s1 = 0.f;
        fp = frag + lane * (2 * P);
        ps = 0, pt += stride;
    }
}

// x [N, K], phi with strides sk and sm, partial; type of phi; N, K, M; rows of a range (a multiple of 64), ranges.
// Grid: ranges * token blocks. Block: up to 512. Shared: the rings and the fragments of a range.
#define MIX_PARTIAL(name, T, P, AL)                                                                                              \
    extern "C" __global__ void __launch_bounds__(512, 1) name(const void *x, const void *phi, float *partial,                    \
                                                              i64 type, i64 sk, i64 sm, i64 N, i64 K, i64 M, i64 range, i64 ranges) { \
        mix_partial<T, P, AL>(x, phi, partial, (int)type, sk, sm, N, K, M, (int)range, (int)ranges);                    \
    }
#define MIX_PARTIALS(t, T, P)                              \
    MIX_PARTIAL(mhc_mix_partial_##t##_p##P##_m24, T, P, true) \
    MIX_PARTIAL(mhc_mix_partial_##t##_p##P##_m24_any, T, P, false)

MIX_PARTIALS(bf16, BF16, 1)
MIX_PARTIALS(bf16, BF16, 2)
MIX_PARTIALS(f16, F16, 2)
MIX_PARTIALS(f16, F16, 3)
MIX_PARTIALS(f32, F32, 3)

// The reducers share their arguments: mode (0: mix and r only, 1: coefficients, 2: head weights in h_pre), partial,
// N, K, M, ranges, columns of a chunk, streams, tokens of a block, rms eps, pre eps, post_mult, Sinkhorn start, steps and eps,
// b [M], alpha [3] (head: [1]), then what is written: mix [N, M], r [N], h_pre, h_post [N, n], h_res [N, n, n].
#define REDUCE_ARGS                                                                                                               \
    i64 mode, const float *partial, i64 N, i64 K, i64 M, i64 ranges, i64 width, i64 n, i64 tokens,          \
        double rms_eps, double pre_eps, double post_mult, i64 start, i64 steps, double sink_eps, const float *b,                  \
        const float *alpha, float *mix, float *r, float *hpre, float *hpost, float *hres

// coeffs_reduce: coefficients of S streams, up to 4. Blocks of 256 threads and 4, 8, 16 or 32 tokens: 224 threads add the ranges
// (32/tokens groups of ranges at once), then 192 finish mix, a column each, then a quad a token does Sinkhorn.
template <int S>
__device__ __forceinline__ void coeffs_reduce(const float *partial, i64 N, i64 K, int nr, int tpb, float rms_eps, float pre_eps,
                                              float post_mult, int start, int steps, float eps, const float *b, const float *alpha,
                                              float *mix, float *r, float *hpre, float *hpost, float *hres) {
    const int M = S * S + 2 * S;
    __shared__ float4 red[32 * 7];
    __shared__ float logit[32][25];
    const int groups = 32 / tpb, id = threadIdx.x, col = id % 24;
    const i64 t0 = (i64)blockIdx.x * tpb;
    float bias = 0.f, al = 0.f;
    if (id < 192 && col < M) bias = __ldg(b + col), al = __ldg(alpha + (col < S ? 0 : col < 2 * S ? 1 : 2));
    if (id < 224) {
        const int c = id % 7, tk = (id / 7) % tpb, rg = id / (7 * tpb);
        float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
        if (t0 + tk < N) {
            const float4 *p = (const float4 *)partial + ((i64)rg * N + t0 + tk) * 7 + c;
            const i64 next = groups * N * 7;
#pragma unroll 8
            for (int q = rg; q < nr; q += groups, p += next) {
                const float4 v = __ldg(p);
                s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
            }
        }
        red[id] = s;
    }
    __syncthreads();
    for (int tk = id / 24; id < 192 && tk < tpb; tk += 8) {
        const i64 tok = t0 + tk;
        float s = 0.f, q = 0.f;
        for (int rg = 0; rg < groups; rg++) {
            const float *p = (const float *)&red[(rg * tpb + tk) * 7];
            s += p[col], q += p[24];
        }
        if (tok < N && col < M) {
            const float rr = inverse_sqrt(q / (float)K + rms_eps);
            const float v = s * rr, l = fmaf(al, v, bias);
            mix[tok * M + col] = v;
            logit[tk][col] = l;
            if (col == 0) r[tok] = rr;
            if (col < S)
                hpre[tok * S + col] = sigmoid(l) + pre_eps;
            else if (col < 2 * S)
                hpost[tok * S + col - S] = post_mult * sigmoid(l);
        }
    }
    __syncthreads();
    if (uniform_warp() >= max(tpb / 8, 1)) return;
    const int tk = (int)min((i64)min(id / 4, tpb - 1), N - 1 - t0), q = min(id & 3, S - 1);
    float a[4], p[4];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = i < S ? logit[tk][2 * S + S * q + i] : 0.f;
    quad_order(a);
    sink_forward<S>(a, p, start, steps, eps);
    if (id / 4 < tpb && (id & 3) < S && t0 + tk < N) quad_store<S>(hres + ((t0 + tk) * S + q) * S, p);
}

#define COEFFS_REDUCE(S)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) mhc_coeffs_reduce_n##S(REDUCE_ARGS) {                                       \
        coeffs_reduce<S>(partial, N, K, (int)ranges, (int)tokens, (float)rms_eps, (float)pre_eps, (float)post_mult,      \
                         (int)start, (int)steps, (float)sink_eps, b, alpha, mix, r, hpre, hpost, hres);                           \
    }
COEFFS_REDUCE(1)
COEFFS_REDUCE(2)
COEFFS_REDUCE(3)
COEFFS_REDUCE(4)

// mhc_mix_reduce: modes 0 and 2, any M. Blocks of 256 threads and 8 tokens, a warp a token.
extern "C" __global__ void __launch_bounds__(256) mhc_mix_reduce(REDUCE_ARGS) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, nr = (int)ranges;
    const i64 tok = (i64)blockIdx.x * 8 + warp;
    if (tok >= N) return;
    float q = 0.f;
    for (int i = lane; i < nr; i += 32) q += partial[((i64)i * N + tok) * (width + 4) + width];
    for (int i = 16; i; i /= 2) q += __shfl_xor_sync(~0u, q, i);
    const float rr = inverse_sqrt(q / (float)K + (float)rms_eps);
    if (lane == 0) r[tok] = rr;
    for (int m = lane; m < (int)M; m += 32) {
        const int chunk = m / (int)width, c = m % (int)width;
        const float *p = partial + ((i64)chunk * nr * N + tok) * (width + 4) + c;
        float s = 0.f;
#pragma unroll 4
        for (int i = 0; i < nr; i++) s += __ldg(p + (i64)i * N * (width + 4));
        s *= rr;
        mix[tok * M + m] = s;
        if (mode == 2) hpre[tok * n + m] = sigmoid(fmaf(alpha[0], s, b[m])) + (float)pre_eps;
    }
}
