// What the passes over X that give dx = z phi^T + c X and dphi = X^T z share: rows of z, products of a tile of 16 tokens, and the way of
// the sums of dphi to memory.
#pragma once
#include "common.cuh"

// Column of an n block j: pair tt of 4, element e of 2 (see load_row: a lane has VEC neighbours in each of two loads).
template <class T>
__device__ __forceinline__ int block_column(int j, int tt, int e) {
    return j / (T::VEC / 2) * 4 * T::VEC + tt * T::VEC + 2 * (j % (T::VEC / 2)) + e;
}

// DEPTH is the number of tiles of a warp on their way or in use.
#define DEPTH 4

// The arguments of the kernels of both widths of a line: x [N, K], packed phi, z, dx (may be 0), dphi (strides of phi), partial sums of
// dphi, counters (zero), partial sums of db and dalpha, db, dalpha; head: g [N, C], w [N, n]; type and strides of dphi, N, K, M; groups of
// columns, splits of the tokens, tokens of a split, warps of a block along K and along the tokens.
#define DX_DPHI_ARGS                                                                                                            \
    const void *x, const uint4 *packed, const char *z, void *dx, void *dphi, float *partial, unsigned long long *counters,      \
        const float *part, float *db, float *dalpha, const void *hg, const float *hw, i64 dtype, i64 sk, i64 sm, i64 N, i64 K,  \
        i64 M, i64 groups, i64 splits, i64 split_tokens, i64 cw, i64 tw

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

// Turned is a tile's X^T over 32 columns, as left operands of dphi: PARTS parts of 16 columns (n blocks 2q, 2q + 1) each.
template <class T>
struct Turned {
    static const int PARTS = T::PARTS > 1 ? 2 : 1, L = sizeof(typename T::elem) / 2, HV = T::VEC / 2;
    u32 words[2][L][HV][PARTS]; // [row half][load][word]: as they come
    u32 x[PARTS][2][4];

    // A lane's words are [load][row g, g + 8].
    __device__ __forceinline__ Turned(const uint4 (*cur)[2]) {
#pragma unroll
        for (int l = 0; l < L; l++) parts<T, PARTS>(cur[l][0], words[0][l]), parts<T, PARTS>(cur[l][1], words[1][l]);
    }

    // turn transposes part p.
    __device__ __forceinline__ void turn(int p) {
#pragma unroll
        for (int q = 0; q < 2; q++)
#pragma unroll
            for (int i = 0; i < 4; i++) x[p][q][i] = transpose8(words[i >> 1][(2 * q + (i & 1)) / HV][(2 * q + (i & 1)) % HV][p]);
    }

    // add adds X^T z of part p, turned, to acc: 16 columns of X by 8 columns of z each.
    __device__ __forceinline__ void add(int p, float (*acc)[3][4], const ZTile<true> &z) const {
#pragma unroll
        for (int q = 0; q < 2; q++) {
            auto product = [&](int j, u32 b0, u32 b1) { mma16816(acc[q][j], x[p][q][0], x[p][q][1], x[p][q][2], x[p][q][3], b0, b1); };
            product(0, z.hi[0], z.hi[1]), product(1, z.hi[2], z.hi[3]), product(2, z.rest[0], z.rest[1]);
            if (p == 0) product(0, z.lo[0], z.lo[1]), product(1, z.lo[2], z.lo[3]), product(2, z.rest[2], z.rest[3]);
        }
    }
};

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

// load_phi reads the operands of dx of NJ n blocks, P parts of phi: words of a lane, see pack_phi.
template <int NJ, int P>
__device__ __forceinline__ void load_phi(u32 (&phi)[NJ][3][P], const uint4 *packed) {
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int v = 0; v < 3 * NJ / 4; v++) {
            const uint4 w = __ldg(packed + (p * (3 * NJ / 4) + v) * 32);
            phi[(4 * v) / 3][(4 * v) % 3][p] = w.x;
            phi[(4 * v + 1) / 3][(4 * v + 1) % 3][p] = w.y;
            phi[(4 * v + 2) / 3][(4 * v + 2) % 3][p] = w.z;
            phi[(4 * v + 3) / 3][(4 * v + 3) % 3][p] = w.w;
        }
}

