// As backward.cu, for z with more than 24 columns: dx and dphi in one pass over X for up to 80 columns; for more, dphi in a pass
// over X for each 80, and dx in one more.
//
// Ideas
// - The sums of dphi of 128 bytes of the columns of X fill most of a warp's registers (160 for 80 columns), the operands of phi
//   for dx the half of it (80). So warps share the work by product: of a block, four warps give dphi and four dx, each for
//   128 bytes of the columns. The two of the same columns are on one scheduler, and its tensor core always has work.
// - X and z come in a ring of stages of 32 tokens that the block shares.
// - For dphi the tokens are the contraction: ldmatrix transposes 16-bit elements, movmatrix the parts of float32.
// - For dphi z counts as high + low bfloat16 parts; so do elements of X that are not bfloat16. For dx of 16 bits the high part of z
//   alone costs no more than the rounding of dx, 1.7e-3, and saves a quarter of all products. Few tokens take both parts: there
//   the products do not bind, and a norm over few values does not average their errors.
// - Sums over blocks are added in a fixed order by the last block to finish a group of columns, as in backward.cu.
#include "dx_dphi.cuh"

#define WB_TOKENS 32 // of a stage

// wide_column is the column of X of row g + 8h of the fragments q of dphi.
template <class T>
__device__ __forceinline__ int wide_column(int q, int h, int g) {
    if (T::VEC == 8) return (2 * q + h) * 8 + g;
    return block_column<T>(2 * q + h, g >> 1, g & 1);
}

// wide_dphi_products adds X^T z over a tile of 16 tokens to acc: 16 columns of X by 8 columns of z each. tile: the rows of x; zat:
// of z.
template <class T, int NB>
__device__ __forceinline__ void wide_dphi_products(float (&acc)[T::VEC / 2][NB][4], u32 tile, u32 zat, int lane) {
    const int W = NB * 8, ZR = 4 * W + 16, Q = T::VEC / 2, XP = T::PARTS > 1 ? 2 : 1;
    u32 a[Q][4][XP];
    if constexpr (T::VEC == 8) {
        const int r = (lane >> 4) * 8 + (lane & 7);
        const u32 at = tile + r * 128 + ((lane >> 3 & 1) ^ wide_swizzle(r)) * 16;
#pragma unroll
        for (int q = 0; q < Q; q++) {
            u32 w[4];
            ldmatrix4<true>(w, at ^ (q * 32));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if constexpr (XP == 1)
                    a[q][i][0] = w[i];
                else
                    split_pair<XP>(T::get((u16)w[i]), T::get((u16)(w[i] >> 16)), a[q][i]);
            }
        }
    } else {
        const u32 mine = tile + wide_own(lane);
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 w[T::VEC / 2][XP];
                parts<T, XP>(ld_shared((l ? mine ^ 64 : mine) + h * 1024), w);
#pragma unroll
                for (int p = 0; p < XP; p++) a[l][2 * h][p] = transpose8(w[0][p]), a[l][2 * h + 1][p] = transpose8(w[1][p]);
            }
    }
    const u32 z = zat + (lane & 15) * ZR + (lane >> 4) * 16;
    u32 hi[4], lo[4];
    ldmatrix4<true>(hi, z);
    ldmatrix4<true>(lo, z + 2 * W);
#pragma unroll
    for (int j = 0; j < NB; j += 2) {
        u32 nh[4], nl[4]; // of the next columns
        if (j + 2 < NB) ldmatrix4<true>(nh, z + (j + 2) * 16), ldmatrix4<true>(nl, z + 2 * W + (j + 2) * 16);
#pragma unroll
        for (int p = 0; p < XP; p++)
#pragma unroll
            for (int q = 0; q < Q; q++) {
                mma16816(acc[q][j], a[q][0][p], a[q][1][p], a[q][2][p], a[q][3][p], hi[0], hi[1]);
                mma16816(acc[q][j + 1], a[q][0][p], a[q][1][p], a[q][2][p], a[q][3][p], hi[2], hi[3]);
            }
#pragma unroll
        for (int q = 0; q < Q; q++) {
            mma16816(acc[q][j], a[q][0][0], a[q][1][0], a[q][2][0], a[q][3][0], lo[0], lo[1]);
            mma16816(acc[q][j + 1], a[q][0][0], a[q][1][0], a[q][2][0], a[q][3][0], lo[2], lo[3]);
        }
        if (j + 2 < NB) {
#pragma unroll
            for (int i = 0; i < 4; i++) hi[i] = nh[i], lo[i] = nl[i];
        }
    }
}

