// dx = z phi^T + c X and dphi = X^T z in one pass over X, with db and dalpha added up on the side.
//
// Ideas
// - A warp owns 128 bytes of the columns of X and walks down its tokens, 16 at a time. Its phi fragments and its sums of dphi
//   stay in registers for the whole walk. X comes through a ring of asynchronous copies that the warp has for itself: no
//   barriers; dx takes the place of X in shared memory and leaves. Both move in whole lines of 128 bytes. The order of columns
//   within a product is free, so 16 bytes of a row are the operand words of a lane as they come.
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

// Rows of z of W = 8 NB columns in shared memory: W high bfloat16 parts, W low ones, c, padding.
template <int NB>
struct ZRow {
    static const int W = NB * 8, BYTES = 4 * W + 16;
};

// dphi_products adds X^T z over a tile of 16 tokens to acc: 16 columns of X (n blocks 2q, 2q+1) by 8 columns of z each. cur is the
// lane's words of the tile, [half of the columns][row g, g + 8]; z the address of the tile's first row of z.
template <class T, int NB>
__device__ __forceinline__ void dphi_products(float (&acc)[T::VEC / 2][NB][4], const uint4 (&cur)[2][2], u32 z) {
    const int HV = T::VEC / 2, XP = T::PARTS > 1 ? 2 : 1, W = ZRow<NB>::W, ZR = ZRow<NB>::BYTES, lane = threadIdx.x & 31;
    const u32 at = z + (lane & 15) * ZR + (lane >> 4) * 16, last = z + (lane & 15) * ZR + (NB - 1) * 16;
    u32 xw[2][2][HV][XP]; // [row half][load][word][part]
#pragma unroll
    for (int l = 0; l < 2; l++) parts<T, XP>(cur[l][0], xw[0][l]), parts<T, XP>(cur[l][1], xw[1][l]);
    u32 bh[NB][2], bl[NB][2];
#pragma unroll
    for (int j = 0; j + 1 < NB; j += 2) {
        u32 r[4];
        ldmatrix4<true>(r, at + j * 16);
        bh[j][0] = r[0], bh[j][1] = r[1], bh[j + 1][0] = r[2], bh[j + 1][1] = r[3];
        ldmatrix4<true>(r, at + 2 * W + j * 16);
        bl[j][0] = r[0], bl[j][1] = r[1], bl[j + 1][0] = r[2], bl[j + 1][1] = r[3];
    }
    if (NB & 1) {
        ldmatrix2<true>(bh[NB - 1], last);
        ldmatrix2<true>(bl[NB - 1], last + 2 * W);
    }
#pragma unroll
    for (int q = 0; q < HV; q++) {
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

// dx_products puts dx = z phi^T + c X of a tile in the place of X, at the lane's words (see tile_own) from mine. more(l, f0, f1)
// adds to c X: half l of the columns, rows g and g + 8. 24 columns of z.
template <class T, int P, class F>
__device__ __forceinline__ void dx_products(const u32 (&phi)[T::VEC][3][P], const uint4 (&cur)[2][2], u32 z, u32 mine, F more) {
    const int VEC = T::VEC, HV = VEC / 2, W = ZRow<3>::W, ZR = ZRow<3>::BYTES, lane = threadIdx.x & 31, g = lane >> 2;
    const u32 at = z + (lane & 15) * ZR + (lane >> 4) * 16, last = z + (lane & 15) * ZR + 32, c = z + g * ZR + 4 * W;
    u32 ah[4], ah2[2], az[4], az2[2]; // z: high parts of columns 0-15, 16-23; low parts
    ldmatrix4<false>(ah, at);
    ldmatrix2<false>(ah2, last);
    ldmatrix4<false>(az, at + 2 * W);
    ldmatrix2<false>(az2, last + 2 * W);
    float c0, c1;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(c0) : "r"(c) : "memory");
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(c1) : "r"(c + 8 * ZR) : "memory");
#pragma unroll
    for (int l = 0; l < 2; l++) {
        float f0[VEC], f1[VEC];
        T::unpack(cur[l][0], f0);
        T::unpack(cur[l][1], f1);
#pragma unroll
        for (int e = 0; e < VEC; e++) f0[e] *= c0, f1[e] *= c1;
        more(l, f0, f1);
        float d[HV][4];
#pragma unroll
        for (int w = 0; w < HV; w++) d[w][0] = f0[2 * w], d[w][1] = f0[2 * w + 1], d[w][2] = f1[2 * w], d[w][3] = f1[2 * w + 1];
        // One product of all n blocks after the other, so that no product waits for the one before it.
#define EACH_BLOCK(product) \
    _Pragma("unroll") for (int w = 0; w < HV; w++) { \
        const u32(&b)[3][P] = phi[l * HV + w]; \
        product; \
    }
        EACH_BLOCK(mma16816(d[w], ah[0], ah[1], ah[2], ah[3], b[0][0], b[1][0]))
        EACH_BLOCK(mma1688(d[w], ah2[0], ah2[1], b[2][0]))
        EACH_BLOCK(mma16816(d[w], az[0], az[1], az[2], az[3], b[0][0], b[1][0]))
        EACH_BLOCK(mma1688(d[w], az2[0], az2[1], b[2][0]))
        if (P == 2) {
            EACH_BLOCK(mma16816(d[w], ah[0], ah[1], ah[2], ah[3], b[0][P - 1], b[1][P - 1]))
            EACH_BLOCK(mma1688(d[w], ah2[0], ah2[1], b[2][P - 1]))
        }
#undef EACH_BLOCK
#pragma unroll
        for (int w = 0; w < HV; w++) f0[2 * w] = d[w][0], f0[2 * w + 1] = d[w][1], f1[2 * w] = d[w][2], f1[2 * w + 1] = d[w][3];
        st_shared(l ? mine ^ 64 : mine, T::pack(f0));
        st_shared((l ? mine ^ 64 : mine) + 1024, T::pack(f1));
    }
}

