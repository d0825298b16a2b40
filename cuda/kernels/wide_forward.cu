// mix and r where phi has more than 24 columns, and the coefficients of 5 to 16 streams: as forward.cu, but x is read once for up
// to 80 columns.
//
// Ideas
// - A block owns 256 tokens, a warp 32 of them, so that an operand of phi read from shared memory serves two products.
// - phi does not fit in shared memory: it comes along with x, a tile of 128 bytes of the columns of X at a time, in a ring of
//   stages that the block shares. Ranges of K can then be long, and the partial products few.
// - Operands of one 16-bit type, bfloat16 or float16, are multiplied as they are. Then rows of phi that are aligned are copied;
//   otherwise they pass through registers, fetched before the products of a stage and stored, in parts, after them. ldmatrix turns
//   rows into operands.
#include "common.cuh"
#include "sinkhorn_lines.cuh"

// A tile of x in shared memory has rows of 128 bytes. Chunk c of 16 bytes of row r lies at chunk c ^ wide_swizzle(r): whole rows,
// columns of 8 chunks (ldmatrix) and chunks t of rows g (lane 4g+t) are all free of bank conflicts.
__device__ __forceinline__ u32 wide_swizzle(int r) { return (r & 1) << 2 | (r >> 1 & 3); }

// wide_own is the offset of chunk t of row g (chunk 4 + t: ^ 64; row g + 8: + 1024).
__device__ __forceinline__ u32 wide_own(int lane) { return (lane >> 2) * 128 + ((lane & 3) ^ wide_swizzle(lane >> 2)) * 16; }

#define WIDE_TOKENS 256 // of a block of the forward
#define WIDE_THREADS 256

// wide_wait waits, in a ring of depth stages, until the copies of the next stage are there.
__device__ __forceinline__ void wide_wait(int depth) {
    if (depth == 4)
        copy_wait<2>();
    else if (depth == 3)
        copy_wait<1>();
    else
        copy_wait<0>();
}

// wide_turn makes the whole block go on to stage s of a ring, where all is there: it starts the copies of the last stage to come, and
// calls it by its number.
template <class F>
__device__ __forceinline__ void wide_turn(int s, int depth, F load) {
    if (depth == 1) { // no room for more: nothing overlaps
        __syncthreads();
        load(s);
    }
    wide_wait(depth);
    __syncthreads();
    if (depth > 1) load(s + depth - 1);
}

// mma_wide is mma16816 for bfloat16 or, if HALF, float16 operands.
template <bool HALF>
__device__ __forceinline__ void mma_wide(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if (HALF)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        mma16816(c, a[0], a[1], a[2], a[3], b0, b1);
}

// wide_operand reads columns 16q to 16q + 15 of a tile of x of 16 tokens as left operand: as they are (XP = 1), or in parts, and then
// it adds to the sums of squares of rows g and g + 8. float32 comes in the order in which a lane has neighbours.
template <class T, int XP>
__device__ __forceinline__ void wide_operand(u32 (&a)[XP][4], u32 tile, int q, int lane, float (&sum)[2]) {
    if constexpr (T::VEC == 8) {
        u32 w[4];
        ldmatrix4<false>(w, tile + (lane & 15) * 128 + (((lane >> 4) ^ wide_swizzle(lane)) * 16 ^ q * 32));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (XP == 1) {
                a[0][i] = w[i];
            } else {
                const float lo = T::get((u16)w[i]), hi = T::get((u16)(w[i] >> 16));
                u32 part[XP];
                split_pair<XP>(lo, hi, part);
#pragma unroll
                for (int p = 0; p < XP; p++) a[p][i] = part[p];
                sum[i & 1] = fmaf(hi, hi, fmaf(lo, lo, sum[i & 1]));
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 v = ld_shared(tile + (wide_own(lane) ^ q * 64) + i * 1024);
            u32 w[2][XP];
            parts<T, XP>(v, w);
            float f[T::VEC];
            T::unpack(v, f);
#pragma unroll
            for (int e = 0; e < T::VEC; e++) sum[i] = fmaf(f[e], f[e], sum[i]);
#pragma unroll
            for (int p = 0; p < XP; p++) a[p][i] = w[0][p], a[p][2 + i] = w[1][p];
        }
    }
}

