// A kernel of the loop nest
//
//   nest 2 {
//     %v0 = load f32 [strided, contiguous]
//     %v1 = load f16 [broadcast, contiguous]
//     %v2 = load f32 [strided, broadcast]
//     %v3 = number 0.5
//     %v4 = mul(%v0, %v1) : f32 in f32
//     %v5 = add(%v4, %v3) {alpha = 2} : f32 in f32
//     %v6 = tanh(%v5) : f32 in f32
//     %v7 = mul(%v6, %v2) : f32 in f32
//     %v8 = convert(%v7) : bf16
//     store %v8
//   }

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

__device__ __forceinline__ float from_f16(u16 h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}

__device__ __forceinline__ float from_bf16(u16 b) { return __int_as_float(i32(u32(b) << 16)); }

__device__ __forceinline__ u16 to_bf16(float x) {
  u16 b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x));
  return b;
}

__device__ __forceinline__ float round_bf16(float x) { return from_bf16(to_bf16(x)); }

template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T at[n];
};

// In 16 bytes at a time where all are there and aligned; what is not there is 0.
template <class T, int n>
__device__ __forceinline__ Pack<T, n> load_pack(const T* from, u32 left, bool aligned) {
  if (aligned && left >= n) return *reinterpret_cast<const Pack<T, n>*>(from);
  Pack<T, n> pack;
#pragma unroll
  for (u32 e = 0; e < n; ++e) pack.at[e] = e < left ? from[e] : T(0);
  return pack;
}

template <class T, int n>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, n>& pack, u32 left, bool aligned) {
  if (aligned && left >= n) {
    *reinterpret_cast<Pack<T, n>*>(to) = pack;
    return;
  }
#pragma unroll
  for (u32 e = 0; e < n; ++e)
    if (e < left) to[e] = pack.at[e];
}

// tanh: y = (e^x - e^-x) / (e^x + e^-x)
__device__ __forceinline__ float tanh_f32(float x) {
  const float t0 = fabsf(x) * (-2.0f);
  const float t1 = (t0 < (-20.0f)) ? (-20.0f) : t0;
  const float t2 = fmaf(t1, 1.442695f, 12582912.0f);
  const float t3 = t2 - 12582912.0f;
  const float t4 = fmaf(t3, -0x1.62e43p-1f, t1);
  const float t5 = fmaf(t3, 0x1.05c61p-29f, t4);
  const float t6 = fmaf(t3, 0x1.05c61p-29f, t4 - t5);
  const float t7 = t5 * t5;
  const float t8 = fmaf(t7, 0x1.a1b5c8p-13f, 0x1.11107ep-7f);
  const float t9 = fmaf(t7, 0x1.6d951p-10f, 0x1.555482p-5f);
  const float t10 = fmaf(t5, t9, fmaf(t7, t8, 0x1.555556p-3f));
  const float t11 = (t5 * t5) * fmaf(t5, t10, 0.5f);
  const float t12 = t5 + t11;
  const float t13 = ((t5 - t12) + t11) + fmaf(t6, t12, t6);
  const i32 t14 = i32(u32(__float_as_int(t2)) << 23);
  const float t15 = __int_as_float(i32(u32(t14) + 1065353216));
  const float t16 = (-1.0f) + t15;
  const float t17 = t15 * t12;
  const float t18 = t16 + t17;
  const float t19 = (t17 - (t18 - t16)) + (t15 - (t16 - (-1.0f)));
  const float t20 = fmaf(t15, t13, t19);
  const float t21 = t18 + 2.0f;
  const float t22 = -t18;
  const float t23 = 1.0f / t21;
  const float t24 = t22 * t23;
  const float t25 = fmaf(-t24, ((2.0f - t21) + t18) + t20, -t20);
  const float t26 = fmaf(fmaf(-t24, t21, t22) + t25, t23, t24);
  return copysignf(t26, x);
}

// Sizes of the loops, and strides of what is read, in elements.
struct Shape {
  u32 n0;
  u32 n1;
  u32 groups;
  u32 items;
  u32 whole;
  i64 x0_by_0;
  i64 x2_by_0;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(
    const float* x0,
    const u16* x1,
    const float* x2,
    u16* y0,
    const Shape shape) {
#pragma unroll 1
  for (u32 item = blockIdx.x * 256 + threadIdx.x; item < shape.items; item += gridDim.x * 256) {
    const u32 row = item / shape.groups;
    const u32 column = (item - row * shape.groups) * 4;
    const u32 i0 = row;
    const u32 left = shape.n1 - column;
    const i64 at = i64(row) * shape.n1 + column;
    const float v2 = *(x2 + i64(i0) * shape.x2_by_0);  // %v2 = load f32 [strided, broadcast]
    const Pack<float, 4> from0 = load_pack<float, 4>(x0 + i64(i0) * shape.x0_by_0 + column, left, shape.whole >> 0 & 1);
    const Pack<u16, 4> from1 = load_pack<u16, 4>(x1 + column, left, shape.whole >> 1 & 1);
    Pack<u16, 4> to0;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
      const float v0 = from0.at[e];  // %v0 = load f32 [strided, contiguous]
      const float v1 = from_f16(from1.at[e]);  // %v1 = load f16 [broadcast, contiguous]
      const float v4 = v0 * v1;  // %v4 = mul(%v0, %v1) : f32 in f32
      const float v5 = v4 + (0.5f * 2.0f);  // %v5 = add(%v4, %v3) {alpha = 2} : f32 in f32
      const float v6 = tanh_f32(v5);  // %v6 = tanh(%v5) : f32 in f32
      const float v7 = v6 * v2;  // %v7 = mul(%v6, %v2) : f32 in f32
      const float v8 = round_bf16(v7);  // %v8 = convert(%v7) : bf16
      to0.at[e] = to_bf16(v8);
    }
    store_pack(y0 + at, to0, left, shape.whole >> 3 & 1);
  }
}
