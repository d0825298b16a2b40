// dx = z phi^T + c X and dphi = X^T z in one pass over X, with db and dalpha added up on the side.
//
// Ideas
// - A warp owns 128 bytes of the columns of X and walks down its tokens, 16 at a time. Its phi fragments and its sums of dphi
//   stay in registers for the whole walk. X comes 16 bytes a lane, through a ring of asynchronous copies in which every lane
//   waits for its own bytes only: no barriers. dx goes back the same way from registers. The order of columns within a product
//   is free, so a lane's 16 bytes are the operand words as they come.
// - For dphi the tokens are the contraction: movmatrix transposes the 8 x 8 pieces of X between registers.
// - z, its rows shared by all warps of a block, comes through shared memory in stages, two buffers deep; ldmatrix reads it
//   plain (left operand of dx) and transposed (right operand of dphi).
// - z counts as high + low bfloat16 parts; so do elements of X and phi that are not bfloat16.
// - Sums of dphi are added over the warps of a block through shared memory, then over blocks in a fixed order by the last
//   block to finish a group of columns: an integer counter decides who that is, never what is added to what.
#include "common.cuh"

// Column of an n block j: pair tt of 4, element e of 2 (see load_row: a lane has VEC neighbours in each of two loads).
template <class T>
__device__ __forceinline__ int block_column(int j, int tt, int e) {
    return j / (T::VEC / 2) * 4 * T::VEC + tt * T::VEC + 2 * (j % (T::VEC / 2)) + e;
}

// load_pair reads two neighbours with one access.
template <class T>
__device__ __forceinline__ void load_pair(const typename T::elem *p, float &a, float &b) {
    if constexpr (T::TYPE == TYPE_F32) {
        const float2 v = __ldg((const float2 *)p);
        a = v.x, b = v.y;
    } else {
        const u32 w = __ldg((const u32 *)p);
        a = T::get((u16)w), b = T::get((u16)(w >> 16));
    }
}

// DEPTH is the number of tiles of a warp on their way or in use.
#define DEPTH 4

// add_parts: db and dalpha from the per-block sums. 384 threads; columns in 32s, blocks over 12 warps.
__device__ __forceinline__ void add_parts(const float *part, i64 blocks, int cols, int m, float *db, float *dalpha, float *sh) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int c0 = 0; c0 < cols; c0 += 32) {
        const int c = c0 + lane;
        float s = 0.f;
        if (c < cols) {
#pragma unroll 8
            for (i64 q = warp; q < blocks; q += 12) s += __ldg(part + q * cols + c);
        }
        sh[warp * 32 + lane] = s;
        __syncthreads();
        if (warp == 0 && c < cols) {
            s = 0.f;
#pragma unroll
            for (int q = 0; q < 12; q++) s += sh[q * 32 + lane];
            if (c < m)
                db[c] = s;
            else
                dalpha[c - m] = s;
        }
        __syncthreads();
    }
}