// own_words reads the words of a tile that are a lane's operands.
__device__ __forceinline__ void own_words(uint4 (&cur)[2][2], u32 mine) {
    cur[0][0] = ld_shared(mine), cur[0][1] = ld_shared(mine + 1024);
    cur[1][0] = ld_shared(mine ^ 64), cur[1][1] = ld_shared((mine ^ 64) + 1024);
}

// put_sums lays out a warp's sums of dphi as they lie in registers: fragment f of a lane is four sums, of n block 2(f/NB) and the
// next one, two columns of z from 8(f%NB) + 2t. [fragment][lane].
template <int F, int NB>
__device__ __forceinline__ void put_sums(float4 *sums, const float (&acc)[F / NB][NB][4], int lane) {
#pragma unroll
    for (int f = 0; f < F; f++) sums[f * 32 + lane] = make_float4(acc[f / NB][f % NB][0], acc[f / NB][f % NB][1], acc[f / NB][f % NB][2], acc[f / NB][f % NB][3]);
}

__device__ __forceinline__ void add4(float4 &s, const float4 &v) { s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w; }

// DPhi stores sums of dphi.
struct DPhi {
    void *p;
    int type;
    i64 sk, sm, K, M;

    // pair stores columns m and m + 1 of row k.
    __device__ __forceinline__ void pair(i64 k, i64 m, float a, float b) const {
        if (k >= K || m >= M) return;
        const i64 at = k * sk + m * sm;
        if (sm == 1 && sk % 2 == 0 && ((unsigned long long)p & 7) == 0 && m + 1 < M) {
            if (type == TYPE_F32)
                *(float2 *)((float *)p + at) = make_float2(a, b);
            else
                *(u32 *)((u16 *)p + at) = type == TYPE_BF16 ? pack_bf16(a, b) : pack_f16(a, b);
        } else {
            store_any(p, at, type, a);
            if (m + 1 < M) store_any(p, at + sm, type, b);
        }
    }

    // put stores item i of the sums of several warps, [warp][fragment][lane], whose first column of X is col0.
    template <class T, int NB>
    __device__ __forceinline__ void put(int i, i64 col0, float4 s) const {
        const int F = T::VEC / 2 * NB, lane = i & 31, f = i / 32 % F, g = lane >> 2, m = f % NB * 8 + 2 * (lane & 3);
        const i64 k = col0 + (i64)(i / 32 / F) * 8 * T::VEC + block_column<T>(2 * (f / NB), g >> 1, g & 1);
        pair(k, m, s.x, s.y);
        pair(k + block_column<T>(1, 0, 0), m, s.z, s.w); // of the next n block
    }
};

