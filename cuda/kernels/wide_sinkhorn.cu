// Standalone Sinkhorn of matrices [batch, n, n] of up to S = 8 or 16 rows: a group of S lanes a matrix. See sinkhorn_lines.cuh.
#include "sinkhorn_lines.cuh"

template <int S, bool BACKWARD>
__device__ __forceinline__ void wide_sinkhorn(const float *a, const float *g, float *out, float *hist, i64 batch, int n, int start, int steps, float eps) {
    extern __shared__ float4 sh4[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, per = blockDim.x / S;
    const Line l = {(int)threadIdx.x % S, n};
    float *h = (hist ? hist + (i64)blockIdx.x * blockDim.x * steps : (float *)sh4) + warp * steps * 32;
    for (i64 base = (i64)blockIdx.x * per; base < batch; base += (i64)gridDim.x * per) {
        const i64 m = base + threadIdx.x / S, at = min(m, batch - 1) * n * n;
        float arow[S], acol[S], row[S], col[S];
        lines_load<S>(l, true, a + at, -INFINITY, arow, acol);
        if (BACKWARD) {
            lines_load<S>(l, true, g + at, 0.f, row, col);
            lines_backward<S>(l, arow, acol, row, col, start, steps, eps, h + lane, h + lane / S * S);
        } else {
            lines_forward<S>(l, arow, acol, row, col, start, steps, eps);
        }
        const bool columns = BACKWARD && start == START_EXP; // where the result is
        __syncwarp();
#pragma unroll
        for (int k = 0; k < S; k++)
            if (m < batch && l.in(k)) out[at + (columns ? k * n + l.li : l.li * n + k)] = columns ? col[k] : row[k];
    }
}

// fwd: a, out; batch, n, start, steps; eps. bwd: a, g, da, hist (steps floats a thread, 0: in shared memory); the same. Block: 128.
#define WIDE_SINKHORN(S)                                                                                                           \
    extern "C" __global__ void __launch_bounds__(128) mhc_wide_sinkhorn_fwd_n##S(const float *a, float *out, i64 batch, i64 n,     \
                                                                                 i64 start, i64 steps, double eps) {               \
        wide_sinkhorn<S, false>(a, 0, out, 0, batch, (int)n, (int)start, (int)steps, (float)eps);                                  \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(128) mhc_wide_sinkhorn_bwd_n##S(const float *a, const float *g, float *da, float *hist, \
                                                                                 i64 batch, i64 n, i64 start, i64 steps, double eps) { \
        wide_sinkhorn<S, true>(a, g, da, hist, batch, (int)n, (int)start, (int)steps, (float)eps);                                 \
    }
WIDE_SINKHORN(8)
WIDE_SINKHORN(16)
