// A kernel of the loop nest
//
//   nest 3 {
//     %v0 = load i32 [strided, strided, strided]
//     %v1 = load f16 [strided, strided, contiguous]
//     %v2 = reduce prod(%v0) : i64 in i64
//     %v3 = reduce any(%v1) : bool
//     %v4 = reduce min(%v1) : f16 in f32
//     store_row %v2, %v3, %v4
//   }

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

__device__ __forceinline__ float infinity_f32() { return __int_as_float(0x7f800000); }

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

struct Prod_i64 {
  typedef i64 T;
  static __device__ __forceinline__ T identity() { return 1; }
  static __device__ __forceinline__ T combine(T a, T b) { return i64(u64(a) * u64(b)); }
};

struct Any_bool {
  typedef i32 T;
  static __device__ __forceinline__ T identity() { return 0; }
  static __device__ __forceinline__ T combine(T a, T b) { return a | b; }
};

struct Min_f32 {
  typedef float T;
  static __device__ __forceinline__ T identity() { return infinity_f32(); }
  static __device__ __forceinline__ T combine(T a, T b) { return b < a || b != b ? b : a; }
};

// Sizes of the loops, and strides of what is read, in elements.
struct Shape {
  u32 n0;
  u32 n1;
  u32 n2;
  u32 rows;
  u32 groups;
  i64 x0_by_0;
  i64 x0_by_1;
  i64 x0_by_2;
  i64 x1_by_0;
  i64 x1_by_1;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(
    const i32* __restrict__ x0,
    const u16* __restrict__ x1,
    i64* __restrict__ r0,
    u8* __restrict__ r1,
    u16* __restrict__ r2,
    const Shape shape) {
  const u32 lane = threadIdx.x & 15;
  const u32 group = (threadIdx.x >> 4) & (shape.groups - 1);
  const u32 rows_each = 16 / shape.groups;
  __shared__ i64 parts2[2][16];
  RowReduction<Prod_i64> reduction2(parts2);
  __shared__ i32 parts3[2][16];
  RowReduction<Any_bool> reduction3(parts3);
  __shared__ float parts4[2][16];
  RowReduction<Min_f32> reduction4(parts4);
#pragma unroll 1
  for (u32 first = blockIdx.x * rows_each; first < shape.rows; first += gridDim.x * rows_each) {
    // A row that is not there is one without elements.
    const u32 wanted = first + threadIdx.x / (16 * shape.groups);
    const bool there = wanted < shape.rows;
    const u32 row = there ? wanted : shape.rows - 1;
    const u32 columns = there ? shape.n2 : 0;
    const u32 i1 = row % shape.n1;
    const u32 above1 = row / shape.n1;
    const u32 i0 = above1;
    const i32* __restrict__ const from0 = x0 + i64(i0) * shape.x0_by_0 + i64(i1) * shape.x0_by_1;
    const u16* __restrict__ const from1 = x1 + i64(i0) * shape.x1_by_0 + i64(i1) * shape.x1_by_1;
    reduction2.begin();
    reduction3.begin();
    reduction4.begin();
#pragma unroll 1
    for (u32 pass = 0; pass < shape.n2; pass += 1024 * shape.groups) {
      const u32 chunk = pass + 1024 * group;
      const u32 end = min(chunk + 1024, columns);
      i64 sum2 = Prod_i64::identity();
      i32 sum3 = Any_bool::identity();
      float sum4 = Min_f32::identity();
#pragma unroll 4
      for (u32 c = chunk + lane; c < end; c += 16) {
        const i64 v0 = i64(from0[i64(c) * shape.x0_by_2]);  // %v0 = load i32 [strided, strided, strided]
        const float v1 = from_f16(from1[c]);  // %v1 = load f16 [strided, strided, contiguous]
        sum2 = Prod_i64::combine(sum2, v0);
        sum3 = Any_bool::combine(sum3, (v1 != 0.0f));
        sum4 = Min_f32::combine(sum4, v1);
      }
      reduction2.put(sum2, shape.groups);
      reduction3.put(sum3, shape.groups);
      reduction4.put(sum4, shape.groups);
      if (shape.groups > 2) __syncthreads();
      reduction2.take(shape.groups);
      reduction3.take(shape.groups);
      reduction4.take(shape.groups);
    }
    const i64 v2 = reduction2.result();  // %v2 = reduce prod(%v0) : i64 in i64
    const bool v3 = reduction3.result() != 0;  // %v3 = reduce any(%v1) : bool
    const float v4 = round_f16(reduction4.result());  // %v4 = reduce min(%v1) : f16 in f32
    if (there && lane == 0 && group == 0) {
      r0[row] = v2;
      r1[row] = u8(v3);
      r2[row] = to_f16(v4);
    }
  }
}
