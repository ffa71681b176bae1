#include "fusion/cuda/prelude.h"

#include <algorithm>
#include <vector>

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view types = R"(typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
)";

struct Piece {
  std::string_view name;  // who says it wants the piece
  std::string_view text;
};

// A piece may call those before it.
constexpr Piece pieces[] = {
    {"i16", "typedef short i16;\n"},
    {"infinity_f32", R"(
__device__ __forceinline__ float infinity_f32() { return __int_as_float(0x7f800000); }
)"},
    {"infinity_f64", R"(
__device__ __forceinline__ double infinity_f64() {
  return __longlong_as_double(0x7ff0000000000000ll);
}
)"},
    {"not_a_number_f32", R"(
__device__ __forceinline__ float not_a_number_f32() { return __int_as_float(0x7fc00000); }
)"},
    {"not_a_number_f64", R"(
__device__ __forceinline__ double not_a_number_f64() {
  return __longlong_as_double(0x7ff8000000000000ll);
}
)"},
    {"from_f16", R"(
__device__ __forceinline__ float from_f16(u16 h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
)"},
    // To nearest even; NaN is a quiet NaN.
    {"to_f16", R"(
__device__ __forceinline__ u16 to_f16(float x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
)"},
    {"from_bf16", R"(
__device__ __forceinline__ float from_bf16(u16 b) { return __int_as_float(i32(u32(b) << 16)); }
)"},
    {"to_bf16", R"(
__device__ __forceinline__ u16 to_bf16(float x) {
  u16 b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x));
  return b;
}
)"},
    {"round_f16", R"(
__device__ __forceinline__ float round_f16(float x) { return from_f16(to_f16(x)); }
)"},
    {"round_bf16", R"(
__device__ __forceinline__ float round_bf16(float x) { return from_bf16(to_bf16(x)); }
)"},
    {"odd_f32", R"(
// Rounded to odd: what is then rounded to 16 bits is rounded once.
__device__ __forceinline__ float odd_f32(double x) {
  const float towards_zero = __double2float_rz(x);
  const bool inexact = double(towards_zero) != x && x == x;
  return inexact ? __int_as_float(__float_as_int(towards_zero) | 1) : towards_zero;
}
)"},
    // Floats into integers: truncated, saturated, NaN 0.
    {"to_i64", R"(
__device__ __forceinline__ i64 to_i64(float x) { return x != x ? 0 : __float2ll_rz(x); }
__device__ __forceinline__ i64 to_i64(double x) { return x != x ? 0 : __double2ll_rz(x); }
)"},
    {"to_i32", R"(
__device__ __forceinline__ i64 to_i32(float x) { return x != x ? 0 : __float2int_rz(x); }
__device__ __forceinline__ i64 to_i32(double x) { return x != x ? 0 : __double2int_rz(x); }
)"},
    {"to_i8", R"(
template <class T>
__device__ __forceinline__ i64 to_i8(T x) {
  const i64 i = to_i32(x);
  return i < -128 ? -128 : i > 127 ? 127 : i;
}
)"},
    {"to_u8", R"(
template <class T>
__device__ __forceinline__ i64 to_u8(T x) {
  const i64 i = to_i32(x);
  return i < 0 ? 0 : i > 255 ? 255 : i;
}
)"},
    {"to_i16", R"(
template <class T>
__device__ __forceinline__ i64 to_i16(T x) {
  const i64 i = to_i32(x);
  return i < -32768 ? -32768 : i > 32767 ? 32767 : i;
}
)"},
    {"to_u16", R"(
template <class T>
__device__ __forceinline__ i64 to_u16(T x) {
  const i64 i = to_i32(x);
  return i < 0 ? 0 : i > 65535 ? 65535 : i;
}
)"},
    {"to_u32", R"(
template <class T>
__device__ __forceinline__ i64 to_u32(T x) {
  const i64 i = to_i64(x);
  return i < 0 ? 0 : i > 4294967295ll ? 4294967295ll : i;
}
)"},
    {"to_u64", R"(
__device__ __forceinline__ u64 to_u64(float x) { return x != x ? 0 : __float2ull_rz(x); }
__device__ __forceinline__ u64 to_u64(double x) { return x != x ? 0 : __double2ull_rz(x); }
)"},
    // C's, exact whatever the quotient: the toolkit's own approximates on its way.
    {"exact_fmod_f32", R"(
__device__ inline float exact_fmod_f32(float x, float y) {
  const u32 sign = u32(__float_as_int(x)) & 0x80000000u;
  u32 a = u32(__float_as_int(x)) & 0x7fffffffu, b = u32(__float_as_int(y)) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0) return __int_as_float(0x7fc00000);
  if (a < b) return x;
  // Significands of 24 bits, and what they are multiplied by.
  i32 p = i32(a >> 23), q = i32(b >> 23);
  const i32 up_a = p ? 0 : __clz(i32(a)) - 8, up_b = q ? 0 : __clz(i32(b)) - 8;
  a = p ? (a & 0x7fffffu) | 0x800000u : a << up_a;
  b = q ? (b & 0x7fffffu) | 0x800000u : b << up_b;
  p = p ? p : 1 - up_a;
  q = q ? q : 1 - up_b;
  for (; p > q; --p) a = (a >= b ? a - b : a) << 1;
  if (a >= b) a -= b;
  if (a == 0) return __int_as_float(i32(sign));
  const i32 up = __clz(i32(a)) - 8;
  a <<= up;
  q -= up;
  a = q > 0 ? (a & 0x7fffffu) | u32(q) << 23 : a >> (1 - q);
  return __int_as_float(i32(sign | a));
}
)"},
    {"exact_fmod_f64", R"(
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
)"},
    // Where an array with these strides has a place that is counted row-major.
    {"locate", R"(
template <class Count, int rank>
__device__ __forceinline__ i64 locate(Count place, const i64 (&size)[rank], const i64 (&by)[rank]) {
  i64 at = 0;
#pragma unroll
  for (i32 d = rank - 1; d >= 0; --d) {
    const Count above = d ? place / Count(size[d]) : 0;
    at += i64(place - above * Count(size[d])) * by[d];
    place = above;
  }
  return at;
}
)"},
    // Neighbours that a thread works on together.
    {"Pack", R"(
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T at[n];
};
)"},
    {"load_pack", R"(
// In 16 bytes at a time where all are there and aligned; what is not there is 0.
template <class T, int n>
__device__ __forceinline__ Pack<T, n> load_pack(const T* from, u32 left, bool aligned) {
  if (aligned && left >= n) return *reinterpret_cast<const Pack<T, n>*>(from);
  Pack<T, n> pack;
#pragma unroll
  for (u32 e = 0; e < n; ++e) pack.at[e] = e < left ? from[e] : T(0);
  return pack;
}
)"},
    {"gather_pack", R"(
template <class T, int n>
__device__ __forceinline__ Pack<T, n> gather_pack(const T* from, i64 step, u32 left) {
  Pack<T, n> pack;
#pragma unroll
  for (u32 e = 0; e < n; ++e) pack.at[e] = e < left ? from[i64(e) * step] : T(0);
  return pack;
}
)"},
    {"store_pack", R"(
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
)"},
    {"RowReduction", R"(
// A row's reduction, in the order that every reduction of Gradus has. Sixteen threads are the lanes
// of a chunk of 1024 elements, `groups` such sixteens take neighbouring chunks of a row, and a row
// longer than that is taken in passes. R has the identity, and combines two.
template <class R>
struct RowReduction {
  typedef typename R::T T;
  T (*parts)[16];  // shared: one of each sixteen threads, in two rooms by turns
  u32 room, passes;
  T node;  // what the last pass gave, the same in all threads of the row
  T held;  // of the counter's level that is this thread's number in its warp

  __device__ __forceinline__ explicit RowReduction(T (*shared)[16]) : parts(shared), room(0) {}
  __device__ __forceinline__ void begin() {
    passes = 0;
    held = R::identity();
  }
  // The lanes of a chunk fold by halves. A barrier stands between put and take if groups > 2.
  __device__ __forceinline__ void put(T lane, u32 groups) {
#pragma unroll
    for (u32 width = 8; width > 0; width /= 2)
      lane = R::combine(lane, __shfl_down_sync(0xffffffffu, lane, width, 16));
    node = lane;
    if (groups > 2 && (threadIdx.x & 15) == 0) parts[room][threadIdx.x >> 4] = lane;
  }
  // Neighbouring chunks combine, then passes as a binary counter counts.
  __device__ __forceinline__ void take(u32 groups) {
    if (groups > 2) {
      const u32 lane = threadIdx.x & 15, first = (threadIdx.x >> 4) & ~(groups - 1);
      node = lane < groups ? parts[room][first + lane] : R::identity();
      room ^= 1;
#pragma unroll
      for (u32 width = 1; width < 16; width *= 2)
        node = R::combine(node, __shfl_down_sync(0xffffffffu, node, width, 16));
      node = __shfl_sync(0xffffffffu, node, 0, 16);
    } else if (groups == 2) {
      const T after = __shfl_sync(0xffffffffu, node, 16);
      node = R::combine(__shfl_sync(0xffffffffu, node, 0), after);
    } else {
      node = __shfl_sync(0xffffffffu, node, 0, 16);
    }
    u32 level = 0;
    T sum = node;
    for (; passes >> level & 1; ++level)
      sum = R::combine(__shfl_sync(0xffffffffu, held, level), sum);
    if ((threadIdx.x & 31) == level) held = sum;
    ++passes;
  }
  // Several passes: then all threads of the block work on one row.
  __device__ __forceinline__ T result() const {
    if (passes == 1) return node;
    u32 level = __ffs(i32(passes)) - 1;
    T sum = __shfl_sync(0xffffffffu, held, level);
    for (++level; passes >> level; ++level)
      if (passes >> level & 1) sum = R::combine(__shfl_sync(0xffffffffu, held, level), sum);
    return sum;
  }
};
)"},
};

// Whether the name stands in the text by itself.
bool names(std::string_view text, std::string_view name) {
  auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; ++at) {
    const size_t end = at + name.size();
    if ((at == 0 || !part(text[at - 1])) && (end == text.size() || !part(text[end]))) return true;
  }
  return false;
}

}  // namespace

std::string prelude_for(std::string_view text) {
  // From the last one, so that what a piece calls is wanted when its turn comes.
  std::string all(text);
  std::vector<std::string_view> wanted;
  for (size_t i = std::size(pieces); i-- > 0;) {
    if (!names(all, pieces[i].name)) continue;
    wanted.push_back(pieces[i].text);
    all += pieces[i].text;
  }
  std::string s(types);
  for (auto piece = wanted.rbegin(); piece != wanted.rend(); ++piece) s += *piece;
  return s;
}

}  // namespace gradus::fusion::cuda
