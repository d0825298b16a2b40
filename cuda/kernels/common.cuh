// Access types, conversions and tensor-core wrappers that every kernel shares.
//
// - Storage types are tags (BF16, F16, F32). A thread touches memory 16 bytes at a time, as a uint4 of VEC elements.
// - x is read once: those loads skip the L1. Results that no kernel of ours reads again are stored with the streaming hint.
// - Tensor-core products take bfloat16 operands. Any float is split into a high and a low bfloat16 part (16 bits of
//   mantissa); a bfloat16 is its own high part, and a float16 is exactly the sum of two.
// - Kernel arguments are pointers, long long and double only: every argument is one 8-byte slot.
#pragma once

typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;

// Storage types, numbered as in cuda/plan.
enum { TYPE_F32 = 0, TYPE_BF16 = 1, TYPE_F16 = 2 };

__device__ __forceinline__ float bf16_lo(u32 w) { return __uint_as_float(w << 16); }
__device__ __forceinline__ float bf16_hi(u32 w) { return __uint_as_float(w & 0xffff0000u); }

// pack_bf16 rounds two floats to nearest even; lo takes the lower half of the word.
__device__ __forceinline__ u32 pack_bf16(float lo, float hi) {
    u32 w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
    return w;
}

__device__ __forceinline__ u16 f32_to_f16(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

__device__ __forceinline__ float f16_to_f32(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

__device__ __forceinline__ u32 pack_f16(float lo, float hi) {
    u32 w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
    return w;
}

// split2 gives the high and low bfloat16 parts of two floats.
__device__ __forceinline__ void split2(float a, float b, u32 &hi, u32 &lo) {
    hi = pack_bf16(a, b);
    lo = pack_bf16(a - bf16_lo(hi), b - bf16_hi(hi));
}

__device__ __forceinline__ float round_bf16(float a) { return bf16_lo(pack_bf16(a, 0.f)); }

struct BF16 {
    typedef u16 elem;
    static const int VEC = 8;     // elements of 16 bytes
    static const int PARTS = 1;   // bfloat16 parts of an element in the forward; the backward takes two at most
    static const int DXPARTS = 1; // bfloat16 parts of phi in the product that gives dx
    static const int TYPE = TYPE_BF16;
    static __device__ __forceinline__ float get(u16 e) { return __uint_as_float((u32)e << 16); }
    static __device__ __forceinline__ void pair(const u16 *p, u16 (&e)[2]) { // two aligned neighbours
        const u32 w = __ldg((const u32 *)p);
        e[0] = (u16)w, e[1] = (u16)(w >> 16);
    }
    static __device__ __forceinline__ u16 put(float f) { return (u16)pack_bf16(f, 0.f); }
    static __device__ __forceinline__ void unpack(uint4 v, float (&f)[8]) {
        f[0] = bf16_lo(v.x), f[1] = bf16_hi(v.x), f[2] = bf16_lo(v.y), f[3] = bf16_hi(v.y);
        f[4] = bf16_lo(v.z), f[5] = bf16_hi(v.z), f[6] = bf16_lo(v.w), f[7] = bf16_hi(v.w);
    }
    static __device__ __forceinline__ uint4 pack(const float (&f)[8]) {
        return make_uint4(pack_bf16(f[0], f[1]), pack_bf16(f[2], f[3]), pack_bf16(f[4], f[5]), pack_bf16(f[6], f[7]));
    }
};

struct F16 {
    typedef u16 elem;
    static const int VEC = 8;
    static const int PARTS = 2;
    static const int DXPARTS = 1;
    static const int TYPE = TYPE_F16;
    static __device__ __forceinline__ float get(u16 e) { return f16_to_f32(e); }
    static __device__ __forceinline__ void pair(const u16 *p, u16 (&e)[2]) { BF16::pair(p, e); }
    static __device__ __forceinline__ u16 put(float f) { return f32_to_f16(f); }
    static __device__ __forceinline__ void unpack(uint4 v, float (&f)[8]) {
        f[0] = f16_to_f32((u16)v.x), f[1] = f16_to_f32((u16)(v.x >> 16)), f[2] = f16_to_f32((u16)v.y), f[3] = f16_to_f32((u16)(v.y >> 16));
        f[4] = f16_to_f32((u16)v.z), f[5] = f16_to_f32((u16)(v.z >> 16)), f[6] = f16_to_f32((u16)v.w), f[7] = f16_to_f32((u16)(v.w >> 16));
    }
    static __device__ __forceinline__ uint4 pack(const float (&f)[8]) {
        return make_uint4(pack_f16(f[0], f[1]), pack_f16(f[2], f[3]), pack_f16(f[4], f[5]), pack_f16(f[6], f[7]));
    }
};

struct F32 {
    typedef float elem;
    static const int VEC = 4;
    static const int PARTS = 3;
    static const int DXPARTS = 2;
    static const int TYPE = TYPE_F32;
    static __device__ __forceinline__ float get(float e) { return e; }
    static __device__ __forceinline__ void pair(const float *p, float (&e)[2]) {
        const float2 v = __ldg((const float2 *)p);
        e[0] = v.x, e[1] = v.y;
    }
    static __device__ __forceinline__ float put(float f) { return f; }
    static __device__ __forceinline__ void unpack(uint4 v, float (&f)[4]) {
        f[0] = __uint_as_float(v.x), f[1] = __uint_as_float(v.y), f[2] = __uint_as_float(v.z), f[3] = __uint_as_float(v.w);
    }
    static __device__ __forceinline__ uint4 pack(const float (&f)[4]) {
        return make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), __float_as_uint(f[3]));
    }
};

