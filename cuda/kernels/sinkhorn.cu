// Standalone Sinkhorn, forward and backward, for matrices [batch, n, n] of float32. See sinkhorn.cuh for what is computed.
#include "token.cuh"

// sinkhorn_small: forward, or backward where there is g, of matrices of S rows, a quad each. Shared, for backward: the history of all
// warps.
template <int S, bool BACKWARD>
__device__ __forceinline__ void sinkhorn_small(const float *a, const float *g, float *out, i64 batch, int start, int steps, float eps) {
    extern __shared__ float history[];
    const int q = min((int)threadIdx.x & 3, S - 1);
    const i64 per = blockDim.x / 4;
    for (i64 base = blockIdx.x * per; base < batch; base += gridDim.x * per) {
        const i64 m = base + threadIdx.x / 4, at = (min(m, batch - 1) * S + q) * S;
        float x[4], y[4];
        quad_load<S>(a + at, x);
        if constexpr (BACKWARD) {
            quad_load<S>(g + at, y);
            sink_backward<S>(x, y, start, steps, eps, history + uniform_warp() * (steps + 2) * 32);
        } else {
            sink_forward<S>(x, y, start, steps, eps);
        }
        if (m < batch && (threadIdx.x & 3) < S) quad_store<S>(out + at, y);
    }
}

// fwd: a, out; batch, n, start, steps; eps. bwd: a, g, da, hist (not used); the same. n = 4 wants 16-byte alignment. Block: 128.
#define SINKHORN(S)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(128) mhc_sinkhorn_fwd_n##S(const float *a, float *out, i64 batch, i64 n,         \
                                                                            i64 start, i64 steps, double eps) {                   \
        sinkhorn_small<S, false>(a, 0, out, batch, (int)start, (int)steps, (float)eps);                                           \
    }                                                                                                                             \
    extern "C" __global__ void __launch_bounds__(128) mhc_sinkhorn_bwd_n##S(const float *a, const float *g, float *da,            \
                                                                            float *hist, i64 batch, i64 n, i64 start, i64 steps,  \
                                                                            double eps) {                                         \
        sinkhorn_small<S, true>(a, g, da, batch, (int)start, (int)steps, (float)eps);                                             \
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