// wide_dx_products gives dx = z phi^T + c x of a tile of 16 tokens: out[h][l] is chunk 4l + t of row g + 8h. phi: words 2q and
// 2q + 1 of n block w are rows m = 16q + 2t, + 1 and m + 8, + 9 of phi^T. z counts with both parts where phi has two, or if low.
template <class T, int NB, int P>
__device__ __forceinline__ void wide_dx_products(const u32 (&phi)[T::VEC][NB][P], u32 tile, u32 zat, bool low, uint4 (&out)[2][2], int lane) {
    const int VEC = T::VEC, HV = VEC / 2, W = NB * 8, ZR = 4 * W + 16;
    const u32 mine = wide_own(lane), z = zat + (lane & 15) * ZR + (lane >> 4) * 16, cat = zat + (lane >> 2) * ZR + 4 * W;
    u32 zz[NB / 2][P][4];
#pragma unroll
    for (int q = 0; q < NB / 2; q++)
#pragma unroll
        for (int p = 0; p < P; p++) ldmatrix4<false>(zz[q][p], z + q * 32 + p * 2 * W);
    float d[VEC][4]; // of n block j: row g, row g + 8
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float c;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(c) : "r"(cat + h * 8 * ZR) : "memory");
#pragma unroll
        for (int l = 0; l < 2; l++) {
            float f[VEC];
            T::unpack(ld_shared(tile + (l ? mine ^ 64 : mine) + h * 1024), f);
#pragma unroll
            for (int w = 0; w < HV; w++) d[l * HV + w][2 * h] = c * f[2 * w], d[l * HV + w][2 * h + 1] = c * f[2 * w + 1];
        }
    }
#pragma unroll
    for (int q = 0; q < NB / 2; q++)
#pragma unroll
        for (int i = 0; i < P; i++)
#pragma unroll
            for (int p = 0; i + p < P; p++)
#pragma unroll
                for (int w = 0; w < VEC; w++)
                    mma16816(d[w], zz[q][i][0], zz[q][i][1], zz[q][i][2], zz[q][i][3], phi[w][2 * q][p], phi[w][2 * q + 1][p]);
    if (P == 1 && low) {
#pragma unroll
        for (int q = 0; q < NB / 2; q++) {
            u32 lo[4];
            ldmatrix4<false>(lo, z + q * 32 + 2 * W);
#pragma unroll
            for (int w = 0; w < VEC; w++) mma16816(d[w], lo[0], lo[1], lo[2], lo[3], phi[w][2 * q][0], phi[w][2 * q + 1][0]);
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int l = 0; l < 2; l++) {
            float f[VEC];
#pragma unroll
            for (int w = 0; w < HV; w++) f[2 * w] = d[l * HV + w][2 * h], f[2 * w + 1] = d[l * HV + w][2 * h + 1];
            out[h][l] = T::pack(f);
        }
}

// trade_rows turns chunks 4l + t of row g of the lanes 4g+t into whole rows of neighbouring lanes: chunk 4(g&1) + t of rows
// g & ~1 (even) and g | 1 (odd).
__device__ __forceinline__ void trade_rows(const uint4 (&own)[2], uint4 &even, uint4 &odd, bool is_odd) {
    const uint4 keep = is_odd ? own[1] : own[0], give = is_odd ? own[0] : own[1];
    uint4 got;
    got.x = __shfl_xor_sync(~0u, give.x, 4), got.y = __shfl_xor_sync(~0u, give.y, 4);
    got.z = __shfl_xor_sync(~0u, give.z, 4), got.w = __shfl_xor_sync(~0u, give.w, 4);
    even = is_odd ? got : keep, odd = is_odd ? keep : got;
}