// split_pair gives P bfloat16 parts of two floats, the highest first: 8 bits of mantissa each.
template <int P>
__device__ __forceinline__ void split_pair(float a, float b, u32 (&w)[P]) {
#pragma unroll
    for (int p = 0; p < P; p++) {
        w[p] = pack_bf16(a, b);
        if (p + 1 < P) a -= bf16_lo(w[p]), b -= bf16_hi(w[p]);
    }
}

// parts splits 16 bytes into pairs of bfloat16: VEC/2 words of P parts each. A bfloat16 is its own only part.
template <class T, int P>
__device__ __forceinline__ void parts(uint4 v, u32 (&w)[T::VEC / 2][P]) {
    if constexpr (P == 1 && T::PARTS == 1) {
        w[0][0] = v.x, w[1][0] = v.y, w[2][0] = v.z, w[3][0] = v.w;
    } else {
        float f[T::VEC];
        T::unpack(v, f);
#pragma unroll
        for (int i = 0; i < T::VEC / 2; i++) split_pair<P>(f[2 * i], f[2 * i + 1], w[i]);
    }
}

// global memory

__device__ __forceinline__ uint4 ld_stream(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ void st_stream(void *p, uint4 v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// load_row reads VEC elements of a row from column col, zeros past the end of the row (or everywhere, if !live). AL promises
// that 16-byte accesses are aligned and that the row ends at a multiple of VEC.
template <class T, bool AL>
__device__ __forceinline__ uint4 load_row(const typename T::elem *row, i64 col, i64 end, bool live) {
    if constexpr (AL) {
        return live && col < end ? ld_stream(row + col) : make_uint4(0, 0, 0, 0);
    } else {
        typename T::elem e[T::VEC];
#pragma unroll
        for (int i = 0; i < T::VEC; i++) e[i] = live && col + i < end ? row[col + i] : (typename T::elem)0;
        return *(uint4 *)e;
    }
}

template <class T, bool AL>
__device__ __forceinline__ void store_row(typename T::elem *row, i64 col, i64 end, bool live, uint4 v) {
    if constexpr (AL) {
        if (live && col < end) st_stream(row + col, v);
    } else {
        typename T::elem e[T::VEC];
        *(uint4 *)e = v;
#pragma unroll
        for (int i = 0; i < T::VEC; i++)
            if (live && col + i < end) row[col + i] = e[i];
    }
}

// load_any and store_any take the type at run time: for phi and its gradient.
__device__ __forceinline__ float load_any(const void *p, i64 i, int type) {
    if (type == TYPE_F32) return ((const float *)p)[i];
    u16 e = ((const u16 *)p)[i];
    return type == TYPE_BF16 ? BF16::get(e) : F16::get(e);
}

__device__ __forceinline__ void store_any(void *p, i64 i, int type, float f) {
    if (type == TYPE_F32)
        ((float *)p)[i] = f;
    else
        ((u16 *)p)[i] = type == TYPE_BF16 ? BF16::put(f) : F16::put(f);
}

// with_type calls f with the tag of a type, so that f's loads need no branches between them.
template <class F>
__device__ __forceinline__ void with_type(int type, F f) {
    if (type == TYPE_BF16)
        f(BF16());
    else if (type == TYPE_F32)
        f(F32());
    else
        f(F16());
}

// Tiles of 16 rows of 128 bytes in shared memory: global memory is read and written in whole lines, eight lanes a row, while the
// tensor cores want rows g and g + 8 and chunks t and 4 + t of lane 4g+t. Odd rows swap their halves, so neither way meets a bank
// conflict. tile_line is the offset of a lane's 16 bytes of rows lane/8 + 4q (+ 512 q), tile_own that of its own row g, chunk t
// (chunk 4 + t: ^ 64; row g + 8: + 1024).
__device__ __forceinline__ u32 tile_line(int lane) { return (lane >> 3) * 128 + ((lane & 7) ^ ((lane >> 3 & 1) << 2)) * 16; }
__device__ __forceinline__ u32 tile_own(int lane) { return (lane >> 2) * 128 + ((lane & 3) | ((lane >> 2 & 1) << 2)) * 16; }

__device__ __forceinline__ uint4 ld_shared(u32 p) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(p) : "memory");
    return v;
}
__device__ __forceinline__ float ld_shared_f32(u32 p) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(p) : "memory");
    return v;
}
__device__ __forceinline__ void st_shared(u32 p, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// tensor cores

// mma16816 adds A [16 x 16] B [16 x 8] to C, mma1688 A [16 x 8] B [8 x 8]: bfloat16 operands, float32 sums.
__device__ __forceinline__ void mma16816(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma1688(float (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

// transpose8 transposes an 8 x 8 matrix of 16-bit elements that lies across a warp: lane 4g+t held (g, 2t) and (g, 2t+1),
// and gets (2t, g) and (2t+1, g).
__device__ __forceinline__ u32 transpose8(u32 a) {
    u32 d;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

template <bool TRANS>
__device__ __forceinline__ void ldmatrix4(u32 (&r)[4], u32 p) {
    if (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p) : "memory");
}

// copy16 starts a copy of 16 bytes to shared memory; copy16_or_zero writes zeros where bytes is 0.
__device__ __forceinline__ void copy16(u32 dst, const void *src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void copy16_or_zero(u32 dst, const void *src, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// keep holds a value in its register: the compiler would work it out again in every turn of a loop.
__device__ __forceinline__ void keep(int &v) { asm volatile("" : "+r"(v)); }
__device__ __forceinline__ void keep(u32 &v) { asm volatile("" : "+r"(v)); }
__device__ __forceinline__ void keep(i64 &v) { asm volatile("" : "+l"(v)); }

// scalar mathematics

// reciprocal is within one unit in the last place of 1/x, for 1e-38 < x < 1e38; 0 beyond.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else // see testdata/host.cpp
    return 1 / x;
#endif
}

// inverse_sqrt is rsqrt with a Newton step: sums over tokens see its bias.
__device__ __forceinline__ float inverse_sqrt(float x) {
    const float y = rsqrtf(x), e = fmaf(-x * y, y, 1.f);
    return x > 0.f && x < 1e38f ? fmaf(0.5f * y, e, y) : y;
}

__device__ __forceinline__ float sigmoid(float x) { return reciprocal(1.f + expf(-x)); }

// sigmoid_slope is s(1-s) without the cancellation of 1-s.
__device__ __forceinline__ float sigmoid_slope(float x) {
    const float e = expf(-fabsf(x)), y = reciprocal(1.f + e);
    return e * y * y;
}

// uniform_warp is the warp's index in its block, known to the compiler to be the same for all lanes: without that, a shuffle
// in a branch on it is preceded by a test.
__device__ __forceinline__ int uniform_warp() { return __shfl_sync(~0u, (int)threadIdx.x >> 5, 0); }