template <class T, int NB, bool DX, bool HEAD, bool AL>
__device__ __forceinline__ void dx_dphi(const void *xv, const void *phi, const char *z, void *dxv, void *dphi, float *partial,
                                        unsigned long long *counters, const float *part, float *db, float *dalpha, const void *hg,
                                        const float *hw, int type, int dtype, i64 sk, i64 sm, i64 N, i64 K, i64 M, int groups,
                                        int splits, i64 split_tokens, int CW, int TW, int Q, i64 parts_blocks, int parts_cols, i64 C) {
    extern __shared__ uint4 shared[];
    typedef typename T::elem E;
    const int VEC = T::VEC, HV = VEC / 2, NJ = VEC, COLS = 8 * NJ, W = NB * 8, ZR = 4 * W + 16, P = T::DXPARTS, XP = T::PARTS > 1 ? 2 : 1;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;

    if ((int)blockIdx.x == groups * splits) {
        if (blockIdx.y == 0) add_parts(part, parts_blocks, parts_cols, (int)M, db, dalpha, (float *)shared);
        return;
    }
    const int grp = blockIdx.x % groups, split = blockIdx.x / groups, chunk = blockIdx.y;
    const int cw = warp % CW, tw = warp / CW;
    const i64 col0 = ((i64)grp * CW + cw) * COLS;
    const i64 first = split * split_tokens, last = min(N, first + split_tokens);
    const int tiles = (int)((last - first + 15) / 16), iters = (tiles + TW - 1) / TW, stages = (iters + Q - 1) / Q;
    const int stage_tokens = Q * TW * 16;
    const E *x = (const E *)xv;
    E *dx = (E *)dxv;
    const bool busy = col0 < K;

    const char *zsrc = z + ((i64)chunk * N + first) * ZR;
    const i64 zbytes = (last - first) * ZR;
    const char *zbuf = (const char *)(shared + 12 * DEPTH * 128);
    auto stage = [&](int s) { // starts the copy of the rows of stage s; zeros past the end
        const u32 dst = shared_address(zbuf) + (s & 1) * stage_tokens * ZR;
        const i64 from = (i64)s * stage_tokens * ZR;
        for (int i = threadIdx.x * 16; i < stage_tokens * ZR; i += blockDim.x * 16) {
            const bool in = from + i < zbytes;
            copy16(dst + i, zsrc + (in ? from + i : 0), in ? 16 : 0);
        }
    };

    // A lane's own 64 bytes of a tile, by load and row half, wait in its own places of a ring: nobody else reads them.
    uint4 *ring = shared + warp * DEPTH * 128 + lane;
    auto load = [&](int it) {
        if (it < iters && busy) {
            uint4 *slot = ring + (it % DEPTH) * 128;
            const i64 row = first + ((i64)it * TW + tw) * 16 + g;
            const E *p = x + row * K;
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const i64 col = col0 + l * 4 * VEC + t * VEC;
                    const bool in = row + 8 * h < last && col < K;
                    if (AL)
                        copy16(shared_address(slot + (2 * l + h) * 32), in ? p + h * 8 * K + col : x, in ? 16 : 0);
                    else
                        slot[(2 * l + h) * 32] = load_row<T, AL>(p + h * 8 * K, col, K, in);
                }
        }
        copy_commit();
    };
    stage(0);
#pragma unroll
    for (int i = 0; i < DEPTH - 1; i++) load(i);

    // phi, as right operand of dx: columns of the warp, rows m = 2t, 2t+1 | 2t+8, 2t+9 | 2t+16, 2t+17.
    u32 ph[DX ? NJ : 1][3][P];
    if constexpr (DX) {
        const bool paired = sm == 1 && sk % 2 == 0 && M % 2 == 0 && ((unsigned long long)phi & 7) == 0;
        with_type(type, [&](auto tag) {
            typedef decltype(tag) PT;
            const typename PT::elem *src = (const typename PT::elem *)phi;
            auto fill = [&](auto read) {
#pragma unroll
                for (int j = 0; j < NJ; j++)
#pragma unroll
                    for (int q = 0; q < 3; q++) {
                        float a = 0.f, b = 0.f;
                        read(col0 + block_column<T>(j, g >> 1, g & 1), (i64)(q * 8 + 2 * t), a, b);
                        split_pair<P>(a, b, ph[j][q]);
                    }
            };
            if (paired)
                fill([&](i64 k, i64 m, float &a, float &b) {
                    if (k < K && m < M) load_pair<PT>(src + k * sk + m, a, b);
                });
            else
                fill([&](i64 k, i64 m, float &a, float &b) {
                    if (k < K && m < M) a = PT::get(src[k * sk + m * sm]);
                    if (k < K && m + 1 < M) b = PT::get(src[k * sk + (m + 1) * sm]);
                });
        });
    }

    float acc[NJ / 2][NB][4];
#pragma unroll
    for (int i = 0; i < NJ / 2; i++)
