// dx and dphi of few tokens in 16 bits: as backward.cu, with lines of 64 bytes.
//
// Ideas
// - More warps have half as much each, and all multiprocessors have some without a split of the tokens.
// - A lane copies what are its own operands, so dx leaves from registers, and no lane waits for another.
// - All z of a block's tokens is in shared memory at once, behind the only barrier.
// - The times of stores (some 20 bytes a cycle and multiprocessor) and of shared memory nearly add up, as if one queue served both. So a
//   warp starts its reads first, and has the products of dphi to do, which need no memory, behind its stores.
// - There is little work for each instruction in front of and behind the loop, and fetching it takes longer than running it: that
//   code is short.
#include "dx_dphi.cuh"

#define FEW_WARPS 16 // of a block at most
#define FEW_COLS 32  // of a line
#define FEW_TILE (16 * 64)

template <class T, bool HEAD, bool AL>
__device__ __forceinline__ void few_dx_dphi(const typename T::elem *x, const uint4 *packed, const char *z, typename T::elem *dx, void *dphi,
                                            float *partial, unsigned long long *counters, const float *part, float *db, float *dalpha,
                                            const typename T::elem *hg, const float *hw, int dtype, i64 sk, i64 sm, i64 N, i64 K, i64 M,
                                            int groups, int splits, i64 split_tokens, int CW, int TW, i64 parts_blocks, int parts_cols, i64 C) {
    extern __shared__ __align__(128) uint4 shared[];
    const int VEC = T::VEC, NB = 3, ZR = ZRow<NB>::BYTES, NJ = FEW_COLS / 8;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;

    if ((int)blockIdx.x == groups * splits) {
        add_parts(part, parts_blocks, parts_cols, (int)M, db, dalpha, (float *)shared);
        return;
    }
    const int split = splits == 1 ? 0 : blockIdx.x / groups, grp = blockIdx.x - split * groups;
    const int tw = warp >> (__ffs(CW) - 1), cw = warp - tw * CW; // CW is a power of two
    const i64 first = split * split_tokens, col0 = ((i64)grp * CW + cw) * FEW_COLS, col = col0 + t * VEC;
    const int rows = (int)min(N - first, split_tokens), whole = AL && col0 + FEW_COLS <= K ? rows : 0; // rows of all columns of the warp

    // Tiles of x wait in a ring that the warp has for itself.
    u32 own = shared_address(shared) + warp * DEPTH * FEW_TILE + lane * 16;
    int step = TW * 16;
    i64 half = 8 * K; // to the lane's other row
    const i64 at = (first + tw * 16 + g) * K + col, tile_step = (i64)TW * 16 * K;
    const typename T::elem *src = x + at;
    int next = tw * 16; // row of the next tile to load, from `first`
    u32 filled = 0;
    keep(own), keep(step), keep(half);
    auto load = [&]() {
        if (next + 16 <= whole) {
            copy16(own + filled, src), copy16(own + filled + 512, src + half);
        } else if (next < rows) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const bool in = next + g + 8 * h < rows;
                if (AL)
                    copy16_or_zero(own + filled + 512 * h, in && col < K ? src + h * half : x, in && col < K ? 16 : 0);
                else
                    st_shared(own + filled + 512 * h, load_row<T, AL>(src + h * half - col, col, K, in));
            }
        }
        copy_commit();
        src += tile_step, next += step;
        filled = filled == (DEPTH - 1) * FEW_TILE ? 0 : filled + FEW_TILE;
    };
    load();
    // z, zeros up to a whole tile
    const u32 zs = shared_address(shared) + CW * TW * DEPTH * FEW_TILE;
    const int zbytes = rows * ZR, zend = ((rows + 15) & ~15) * ZR;
    const char *const zfrom = z + first * ZR;
#pragma unroll 1
    for (int i = threadIdx.x * 16; i < zend; i += blockDim.x * 16) copy16_or_zero(zs + i, i < zbytes ? zfrom + i : z, i < zbytes ? 16 : 0);
    copy_commit();