// phi_rows puts rows of phi in shared memory, `rows` from k0, as P planes of bfloat16 parts, 8*nb columns and 16 bytes a row; zeros
// past K and M. The rows of an n block (see block_column) follow each other. It needs a copy_commit, and a barrier.
template <class T, int P>
__device__ __forceinline__ void phi_rows(u32 dst, int rows, int nb, const void *phi, int type, i64 sk, i64 sm, i64 k0, i64 K, i64 M) {
    const int pitch = 16 * nb + 16;
    auto place = [&](int row) { return (row / (4 * T::VEC) * (T::VEC / 2) + row % T::VEC / 2) * 8 + row / T::VEC % 4 * 2 + (row & 1); };
    const bool direct = P == 1 && type == TYPE_BF16 && sm == 1 && sk % 8 == 0 && M % 8 == 0 && ((unsigned long long)phi & 15) == 0;
    if (direct) {
        for (int i = threadIdx.x; i < rows * nb; i += blockDim.x) {
            const i64 k = k0 + i / nb;
            const int m = i % nb * 8;
            const bool in = k < K && m < M;
            copy16_or_zero(dst + place(i / nb) * pitch + 2 * m, in ? (const u16 *)phi + k * sk + m : phi, in ? 16 : 0);
        }
        return;
    }
    with_type(type, [&](auto tag) {
        typedef decltype(tag) PT;
        const typename PT::elem *src = (const typename PT::elem *)phi;
#pragma unroll 2
        for (int i = threadIdx.x; i < rows * nb; i += blockDim.x) {
            const int row = sm == 1 ? i / nb : i % rows, m = (sm == 1 ? i % nb : i / rows) * 8; // neighbours in memory
            const i64 k = k0 + row;
            typename PT::elem e[8];
#pragma unroll
            for (int j = 0; j < 8; j++) e[j] = k < K && m + j < M ? __ldg(src + k * sk + (m + j) * sm) : (typename PT::elem)0;
            u32 w[4][P];
#pragma unroll
            for (int j = 0; j < 4; j++) split_pair<P>(PT::get(e[2 * j]), PT::get(e[2 * j + 1]), w[j]);
#pragma unroll
            for (int p = 0; p < P; p++) st_shared(dst + (p * rows + place(row)) * pitch + 2 * m, make_uint4(w[0][p], w[1][p], w[2][p], w[3][p]));
        }
    });
}

// phi_operands reads from such rows, from the first of a pair of n blocks: words of rows m and m + 8 of phi^T of one, then of the next.
__device__ __forceinline__ void phi_operands(u32 (&w)[4], u32 rows, int pitch, int step, int lane) {
    ldmatrix4<false>(w, rows + ((lane >> 4) * 8 + (lane & 7)) * pitch + step * 32 + (lane >> 3 & 1) * 16);
}

