// dx = z phi^T + c X and dphi = X^T z in one pass over X, with db and dalpha added up on the side.
//
// Ideas
// - A warp owns a line of the columns of X and walks down its tokens, 16 at a time. Its phi fragments and its sums of dphi stay in
//   registers for the whole walk. X comes through a ring of asynchronous copies that the warp has for itself: no barriers. The
//   order of columns within a product is free, so 16 bytes of a row are the operand words of a lane as they come.
// - A line is 128 bytes: dx takes the place of X in shared memory, and both move in whole lines. For few tokens, see few.cu.
// - For dphi the tokens are the contraction: movmatrix transposes the 8 x 8 pieces of X between registers.
// - z, its rows shared by all warps of a block, comes through shared memory in stages, two buffers deep; ldmatrix reads it
//   plain (left operand of dx) and transposed (right operand of dphi).
// - z counts as high + low bfloat16 parts; so do elements of X and phi that are not bfloat16.
// - Sums of dphi are added over the warps of a block through shared memory, then over blocks in a fixed order by the last
//   block to finish a group of columns: an integer counter decides who that is, never what is added to what.
#include "dx_dphi.cuh"

#define DX_DPHI_WARPS 12 // of a block at most, as registers allow

template <class T, bool HEAD, bool AL>
__device__ __forceinline__ void dx_dphi(const void *xv, const uint4 *packed, const char *z, void *dxv, void *dphi, float *partial,
                                        unsigned long long *counters, const float *part, float *db, float *dalpha, const void *hg,
                                        const float *hw, int dtype, i64 sk, i64 sm, i64 N, i64 K, i64 M, int groups,
                                        int splits, i64 split_tokens, int CW, int TW, int Q, i64 parts_blocks, int parts_cols, i64 C) {
    extern __shared__ __align__(128) uint4 shared[];
    typedef typename T::elem E;
    const int VEC = T::VEC, NB = 3, COLS = 128 / sizeof(E), NJ = COLS / 8, SLOT = 16 * 128, ZR = ZRow<NB>::BYTES, P = T::DXPARTS;
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
    const u32 own = ring + tile_own(lane), line = ring + tile_line(lane);
    const int line_row = lane / 8;
    const i64 line_col = col0 + lane % 8 * VEC, line_at = (first + tw * 16 + line_row) * K + line_col, tile_step = (i64)TW * 16 * K;
    const int step = TW * 16;
    const i64 next_rows = 4 * K; // to those of a lane's next copy
    const u32 piece = z_piece(lane), rest_piece = z_rest_piece(lane), c_piece = g * ZR + 4 * ZRow<NB>::W;
    const E *src = x + line_at;
    int lrow = tw * 16; // of the next tile to load, from `first`
    u32 lslot = 0;
    auto load = [&]() {
        if (lrow + 16 <= whole_rows) {
#pragma unroll
            for (int q = 0; q < 4; q++) copy16(line + lslot + q * 512, src + q * next_rows);
        } else if (lrow < busy_rows) {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const bool in = lrow + line_row + 4 * q < rows && line_col < K;
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

    u32 ph[NJ][3][P];
    load_phi(ph, packed + ((i64)grp * CW + cw) * (3 * NJ / 4) * P * 32 + lane);

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
            uint4 cur[2][2];
#pragma unroll
            for (int l = 0; l < 2; l++) cur[l][0] = ld_shared(mine ^ 64 * l), cur[l][1] = ld_shared((mine ^ 64 * l) + 1024);
            ZTile<true> right;
            ZTile<false> left;
            right.load(zat + piece, zat + rest_piece);
            const float c0 = ld_shared_f32(zat + c_piece), c1 = ld_shared_f32(zat + c_piece + 8 * ZR);
            const int LS = 64 / COLS; // loads of 32 columns
#pragma unroll
            for (int h = 0; h < COLS / 32; h++) {
                Turned<T> turned(cur + h * LS);
#pragma unroll
                for (int p = 0; p < turned.PARTS; p++) turned.turn(p), turned.add(p, acc + 2 * h, right);
            }
            left.load(zat + piece, zat + rest_piece); // registers are short
#pragma unroll
            for (int h = 0; h < COLS / 32; h++)
                dx_products<T, P>(ph + 4 * h, cur + h * LS, left, c0, c1, [&](int l, float(&f0)[VEC], float(&f1)[VEC]) {
                    if (HEAD) add_head<T, AL>(f0, f1, (const E *)hg, hw, first + row + g, rows - row - g, col0 + (h * LS + l) * 4 * VEC + t * VEC, K, C);
                });
            if (!dx) continue;
            uint4 lines[4];
#pragma unroll
            for (int l = 0; l < 2; l++) st_shared(mine ^ 64 * l, cur[l][0]), st_shared((mine ^ 64 * l) + 1024, cur[l][1]);
            __syncwarp();
#pragma unroll
            for (int q = 0; q < 4; q++) lines[q] = ld_shared(whole_lines + q * 512);
            if (row + 16 <= whole_rows) {
#pragma unroll
                for (int q = 0; q < 4; q++) st_stream(to + q * next_rows, lines[q]);
            } else {
#pragma unroll
                for (int q = 0; q < 4; q++)
                    store_row<T, AL>(to + q * next_rows - line_col, line_col, K, row + line_row + 4 * q < rows, lines[q]);
            }
        }
    }
    copy_wait<0>();
    __syncthreads();

    store_sums<T, COLS, NB, float4>(acc, shared, DPhi(dphi, dtype, sk, sm, K, M), partial, counters, grp, groups, split, splits, CW, TW);
}

// Behind DX_DPHI_ARGS: tiles of a stage; blocks and columns of the partial sums of db and dalpha; C. Grid: groups * splits, and one block
// more where there is a db. Block: up to 384. Shared: the rings and two stages of z, or the sums of dphi of all warps.
#define DX_DPHI(name, T, HEAD, AL)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * DX_DPHI_WARPS, 1) name(DX_DPHI_ARGS, i64 q, i64 pb, i64 pc, i64 C) {          \
        dx_dphi<T, HEAD, AL>(x, packed, z, dx, dphi, partial, counters, part, db, dalpha, hg, hw, (int)dtype, sk, sm, N, K,         \
                             M, (int)groups, (int)splits, split_tokens, (int)cw, (int)tw, (int)q, pb, (int)pc, C);                  \
    }
#define DX_DPHIS(t, T)                              \
    DX_DPHI(mhc_dx_dphi_##t, T, false, true)        \
    DX_DPHI(mhc_dx_dphi_##t##_any, T, false, false) \
    DX_DPHI(mhc_head_dx_dphi_##t, T, true, true)    \
    DX_DPHI(mhc_head_dx_dphi_##t##_any, T, true, false)

DX_DPHIS(bf16, BF16)
DX_DPHIS(f16, F16)
DX_DPHIS(f32, F32)
