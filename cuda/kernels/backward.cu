// dx = z phi^T + c X and dphi = X^T z in one pass over X, with db and dalpha added up on the side.
//
// Ideas
// - A warp owns a line of the columns of X and walks down its tokens, 16 at a time. Its phi fragments and its sums of dphi stay in
//   registers for the whole walk. X comes through a ring of asynchronous copies that the warp has for itself: no barriers. The
//   order of columns within a product is free, so 16 bytes of a row are the operand words of a lane as they come.
// - A line is 128 bytes: dx takes the place of X in shared memory, and both move in whole lines. Where tokens are few, it is 64
//   bytes: more warps have half as much each, all multiprocessors have some without a split of the tokens, and a lane's own copies
//   are its operands, so that dx leaves from registers.
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

// A warp's tile is 16 rows of LINE bytes of X in shared memory. Lanes copy whole rows, and read their operands: rows g and g + 8,
// 16 bytes at chunk t of each 64 bytes of a row. With 64 bytes, these are the same bytes.
template <class T, int LINE>
struct Tile {
    static const int COLS = LINE / sizeof(typename T::elem), LOADS = LINE / 64, BYTES = 16 * LINE;
    static const int LANES = LINE / 16, ROWS = 32 / LANES, COPIES = 16 / ROWS; // lanes of a row; rows and number of a warp's copies
    static const int WARPS = LINE == 64 ? 16 : 12;                             // of a block, as registers allow
    static __device__ __forceinline__ u32 line(int lane) { return LINE == 128 ? tile_line(lane) : lane * 16; }
    static __device__ __forceinline__ u32 own(int lane) { return LINE == 128 ? tile_own(lane) : lane * 16; }
};

// Rows of z of W = 8 NB columns in shared memory: W high bfloat16 parts, W low ones, c, padding.
template <int NB>
struct ZRow {
    static const int W = NB * 8, BYTES = 4 * W + 16;
};

// z_piece is the offset in a tile of the piece of a row of z that a lane gives ldmatrix the address of: of columns 0-15, and of
// both parts of columns 16-23.
__device__ __forceinline__ u32 z_piece(int lane) { return (lane & 15) * ZRow<3>::BYTES + (lane & 16); }
__device__ __forceinline__ u32 z_rest_piece(int lane) { return (lane & 15) * ZRow<3>::BYTES + 32 + (lane & 16) * ZRow<3>::W / 8; }

// ZTile is what a lane needs of a tile's rows of z, 24 columns, as right operand of dphi (TRANS) or left one of dx: high parts of
// columns 0-15, low ones, and both of columns 16-23.
template <bool TRANS>
struct ZTile {
    u32 hi[4], lo[4], rest[4];

    // load reads them from the addresses of the lane's pieces, see z_piece.
    __device__ __forceinline__ void load(u32 piece, u32 rest_piece) {
        ldmatrix4<TRANS>(hi, piece);
        ldmatrix4<TRANS>(lo, piece + 2 * ZRow<3>::W);
        ldmatrix4<TRANS>(rest, rest_piece);
    }
};

// dphi_products adds X^T z over 32 columns of a tile to acc: 16 columns of X (n blocks 2q, 2q + 1) by 8 columns of z each. cur is the
// lane's words, [load][row g, g + 8].
template <class T>
__device__ __forceinline__ void dphi_products(float (*acc)[3][4], const uint4 (*cur)[2], const ZTile<true> &z) {
    const int L = sizeof(typename T::elem) / 2, HV = T::VEC / 2, XP = T::PARTS > 1 ? 2 : 1;
    u32 w[2][L][HV][XP]; // [row half][load][word][part]
#pragma unroll
    for (int l = 0; l < L; l++) parts<T, XP>(cur[l][0], w[0][l]), parts<T, XP>(cur[l][1], w[1][l]);
#pragma unroll
    for (int p = 0; p < XP; p++) {
        u32 x[2][4];
#pragma unroll
        for (int q = 0; q < 2; q++)
#pragma unroll
            for (int i = 0; i < 4; i++) x[q][i] = transpose8(w[i >> 1][(2 * q + (i & 1)) / HV][(2 * q + (i & 1)) % HV][p]);
#pragma unroll
        for (int q = 0; q < 2; q++) {
            auto add = [&](int j, u32 b0, u32 b1) { mma16816(acc[q][j], x[q][0], x[q][1], x[q][2], x[q][3], b0, b1); };
            add(0, z.hi[0], z.hi[1]), add(1, z.hi[2], z.hi[3]), add(2, z.rest[0], z.rest[1]);
            if (p == 0) add(0, z.lo[0], z.lo[1]), add(1, z.lo[2], z.lo[3]), add(2, z.rest[2], z.rest[3]);
        }
    }
}

