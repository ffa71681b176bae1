// A kernel of the loop nest
//
//   nest 3 {
//     %v0 = load bool [strided, broadcast, strided]
//     %v1 = load i64 [broadcast, strided, contiguous]
//     %v2 = load f64 [broadcast, broadcast, broadcast]
//     %v3 = load u8 [strided, strided, contiguous]
//     %v4 = number 7
//     %v5 = add(%v1, %v4) {alpha = -3} : i32 in i64
//     %v6 = convert(%v2) : i8
//     %v7 = where(%v0, %v5, %v6) : i64 in i64
//     %v8 = lt(%v7, %v3) : bool in i64
//     %v9 = fmod(%v2, %v4) : f64 in f64
//     %v10 = convert(%v9) : f16
//     store %v7, %v8, %v10
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

__device__ __forceinline__ u16 to_f16(float x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}

__device__ __forceinline__ float round_f16(float x) { return from_f16(to_f16(x)); }

// Rounded to odd: what is then rounded to 16 bits is rounded once.
__device__ __forceinline__ float odd_f32(double x) {
  const float towards_zero = __double2float_rz(x);
  const bool inexact = double(towards_zero) != x && x == x;
  return inexact ? __int_as_float(__float_as_int(towards_zero) | 1) : towards_zero;
}

__device__ __forceinline__ i64 to_i32(float x) { return x != x ? 0 : __float2int_rz(x); }
__device__ __forceinline__ i64 to_i32(double x) { return x != x ? 0 : __double2int_rz(x); }

template <class T>
__device__ __forceinline__ i64 to_i8(T x) {
  const i64 i = to_i32(x);
  return i < -128 ? -128 : i > 127 ? 127 : i;
}

__device__ inline double exact_fmod_f64(double x, double y) {
  const u64 sign = u64(__double_as_longlong(x)) & 0x8000000000000000ull;
  u64 a = u64(__double_as_longlong(x)) & 0x7fffffffffffffffull;
  u64 b = u64(__double_as_longlong(y)) & 0x7fffffffffffffffull;
  const u64 infinite = 0x7ff0000000000000ull, one = 0x10000000000000ull;
  if (a >= infinite || b > infinite || b == 0)
    return __longlong_as_double(0x7ff8000000000000ll);
  if (a < b) return x;
  // Significands of 53 bits, and what they are multiplied by.
  i32 p = i32(a >> 52), q = i32(b >> 52);
  const i32 up_a = p ? 0 : __clzll(i64(a)) - 11, up_b = q ? 0 : __clzll(i64(b)) - 11;
  a = p ? (a & (one - 1)) | one : a << up_a;
  b = q ? (b & (one - 1)) | one : b << up_b;
  p = p ? p : 1 - up_a;
  q = q ? q : 1 - up_b;
  for (; p > q; --p) a = (a >= b ? a - b : a) << 1;
  if (a >= b) a -= b;
  if (a == 0) return __longlong_as_double(i64(sign));
  const i32 up = __clzll(i64(a)) - 11;
  a <<= up;
  q -= up;
  a = q > 0 ? (a & (one - 1)) | u64(q) << 52 : a >> (1 - q);
  return __longlong_as_double(i64(sign | a));
}

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
__device__ __forceinline__ Pack<T, n> gather_pack(const T* from, i64 step, u32 left) {
  Pack<T, n> pack;
#pragma unroll
  for (u32 e = 0; e < n; ++e) pack.at[e] = e < left ? from[i64(e) * step] : T(0);
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

// fmod: z = x - y * trunc(x / y), the sign of x
__device__ __forceinline__ double fmod_f64(double x, double y) {
  const double t0 = fabs(x);
  const double t1 = fabs(y);
  const double t2 = t0 / t1;
  const double t3 = fma(-trunc(t2), t1, t0);
  const double t4 = (t2 < 1.0) ? t0 : ((t3 < 0.0) ? (t3 + t1) : t3);
  double t5 = copysign(t4, x);
  if (t2 > 0x1p+51) {  // rarely
    t5 = exact_fmod_f64(x, y);
  }
  return t5;
}

// Sizes of the loops, and strides of what is read, in elements.
struct Shape {
  u32 n0;
  u32 n1;
  u32 n2;
  u32 groups;
  u32 items;
  u32 whole;
  i64 x0_by_0;
  i64 x0_by_2;
  i64 x1_by_1;
  i64 x3_by_0;
  i64 x3_by_1;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(
    const u8* x0,
    const i64* x1,
    const double* x2,
    const u8* x3,
    i64* y0,
    u8* y1,
    u16* y2,
    const Shape shape) {
  const double v2 = x2[0];  // %v2 = load f64 [broadcast, broadcast, broadcast]
  const i64 v6 = to_i8(v2);  // %v6 = convert(%v2) : i8
  const double v9 = fmod_f64(v2, 7.0);  // %v9 = fmod(%v2, %v4) : f64 in f64
  const float v10 = round_f16(odd_f32(v9));  // %v10 = convert(%v9) : f16
#pragma unroll 1
  for (u32 item = blockIdx.x * 256 + threadIdx.x; item < shape.items; item += gridDim.x * 256) {
    const u32 row = item / shape.groups;
    const u32 column = (item - row * shape.groups) * 2;
    const u32 i1 = row % shape.n1;
    const u32 above1 = row / shape.n1;
    const u32 i0 = above1;
    const u32 left = shape.n2 - column;
    const i64 at = i64(row) * shape.n2 + column;
    const Pack<u8, 2> from0 = gather_pack<u8, 2>(x0 + i64(i0) * shape.x0_by_0 + i64(column) * shape.x0_by_2, shape.x0_by_2, left);
    const Pack<i64, 2> from1 = load_pack<i64, 2>(x1 + i64(i1) * shape.x1_by_1 + column, left, shape.whole >> 1 & 1);
    const Pack<u8, 2> from3 = load_pack<u8, 2>(x3 + i64(i0) * shape.x3_by_0 + i64(i1) * shape.x3_by_1 + column, left, shape.whole >> 3 & 1);
    Pack<i64, 2> to0;
    Pack<u8, 2> to1;
    Pack<u16, 2> to2;
#pragma unroll
    for (u32 e = 0; e < 2; ++e) {
      const bool v0 = from0.at[e] != 0;  // %v0 = load bool [strided, broadcast, strided]
      const i64 v1 = from1.at[e];  // %v1 = load i64 [broadcast, strided, contiguous]
      const i64 v3 = i64(from3.at[e]);  // %v3 = load u8 [strided, strided, contiguous]
      const i64 v5 = i64(i32(i64(u64(v1) + u64(i64(u64(7) * -3)))));  // %v5 = add(%v1, %v4) {alpha = -3} : i32 in i64
      const i64 v7 = v0 ? v5 : v6;  // %v7 = where(%v0, %v5, %v6) : i64 in i64
      const bool v8 = v7 < v3;  // %v8 = lt(%v7, %v3) : bool in i64
      to0.at[e] = v7;
      to1.at[e] = u8(v8);
      to2.at[e] = to_f16(v10);
    }
    store_pack(y0 + at, to0, left, shape.whole >> 4 & 1);
    store_pack(y1 + at, to1, left, shape.whole >> 5 & 1);
    store_pack(y2 + at, to2, left, shape.whole >> 6 & 1);
  }
}
