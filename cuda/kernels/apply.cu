// Applying the coefficients: Pre, PostRes, Streams, their gradients; Cast; zero.
//
//     pre      out[c]   = sum_i h[i] x[i,c]                      dx[i,c] = h[i] g[c]                dh[i] = sum_c g[c] x[i,c]
//     postres  out[o,c] = sum_i H[o,i] x[i,c] + h[o] f[c]        dx[i,c] = sum_o H[o,i] g[o,c]      df[c] = sum_o h[o] g[o,c]
//                                                                dH[o,i] = sum_c g[o,c] x[i,c]      dh[o] = sum_c g[o,c] f[c]
//     streams  out[i,c] = x[c]                                   dx[c]   = sum_i g[i,c]
//
// H is transposed in memory where `transposed` is set. Storage types in and out, float32 coefficients and sums.
//
// Ideas
// - One pass: each element of a big tensor is read once and written once, 16 bytes a thread (one element where rows are not
//   aligned). Threads x walk along the channels of a token, threads y along tokens.
// - Four streams live in registers; the 20 sums of a PostRes gradient are reduced over a warp by halving (a lane gives away the
//   half of the values that it will not finish), then over warps through shared memory: fixed order, no atomics.
// - More streams: blockIdx.y takes four rows of dH and four streams of dx; what it reads again comes from the cache.
#include "common.cuh"

// Access to V neighbouring channels.
template <class T, bool AL>
struct Access {
    static const int V = T::VEC;
    typedef uint4 raw;
    static __device__ __forceinline__ raw load(const typename T::elem *p) { return ld_stream(p); }
    static __device__ __forceinline__ raw load_again(const typename T::elem *p) { return __ldg((const uint4 *)p); }
    static __device__ __forceinline__ void unpack(raw r, float (&f)[V]) { T::unpack(r, f); }
    static __device__ __forceinline__ void store(typename T::elem *p, const float (&f)[V]) { st_stream(p, T::pack(f)); }
};
template <class T>
struct Access<T, false> {
    static const int V = 1;
    typedef typename T::elem raw;
    static __device__ __forceinline__ raw load(const typename T::elem *p) { return __ldg(p); }
    static __device__ __forceinline__ raw load_again(const typename T::elem *p) { return __ldg(p); }
    static __device__ __forceinline__ void unpack(raw r, float (&f)[1]) { f[0] = T::get(r); }
    static __device__ __forceinline__ void store(typename T::elem *p, const float (&f)[1]) { *p = T::put(f[0]); }
};

// halve16 and halve4 sum 16 or 4 values over a warp. Lane L ends with value L/2, or value L/8.
__device__ __forceinline__ float halve16(float (&v)[16]) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int s = 0; s < 4; s++) {
        const int h = 8 >> s;
        const bool up = lane & (2 * h);
#pragma unroll
        for (int i = 0; i < h; i++) {
            const float give = up ? v[i] : v[i + h], keep = up ? v[i + h] : v[i];
            v[i] = keep + __shfl_xor_sync(~0u, give, 2 * h);
        }
    }
    return v[0] + __shfl_xor_sync(~0u, v[0], 1);
}

__device__ __forceinline__ float halve4(float (&v)[4]) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const int h = 2 >> s;
        const bool up = lane & (8 * h);
#pragma unroll
        for (int i = 0; i < h; i++) {
            const float give = up ? v[i] : v[i + h], keep = up ? v[i + h] : v[i];
            v[i] = keep + __shfl_xor_sync(~0u, give, 8 * h);
        }
    }
    float s = v[0];
#pragma unroll
    for (int h = 4; h; h /= 2) s += __shfl_xor_sync(~0u, s, h);
    return s;
}

#define TOKEN_LOOP_SETUP                                                                                 \
    typedef Access<T, AL> A;                                                                             \
    typedef typename T::elem E;                                                                          \
    const int V = A::V;                                                                                  \
    const i64 tok = (i64)blockIdx.x * blockDim.y + threadIdx.y;                                          \
    const bool live = tok < N;