#pragma unroll
        for (int j = 0; j < NB; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;

    for (int s = 0; s < stages; s++) {
        // The copies of stage s went with the first group of stage s - 1 (of the walk, for the first).
        if (Q >= DEPTH - 1)
            copy_wait<DEPTH - 2>();
        else
            copy_wait<0>();
        __syncthreads();
        if (s + 1 < stages) stage(s + 1);
        const char *zs = zbuf + (s & 1) * stage_tokens * ZR;
        for (int i = 0; i < Q; i++) {
            const int it = s * Q + i;
            if (it >= iters) break;
            copy_wait<DEPTH - 2>();
            load(it + DEPTH - 1);
            if (!busy) continue;
            uint4 cur[2][2];
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int h = 0; h < 2; h++) cur[l][h] = ring[(it % DEPTH) * 128 + (2 * l + h) * 32];

            const char *zt = zs + (i * TW + tw) * 16 * ZR;
            const u32 zrow = shared_address(zt) + (lane & 15) * ZR + (lane >> 4) * 16;
            u32 xw[2][2][HV][XP]; // [row half][load][word][part]
#pragma unroll
            for (int l = 0; l < 2; l++) parts<T, XP>(cur[l][0], xw[0][l]), parts<T, XP>(cur[l][1], xw[1][l]);

            // dphi: 16 columns (n blocks 2i, 2i+1) by 8 columns of z, 16 tokens.
            {
                u32 bh[NB][2], bl[NB][2];
#pragma unroll
                for (int j = 0; j + 1 < NB; j += 2) {
                    u32 r[4];
                    ldmatrix4<true>(r, zrow + j * 16);
                    bh[j][0] = r[0], bh[j][1] = r[1], bh[j + 1][0] = r[2], bh[j + 1][1] = r[3];
                    ldmatrix4<true>(r, zrow + 2 * W + j * 16);
                    bl[j][0] = r[0], bl[j][1] = r[1], bl[j + 1][0] = r[2], bl[j + 1][1] = r[3];
                }
                if (NB & 1) {
                    const u32 p = shared_address(zt) + (lane & 15) * ZR + (NB - 1) * 16;
                    ldmatrix2<true>(bh[NB - 1], p);
                    ldmatrix2<true>(bl[NB - 1], p + 2 * W);
                }
#pragma unroll
                for (int q = 0; q < NJ / 2; q++) {
                    const int l0 = (2 * q) / HV, w0 = (2 * q) % HV, l1 = (2 * q + 1) / HV, w1 = (2 * q + 1) % HV;
#pragma unroll
                    for (int p = 0; p < XP; p++) {
                        const u32 a0 = transpose8(xw[0][l0][w0][p]), a1 = transpose8(xw[0][l1][w1][p]);
                        const u32 a2 = transpose8(xw[1][l0][w0][p]), a3 = transpose8(xw[1][l1][w1][p]);
#pragma unroll
                        for (int j = 0; j < NB; j++) mma16816(acc[q][j], a0, a1, a2, a3, bh[j][0], bh[j][1]);
#pragma unroll
                        for (int j = 0; p == 0 && j < NB; j++) mma16816(acc[q][j], a0, a1, a2, a3, bl[j][0], bl[j][1]);
                    }
                }
            }

            if (DX && dx) {
                u32 ah[4], ah2[2], az[4], az2[2]; // z: high parts of m 0-15, 16-23; low parts
                const u32 p2 = shared_address(zt) + (lane & 15) * ZR + 32;
                ldmatrix4<false>(ah, zrow);
                ldmatrix2<false>(ah2, p2);
                ldmatrix4<false>(az, zrow + 2 * W);
                ldmatrix2<false>(az2, p2 + 2 * W);
                const float c0 = *(const float *)(zt + g * ZR + 4 * W), c1 = *(const float *)(zt + (g + 8) * ZR + 4 * W);
                const i64 row = first + ((i64)it * TW + tw) * 16 + g;
                E *p = dx + row * K;
#pragma unroll
                for (int l = 0; l < 2; l++) {
                    const i64 col = col0 + l * 4 * VEC + t * VEC;
                    float f0[VEC], f1[VEC];
                    T::unpack(cur[l][0], f0);
                    T::unpack(cur[l][1], f1);
#pragma unroll
                    for (int e = 0; e < VEC; e++) f0[e] *= c0, f1[e] *= c1;
                    if (HEAD) { // plus w[i] g[c] of the weighted sum
                        if (AL) {
                            if (col < K) {
                                const i64 st = col / C, n = K / C;
                                float v[VEC];
                                if (row < last) {
                                    T::unpack(ld_stream((const E *)hg + row * C + col - st * C), v);
                                    const float w = hw[row * n + st];
#pragma unroll
                                    for (int e = 0; e < VEC; e++) f0[e] = fmaf(w, v[e], f0[e]);
                                }
                                if (row + 8 < last) {
                                    T::unpack(ld_stream((const E *)hg + (row + 8) * C + col - st * C), v);
                                    const float w = hw[(row + 8) * n + st];
#pragma unroll
                                    for (int e = 0; e < VEC; e++) f1[e] = fmaf(w, v[e], f1[e]);
                                }
                            }
                        } else {
#pragma unroll
                            for (int e = 0; e < VEC; e++) {
                                const i64 k = col + e, st = k / C, n = K / C;
                                if (k < K && row < last) f0[e] = fmaf(hw[row * n + st], T::get(((const E *)hg)[row * C + k - st * C]), f0[e]);
                                if (k < K && row + 8 < last)
                                    f1[e] = fmaf(hw[(row + 8) * n + st], T::get(((const E *)hg)[(row + 8) * C + k - st * C]), f1[e]);
                            }
                        }
                    }
#pragma unroll
                    for (int w = 0; w < HV; w++) {
                        const int j = l * HV + w;
                        float d[4] = {f0[2 * w], f0[2 * w + 1], f1[2 * w], f1[2 * w + 1]};
                        const int jj = DX ? j : 0;
                        mma16816(d, ah[0], ah[1], ah[2], ah[3], ph[jj][0][0], ph[jj][1][0]);
                        mma1688(d, ah2[0], ah2[1], ph[jj][2][0]);
                        mma16816(d, az[0], az[1], az[2], az[3], ph[jj][0][0], ph[jj][1][0]);
                        mma1688(d, az2[0], az2[1], ph[jj][2][0]);
                        if (P == 2) {
                            mma16816(d, ah[0], ah[1], ah[2], ah[3], ph[jj][0][P - 1], ph[jj][1][P - 1]);
                            mma1688(d, ah2[0], ah2[1], ph[jj][2][P - 1]);
                        }
                        f0[2 * w] = d[0], f0[2 * w + 1] = d[1], f1[2 * w] = d[2], f1[2 * w + 1] = d[3];
                    }
                    store_row<T, AL>(p, col, K, row < last, T::pack(f0));
                    store_row<T, AL>(p + 8 * K, col, K, row + 8 < last, T::pack(f1));
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();

    // dphi: over the warps of the block.
    const int WP = W + 2;
    float *sums = (float *)shared; // [warp][COLS][WP]
    {
        float *mine = sums + warp * COLS * WP;
#pragma unroll
        for (int q = 0; q < NJ / 2; q++)
#pragma unroll
            for (int j = 0; j < NB; j++) {
                *(float2 *)(mine + block_column<T>(2 * q, g >> 1, g & 1) * WP + j * 8 + 2 * t) = make_float2(acc[q][j][0], acc[q][j][1]);
                *(float2 *)(mine + block_column<T>(2 * q + 1, g >> 1, g & 1) * WP + j * 8 + 2 * t) = make_float2(acc[q][j][2], acc[q][j][3]);
            }
    }
    __syncthreads();
    const int block_cols = CW * COLS, pairs = block_cols * W / 2;
    const i64 size = (i64)block_cols * W; // of a block's sums
    const i64 k0 = (i64)grp * block_cols, m0 = (i64)chunk * W;
    float *slots = partial + ((i64)chunk * splits * groups + grp) * size; // of split s: + s * groups * size
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const int c = i / (W / 2), m = i % (W / 2) * 2;
        float2 s = make_float2(0.f, 0.f);
        for (int q = 0; q < TW; q++) {
            const float2 v = *(const float2 *)(sums + ((q * CW + c / COLS) * COLS + c % COLS) * WP + m);
            s.x += v.x, s.y += v.y;
        }
        if (splits == 1) {
            const i64 k = k0 + c;
            if (k < K && m0 + m < M) store_any(dphi, k * sk + (m0 + m) * sm, dtype, s.x);
            if (k < K && m0 + m + 1 < M) store_any(dphi, k * sk + (m0 + m + 1) * sm, dtype, s.y);
        } else {
            *(float2 *)(slots + split * groups * size + 2 * i) = s;
        }
    }
    if (splits == 1) return;

    // Over the blocks: the last one of this group adds.
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(counters + chunk * groups + grp, 1ull) == (unsigned long long)(splits - 1);
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (int i = threadIdx.x; i < pairs / 2; i += blockDim.x) {
        float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int q = 0; q < splits; q++) {
            const float4 v = __ldcg((const float4 *)(slots + q * groups * size) + i);
            s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
        }
        const int c = i / (W / 4);
        const i64 k = k0 + c, m = m0 + i % (W / 4) * 4;
        const float f[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (k < K && m + e < M) store_any(dphi, k * sk + (m + e) * sm, dtype, f[e]);
    }
}

// x [N, K], phi, z, dx (may be 0), dphi (strides of phi), partial sums of dphi, counters (zero), partial sums of db and dalpha,
// db, dalpha; head: g [N, C], w [N, n]; types of phi and dphi, strides of phi, N, K, M; groups of columns, splits of the tokens,
// tokens of a split, warps of a block along K and along the tokens, tiles of a stage; blocks and columns of the partial sums; C.
// Grid: groups * splits, and one block more where there is a db; chunks of columns of z. Block: 384. Shared: the rings
// and two stages of z, or the sums of dphi of all warps.
#define DX_DPHI(name, T, NB, DX, HEAD, AL)                                                                                          \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                                            \
        name(const void *x, const void *phi, const char *z, void *dx, void *dphi, float *partial, unsigned long long *counters,     \
             const float *part, float *db, float *dalpha, const void *hg, const float *hw, i64 type, i64 dtype, i64 sk, i64 sm,     \
             i64 N, i64 K, i64 M, i64 groups, i64 splits, i64 split_tokens, i64 cw, i64 tw, i64 q, i64 pb, i64 pc, i64 C) {         \
        dx_dphi<T, NB, DX, HEAD, AL>(x, phi, z, dx, dphi, partial, counters, part, db, dalpha, hg, hw, (int)type, (int)dtype, sk,   \
                                     sm, N, K, M, (int)groups, (int)splits, split_tokens, (int)cw, (int)tw, (int)q, pb, (int)pc, C); \
    }
#define DX_DPHIS(t, T)                                          \
    DX_DPHI(mhc_dx_dphi_##t, T, 3, true, false, true)           \
    DX_DPHI(mhc_dx_dphi_##t##_any, T, 3, true, false, false)    \
    DX_DPHI(mhc_head_dx_dphi_##t, T, 3, true, true, true)       \
    DX_DPHI(mhc_head_dx_dphi_##t##_any, T, 3, true, true, false) \
    DX_DPHI(mhc_dphi_##t, T, 5, false, false, true)             \
    DX_DPHI(mhc_dphi_##t##_any, T, 5, false, false, false)

DX_DPHIS(bf16, BF16)
DX_DPHIS(f16, F16)
DX_DPHIS(f32, F32)

// dx_chunks: dx alone, where z has more than one chunk of 40 columns. A block owns 128 bytes of the columns of X with all rows
// of phi^T in shared memory; a warp 32 tokens.
template <class T, bool AL>
__device__ __forceinline__ void dx_chunks(const void *xv, const void *phi, const char *z, void *dxv, int type, i64 sk, i64 sm, i64 N,
                                          i64 K, i64 M, int chunks) {
    extern __shared__ uint2 frags[]; // [chunk][k step of 3][n block][lane], high words; then the low ones
    typedef typename T::elem E;
    const int VEC = T::VEC, HV = VEC / 2, NJ = VEC, COLS = 8 * NJ, W = 40, ZR = 4 * W + 16, P = T::DXPARTS;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const i64 col0 = (i64)blockIdx.x * COLS;
    const int count = chunks * 3 * NJ * 32;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const int ln = i & 31, j = i / 32 % NJ, ks = i / (32 * NJ) % 3, ch = i / (32 * NJ * 3);
        const int gg = ln >> 2, tt = ln & 3;
        const i64 k = col0 + block_column<T>(j, gg >> 1, gg & 1);
        u32 hi[2], lo[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int c = ks * 16 + h * 8 + 2 * tt;
            const i64 m = (i64)ch * W + c;
            const float a = c < W && k < K && m < M ? load_any(phi, k * sk + m * sm, type) : 0.f;
            const float b = c < W && k < K && m + 1 < M ? load_any(phi, k * sk + (m + 1) * sm, type) : 0.f;
            split2(a, b, hi[h], lo[h]);
        }
        frags[i] = make_uint2(hi[0], hi[1]);
        if (P == 2) frags[count + i] = make_uint2(lo[0], lo[1]);
    }
    __syncthreads();
    const E *x = (const E *)xv;
    E *dx = (E *)dxv;
    for (i64 base = (i64)blockIdx.y * 256; base < N; base += (i64)gridDim.y * 256) {
        const i64 row0 = base + warp * 32;
        if (row0 >= N) continue;
        float acc[2][NJ][4];
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int j = 0; j < NJ; j++) acc[b][j][0] = acc[b][j][1] = acc[b][j][2] = acc[b][j][3] = 0.f;
        for (int ch = 0; ch < chunks; ch++) {
            const char *zc = z + (i64)ch * N * ZR;
#pragma unroll
            for (int ks = 0; ks < 3; ks++) {
                u32 ah[2][4], al[2][4];
#pragma unroll
                for (int b = 0; b < 2; b++)
#pragma unroll
                    for (int q = 0; q < 4; q++) {
                        const i64 row = row0 + b * 16 + (q & 1) * 8 + g;
                        const int c = ks * 16 + (q >> 1) * 8 + 2 * t;
                        const bool in = row < N && c < W;
                        ah[b][q] = in ? __ldg((const u32 *)(zc + row * ZR + 2 * c)) : 0;
                        al[b][q] = in ? __ldg((const u32 *)(zc + row * ZR + 2 * W + 2 * c)) : 0;
                    }
#pragma unroll
                for (int j = 0; j < NJ; j++) {
                    const int at = ((ch * 3 + ks) * NJ + j) * 32 + lane;
                    const uint2 h = frags[at];
                    uint2 l = make_uint2(0, 0);
                    if (P == 2) l = frags[count + at];
#pragma unroll
                    for (int b = 0; b < 2; b++) {
                        mma16816(acc[b][j], ah[b][0], ah[b][1], ah[b][2], ah[b][3], h.x, h.y);
                        mma16816(acc[b][j], al[b][0], al[b][1], al[b][2], al[b][3], h.x, h.y);
                        if (P == 2) mma16816(acc[b][j], ah[b][0], ah[b][1], ah[b][2], ah[b][3], l.x, l.y);
                    }
                }
            }
        }
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const i64 row = row0 + b * 16 + h * 8 + g;
                const float c = row < N ? *(const float *)(z + row * ZR + 4 * W) : 0.f;
#pragma unroll
                for (int l = 0; l < 2; l++) {
                    const i64 col = col0 + l * 4 * VEC + t * VEC;
                    float f[VEC];
                    T::unpack(load_row<T, AL>(x + row * K, col, K, row < N), f);
#pragma unroll
                    for (int w = 0; w < HV; w++) {
                        f[2 * w] = fmaf(c, f[2 * w], acc[b][l * HV + w][2 * h]);
                        f[2 * w + 1] = fmaf(c, f[2 * w + 1], acc[b][l * HV + w][2 * h + 1]);
                    }
                    store_row<T, AL>(dx + row * K, col, K, row < N, T::pack(f));
                }
            }
    }
}

// x [N, K], phi, z, dx; type and strides of phi; N, K, M, chunks of z. Grid: 128-byte groups of columns, blocks of tokens.
#define DX_CHUNKS(name, T, AL)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) name(const void *x, const void *phi, const char *z, void *dx, i64 type, i64 sk, \
                                                           i64 sm, i64 N, i64 K, i64 M, i64 chunks) {                               \
        dx_chunks<T, AL>(x, phi, z, dx, (int)type, sk, sm, N, K, M, (int)chunks);                                                   \
    }
DX_CHUNKS(mhc_dx_bf16, BF16, true)
DX_CHUNKS(mhc_dx_bf16_any, BF16, false)
DX_CHUNKS(mhc_dx_f16, F16, true)
DX_CHUNKS(mhc_dx_f16_any, F16, false)
DX_CHUNKS(mhc_dx_f32, F32, true)
DX_CHUNKS(mhc_dx_f32_any, F32, false)