// mix_wide: partial[chunk][range][token][W + 4]: W = 8*NB columns, the sum of squares, zeros. P bfloat16 parts of phi; with one, x
// and phi are of one 16-bit type and are multiplied as they are.
template <class T, int P, int NB, bool AL>
__device__ __forceinline__ void mix_wide(const void *xv, const void *phi, float *partial, int type, i64 sk, i64 sm, i64 N, i64 K,
                                         i64 M, i64 range, int ranges, int chunks, int depth) {
    extern __shared__ __align__(128) uint4 shared[]; // stages: tokens of x, rows of phi of each part
    typedef typename T::elem E;
    const int VEC = T::VEC, W = NB * 8, TILE = 8 * VEC, PITCH = 2 * W + 16, TASKS = TILE * NB, R = (TASKS + WIDE_THREADS - 1) / WIDE_THREADS;
    const u32 XBYTES = WIDE_TOKENS * 128, PART = TILE * PITCH, STAGE = XBYTES + P * PART;
    const int XP = P == 1 ? 1 : T::PARTS; // parts of x
    const bool HALF = XP == 1 && T::TYPE == TYPE_F16;
    const bool MMASQ = XP == 1; // sums of squares on the tensor cores too: x x^T, of which the diagonal counts
    const E *x = (const E *)xv;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int chunk = blockIdx.x % chunks, r = blockIdx.x / chunks % ranges;
    const i64 row0 = (i64)(blockIdx.x / chunks / ranges) * WIDE_TOKENS + warp * 32, k0 = (i64)r * range, m0 = (i64)chunk * W;
    const int len = (int)min(range, K - k0), stages = (len + TILE - 1) / TILE;
    const u32 base = shared_address(shared);

    // x: eight lanes a row, four rows at a time.
    const int rows = (int)max((i64)0, min((i64)32, N - row0));
    const E *src = x + (row0 + (lane >> 3)) * K + k0 + (lane & 7) * VEC;
    const u32 xdst = base + warp * 4096 + (lane >> 3) * 128;
    // phi: a task is 8 columns of a row. Neighbouring threads take neighbours in memory.
    const bool direct = P == 1 && sm == 1 && sk % 8 == 0 && M % 8 == 0 && ((unsigned long long)phi & 15) == 0;
    int trow[R], tcount[R]; // row in a stage, columns that there are
    i64 tat[R];             // element of the first
    u32 tplace[R];
#pragma unroll
    for (int u = 0; u < R; u++) {
        const int i = u * WIDE_THREADS + threadIdx.x, row = sm == 1 ? i / NB : i % TILE, block = sm == 1 ? i % NB : i / TILE;
        trow[u] = row;
        tcount[u] = i < TASKS ? (int)max((i64)0, min((i64)8, M - m0 - block * 8)) : 0;
        tat[u] = (k0 + row) * sk + (m0 + block * 8) * sm;
        // float32: a lane's neighbouring columns of x are those that the tensor core wants of it.
        const int place = VEC == 8 ? row : row / 16 * 16 + (row & 2) * 4 + row / 4 % 4 * 2 + (row & 1);
        tplace[u] = XBYTES + place * PITCH + block * 16;
    }
    u32 raw[R][8]; // elements as they are in memory: nothing waits for them yet
    auto fetch = [&](int s) {
#pragma unroll
        for (int u = 0; u < R; u++) {
            const i64 at = tat[u] + (i64)s * TILE * sk;
            const int count = s * TILE + trow[u] < len ? tcount[u] : 0;
            if (type == TYPE_F32) {
                const float *p = (const float *)phi + at;
                if (count == 8 && sm == 1 && ((unsigned long long)p & 15) == 0) {
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const uint4 v = __ldg((const uint4 *)p + h);
                        raw[u][4 * h] = v.x, raw[u][4 * h + 1] = v.y, raw[u][4 * h + 2] = v.z, raw[u][4 * h + 3] = v.w;
                    }
                } else {
#pragma unroll
                    for (int j = 0; j < 8; j++) raw[u][j] = j < count ? __float_as_uint(__ldg(p + j * sm)) : 0;
                }
            } else {
                const u16 *p = (const u16 *)phi + at;
#pragma unroll
                for (int j = 0; j < 8; j++) raw[u][j] = j < count ? __ldg(p + j * sm) : 0;
            }
        }
    };
    auto store = [&](u32 stage) {
#pragma unroll
        for (int u = 0; u < R; u++) {
            if (u * WIDE_THREADS + (int)threadIdx.x >= TASKS) continue;
            if constexpr (P == 1) {
                st_shared(stage + tplace[u], make_uint4(raw[u][0] | raw[u][1] << 16, raw[u][2] | raw[u][3] << 16, raw[u][4] | raw[u][5] << 16, raw[u][6] | raw[u][7] << 16));
            } else {
                float f[8];
#pragma unroll
                for (int j = 0; j < 8; j++) f[j] = type == TYPE_F32 ? __uint_as_float(raw[u][j]) : type == TYPE_BF16 ? BF16::get((u16)raw[u][j]) : F16::get((u16)raw[u][j]);
                u32 w[4][P];
#pragma unroll
                for (int j = 0; j < 4; j++) split_pair<P>(f[2 * j], f[2 * j + 1], w[j]);
#pragma unroll
                for (int p = 0; p < P; p++) st_shared(stage + tplace[u] + p * PART, make_uint4(w[0][p], w[1][p], w[2][p], w[3][p]));
            }
        }
    };
    auto load = [&](int s, u32 stage) { // copies that go their own way
        if (s < stages) {
            const int col = s * TILE + (lane & 7) * VEC;
            auto place = [&](int q) { return xdst + stage + q * 512 + ((lane & 7) ^ wide_swizzle((lane >> 3) + 4 * q)) * 16; };
            if (AL && rows == 32 && (s + 1) * TILE <= len) {
#pragma unroll
                for (int q = 0; q < 8; q++) copy16(place(q), src + q * 4 * K);
            } else {
#pragma unroll
                for (int q = 0; q < 8; q++) {
                    const bool in = (lane >> 3) + 4 * q < rows && col < len;
                    if (AL)
                        copy16_or_zero(place(q), in ? src + q * 4 * K : x, in ? 16 : 0);
                    else
                        st_shared(place(q), load_row<T, AL>(src + q * 4 * K - col, col, len, (lane >> 3) + 4 * q < rows));
                }
            }
            if (direct) {
                const u16 *ph = (const u16 *)phi;
#pragma unroll
                for (int u = 0; u < R; u++) {
                    const bool in = s * TILE + trow[u] < len && tcount[u];
                    if (u * WIDE_THREADS + (int)threadIdx.x < TASKS)
                        copy16_or_zero(base + stage + tplace[u], in ? ph + tat[u] + (i64)s * TILE * sk : ph, in ? 16 : 0);
                }
            }
        }
        copy_commit();
        src += TILE;
    };
    u32 lstage = 0, pstage = 0;
    auto next = [&](u32 stage) { return stage == (depth - 1) * STAGE ? 0 : stage + STAGE; };