// x [N, n, C], h [N, n], out [N, C]; N, n, C.
template <class T, bool FOUR, bool AL>
__device__ __forceinline__ void pre_fwd(const void *xv, const float *h, void *outv, i64 N, i64 n, i64 C) {
    TOKEN_LOOP_SETUP
    if (!live) return;
    const E *x = (const E *)xv + tok * n * C;
    E *out = (E *)outv + tok * C;
    for (i64 c = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * V; c < C; c += (i64)gridDim.y * blockDim.x * V) {
        float s[V], f[V];
        if (FOUR) {
            typename A::raw r[4];
#pragma unroll
            for (int i = 0; i < 4; i++) r[i] = A::load(x + i * C + c);
            const float4 w = __ldg((const float4 *)h + tok);
            const float ww[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                A::unpack(r[i], f);
#pragma unroll
                for (int e = 0; e < V; e++) s[e] = i ? fmaf(ww[i], f[e], s[e]) : ww[0] * f[e];
            }
        } else {
#pragma unroll
            for (int e = 0; e < V; e++) s[e] = 0.f;
#pragma unroll 4
            for (i64 i = 0; i < n; i++) {
                const float w = __ldg(h + tok * n + i);
                A::unpack(A::load(x + i * C + c), f);
#pragma unroll
                for (int e = 0; e < V; e++) s[e] = fmaf(w, f[e], s[e]);
            }
        }
        A::store(out + c, s);
    }
}

// x, h, g [N, C], dx [N, n, C], dh [N, n]: dx or dh may be 0.
template <class T, bool FOUR, bool AL>
__device__ __forceinline__ void pre_bwd(const void *xv, const float *h, const void *gv, void *dxv, float *dh, i64 N, i64 n, i64 C) {
    TOKEN_LOOP_SETUP
    __shared__ float red[4][16];
    const int NT = FOUR ? 4 : 16;
    const E *x = (const E *)xv + tok * n * C, *g = (const E *)gv + tok * C;
    E *dx = (E *)dxv + tok * n * C;
    float s[NT];
#pragma unroll
    for (int i = 0; i < NT; i++) s[i] = 0.f;
    if (live) {
        float w[NT];
#pragma unroll
        for (int i = 0; i < NT; i++) w[i] = dxv && (FOUR || i < n) ? __ldg(h + tok * n + i) : 0.f;
        for (i64 c = (i64)threadIdx.x * V; c < C; c += (i64)blockDim.x * V) {
            float gg[V], f[V];
            if (FOUR) {
                const typename A::raw rg = A::load(g + c);
                typename A::raw r[4];
                if (dh) {
#pragma unroll
                    for (int i = 0; i < 4; i++) r[i] = A::load(x + i * C + c);
                }
                A::unpack(rg, gg);
                if (dxv) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
#pragma unroll
                        for (int e = 0; e < V; e++) f[e] = w[i] * gg[e];
                        A::store(dx + i * C + c, f);
                    }
                }
                if (dh) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        A::unpack(r[i], f);
#pragma unroll
                        for (int e = 0; e < V; e++) s[i] = fmaf(gg[e], f[e], s[i]);
                    }
                }
            } else {
                A::unpack(A::load(g + c), gg);
#pragma unroll
                for (int i = 0; i < NT; i++) {
                    if (i < n) {
                        if (dh) {
                            A::unpack(A::load(x + i * C + c), f);
#pragma unroll
                            for (int e = 0; e < V; e++) s[i] = fmaf(gg[e], f[e], s[i]);
                        }
                        if (dxv) {
#pragma unroll
                            for (int e = 0; e < V; e++) f[e] = w[i] * gg[e];
                            A::store(dx + i * C + c, f);
                        }
                    }
                }
            }
        }
    }
    if (!dh) return;
    const int lane = threadIdx.x & 31, warps = blockDim.x / 32, warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
    float v;
    if constexpr (FOUR) {
        v = halve4(s);
        if (lane % 8 == 0) red[warp][lane / 8] = v;
    } else {
        v = halve16(s);
        if (lane % 2 == 0) red[warp][lane / 2] = v;
    }
    __syncthreads();
    if ((int)threadIdx.x < NT && threadIdx.x < n && live) {
        float t = 0.f;
        for (int q = 0; q < warps; q++) t += red[threadIdx.y * warps + q][threadIdx.x];
        dh[tok * n + threadIdx.x] = t;
    }
}