// add_head adds what the weighted sum of a head has of dx, w[i] g[c], to VEC columns from column col on: f0 of a token, f1 of the eighth
// after it, both if they are among `left` tokens.
template <class T, bool AL>
__device__ __forceinline__ void add_head(float (&f0)[T::VEC], float (&f1)[T::VEC], const typename T::elem *g, const float *w, i64 token, int left,
                                         i64 col, i64 K, i64 C) {
    const i64 n = K / C;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const i64 at = token + 8 * h;
        if (8 * h >= left) continue;
        float(&f)[T::VEC] = h ? f1 : f0;
        if (AL) {
            if (col >= K) continue;
            const i64 stream = col / C;
            float v[T::VEC];
            T::unpack(ld_stream(g + at * C + col - stream * C), v);
            const float weight = w[at * n + stream];
#pragma unroll
            for (int e = 0; e < T::VEC; e++) f[e] = fmaf(weight, v[e], f[e]);
        } else {
#pragma unroll
            for (int e = 0; e < T::VEC; e++) {
                const i64 k = col + e, stream = k / C;
                if (k < K) f[e] += w[at * n + stream] * T::get(g[at * C + k - stream * C]);
            }
        }
    }
}

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
        const bool both = m + 1 < M; // always, where pairs
        if (type == TYPE_F32) {
            float *const to = (float *)p + at;
            if (pairs) {
                *(float2 *)to = make_float2(a, b);
            } else {
                to[0] = a;
                if (both) to[sm] = b;
            }
        } else {
            const u32 w = type == TYPE_BF16 ? pack_bf16(a, b) : pack_f16(a, b);
            u16 *const to = (u16 *)p + at;
            if (pairs) {
                *(u32 *)to = w;
            } else {
                to[0] = (u16)w;
                if (both) to[sm] = (u16)(w >> 16);
            }
        }
    }
};

__device__ __forceinline__ void add(float2 &s, float2 v) { s.x += v.x, s.y += v.y; }
__device__ __forceinline__ void add(float4 &s, float4 v) { s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w; }

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

// store_sums adds a block's sums of dphi over its TW warps along the tokens, and over `splits` blocks where there are more than one: the
// last block to finish a group of columns does that, in a fixed order. acc: a warp's sums over COLS columns; sh: shared memory for those of
// all warps. They lie there as [warp along K][fragment][lane][n block], two columns of z each: fragment f is n blocks 2(f/NB) and the next
// one, columns of z from 8(f%NB) + 2t on. V: what a thread adds at a time, the sums of one n block (float2) or of both (float4).
template <class T, int COLS, int NB, class V>
__device__ __forceinline__ void store_sums(const float (&acc)[COLS / 16][NB][4], void *sh, const DPhi &out, float *partial, unsigned long long *counters,
                                           int grp, int groups, int split, int splits, int CW, int TW) {
    const int F = COLS / 16 * NB, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, PAIRS = sizeof(V) / 8, items = CW * F * 64 / PAIRS;
    float4 *const own = (float4 *)sh + warp * F * 32 + lane;
    const V *const sums = (const V *)sh;
#pragma unroll
    for (int f = 0; f < F; f++) own[f * 32] = make_float4(acc[f / NB][f % NB][0], acc[f / NB][f % NB][1], acc[f / NB][f % NB][2], acc[f / NB][f % NB][3]);
    __syncthreads();
    auto store = [&](int i, const V &s) {
        const int l = i * PAIRS / 2 & 31, f = i * PAIRS / 64 % F, g = l >> 2;
        const i64 col0 = ((i64)grp * CW + i * PAIRS / 64 / F) * COLS;
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            const float *two = (const float *)&s + 2 * p;
            out.pair(col0 + block_column<T>(2 * (f / NB) + (PAIRS == 1 ? i & 1 : p), g >> 1, g & 1), f % NB * 8 + 2 * (l & 3), two[0], two[1]);
        }
    };
    V *const slots = (V *)partial + (i64)grp * items; // of split s: + s * groups * items
#pragma unroll 1
    for (int i = threadIdx.x; i < items; i += blockDim.x) {
        V s = {};
#pragma unroll 4
        for (int q = 0; q < TW; q++) add(s, sums[q * items + i]);
        if (splits == 1)
            store(i, s);
        else
            slots[(i64)split * groups * items + i] = s;
    }
    if (splits == 1 || !last_block(counters + grp, splits)) return;
#pragma unroll 1
    for (int i = threadIdx.x; i < items; i += blockDim.x) {
        V s = {};
#pragma unroll 4
        for (int q = 0; q < splits; q++) add(s, __ldcg(slots + (i64)q * groups * items + i));
        store(i, s);
    }
}

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