// wide_dx_dphi: with DX four warps for dphi and four for dx, of 4 shares of 128 bytes of columns; without, eight for dphi, of 8.
template <class T, int NB, bool DX, bool AL>
__device__ __forceinline__ void wide_dx_dphi(const void *xv, const void *phi, const char *z, void *dxv, void *dphi, float *partial,
                                             unsigned long long *counters, const float *part, float *db, float *dalpha, int type,
                                             int dtype, i64 sk, i64 sm, i64 N, i64 K, i64 M, int groups, int splits,
                                             i64 split_tokens, int depth, bool low, i64 parts_blocks, int parts_cols) {
    // Stages: for each share 32 rows of x, then 32 rows of z; rows of phi. At the end the sums of dphi.
    extern __shared__ __align__(128) uint4 shared[];
    typedef typename T::elem E;
    const int VEC = T::VEC, COLS = 8 * VEC, W = NB * 8, ZR = 4 * W + 16, P = T::DXPARTS, SHARES = DX ? 4 : 8, Q = VEC / 2, F = Q * NB;
    const u32 XBYTES = SHARES * WB_TOKENS * 128, STAGE = XBYTES + WB_TOKENS * ZR;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if ((int)blockIdx.x == groups * splits) {
        if (blockIdx.y == 0) add_parts(part, parts_blocks, parts_cols, (int)M, db, dalpha, (float *)shared);
        return;
    }
    const int grp = blockIdx.x % groups, split = blockIdx.x / groups, chunk = blockIdx.y;
    const bool for_dx = DX && warp >= SHARES;
    const int share = for_dx ? warp - SHARES : warp;
    const i64 group0 = (i64)grp * SHARES * COLS, col0 = group0 + share * COLS, first = split * split_tokens;
    const int rows = (int)(min(N, first + split_tokens) - first), stages = (rows + WB_TOKENS - 1) / WB_TOKENS;
    const bool busy = col0 < K;
    const E *x = (const E *)xv;
    const u32 base = shared_address(shared);

    const u32 phi_at = base + depth * STAGE, plane = SHARES * COLS * (2 * W + 16);
    if (DX && dxv) phi_rows<T, P>(phi_at, SHARES * COLS, NB, phi, type, sk, sm, group0, K, M);
    copy_commit();

    // The warps for dphi load: whole rows of the group, 32 or 64 chunks of 16 bytes, and z.
    const int RC = SHARES * 8, RW = SHARES * 32 / RC, ZPASS = SHARES * 512; // rows, bytes of z at a time
    const int lrow = threadIdx.x / RC, lchunk = threadIdx.x % RC;
    const i64 lcol = group0 + (i64)lchunk * VEC;
    const E *src = x + (first + lrow) * K + lcol;
    const u32 xdst = base + lchunk / 8 * (WB_TOKENS * 128) + lrow * 128;
    const char *zsrc = z + ((i64)chunk * N + first) * ZR + threadIdx.x * 16;
    const bool whole_group = AL && group0 + SHARES * COLS <= K;
    auto load = [&](int s, u32 stage) {
        if (s < stages && !for_dx) {
            const int left = rows - s * WB_TOKENS;
            auto place = [&](int q) { return xdst + stage + q * RW * 128 + ((lchunk & 7) ^ wide_swizzle(lrow + q * RW)) * 16; };
            if (whole_group && left >= WB_TOKENS) {
#pragma unroll
                for (int q = 0; q < WB_TOKENS / RW; q++) copy16(place(q), src + (i64)q * RW * K);
            } else {
#pragma unroll
                for (int q = 0; q < WB_TOKENS / RW; q++) {
                    const bool in = lrow + q * RW < left && lcol < K;
                    if (AL)
                        copy16_or_zero(place(q), in ? src + (i64)q * RW * K : x, in ? 16 : 0);
                    else
                        st_shared(place(q), load_row<T, AL>(src + (i64)q * RW * K - lcol, lcol, K, in));
                }
            }
            const int bytes = min(left, WB_TOKENS) * ZR;
            const u32 to = base + stage + XBYTES + threadIdx.x * 16;
#pragma unroll
            for (int q = 0; q < (WB_TOKENS * ZR + ZPASS - 1) / ZPASS; q++) {
                const int at = q * ZPASS + threadIdx.x * 16;
                if (left >= WB_TOKENS) {
                    if ((q + 1) * ZPASS <= WB_TOKENS * ZR || at < WB_TOKENS * ZR) copy16(to + q * ZPASS, zsrc + q * ZPASS);
                } else if (at < WB_TOKENS * ZR) {
                    copy16_or_zero(to + q * ZPASS, at < bytes ? zsrc + q * ZPASS : z, at < bytes ? 16 : 0);
                }
            }
            src += (i64)WB_TOKENS * K, zsrc += WB_TOKENS * ZR;
        }
        copy_commit();
    };
    u32 lstage = 0, pstage = 0;
    auto next = [&](u32 stage) { return stage == (depth - 1) * STAGE ? 0 : stage + STAGE; };
#pragma unroll 1
    for (int s = 0; s < depth - 1; s++) load(s, lstage), lstage = next(lstage);
    wide_wait(depth);
    __syncthreads(); // phi is there

    // The sums of four shares at a time go through shared memory: to dphi, or to the slot of this block.
    const int ROUNDS = SHARES / 4, items = 4 * F * 32;
    float4 *sums = (float4 *)shared; // [share][fragment][lane]
    float4 *slots = (float4 *)partial + ((i64)chunk * splits * groups + grp) * ROUNDS * items; // of split s: + s * groups * ROUNDS * items
    const DPhi to_phi(dphi, dtype, sk, sm, K, M);
    auto put = [&](int i, float4 s) {
        const int f = i / 32 % F, g = (i & 31) >> 2;
        const int m = chunk * W + f % NB * 8 + 2 * (i & 3);
        const i64 k = group0 + i / 32 / F * COLS;
        to_phi.pair(k + wide_column<T>(f / NB, 0, g), m, s.x, s.y);
        to_phi.pair(k + wide_column<T>(f / NB, 1, g), m, s.z, s.w);
    };
    auto flush = [&](int r) {
        if (splits == 1) {
#pragma unroll 1
            for (int i = threadIdx.x; i < items; i += 256) put(r * items + i, sums[i]);
        } else {
#pragma unroll 4
            for (int i = threadIdx.x; i < items; i += 256) slots[((i64)split * groups * ROUNDS + r) * items + i] = sums[i];
        }
    };

    if (for_dx) {
        E *dx = (E *)dxv;
        u32 ph[VEC][NB][P];
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int j = 0; j < VEC; j += 2)
#pragma unroll
                for (int q = 0; q < NB; q += 2) {
                    u32 w[4];
                    phi_operands(w, phi_at + p * plane + (share * COLS + j * 8) * (2 * W + 16), 2 * W + 16, q / 2, lane);
                    ph[j][q][p] = w[0], ph[j][q + 1][p] = w[1], ph[j + 1][q][p] = w[2], ph[j + 1][q + 1][p] = w[3];
                }
        const int odd = lane >> 2 & 1, even_row = lane >> 2 & 6;
        const i64 col = col0 + (4 * odd + (lane & 3)) * VEC;
        const bool whole = AL && col0 + COLS <= K;
        E *to = dx + (first + even_row) * K + col;
#pragma unroll 1
        for (int s = 0; s < stages; s++) {
            wide_turn(s, depth, [&](int k) { load(k, lstage); });
            const u32 xs = base + pstage + share * (WB_TOKENS * 128), zs = base + pstage + XBYTES;
            lstage = next(lstage), pstage = next(pstage);
#pragma unroll 1
            for (int h = 0; h < 2; h++) {
                const int left = rows - s * WB_TOKENS - h * 16;
                if (!busy || !dx || left <= 0) break;
                uint4 out[2][2], v[4]; // v: rows even_row, + 1, + 8, + 9
                wide_dx_products<T, NB, P>(ph, xs + h * 2048, zs + h * 16 * ZR, low, out, lane);
                trade_rows(out[0], v[0], v[1], odd);
                trade_rows(out[1], v[2], v[3], odd);
                if (whole && left >= 16) {
#pragma unroll
                    for (int q = 0; q < 4; q++) st_stream(to + (q / 2 * 8 + q % 2) * K, v[q]);
                } else {
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        store_row<T, AL>(to + (q / 2 * 8 + q % 2) * K - col, col, K, even_row + q / 2 * 8 + q % 2 < left, v[q]);
                }
                to += 16 * K;
            }
        }
        copy_wait<0>();
        for (int r = 0; r < ROUNDS; r++) {
            __syncthreads();
            __syncthreads();
            flush(r);
        }
    } else {
        float acc[Q][NB][4];
#pragma unroll
        for (int i = 0; i < Q; i++)
#pragma unroll
            for (int j = 0; j < NB; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;
#pragma unroll 1
        for (int s = 0; s < stages; s++) {
            wide_turn(s, depth, [&](int k) { load(k, lstage); });
            const u32 xs = base + pstage + share * (WB_TOKENS * 128), zs = base + pstage + XBYTES;
            lstage = next(lstage), pstage = next(pstage);
#pragma unroll 1
            for (int h = 0; busy && h < 2 && s * WB_TOKENS + h * 16 < rows; h++) wide_dphi_products<T, NB>(acc, xs + h * 2048, zs + h * 16 * ZR, lane);
        }
        copy_wait<0>();
        for (int r = 0; r < ROUNDS; r++) {
            __syncthreads();
            if (share / 4 == r) {
#pragma unroll
                for (int f = 0; f < F; f++)
                    sums[(share % 4 * F + f) * 32 + lane] = make_float4(acc[f / NB][f % NB][0], acc[f / NB][f % NB][1], acc[f / NB][f % NB][2], acc[f / NB][f % NB][3]);
            }
            __syncthreads();
            flush(r);
        }
    }
    if (splits == 1) return;

    // Over the blocks: the last one of this group adds.
    if (!last_block(counters + chunk * groups + grp, splits)) return;
    const int U = 8; // sums of a thread at a time
#pragma unroll 1
    for (int i = threadIdx.x; i < ROUNDS * items; i += 256 * U) {
        float4 s[U];
#pragma unroll
        for (int u = 0; u < U; u++) s[u] = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 2
        for (int q = 0; q < splits; q++)
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (i + u * 256 >= ROUNDS * items) continue;
                add(s[u], __ldcg(slots + (i64)q * groups * ROUNDS * items + i + u * 256));
            }
#pragma unroll
        for (int u = 0; u < U; u++) sums[u * 256 + threadIdx.x] = s[u]; // so that the code of put is there once
#pragma unroll 1
        for (int u = 0; u < U && i + u * 256 < ROUNDS * items; u++) put(i + u * 256, sums[u * 256 + threadIdx.x]);
    }
}