// x [N, n, C], f [N, C], H [N, n, n], h [N, n], out [N, n, C]; N, n, C, transposed.
template <class T, bool FOUR, bool AL>
__device__ __forceinline__ void postres_fwd(const void *xv, const void *fv, const float *H, const float *h, void *outv, i64 N, i64 n, i64 C,
                                            i64 transposed) {
    TOKEN_LOOP_SETUP
    if (!live) return;
    const E *x = (const E *)xv + tok * n * C, *f = (const E *)fv + tok * C;
    E *out = (E *)outv + tok * n * C;
    const i64 so = transposed ? 1 : n, si = transposed ? n : 1;
    for (i64 c = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * V; c < C; c += (i64)gridDim.y * blockDim.x * V) {
        float ff[V], xx[V];
        if (FOUR) {
            typename A::raw r[4];
#pragma unroll
            for (int i = 0; i < 4; i++) r[i] = A::load(x + i * C + c);
            const typename A::raw rf = A::load(f + c);
            float4 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) w[i] = __ldg((const float4 *)H + tok * 4 + i);
            const float4 p = __ldg((const float4 *)h + tok);
            const float m[16] = {w[0].x, w[0].y, w[0].z, w[0].w, w[1].x, w[1].y, w[1].z, w[1].w,
                                 w[2].x, w[2].y, w[2].z, w[2].w, w[3].x, w[3].y, w[3].z, w[3].w};
            const float pp[4] = {p.x, p.y, p.z, p.w};
            float s[4][V];
            A::unpack(rf, ff);
#pragma unroll
            for (int o = 0; o < 4; o++)
#pragma unroll
                for (int e = 0; e < V; e++) s[o][e] = pp[o] * ff[e];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                A::unpack(r[i], xx);
#pragma unroll
                for (int o = 0; o < 4; o++) {
                    const float a = transposed ? m[i * 4 + o] : m[o * 4 + i];
#pragma unroll
                    for (int e = 0; e < V; e++) s[o][e] = fmaf(a, xx[e], s[o][e]);
                }
            }
#pragma unroll
            for (int o = 0; o < 4; o++) A::store(out + o * C + c, s[o]);
        } else {
            typename A::raw r[16];
#pragma unroll
            for (int i = 0; i < 16; i++)
                if (i < n) r[i] = A::load(x + i * C + c);
            A::unpack(A::load(f + c), ff);
            for (i64 o = 0; o < n; o++) {
                float s[V];
                const float p = __ldg(h + tok * n + o);
#pragma unroll
                for (int e = 0; e < V; e++) s[e] = p * ff[e];
#pragma unroll
                for (int i = 0; i < 16; i++)
                    if (i < n) {
                        const float a = __ldg(H + tok * n * n + o * so + i * si);
                        A::unpack(r[i], xx);
#pragma unroll
                        for (int e = 0; e < V; e++) s[e] = fmaf(a, xx[e], s[e]);
                    }
                A::store(out + o * C + c, s);
            }
        }
    }
}