#pragma unroll 1
    for (int i = 1; i < DEPTH - 1; i++) load();

    u32 ph[NJ][3][1];
    load_phi(ph, packed + ((i64)grp * CW + cw) * 96 + lane);
    float acc[NJ / 2][NB][4];
#pragma unroll
    for (int i = 0; i < NJ / 2; i++)
#pragma unroll
        for (int j = 0; j < NB; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;

    typename T::elem *out = dx + at;
    u32 used = 0, piece = zs + tw * 16 * ZR + z_piece(lane), rest_piece = zs + tw * 16 * ZR + z_rest_piece(lane);
    u32 c_piece = zs + (tw * 16 + g) * ZR + 4 * ZRow<NB>::W;
    keep(piece), keep(rest_piece), keep(c_piece);
    copy_wait<DEPTH - 2>();
    __syncthreads();
#pragma unroll 1
    for (int row = tw * 16; row < rows; row += step) {
        copy_wait<DEPTH - 2>();
        load();
        uint4 cur[1][2] = {{ld_shared(own + used), ld_shared(own + used + 512)}};
        used = used == (DEPTH - 1) * FEW_TILE ? 0 : used + FEW_TILE;
        ZTile<true> right;
        ZTile<false> left;
        right.load(piece, rest_piece), left.load(piece, rest_piece);
        const float c0 = ld_shared_f32(c_piece), c1 = ld_shared_f32(c_piece + 8 * ZR);
        piece += step * ZR, rest_piece += step * ZR, c_piece += step * ZR;
        Turned<T> turned(cur);
#pragma unroll
        for (int p = 0; p < turned.PARTS; p++) turned.turn(p);
        dx_products<T, 1>(ph, cur, left, c0, c1, [&](int, float(&f0)[VEC], float(&f1)[VEC]) {
            if (HEAD) add_head<T, AL>(f0, f1, hg, hw, first + row + g, rows - row - g, col, K, C);
        });
        if (dx) {
            if (row + 16 <= whole) {
                st_stream(out, cur[0][0]), st_stream(out + half, cur[0][1]);
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) store_row<T, AL>(out + h * half - col, col, K, row + g + 8 * h < rows, cur[0][h]);
            }
        }
        out += tile_step;
#pragma unroll
        for (int p = 0; p < turned.PARTS; p++) turned.add(p, acc, right);
    }
    copy_wait<0>();
    __syncthreads();

    store_sums<T, FEW_COLS, NB, float2>(acc, shared, DPhi(dphi, dtype, sk, sm, K, M), partial, counters, grp, groups, split, splits, CW, TW);
}

// As of backward.cu, without the tiles of a stage. Block: up to 512. Shared: the rings and z, or the sums of dphi of all warps.
#define FEW_DX_DPHI(name, T, HEAD, AL)                                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * FEW_WARPS, 1) name(DX_DPHI_ARGS, i64 pb, i64 pc, i64 C) {                       \
        typedef T::elem E;                                                                                                            \
        few_dx_dphi<T, HEAD, AL>((const E *)x, packed, z, (E *)dx, dphi, partial, counters, part, db, dalpha, (const E *)hg, hw,      \
                                 (int)dtype, sk, sm, N, K, M, (int)groups, (int)splits, split_tokens, (int)cw, (int)tw, pb, (int)pc, C); \
    }
#define FEW_DX_DPHIS(t, T)                                  \
    FEW_DX_DPHI(mhc_few_dx_dphi_##t, T, false, true)        \
    FEW_DX_DPHI(mhc_few_dx_dphi_##t##_any, T, false, false) \
    FEW_DX_DPHI(mhc_few_head_dx_dphi_##t, T, true, true)    \
    FEW_DX_DPHI(mhc_few_head_dx_dphi_##t##_any, T, true, false)

FEW_DX_DPHIS(bf16, BF16)
FEW_DX_DPHIS(f16, F16)