// x [N, K], phi, z, dx (may be 0), dphi, partial sums of dphi, counters (zero), partial sums of db and dalpha, db, dalpha; types
// of phi and dphi and the strides of both, N, K, M; groups of columns, splits of the tokens, tokens of a split (a multiple of 32),
// stages, parts of z for dx; blocks and columns of the partial sums. Grid: groups * splits, and one block more where there is a db; chunks of columns
// of z. Block: 256. Shared: the stages and, for dx, phi; at least the sums.
#define WIDE_DX_DPHI(name, T, NB, DX, AL)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                             \
        name(const void *x, const void *phi, const char *z, void *dx, void *dphi, float *partial, unsigned long long *counters,      \
             const float *part, float *db, float *dalpha, i64 type, i64 dtype, i64 sk, i64 sm, i64 N, i64 K, i64 M, i64 groups,      \
             i64 splits, i64 split_tokens, i64 depth, i64 zparts, i64 pb, i64 pc) {                                                  \
        wide_dx_dphi<T, NB, DX, AL>(x, phi, z, dx, dphi, partial, counters, part, db, dalpha, (int)type, (int)dtype, sk, sm, N, K,   \
                                    M, (int)groups, (int)splits, split_tokens, (int)depth, zparts == 2, pb, (int)pc);                \
    }