#pragma unroll 1
    for (int s = 0; s < depth - 1; s++) {
        if (!direct && s < stages) fetch(s), store(base + lstage);
        load(s, lstage);
        lstage = next(lstage);
    }

    float acc[2][NB][4], sum[2][2] = {{0.f, 0.f}, {0.f, 0.f}}; // sum: of squares of rows g, g + 8 of each half of the tokens
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < NB; j++) acc[h][j][0] = acc[h][j][1] = acc[h][j][2] = acc[h][j][3] = 0.f;
    const u32 plane = base + XBYTES + (lane & 15) * PITCH + (lane >> 4) * 16;
#pragma unroll 1
    for (int s = 0; s < stages; s++) {
        const bool more = !direct && depth > 1 && s + depth - 1 < stages;
        wide_turn(s, depth, [&](int k) {
            if (!direct && depth == 1) fetch(k), store(base);
            load(k, lstage);
        });
        if (more) fetch(s + depth - 1);
        if (rows > 0) {
            float sq[2][2][4]; // short sums: the tensor core cuts off what it adds
#pragma unroll
            for (int i = 0; i < 16; i++) sq[i / 8][i / 4 % 2][i % 4] = 0.f;
            // Operands of phi are read two ahead: 16 columns of phi, a part of 16 of X.
            const int AHEAD = 2, BLOCKS = NB / 2 * P, READS = TILE / 16 * BLOCKS;
            u32 b[AHEAD + 1][4];
            auto read = [&](int i) {
                const int p = P - 1 - i % P, j = i / P % (NB / 2), q = i / BLOCKS;
                ldmatrix4<true>(b[i % (AHEAD + 1)], plane + pstage + q * 16 * PITCH + p * PART + j * 32);
            };
            u32 a[2][XP][4]; // x: [half of the tokens][part]
#pragma unroll
            for (int i = 0; i < READS; i++) {
                const int p = P - 1 - i % P, j = i / P % (NB / 2) * 2, q = i / BLOCKS;
                if (i % BLOCKS == 0) {
#pragma unroll
                    for (int h = 0; h < 2; h++) wide_operand<T, XP>(a[h], base + pstage + warp * 4096 + h * 2048, q, lane, sum[h]);
                    if (i == 0) {
#pragma unroll
                        for (int k = 0; k < AHEAD; k++) read(k);
                    }
                    if (MMASQ) {
#pragma unroll
                        for (int h = 0; h < 2; h++)
#pragma unroll
                            for (int k = 0; k < 2; k++) mma_wide<HALF>(sq[h][k], a[h][0], a[h][0][k], a[h][0][2 + k]);
                    }
                }
                if (i + AHEAD < READS) read(i + AHEAD);
                const u32(&w)[4] = b[i % (AHEAD + 1)];
                // Products of parts down to the precision that is kept: part k of x, part p of phi.
#pragma unroll
                for (int k = XP - 1; k >= 0; k--)
                    if (k + p < 3) {
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            mma_wide<HALF>(acc[h][j], a[h][k], w[0], w[1]);
                            mma_wide<HALF>(acc[h][j + 1], a[h][k], w[2], w[3]);
                        }
                    }
            }
            if (MMASQ && t == g >> 1) { // lane (g, t) holds columns 2t and 2t+1 of row g, g + 8
#pragma unroll
                for (int h = 0; h < 2; h++) sum[h][0] += g & 1 ? sq[h][0][1] : sq[h][0][0], sum[h][1] += g & 1 ? sq[h][1][3] : sq[h][1][2];
            }
        }
        if (more) store(base + lstage);
        lstage = next(lstage), pstage = next(pstage);
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float s = sum[h][i];
            s += __shfl_xor_sync(~0u, s, 1);
            s += __shfl_xor_sync(~0u, s, 2);
            const int row = h * 16 + i * 8 + g;
            if (row >= rows) continue;
            float *p = partial + (((i64)chunk * ranges + r) * N + row0 + row) * (W + 4) + 2 * t;
