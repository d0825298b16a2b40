// Runs the kernels of Sinkhorn on the host, for machines without a GPU: each thread of a block is a coroutine that waits, at a
// shuffle or a barrier, for the other lanes of its warp.
//
// Input, until it ends: the name of a kernel (32 bytes), then grid, block, batch, n, start, steps as int32, eps as float64, a
// and, for a backward, g. Output: the result. Everything is in the machine's byte order.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n)
using std::max;
using std::min;

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct dim { unsigned x; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <class To, class From>
To bits(From v) {
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
inline float __uint_as_float(unsigned v) { return bits<float>(v); }
inline float __int_as_float(unsigned v) { return bits<float>(v); }
inline unsigned __float_as_uint(float v) { return bits<unsigned>(v); }
template <class T>
T __ldg(const T *p) { return *p; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline size_t __cvta_generic_to_shared(const void *) { abort(); }

static dim threadIdx, blockIdx, blockDim, gridDim;

// A warp: who waits, and what each lane shows the others.
struct Warp {
    int waiting, turn;
    unsigned shown[32];
};
static std::vector<Warp> warps;
static std::vector<ucontext_t> lanes;
static ucontext_t scheduler;

static void yield() {
    const unsigned me = threadIdx.x;
    swapcontext(&lanes[me], &scheduler);
    threadIdx.x = me;
}

void __syncwarp() {
    Warp &w = warps[threadIdx.x / 32];
    const int turn = w.turn;
    if (++w.waiting == 32) w.waiting = 0, w.turn++;
    while (w.turn == turn) yield();
}

static unsigned exchange(unsigned v, int from) {
    Warp &w = warps[threadIdx.x / 32];
    w.shown[threadIdx.x % 32] = v;
    __syncwarp();
    v = w.shown[from];
    __syncwarp();
    return v;
}
template <class T>
T __shfl_sync(unsigned, T v, int lane, int width = 32) {
    const int me = threadIdx.x % 32;
    return bits<T>(exchange(bits<unsigned>(v), me / width * width + lane % width));
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int distance, int = 32) { return bits<T>(exchange(bits<unsigned>(v), threadIdx.x % 32 ^ distance)); }
unsigned __ballot_sync(unsigned, bool v) {
    Warp &w = warps[threadIdx.x / 32];
    w.shown[threadIdx.x % 32] = v;
    __syncwarp();
    unsigned all = 0;
    for (int i = 0; i < 32; i++) all |= w.shown[i] << i;
    __syncwarp();
    return all;
}
bool __any_sync(unsigned mask, bool v) { return __ballot_sync(mask, v); }

float history[1 << 16], sh[1 << 16];
float4 sh4[1 << 14];

#include "../sinkhorn.cu"
#include "../wide_sinkhorn.cu"

typedef void (*Forward)(const float *, float *, i64, i64, i64, i64, double);
typedef void (*Backward)(const float *, const float *, float *, float *, i64, i64, i64, i64, double);
static const struct {
    const char *name;
    Forward forward;
    Backward backward;
} kernels[] = {
#define KERNELS(prefix, suffix) {#prefix "_fwd" #suffix, prefix##_fwd##suffix, 0}, {#prefix "_bwd" #suffix, 0, prefix##_bwd##suffix},
    KERNELS(mhc_sinkhorn, _n1) KERNELS(mhc_sinkhorn, _n2) KERNELS(mhc_sinkhorn, _n3) KERNELS(mhc_sinkhorn, _n4)
    KERNELS(mhc_sinkhorn, ) KERNELS(mhc_wide_sinkhorn, _n8) KERNELS(mhc_wide_sinkhorn, _n16)
};

static struct {
    Forward forward;
    Backward backward;
    std::vector<float> a, g, out, hist;
    int batch, n, start, steps;
    double eps;
} job;
static int running;

static void thread() {
    if (job.forward)
        job.forward(job.a.data(), job.out.data(), job.batch, job.n, job.start, job.steps, job.eps);
    else
        job.backward(job.a.data(), job.g.data(), job.out.data(), job.hist.data(), job.batch, job.n, job.start, job.steps, job.eps);
    running--;
}

static void launch(unsigned grid, unsigned block) {
    std::vector<std::vector<char>> stacks(block, std::vector<char>(64 << 10));
    gridDim.x = grid, blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) {
        warps.assign(block / 32, Warp{});
        lanes.assign(block, ucontext_t{});
        running = block;
        for (unsigned i = 0; i < block; i++) {
            getcontext(&lanes[i]);
            lanes[i].uc_stack.ss_sp = stacks[i].data(), lanes[i].uc_stack.ss_size = stacks[i].size(), lanes[i].uc_link = &scheduler;
            makecontext(&lanes[i], thread, 0);
        }
        std::vector<int> left(block, 1);
        while (running > 0)
            for (unsigned i = 0; i < block; i++) {
                if (!left[i]) continue;
                const int before = running;
                threadIdx.x = i;
                swapcontext(&scheduler, &lanes[i]);
                if (running < before) left[i] = 0;
            }
    }
}

int main() {
    char name[32];
    int v[6];
    auto read = [](void *p, size_t n) {
        if (fread(p, 1, n, stdin) != n) exit(3);
    };
    while (fread(name, 1, 32, stdin) == 32) {
        read(v, sizeof v), read(&job.eps, 8);
        job.batch = v[2], job.n = v[3], job.start = v[4], job.steps = v[5];
        job.forward = 0, job.backward = 0;
        for (auto &k : kernels)
            if (!strncmp(name, k.name, 32)) job.forward = k.forward, job.backward = k.backward;
        if (!job.forward && !job.backward) return 4;
        const size_t size = (size_t)job.batch * job.n * job.n;
        job.a.resize(size), job.out.assign(size, 0);
        read(job.a.data(), size * 4);
        if (job.backward) {
            job.g.resize(size), job.hist.resize((size_t)v[0] * v[1] * job.steps * 64);
            read(job.g.data(), size * 4);
        }
        launch(v[0], v[1]);
        fwrite(job.out.data(), 4, size, stdout);
    }
    fflush(stdout);
}
