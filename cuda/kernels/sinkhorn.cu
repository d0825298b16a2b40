// Standalone Sinkhorn, forward and backward, for matrices [batch, n, n] of float32. See sinkhorn.cuh for what is computed.
#include "sinkhorn.cuh"

// load_matrix and store_matrix: S*S floats of matrix m; 16 bytes at a time where S is 4.
template <int S>
__device__ __forceinline__ void load_matrix(const float *a, i64 m, float (&x)[S * S]) {
    if constexpr (S == 4) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const float4 v = ((const float4 *)a)[m * 4 + q];
            x[4 * q] = v.x, x[4 * q + 1] = v.y, x[4 * q + 2] = v.z, x[4 * q + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < S * S; i++) x[i] = a[m * S * S + i];
    }
}

template <int S>
__device__ __forceinline__ void store_matrix(float *a, i64 m, const float (&x)[S * S]) {
    if constexpr (S == 4) {
#pragma unroll
        for (int q = 0; q < 4; q++) ((float4 *)a)[m * 4 + q] = make_float4(x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < S * S; i++) a[m * S * S + i] = x[i];
    }
}

template <int S>
__device__ __forceinline__ void sinkhorn_fwd(const float *a, float *out, i64 batch, int start, int steps, float eps) {
    for (i64 m = (i64)blockIdx.x * blockDim.x + threadIdx.x; m < batch; m += (i64)gridDim.x * blockDim.x) {
        float x[S * S], p[S * S];
        load_matrix<S>(a, m, x);
        sink_forward<S>(x, p, start, steps, eps);
        store_matrix<S>(out, m, p);
    }
}

template <int S>
__device__ __forceinline__ void sinkhorn_bwd(const float *a, const float *gout, float *da, float4 *hist, i64 batch, int start, int steps, float eps) {
    extern __shared__ float4 sh4[];
    float4 *h = (hist ? hist + (i64)blockIdx.x * (steps + 4) * 32 : sh4) + threadIdx.x;
    for (i64 m = (i64)blockIdx.x * 32 + threadIdx.x; m < batch; m += (i64)gridDim.x * 32) {
        float x[S * S], g[S * S];
        load_matrix<S>(a, m, x);
        load_matrix<S>(gout, m, g);
        sink_backward<S>(x, g, start, steps, eps, h, 32);
        store_matrix<S>(da, m, g);
    }
}

// fwd: a, out; batch, n, start, steps; eps. bwd: a, g, da, hist (steps + 4 slots of 16 bytes a thread, 0: in shared memory); the
// same. A thread a matrix; n = 4 wants 16-byte alignment.
#define SINKHORN(S)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(128) mhc_sinkhorn_fwd_n##S(const float *a, float *out, i64 batch, i64 n,         \
                                                                            i64 start, i64 steps, double eps) {                   \
        sinkhorn_fwd<S>(a, out, batch, (int)start, (int)steps, (float)eps);                                                       \
    }                                                                                                                             \
    extern "C" __global__ void __launch_bounds__(32) mhc_sinkhorn_bwd_n##S(const float *a, const float *g, float *da,             \
                                                                           float4 *hist, i64 batch, i64 n, i64 start, i64 steps,  \
                                                                           double eps) {                                          \
        sinkhorn_bwd<S>(a, g, da, hist, batch, (int)start, (int)steps, (float)eps);                                               \
    }
SINKHORN(1)
SINKHORN(2)
SINKHORN(3)
SINKHORN(4)

// As above for any n. Shared: a matrix with padded rows for each group of lanes.
extern "C" __global__ void __launch_bounds__(128) mhc_sinkhorn_fwd(const float *a, float *out, i64 batch, i64 n, i64 start, i64 steps, double eps) {
    extern __shared__ float sh[];
    SinkGroup s;
    s.n = (int)n, s.pitch = s.n | 1, s.lanes = sink_groups(s.n), s.li = threadIdx.x % s.lanes;
    const int slot = threadIdx.x / s.lanes, slots = blockDim.x / s.lanes;
    float *p = sh + slot * s.n * s.pitch;
    for (i64 base = (i64)blockIdx.x * slots; base < batch; base += (i64)gridDim.x * slots) {
        const i64 m = base + slot;
        sinkn_forward(s, m < batch ? a + m * n * n : (const float *)0, p, (int)start, (int)steps, (float)eps);
        if (m < batch)
            for (int k = s.li; k < s.n * s.n; k += s.lanes) out[m * n * n + k] = p[k / s.n * s.pitch + k % s.n];
        __syncwarp();
    }
}

// As above for any n. hist: steps*n floats a group of lanes, 0: in shared memory behind the three matrices of each group.
extern "C" __global__ void __launch_bounds__(128) mhc_sinkhorn_bwd(const float *a, const float *gout, float *da, float *hist, i64 batch, i64 n,
                                                                    i64 start, i64 steps, double eps) {
    extern __shared__ float sh[];
    SinkGroup s;
    s.n = (int)n, s.pitch = s.n | 1, s.lanes = sink_groups(s.n), s.li = threadIdx.x % s.lanes;
    const int slot = threadIdx.x / s.lanes, slots = blockDim.x / s.lanes, size = s.n * s.pitch;
    float *x = sh + slot * 3 * size, *g = x + size, *y = g + size;
    float *h = hist ? hist + ((i64)blockIdx.x * slots + slot) * steps * n : sh + slots * 3 * size + slot * steps * n;
    for (i64 base = (i64)blockIdx.x * slots; base < batch; base += (i64)gridDim.x * slots) {
        const i64 m = base + slot;
        sinkn_load(s, m < batch ? a + m * n * n : (const float *)0, x);
        sinkn_load(s, m < batch ? gout + m * n * n : (const float *)0, g);
        __syncwarp();
        sinkn_backward(s, x, g, y, (int)start, (int)steps, (float)eps, h);
        if (m < batch)
            for (int k = s.li; k < s.n * s.n; k += s.lanes) da[m * n * n + k] = g[k / s.n * s.pitch + k % s.n];
        __syncwarp();
    }
}