#pragma unroll
            for (int j = 0; j < NB; j++) *(float2 *)(p + j * 8) = make_float2(acc[h][j][2 * i], acc[h][j][2 * i + 1]);
            if (t == 0) *(float4 *)(p + W) = make_float4(s, 0.f, 0.f, 0.f);
        }
}

// x [N, K], phi with strides sk and sm, partial; type of phi; N, K, M; rows of a range (a multiple of 64), ranges, chunks of
// columns, stages. Grid: chunks * ranges * blocks of tokens. Block: 256. Shared: the stages.
#define MIX_WIDE(name, T, P, NB, AL)                                                                                               \
    extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 1)                                                                  \
        name(const void *x, const void *phi, float *partial, i64 type, i64 sk, i64 sm, i64 N, i64 K, i64 M, i64 range, i64 ranges, \
             i64 chunks, i64 depth) {                                                                                              \
        mix_wide<T, P, NB, AL>(x, phi, partial, (int)type, sk, sm, N, K, M, range, (int)ranges, (int)chunks, (int)depth);          \
    }
#define MIX_WIDES(t, T, P)                                      \
    MIX_WIDE(mhc_mix_wide_##t##_p##P##_m48, T, P, 6, true)      \
    MIX_WIDE(mhc_mix_wide_##t##_p##P##_m48_any, T, P, 6, false) \
    MIX_WIDE(mhc_mix_wide_##t##_p##P##_m80, T, P, 10, true)     \
    MIX_WIDE(mhc_mix_wide_##t##_p##P##_m80_any, T, P, 10, false)

MIX_WIDES(bf16, BF16, 1)
MIX_WIDES(bf16, BF16, 2)
MIX_WIDES(f16, F16, 1)
MIX_WIDES(f16, F16, 3)
MIX_WIDES(f32, F32, 3)

// wide_reduce: coefficients of n streams, up to S. Blocks of 256 threads and up to 128/S tokens: all threads add the ranges and
// finish mix, then groups of S lanes do Sinkhorn. Shared: for each token the sums of all chunks (chunks*(width+4) floats), then
// logits (M).
template <int S>
__device__ __forceinline__ void wide_reduce(const float *partial, i64 N, i64 K, int M, int nr, int width, int chunks, int n, int tpb,
                                            float rms_eps, float pre_eps, float post_mult, int start, int steps, float eps,
                                            const float *b, const float *alpha, float *mix, float *r, float *hpre, float *hpost, float *hres) {
    extern __shared__ float4 sh4[];
    const int line = (width + 4) / 4, vecs = chunks * line; // 16-byte vectors of a token
    const i64 t0 = (i64)blockIdx.x * tpb;
    const int tokens = (int)min((i64)tpb, N - t0);
    float *sums = (float *)sh4, *logits = sums + tpb * vecs * 4;
    for (int i = threadIdx.x; i < tokens * vecs; i += 256) { // neighbours in memory first
        const int c = i / (tokens * line), j = i % (tokens * line);
        const float4 *p = (const float4 *)partial + ((i64)c * nr * N + t0) * line + j;
        float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
        for (int q = 0; q < nr; q++, p += N * line) {
            const float4 v = __ldg(p);
            s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
        }
        sh4[j / line * vecs + c * line + j % line] = s;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < tokens * M; i += 256) {
        const int tk = i / M, m = i % M;
        const i64 tok = t0 + tk;
        const float *p = sums + tk * vecs * 4;
        const float rr = inverse_sqrt(p[width] / (float)K + rms_eps), v = p[m / width * line * 4 + m % width] * rr;
        const float l = fmaf(__ldg(alpha + (m < n ? 0 : m < 2 * n ? 1 : 2)), v, __ldg(b + m));
        mix[tok * M + m] = v;
        if (m == 0) r[tok] = rr;
        if (m < n)
            hpre[tok * n + m] = sigmoid(l) + pre_eps;
        else if (m < 2 * n)
            hpost[tok * n + m - n] = post_mult * sigmoid(l);
        else
            logits[tk * M + m] = l;
    }
    __syncthreads();
    const int tk = threadIdx.x / S;
    if ((int)threadIdx.x / 32 * 32 >= tokens * S) return;
    const Line l = {(int)threadIdx.x % S, n};
    float arow[S], acol[S], row[S], col[S];
    lines_load<S>(l, true, logits + min(tk, tokens - 1) * M + 2 * n, -INFINITY, arow, acol);
    lines_forward<S>(l, arow, acol, row, col, start, steps, eps);
#pragma unroll
    for (int k = 0; k < S; k++)
        if (tk < tokens && l.in(k)) hres[((t0 + tk) * n + l.li) * n + k] = row[k];
}

#define WIDE_REDUCE(S)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) mhc_wide_reduce_n##S(REDUCE_ARGS) {                                            \
        wide_reduce<S>(partial, N, K, (int)M, (int)ranges, (int)width, (int)((M + width - 1) / width), (int)n, (int)tokens,          \
                       (float)rms_eps, (float)pre_eps, (float)post_mult, (int)start, (int)steps, (float)sink_eps, b, alpha, mix, r, \
                       hpre, hpost, hres);                                                                                           \
    }
WIDE_REDUCE(8)
WIDE_REDUCE(16)