// x, f, H, h, g [N, n, C], dx, df, dH, dh: any of the last four may be 0; N, n, C, transposed.
template <class T, bool AL>
__device__ __forceinline__ void postres_bwd4(const void *xv, const void *fv, const float *H, const float *h, const void *gv, void *dxv, void *dfv,
                                             float *dH, float *dh, i64 N, i64 C, i64 transposed) {
    TOKEN_LOOP_SETUP
    __shared__ float red[4][20];
    const E *x = (const E *)xv + tok * 4 * C, *f = (const E *)fv + tok * C, *g = (const E *)gv + tok * 4 * C;
    E *dx = (E *)dxv + tok * 4 * C, *df = (E *)dfv + tok * C;
    float sm[16], sp[4];
#pragma unroll
    for (int i = 0; i < 16; i++) sm[i] = 0.f;
#pragma unroll
    for (int i = 0; i < 4; i++) sp[i] = 0.f;
    if (live) {
        float m[16], p[4]; // m[o*4+i]
        {
            float w[16];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float4 v = __ldg((const float4 *)H + tok * 4 + i);
                w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
            }
#pragma unroll
            for (int o = 0; o < 4; o++)
#pragma unroll
                for (int i = 0; i < 4; i++) m[o * 4 + i] = transposed ? w[i * 4 + o] : w[o * 4 + i];
            const float4 v = __ldg((const float4 *)h + tok);
            p[0] = v.x, p[1] = v.y, p[2] = v.z, p[3] = v.w;
        }
        for (i64 c = (i64)threadIdx.x * V; c < C; c += (i64)blockDim.x * V) {
            typename A::raw rg[4], rx[4], rf;
#pragma unroll
            for (int o = 0; o < 4; o++) rg[o] = A::load(g + o * C + c);
            rf = A::load(f + c);
#pragma unroll
            for (int i = 0; i < 4; i++) rx[i] = A::load(x + i * C + c);
            float gg[4][V], t[V], d[V];
#pragma unroll
            for (int o = 0; o < 4; o++) A::unpack(rg[o], gg[o]);
            A::unpack(rf, t);
#pragma unroll
            for (int e = 0; e < V; e++) d[e] = 0.f;
#pragma unroll
            for (int o = 0; o < 4; o++)
#pragma unroll
                for (int e = 0; e < V; e++) {
                    d[e] = fmaf(p[o], gg[o][e], d[e]);
                    sp[o] = fmaf(gg[o][e], t[e], sp[o]);
                }
            if (dfv) A::store(df + c, d);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                A::unpack(rx[i], t);
#pragma unroll
                for (int e = 0; e < V; e++) d[e] = 0.f;
#pragma unroll
                for (int o = 0; o < 4; o++)
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        d[e] = fmaf(m[o * 4 + i], gg[o][e], d[e]);
                        sm[o * 4 + i] = fmaf(gg[o][e], t[e], sm[o * 4 + i]);
                    }
                if (dxv) A::store(dx + i * C + c, d);
            }
        }
    }
    const int lane = threadIdx.x & 31, warps = blockDim.x / 32, warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
    const float vm = halve16(sm), vp = halve4(sp);
    if (lane % 2 == 0) red[warp][lane / 2] = vm;
    if (lane % 8 == 0) red[warp][16 + lane / 8] = vp;
    __syncthreads();
    if (threadIdx.x < 20 && live) {
        float t = 0.f;
        for (int q = 0; q < warps; q++) t += red[threadIdx.y * warps + q][threadIdx.x];
        const int k = threadIdx.x;
        if (k >= 16) {
            if (dh) dh[tok * 4 + k - 16] = t;
        } else if (dH) {
            dH[tok * 16 + (transposed ? (k & 3) * 4 + (k >> 2) : k)] = t;
        }
    }
}

// As above for any n. blockIdx.y: rows 4y to 4y+3 of dH and dh, streams 4y to 4y+3 of dx; df with the first.
template <class T, bool AL>
__device__ __forceinline__ void postres_bwdn(const void *xv, const void *fv, const float *H, const float *h, const void *gv, void *dxv, void *dfv,
                                             float *dH, float *dh, i64 N, i64 n, i64 C, i64 transposed) {
    TOKEN_LOOP_SETUP
    __shared__ float red[4][68];
    const E *x = (const E *)xv + tok * n * C, *f = (const E *)fv + tok * C, *g = (const E *)gv + tok * n * C;
    E *dx = (E *)dxv + tok * n * C, *df = (E *)dfv + tok * C;
    const i64 so = transposed ? 1 : n, si = transposed ? n : 1;
    const int q0 = blockIdx.y * 4;
    const float *Ht = H + tok * n * n;
    float sm0[16], sm1[16], sm2[16], sm3[16], sp[4] = {0.f, 0.f, 0.f, 0.f}; // one array each: together they would live in memory
#pragma unroll
    for (int i = 0; i < 16; i++) sm0[i] = sm1[i] = sm2[i] = sm3[i] = 0.f;
    if (live) {
        for (i64 c = (i64)threadIdx.x * V; c < C; c += (i64)blockDim.x * V) {
            float a[4][V], d[V], t[V];
#pragma unroll
            for (int e = 0; e < V; e++) a[0][e] = a[1][e] = a[2][e] = a[3][e] = d[e] = 0.f;
            for (i64 o = 0; o < n; o++) {
                A::unpack(A::load_again(g + o * C + c), t);
                const float p = __ldg(h + tok * n + o);
#pragma unroll
                for (int e = 0; e < V; e++) d[e] = fmaf(p, t[e], d[e]);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (q0 + i < n) {
                        const float w = __ldg(Ht + o * so + (q0 + i) * si);
#pragma unroll
                        for (int e = 0; e < V; e++) a[i][e] = fmaf(w, t[e], a[i][e]);
                    }
            }
            if (dfv && q0 == 0) A::store(df + c, d);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (dxv && q0 + i < n) A::store(dx + (q0 + i) * C + c, a[i]);
            A::unpack(A::load_again(f + c), t);
#pragma unroll
            for (int o = 0; o < 4; o++) {
                if (q0 + o < n) {
                    A::unpack(A::load_again(g + (q0 + o) * C + c), a[o]);
                } else {
#pragma unroll
                    for (int e = 0; e < V; e++) a[o][e] = 0.f;
                }
#pragma unroll
                for (int e = 0; e < V; e++) sp[o] = fmaf(a[o][e], t[e], sp[o]);
            }
#pragma unroll
            for (int i = 0; i < 16; i++)
                if (i < n) {
                    A::unpack(A::load_again(x + i * C + c), t);
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        sm0[i] = fmaf(a[0][e], t[e], sm0[i]), sm1[i] = fmaf(a[1][e], t[e], sm1[i]);
                        sm2[i] = fmaf(a[2][e], t[e], sm2[i]), sm3[i] = fmaf(a[3][e], t[e], sm3[i]);
                    }
                }
        }
    }
    const int lane = threadIdx.x & 31, warps = blockDim.x / 32, warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
    const float rows[4] = {halve16(sm0), halve16(sm1), halve16(sm2), halve16(sm3)};
    const float v = halve4(sp);