// last_block is whether the block is the last of `splits` to come here, for the whole of it: what the others wrote before is there.
__device__ __forceinline__ bool last_block(unsigned long long *counter, int splits) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(counter, 1ull) == (unsigned long long)(splits - 1);
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

// DEPTH is the number of tiles of a warp on their way or in use.
#define DEPTH 4

// add_parts: db and dalpha from the per-block sums. Columns in 32s, blocks over the warps.
__device__ __forceinline__ void add_parts(const float *part, i64 blocks, int cols, int m, float *db, float *dalpha, float *sh) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int c0 = 0; c0 < cols; c0 += 32) {
        const int c = c0 + lane;
        float s = 0.f;
        if (c < cols) {
#pragma unroll 8
            for (i64 q = warp; q < blocks; q += warps) s += __ldg(part + q * cols + c);
        }
        sh[warp * 32 + lane] = s;
        __syncthreads();
        if (warp == 0 && c < cols) {
            s = 0.f;
#pragma unroll
            for (int q = 0; q < warps; q++) s += sh[q * 32 + lane];
            if (c < m)
                db[c] = s;
            else
                dalpha[c - m] = s;
        }
        __syncthreads();
    }
}

template <class T, bool HEAD, bool AL>
__device__ __forceinline__ void dx_dphi(const void *xv, const uint4 *packed, const char *z, void *dxv, void *dphi, float *partial,
                                        unsigned long long *counters, const float *part, float *db, float *dalpha, const void *hg,
                                        const float *hw, int dtype, i64 sk, i64 sm, i64 N, i64 K, i64 M, int groups,
                                        int splits, i64 split_tokens, int CW, int TW, int Q, i64 parts_blocks, int parts_cols, i64 C) {
    extern __shared__ __align__(128) uint4 shared[];
    typedef typename T::elem E;
    const int VEC = T::VEC, NJ = VEC, NB = 3, COLS = 8 * NJ, ZR = ZRow<NB>::BYTES, P = T::DXPARTS;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;

    if ((int)blockIdx.x == groups * splits) {
        add_parts(part, parts_blocks, parts_cols, (int)M, db, dalpha, (float *)shared);
        return;
    }
    const int grp = blockIdx.x % groups, split = blockIdx.x / groups;
    const int cw = warp % CW, tw = warp / CW;
    const i64 col0 = ((i64)grp * CW + cw) * COLS;
    const i64 first = split * split_tokens;
    const int rows = (int)(min(N, first + split_tokens) - first), tiles = (rows + 15) / 16, iters = (tiles + TW - 1) / TW, stages = (iters + Q - 1) / Q;
    const int stage_tokens = Q * TW * 16;
    const E *x = (const E *)xv;
    E *dx = (E *)dxv;
    const bool busy = col0 < K;

    const char *zsrc = z + first * ZR;
    const int zstage = stage_tokens * ZR;
    const u32 zbuf = shared_address(shared + CW * TW * DEPTH * 128);
    auto stage = [&](int s) { // starts the copy of the rows of stage s; zeros past the end
        const u32 dst = zbuf + (s & 1) * zstage;
        const char *from = zsrc + (i64)s * zstage;
        const int left = (int)min((i64)rows * ZR - (i64)s * zstage, (i64)zstage);
        const int end = min((left + 16 * ZR - 1) / (16 * ZR) * 16 * ZR, zstage); // whole tiles
#pragma unroll 2
        for (int i = threadIdx.x * 16; i < end; i += blockDim.x * 16) copy16_or_zero(dst + i, i < left ? from + i : zsrc, i < left ? 16 : 0);
    };

    // Tiles of x wait in a ring that the warp has for itself.
    const u32 ring = shared_address(shared + warp * DEPTH * 128), own = ring + tile_own(lane), line = ring + tile_line(lane);
    const bool whole = AL && col0 + COLS <= K;
    const i64 line_at = (first + tw * 16 + (lane >> 3)) * K + col0 + (lane & 7) * VEC, tile_step = (i64)TW * 16 * K;
    const int line_row = lane >> 3;
    const i64 line_col = col0 + (lane & 7) * VEC;
    const E *src = x + line_at;
    int lrow = tw * 16; // of the next tile to load, from `first`
    u32 lslot = 0;
    auto load = [&]() {
        if (whole && lrow + 16 <= rows) {
#pragma unroll
            for (int q = 0; q < 4; q++) copy16(line + lslot + q * 512, src + q * 4 * K);
        } else if (busy && lrow < rows) {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const bool in = lrow + line_row + 4 * q < rows && line_col < K;
                if (AL)
                    copy16_or_zero(line + lslot + q * 512, in ? src + q * 4 * K : x, in ? 16 : 0);
                else
                    st_shared(line + lslot + q * 512, load_row<T, AL>(src + q * 4 * K - line_col, line_col, K, in));
            }
        }
        copy_commit();
        src += tile_step, lrow += TW * 16;
        lslot = lslot == (DEPTH - 1) * 2048 ? 0 : lslot + 2048;
    };
    load();
    stage(0);
    copy_commit();