#define WIDE_DX_DPHIS(t, T)                                        \
    WIDE_DX_DPHI(mhc_wide_dx_dphi_##t##_m48, T, 6, true, true)      \
    WIDE_DX_DPHI(mhc_wide_dx_dphi_##t##_m48_any, T, 6, true, false) \
    WIDE_DX_DPHI(mhc_wide_dx_dphi_##t##_m80, T, 10, true, true)     \
    WIDE_DX_DPHI(mhc_wide_dx_dphi_##t##_m80_any, T, 10, true, false) \
    WIDE_DX_DPHI(mhc_wide_dphi_##t, T, 10, false, true)             \
    WIDE_DX_DPHI(mhc_wide_dphi_##t##_any, T, 10, false, false)

WIDE_DX_DPHIS(bf16, BF16)
WIDE_DX_DPHIS(f16, F16)
WIDE_DX_DPHIS(f32, F32)

// wide_dx: dx alone, where z has more than one chunk. A block owns 1, 2 or 4 shares of 128 bytes of the columns of X, with all
// rows of phi^T in shared memory, and walks down 64 tokens at a time: two warps a share, 32 tokens each. z comes in a ring of
// stages, a chunk of columns each.
#define WIDE_DX_TOKENS 64

template <class T, bool AL>
__device__ __forceinline__ void wide_dx(const void *xv, const void *phi, const char *z, void *dxv, int type, i64 sk, i64 sm, i64 N,
                                        i64 K, i64 M, int chunks, int depth, int zparts) {
    extern __shared__ __align__(128) uint4 shared[]; // stages, phi
    typedef typename T::elem E;
    const int VEC = T::VEC, HV = VEC / 2, COLS = 8 * VEC, W = 80, KS = W / 16, ZR = 4 * W + 16, P = T::DXPARTS;
    const int zpitch = zparts * 2 * W + 16, zpieces = zparts * W / 8;
    const u32 stage_bytes = WIDE_DX_TOKENS * zpitch;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, shares = blockDim.x / 64, share = warp >> 1, half = (warp & 1) * 32;
    const i64 group0 = (i64)blockIdx.x * shares * COLS, col0 = group0 + share * COLS;
    const int steps = (int)(M + 15) / 16, rows = shares * COLS, pitch = steps * 32 + 16;
    const u32 base = shared_address(shared), phi_at = base + depth * stage_bytes;
    phi_rows<T, P>(phi_at, rows, 2 * steps, phi, type, sk, sm, group0, K, M);
    const E *x = (const E *)xv;
    E *dx = (E *)dxv;
    const i64 stride = (i64)gridDim.y * WIDE_DX_TOKENS;
    i64 lrow = (i64)blockIdx.y * WIDE_DX_TOKENS; // of the stage to load
    int lchunk = 0;
    u32 lstage = 0, pstage = 0;
    auto load = [&]() {
        if (lrow < N) {
            const char *src = z + ((i64)lchunk * N + lrow) * ZR;
            for (int i = threadIdx.x; i < WIDE_DX_TOKENS * zpieces; i += blockDim.x) {
                const int row = i / zpieces, at = i % zpieces * 16;
                const bool in = lrow + row < N;
                copy16_or_zero(base + lstage + row * zpitch + at, in ? src + row * ZR + at : z, in ? 16 : 0);
            }
        }
        copy_commit();
        if (++lchunk == chunks) lchunk = 0, lrow += stride;
        lstage = lstage == (depth - 1) * stage_bytes ? 0 : lstage + stage_bytes;
    };
#pragma unroll 1
    for (int s = 0; s < depth - 1; s++) load();
    for (i64 row0 = (i64)blockIdx.y * WIDE_DX_TOKENS; row0 < N; row0 += stride) {
        uint4 in[2][2][2]; // x: [half of the tokens][row g, g + 8][half of the columns]
        float c[2][2], d[2][VEC][4];
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const i64 row = row0 + half + b * 16 + h * 8 + g;
#pragma unroll
                for (int l = 0; l < 2; l++) in[b][h][l] = load_row<T, AL>(x + row * K, col0 + (l * 4 + t) * VEC, K, row < N);
                c[b][h] = *(const float *)(z + min(row, N - 1) * ZR + 4 * W);
            }
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int j = 0; j < VEC; j++) d[b][j][0] = d[b][j][1] = d[b][j][2] = d[b][j][3] = 0.f;
#pragma unroll 1
        for (int ch = 0; ch < chunks; ch++) {
            wide_turn(0, depth, [&](int) { load(); });
            const u32 zat = base + pstage + (half + (lane & 15)) * zpitch + (lane >> 4) * 16;
            pstage = pstage == (depth - 1) * stage_bytes ? 0 : pstage + stage_bytes;
#pragma unroll
            for (int q = 0; q < KS; q++) {
                if (ch * KS + q >= steps) break;
                u32 a[2][P][4], lo[2][4];
#pragma unroll
                for (int b = 0; b < 2; b++)
#pragma unroll
                    for (int p = 0; p < P; p++) ldmatrix4<false>(a[b][p], zat + b * 16 * zpitch + p * 2 * W + q * 32);
                const bool low = P == 1 && zparts == 2;
                if (low) ldmatrix4<false>(lo[0], zat + 2 * W + q * 32), ldmatrix4<false>(lo[1], zat + 16 * zpitch + 2 * W + q * 32);
#pragma unroll
                for (int j = 0; j < VEC; j += 2) {
                    u32 w[P][4];
#pragma unroll
                    for (int p = 0; p < P; p++) phi_operands(w[p], phi_at + (p * rows + share * COLS + j * 8) * pitch, pitch, ch * KS + q, lane);
#pragma unroll
                    for (int i = 0; i < P; i++)
#pragma unroll
                        for (int p = 0; i + p < P; p++)
#pragma unroll
                            for (int b = 0; b < 2; b++) {
                                mma16816(d[b][j], a[b][i][0], a[b][i][1], a[b][i][2], a[b][i][3], w[p][0], w[p][1]);
                                mma16816(d[b][j + 1], a[b][i][0], a[b][i][1], a[b][i][2], a[b][i][3], w[p][2], w[p][3]);
                            }
#pragma unroll
                    for (int b = 0; b < 2; b++)
                        if (low) {
                            mma16816(d[b][j], lo[b][0], lo[b][1], lo[b][2], lo[b][3], w[0][0], w[0][1]);
                            mma16816(d[b][j + 1], lo[b][0], lo[b][1], lo[b][2], lo[b][3], w[0][2], w[0][3]);
                        }
                }
            }
        }
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const i64 row = row0 + half + b * 16 + h * 8 + g;
#pragma unroll
                for (int l = 0; l < 2; l++) {
                    float f[VEC];
                    T::unpack(in[b][h][l], f);
#pragma unroll
                    for (int w = 0; w < HV; w++) {
                        f[2 * w] = fmaf(c[b][h], f[2 * w], d[b][l * HV + w][2 * h]);
                        f[2 * w + 1] = fmaf(c[b][h], f[2 * w + 1], d[b][l * HV + w][2 * h + 1]);
                    }
                    store_row<T, AL>(dx + row * K, col0 + (l * 4 + t) * VEC, K, row < N, T::pack(f));
                }
            }
    }
    copy_wait<0>();
}

// x [N, K], phi, z, dx; type and strides of phi; N, K, M, chunks of z, stages, parts of z. Grid: shares of columns in fours, twos or ones; blocks
// of tokens. Block: 64 threads a share. Shared: the stages, phi.
#define WIDE_DX(name, T, AL)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 1) name(const void *x, const void *phi, const char *z, void *dx, i64 type, i64 sk, \
                                                              i64 sm, i64 N, i64 K, i64 M, i64 chunks, i64 depth, i64 zparts) {       \
        wide_dx<T, AL>(x, phi, z, dx, (int)type, sk, sm, N, K, M, (int)chunks, (int)depth, (int)zparts);                              \
    }
WIDE_DX(mhc_wide_dx_bf16, BF16, true)
WIDE_DX(mhc_wide_dx_bf16_any, BF16, false)
WIDE_DX(mhc_wide_dx_f16, F16, true)
WIDE_DX(mhc_wide_dx_f16_any, F16, false)
WIDE_DX(mhc_wide_dx_f32, F32, true)
WIDE_DX(mhc_wide_dx_f32_any, F32, false)