#pragma unroll
    for (int o = 0; o < 4; o++)
        if (lane % 2 == 0) red[warp][o * 16 + lane / 2] = rows[o];
    if (lane % 8 == 0) red[warp][64 + lane / 8] = v;
    __syncthreads();
    for (int k = threadIdx.x; k < 68 && live; k += blockDim.x) {
        float t = 0.f;
        for (int q = 0; q < warps; q++) t += red[threadIdx.y * warps + q][k];
        if (k >= 64) {
            if (dh && q0 + k - 64 < n) dh[tok * n + q0 + k - 64] = t;
        } else {
            const int o = q0 + k / 16, i = k % 16;
            if (dH && o < n && i < n) dH[tok * n * n + o * so + i * si] = t;
        }
    }
}

template <class T, bool AL>
__device__ __forceinline__ void streams_fwd(const void *xv, void *outv, i64 N, i64 n, i64 C) {
    TOKEN_LOOP_SETUP
    if (!live) return;
    const E *x = (const E *)xv + tok * C;
    E *out = (E *)outv + tok * n * C;
    for (i64 c = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * V; c < C; c += (i64)gridDim.y * blockDim.x * V) {
        const typename A::raw r = A::load(x + c);
        for (i64 i = 0; i < n; i++) *(typename A::raw *)(out + i * C + c) = r;
    }
}

template <class T, bool AL>
__device__ __forceinline__ void streams_bwd(const void *gv, void *dxv, i64 N, i64 n, i64 C) {
    TOKEN_LOOP_SETUP
    if (!live) return;
    const E *g = (const E *)gv + tok * n * C;
    E *dx = (E *)dxv + tok * C;
    for (i64 c = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * V; c < C; c += (i64)gridDim.y * blockDim.x * V) {
        float s[V], f[V];
        A::unpack(A::load(g + c), s);
#pragma unroll 4
        for (i64 i = 1; i < n; i++) {
            A::unpack(A::load(g + i * C + c), f);
#pragma unroll
            for (int e = 0; e < V; e++) s[e] += f[e];
        }
        A::store(dx + c, s);
    }
}

#define APPLY_N(t, T, nn, FOUR, suffix, AL)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) mhc_pre_fwd_##t##_##nn##suffix(const void *x, const float *h, void *out,       \
                                                                                     i64 N, i64 n, i64 C) {                          \
        pre_fwd<T, FOUR, AL>(x, h, out, N, FOUR ? 4 : n, C);                                                                         \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(128) mhc_pre_bwd_##t##_##nn##suffix(const void *x, const float *h, const void *g,   \
                                                                                     void *dx, float *dh, i64 N, i64 n, i64 C) {     \
        pre_bwd<T, FOUR, AL>(x, h, g, dx, dh, N, FOUR ? 4 : n, C);                                                                   \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, FOUR ? 3 : 1) mhc_postres_fwd_##t##_##nn##suffix(                                            \
        const void *x, const void *f, const float *H, const float *h, void *out, i64 N, i64 n, i64 C, i64 transposed) {              \
        postres_fwd<T, FOUR, AL>(x, f, H, h, out, N, FOUR ? 4 : n, C, transposed);                                                   \
    }