#pragma unroll 1
    for (int i = 1; i < DEPTH - 1; i++) load();

    // phi, as right operand of dx: words of a lane, see pack_phi.
    u32 ph[NJ][3][P];
    const uint4 *pk = packed + ((i64)grp * CW + cw) * (3 * NJ / 4) * P * 32 + lane;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int v = 0; v < 3 * NJ / 4; v++) {
            const uint4 w = __ldg(pk + (p * (3 * NJ / 4) + v) * 32);
            ph[(4 * v) / 3][(4 * v) % 3][p] = w.x;
            ph[(4 * v + 1) / 3][(4 * v + 1) % 3][p] = w.y;
            ph[(4 * v + 2) / 3][(4 * v + 2) % 3][p] = w.z;
            ph[(4 * v + 3) / 3][(4 * v + 3) % 3][p] = w.w;
        }

    float acc[NJ / 2][NB][4];
#pragma unroll
    for (int i = 0; i < NJ / 2; i++)
#pragma unroll
        for (int j = 0; j < NB; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;

    E *out = dx + line_at;
    int row0 = tw * 16; // of the tile in hand, from `first`
    u32 slot = 0;
#pragma unroll 1
    for (int s = 0; s < stages; s++) {
        // The copies of stage 0 are the second group, those of a later stage s part of the first group of stage s - 1.
        if (s == 0 || Q >= DEPTH - 1)
            copy_wait<DEPTH - 2>();
        else
            copy_wait<0>();
        __syncthreads();
        if (s + 1 < stages) stage(s + 1);
        u32 zt = zbuf + (s & 1) * zstage + tw * 16 * ZR;
        const int end = min(Q, iters - s * Q);
#pragma unroll 1
        for (int i = 0; i < end; i++) {
            copy_wait<DEPTH - 2>();
            __syncwarp();
            load();
            const u32 mine = own + slot, whole_lines = line + slot, zat = zt;
            const int row = row0;
            slot = slot == (DEPTH - 1) * 2048 ? 0 : slot + 2048;
            zt += TW * 16 * ZR, row0 += TW * 16;
            if (!busy || row >= rows) continue;
            uint4 cur[2][2];
            own_words(cur, mine);
            dphi_products<T, NB>(acc, cur, zat);
            if (dx) {
                dx_products<T, P>(ph, cur, zat, mine, [&](int l, float(&f0)[VEC], float(&f1)[VEC]) {
                    if (!HEAD) return; // plus w[i] g[c] of the weighted sum
                    const i64 col = col0 + l * 4 * VEC + t * VEC, n = K / C;
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const i64 at = first + row + 8 * h + g;
                        if (row + 8 * h + g >= rows) continue;
                        float(&f)[VEC] = h ? f1 : f0;
                        if (AL) {
                            if (col >= K) continue;
                            const i64 st = col / C;
                            float v[VEC];
                            T::unpack(ld_stream((const E *)hg + at * C + col - st * C), v);
                            const float w = hw[at * n + st];
#pragma unroll
                            for (int e = 0; e < VEC; e++) f[e] = fmaf(w, v[e], f[e]);
                        } else {
#pragma unroll
                            for (int e = 0; e < VEC; e++) {
                                const i64 k = col + e, st = k / C;
                                if (k < K) f[e] += hw[at * n + st] * T::get(((const E *)hg)[at * C + k - st * C]);
                            }
                        }
                    }
                });
                __syncwarp();
                E *p = out + (i64)row * K - (i64)tw * 16 * K;
                if (whole && row + 16 <= rows) {
#pragma unroll
                    for (int q = 0; q < 4; q++) st_stream(p + q * 4 * K, ld_shared(whole_lines + q * 512));
                } else {
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        store_row<T, AL>(p + q * 4 * K - line_col, line_col, K, row + line_row + 4 * q < rows, ld_shared(whole_lines + q * 512));
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();

    // dphi: over the warps of the block.
    const int F = NJ / 2 * NB;
    float4 *sums = (float4 *)shared; // [warp][F][lane]
    put_sums<F, NB>(sums + warp * F * 32, acc, lane);
    __syncthreads();
    const int items = CW * F * 32;
    const DPhi out_phi = {dphi, dtype, sk, sm, K, M};
    const i64 group0 = (i64)grp * CW * COLS;
    float4 *slots = (float4 *)partial + (i64)grp * items; // of split s: + s * groups * items
#pragma unroll 1
    for (int i = threadIdx.x; i < items; i += blockDim.x) {
        float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int q = 0; q < TW; q++) add4(s, sums[q * items + i]);
        if (splits == 1)
            out_phi.put<T, NB>(i, group0, s);
        else
            slots[(i64)split * groups * items + i] = s;
    }
    if (splits == 1) return;

    // Over the blocks: the last one of this group adds.
    if (!last_block(counters + grp, splits)) return;
#pragma unroll 1
    for (int i = threadIdx.x; i < items; i += blockDim.x) {
        float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int q = 0; q < splits; q++) add4(s, __ldcg(slots + (i64)q * groups * items + i));
        out_phi.put<T, NB>(i, group0, s);
    }
}

// x [N, K], packed phi, z, dx (may be 0), dphi (strides of phi), partial sums of dphi, counters (zero), partial sums of db and dalpha,
// db, dalpha; head: g [N, C], w [N, n]; type and strides of dphi, N, K, M; groups of columns, splits of the tokens,
// tokens of a split, warps of a block along K and along the tokens, tiles of a stage; blocks and columns of the partial sums; C.
// Grid: groups * splits, and one block more where there is a db. Block: up to 384. Shared: the rings and two stages of z, or the sums of
// dphi of all warps.
#define DX_DPHI(name, T, HEAD, AL)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                                            \
        name(const void *x, const uint4 *packed, const char *z, void *dx, void *dphi, float *partial, unsigned long long *counters, \
             const float *part, float *db, float *dalpha, const void *hg, const float *hw, i64 dtype, i64 sk, i64 sm,               \
             i64 N, i64 K, i64 M, i64 groups, i64 splits, i64 split_tokens, i64 cw, i64 tw, i64 q, i64 pb, i64 pc, i64 C) {         \
        dx_dphi<T, HEAD, AL>(x, packed, z, dx, dphi, partial, counters, part, db, dalpha, hg, hw, (int)dtype, sk, sm, N, K, M,      \
                             (int)groups, (int)splits, split_tokens, (int)cw, (int)tw, (int)q, pb, (int)pc, C);                     \
    }
#define DX_DPHIS(t, T)                                 \
    DX_DPHI(mhc_dx_dphi_##t, T, false, true)           \
    DX_DPHI(mhc_dx_dphi_##t##_any, T, false, false)    \
    DX_DPHI(mhc_head_dx_dphi_##t, T, true, true)       \
    DX_DPHI(mhc_head_dx_dphi_##t##_any, T, true, false)

DX_DPHIS(bf16, BF16)
DX_DPHIS(f16, F16)
DX_DPHIS(f32, F32)