// dx_products puts dx = z phi^T + c X of 32 columns of a tile in the place of X. c0 and c1 are those of rows g and g + 8;
// more(l, f0, f1) adds to c X of load l.
template <class T, int P, class F>
__device__ __forceinline__ void dx_products(const u32 (*phi)[3][P], uint4 (*cur)[2], const ZTile<false> &z, float c0, float c1, F more) {
    const int L = sizeof(typename T::elem) / 2, VEC = T::VEC, HV = VEC / 2;
    float d[4][4]; // n blocks of 8 columns
#pragma unroll
    for (int l = 0; l < L; l++) {
        float f0[VEC], f1[VEC];
        T::unpack(cur[l][0], f0);
        T::unpack(cur[l][1], f1);
#pragma unroll
        for (int e = 0; e < VEC; e++) f0[e] *= c0, f1[e] *= c1;
        more(l, f0, f1);
#pragma unroll
        for (int v = 0; v < HV; v++) d[l * HV + v][0] = f0[2 * v], d[l * HV + v][1] = f0[2 * v + 1], d[l * HV + v][2] = f1[2 * v], d[l * HV + v][3] = f1[2 * v + 1];
    }
    // One product of all n blocks after the other, so that no product waits for the one before it.
    auto add = [&](const u32(&a)[4], int q0, int q1, int p) {
#pragma unroll
        for (int i = 0; i < 4; i++) mma16816(d[i], a[0], a[1], a[2], a[3], phi[i][q0][p], phi[i][q1][p]);
    };
    add(z.hi, 0, 1, 0), add(z.lo, 0, 1, 0), add(z.rest, 2, 2, 0);
    if (P == 2) { // low parts of phi
        add(z.hi, 0, 1, P - 1);
#pragma unroll
        for (int i = 0; i < 4; i++) mma1688(d[i], z.rest[0], z.rest[1], phi[i][2][P - 1]);
    }
#pragma unroll
    for (int l = 0; l < L; l++) {
        float f0[VEC], f1[VEC];
#pragma unroll
        for (int v = 0; v < HV; v++) f0[2 * v] = d[l * HV + v][0], f0[2 * v + 1] = d[l * HV + v][1], f1[2 * v] = d[l * HV + v][2], f1[2 * v + 1] = d[l * HV + v][3];
        cur[l][0] = T::pack(f0), cur[l][1] = T::pack(f1);
    }
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
    int type, sk, sm, M;
    i64 K;
    bool pairs; // two columns from an even one on can be stored at once

    __device__ __forceinline__ DPhi(void *p, int type, i64 sk, i64 sm, i64 K, i64 M)
        : p(p), type(type), sk((int)sk), sm((int)sm), M((int)M), K(K), pairs(sm == 1 && sk % 2 == 0 && ((unsigned long long)p & 7) == 0) {}

    // pair stores columns m and m + 1 of row k.
    __device__ __forceinline__ void pair(i64 k, int m, float a, float b) const {
        if (k >= K || m >= M) return;
        const i64 at = k * sk + (i64)m * sm;
        if (pairs && m + 1 < M) {
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
    template <class T, int COLS, int NB>
    __device__ __forceinline__ void put(int i, i64 col0, float4 s) const {
        const int F = COLS / 16 * NB, lane = i & 31, f = i / 32 % F, g = lane >> 2, m = f % NB * 8 + 2 * (lane & 3);
        const i64 k = col0 + i / 32 / F * COLS + block_column<T>(2 * (f / NB), g >> 1, g & 1);
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

template <class T, int LINE, bool HEAD, bool AL>
__device__ __forceinline__ void dx_dphi(const void *xv, const uint4 *packed, const char *z, void *dxv, void *dphi, float *partial,
                                        unsigned long long *counters, const float *part, float *db, float *dalpha, const void *hg,
                                        const float *hw, int dtype, i64 sk, i64 sm, i64 N, i64 K, i64 M, int groups,
                                        int splits, i64 split_tokens, int CW, int TW, int Q, i64 parts_blocks, int parts_cols, i64 C) {
    extern __shared__ __align__(128) uint4 shared[];
    typedef typename T::elem E;
    typedef Tile<T, LINE> TL;
    const int VEC = T::VEC, NB = 3, COLS = TL::COLS, NJ = COLS / 8, L = TL::LOADS, SLOT = TL::BYTES, ZR = ZRow<NB>::BYTES, P = T::DXPARTS;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;

    if ((int)blockIdx.x == groups * splits) {
        add_parts(part, parts_blocks, parts_cols, (int)M, db, dalpha, (float *)shared);
        return;
    }
    const int split = splits == 1 ? 0 : blockIdx.x / groups, grp = blockIdx.x - split * groups;
    const int tw = warp >> (__ffs(CW) - 1), cw = warp - tw * CW; // CW is a power of two
    const i64 col0 = ((i64)grp * CW + cw) * COLS;
    const i64 first = split * split_tokens;
    const int rows = (int)(min(N, first + split_tokens) - first), tiles = (rows + 15) / 16, iters = (tiles + TW - 1) / TW, stages = (iters + Q - 1) / Q;
    const int stage_tokens = Q * TW * 16;
    const E *x = (const E *)xv;
    E *dx = (E *)dxv;
    const bool whole = AL && col0 + COLS <= K;
    const int busy_rows = col0 < K ? rows : 0, whole_rows = whole ? rows : 0;

    const char *zsrc = z + first * ZR;
    const int zstage = stage_tokens * ZR;
    const u32 zbuf = shared_address(shared) + CW * TW * DEPTH * SLOT;
    auto stage = [&](int s) { // starts the copy of the rows of stage s; zeros past the end
        const u32 dst = zbuf + (s & 1) * zstage;
        const char *from = zsrc + (i64)s * zstage;
        const int left = (int)min((i64)rows * ZR - (i64)s * zstage, (i64)zstage);
        const int end = min((left + 16 * ZR - 1) / (16 * ZR) * 16 * ZR, zstage); // whole tiles
#pragma unroll 2
        for (int i = threadIdx.x * 16; i < end; i += blockDim.x * 16) copy16_or_zero(dst + i, i < left ? from + i : zsrc, i < left ? 16 : 0);
    };

    // Tiles of x wait in a ring that the warp has for itself.
    const u32 ring = shared_address(shared) + warp * DEPTH * SLOT;
    u32 own = ring + TL::own(lane), line = ring + TL::line(lane);
    const int line_row = lane / TL::LANES;
    const i64 line_col = col0 + lane % TL::LANES * VEC, line_at = (first + tw * 16 + line_row) * K + line_col, tile_step = (i64)TW * 16 * K;
    int step = TW * 16;
    i64 next_rows = TL::ROWS * K; // to those of a lane's next copy
    u32 piece = z_piece(lane), rest_piece = z_rest_piece(lane), c_piece = g * ZR + 4 * ZRow<NB>::W;
    if (LINE == 64) keep(own), keep(line), keep(step), keep(next_rows), keep(piece), keep(rest_piece), keep(c_piece);
    const E *src = x + line_at;
    int lrow = tw * 16; // of the next tile to load, from `first`
    u32 lslot = 0;
    auto load = [&]() {
        if (lrow + 16 <= whole_rows) {
#pragma unroll
            for (int q = 0; q < TL::COPIES; q++) copy16(line + lslot + q * 512, src + q * next_rows);
        } else if (lrow < busy_rows) {
#pragma unroll
            for (int q = 0; q < TL::COPIES; q++) {
                const bool in = lrow + line_row + TL::ROWS * q < rows && line_col < K;
                if (AL)
                    copy16_or_zero(line + lslot + q * 512, in ? src + q * next_rows : x, in ? 16 : 0);
                else
                    st_shared(line + lslot + q * 512, load_row<T, AL>(src + q * next_rows - line_col, line_col, K, in));
            }
        }
        copy_commit();
        src += tile_step, lrow += step;
        lslot = lslot == (DEPTH - 1) * SLOT ? 0 : lslot + SLOT;
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
            E *const to = out;
            out += tile_step;
            slot = slot == (DEPTH - 1) * SLOT ? 0 : slot + SLOT;
            zt += step * ZR, row0 += step;
            if (row >= busy_rows) continue;
            uint4 cur[L][2];
#pragma unroll
            for (int l = 0; l < L; l++) cur[l][0] = ld_shared(mine ^ 64 * l), cur[l][1] = ld_shared((mine ^ 64 * l) + 8 * LINE);
            ZTile<true> right;
            ZTile<false> left;
            right.load(zat + piece, zat + rest_piece);
            if (LINE == 64) left.load(zat + piece, zat + rest_piece);
            const float c0 = ld_shared_f32(zat + c_piece), c1 = ld_shared_f32(zat + c_piece + 8 * ZR);
            auto weighted = [&](int l, float(&f0)[VEC], float(&f1)[VEC]) { // w[i] g[c] of the weighted sum
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
            };
            const int LS = L * 32 / COLS; // loads of 32 columns
#pragma unroll
            for (int h = 0; h < COLS / 32; h++) dphi_products<T>(acc + 2 * h, cur + h * LS, right);
            if (LINE > 64) left.load(zat + piece, zat + rest_piece); // registers are short
#pragma unroll
            for (int h = 0; h < COLS / 32; h++)
                dx_products<T, P>(ph + 4 * h, cur + h * LS, left, c0, c1, [&](int l, float(&f0)[VEC], float(&f1)[VEC]) {
                    if (HEAD) weighted(h * LS + l, f0, f1);
                });
            if (!dx) continue;
            uint4 lines[TL::COPIES];
            if (LINE == 64) {
                lines[0] = cur[0][0], lines[1] = cur[0][1];
            } else {
#pragma unroll
                for (int l = 0; l < L; l++) st_shared(mine ^ 64 * l, cur[l][0]), st_shared((mine ^ 64 * l) + 8 * LINE, cur[l][1]);
                __syncwarp();
#pragma unroll
                for (int q = 0; q < TL::COPIES; q++) lines[q] = ld_shared(whole_lines + q * 512);
            }
            if (row + 16 <= whole_rows) {
#pragma unroll
                for (int q = 0; q < TL::COPIES; q++) st_stream(to + q * next_rows, lines[q]);
            } else {
#pragma unroll
                for (int q = 0; q < TL::COPIES; q++)
                    store_row<T, AL>(to + q * next_rows - line_col, line_col, K, row + line_row + TL::ROWS * q < rows, lines[q]);
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
    const DPhi out_phi(dphi, dtype, sk, sm, K, M);
    const i64 group0 = (i64)grp * CW * COLS;
    float4 *slots = (float4 *)partial + (i64)grp * items; // of split s: + s * groups * items
#pragma unroll 1
    for (int i = threadIdx.x; i < items; i += blockDim.x) {
        float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int q = 0; q < TW; q++) add4(s, sums[q * items + i]);
        if (splits == 1)
            out_phi.put<T, COLS, NB>(i, group0, s);
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
        out_phi.put<T, COLS, NB>(i, group0, s);
    }
}

// x [N, K], packed phi, z, dx (may be 0), dphi (strides of phi), partial sums of dphi, counters (zero), partial sums of db and dalpha,
// db, dalpha; head: g [N, C], w [N, n]; type and strides of dphi, N, K, M; groups of columns, splits of the tokens,
// tokens of a split, warps of a block along K and along the tokens, tiles of a stage; blocks and columns of the partial sums; C.
// Grid: groups * splits, and one block more where there is a db. Block: up to 384. Shared: the rings and two stages of z, or the sums of
// dphi of all warps.
#define DX_DPHI(name, T, LINE, HEAD, AL)                                                                                            \
    extern "C" __global__ void __launch_bounds__(32 * Tile<T, LINE>::WARPS, 1)                                                      \
        name(const void *x, const uint4 *packed, const char *z, void *dx, void *dphi, float *partial, unsigned long long *counters, \
             const float *part, float *db, float *dalpha, const void *hg, const float *hw, i64 dtype, i64 sk, i64 sm,               \
             i64 N, i64 K, i64 M, i64 groups, i64 splits, i64 split_tokens, i64 cw, i64 tw, i64 q, i64 pb, i64 pc, i64 C) {         \
        dx_dphi<T, LINE, HEAD, AL>(x, packed, z, dx, dphi, partial, counters, part, db, dalpha, hg, hw, (int)dtype, sk, sm, N, K,   \
                                   M, (int)groups, (int)splits, split_tokens, (int)cw, (int)tw, (int)q, pb, (int)pc, C);            \
    }
#define DX_DPHIS(t, T, LINE)                              \
    DX_DPHI(mhc_dx_dphi_##t, T, LINE, false, true)        \
    DX_DPHI(mhc_dx_dphi_##t##_any, T, LINE, false, false) \
    DX_DPHI(mhc_head_dx_dphi_##t, T, LINE, true, true)    \
    DX_DPHI(mhc_head_dx_dphi_##t##_any, T, LINE, true, false)

DX_DPHIS(bf16, BF16, 128)
DX_DPHIS(f16, F16, 128)
DX_DPHIS(f32, F32, 128)
DX_DPHIS(bf16_l64, BF16, 64)
DX_DPHIS(f16_l64, F16, 64)