#define APPLY(t, T, suffix, AL)                                                                                                      \
    APPLY_N(t, T, n4, true, suffix, AL)                                                                                              \
    APPLY_N(t, T, n16, false, suffix, AL)                                                                                            \
    extern "C" __global__ void __launch_bounds__(128, 4) mhc_postres_bwd_##t##_n4##suffix(                                           \
        const void *x, const void *f, const float *H, const float *h, const void *g, void *dx, void *df, float *dH, float *dh,       \
        i64 N, i64 n, i64 C, i64 transposed) {                                                                                       \
        postres_bwd4<T, AL>(x, f, H, h, g, dx, df, dH, dh, N, C, transposed);                                                        \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(128) mhc_postres_bwd_##t##_n16##suffix(                                             \
        const void *x, const void *f, const float *H, const float *h, const void *g, void *dx, void *df, float *dH, float *dh,       \
        i64 N, i64 n, i64 C, i64 transposed) {                                                                                       \
        postres_bwdn<T, AL>(x, f, H, h, g, dx, df, dH, dh, N, n, C, transposed);                                                     \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) mhc_streams_fwd_##t##suffix(const void *x, void *out, i64 N, i64 n, i64 C) {   \
        streams_fwd<T, AL>(x, out, N, n, C);                                                                                         \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) mhc_streams_bwd_##t##suffix(const void *g, void *dx, i64 N, i64 n, i64 C) {    \
        streams_bwd<T, AL>(g, dx, N, n, C);                                                                                          \
    }
APPLY(bf16, BF16, , true)
APPLY(bf16, BF16, _any, false)
APPLY(f16, F16, , true)
APPLY(f16, F16, _any, false)
APPLY(f32, F32, , true)
APPLY(f32, F32, _any, false)

// in, out; types, count; whether both are 16-byte aligned. Eight elements a thread where they are.
extern "C" __global__ void __launch_bounds__(256) mhc_cast(const void *in, void *out, i64 from, i64 to, i64 count, i64 aligned) {
    const i64 step = (i64)gridDim.x * blockDim.x, id = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 vecs = aligned ? count / 8 : 0;
    for (i64 v = id; v < vecs; v += step) {
        float f[8];
        if (from == TYPE_F32) {
            float a[4], b[4];
            F32::unpack(ld_stream((const float *)in + v * 8), a);
            F32::unpack(ld_stream((const float *)in + v * 8 + 4), b);
#pragma unroll
            for (int e = 0; e < 4; e++) f[e] = a[e], f[4 + e] = b[e];
        } else if (from == TYPE_BF16) {
            BF16::unpack(ld_stream((const u16 *)in + v * 8), f);
        } else {
            F16::unpack(ld_stream((const u16 *)in + v * 8), f);
        }
        if (to == TYPE_F32) {
            float *p = (float *)out + v * 8;
            *(float4 *)p = make_float4(f[0], f[1], f[2], f[3]);
            *(float4 *)(p + 4) = make_float4(f[4], f[5], f[6], f[7]);
        } else {
            *(uint4 *)((u16 *)out + v * 8) = to == TYPE_BF16 ? BF16::pack(f) : F16::pack(f);
        }
    }
    for (i64 i = vecs * 8 + id; i < count; i += step) store_any(out, i, (int)to, load_any(in, i, (int)from));
}

// p, bytes: zeros.
extern "C" __global__ void __launch_bounds__(256) mhc_zero(void *p, i64 bytes) {
    const i64 step = (i64)gridDim.x * blockDim.x, id = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 vecs = ((unsigned long long)p & 15) ? 0 : bytes / 16;
    for (i64 v = id; v < vecs; v += step) ((uint4 *)p)[v] = make_uint4(0, 0, 0, 0);
    for (i64 i = vecs * 16 + id; i < bytes; i += step) ((char *)p)[i] = 0;
}
