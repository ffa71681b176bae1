// A kernel of the loop nest
//
//   nest 2 {
//     %v0 = load f32 [strided, contiguous]
//     %v1 = reduce max(%v0) : f32 in f32
//     %v2 = sub(%v0, %v1) : f32 in f32
//     %v3 = exp(%v2) : f32 in f32
//     %v4 = reduce sum(%v3) : f32 in f32
//     %v5 = div(%v3, %v4) : f32 in f32
//     store %v5
//     store_row %v1
//   }

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

__device__ __forceinline__ float infinity_f32() { return __int_as_float(0x7f800000); }

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

// exp: y = e^x
__device__ __forceinline__ float exp_f32(float x) {
  const float t0 = (x < (-105.0f)) ? (-105.0f) : x;
  const float t1 = (t0 > 90.0f) ? 90.0f : t0;
  const float t2 = fmaf(t1, 1.442695f, 12582912.0f) - 12582912.0f;
  const float t3 = fmaf(t2, 0x1.05c61p-29f, fmaf(t2, -0x1.62e43p-1f, t1));
  const float t4 = t3 * t3;
  const float t5 = fmaf(t4, 0x1.a1b5c8p-13f, 0x1.11107ep-7f);
  const float t6 = fmaf(t4, 0x1.6d951p-10f, 0x1.555482p-5f);
  const float t7 = fmaf(t3, t6, fmaf(t4, t5, 0x1.555556p-3f));
  const float t8 = t3 + ((t3 * t3) * fmaf(t3, t7, 0.5f));
  const i32 t9 = __float_as_int(fmaf(t2, 0.5f, 12582912.0f));
  const i32 t10 = i32(u32(__float_as_int(t2 + 12582912.0f)) - u32(t9));
  const i32 t11 = i32(u32(i32(u32(t10) << 23)) + 1065353216);
  const i32 t12 = i32(u32(i32(u32(t9) << 23)) + 1065353216);
  const float t13 = (1.0f + t8) * __int_as_float(t12);
  return t13 * __int_as_float(t11);
}

struct Max_f32 {
  typedef float T;
  static __device__ __forceinline__ T identity() { return -infinity_f32(); }
  static __device__ __forceinline__ T combine(T a, T b) { return b > a || b != b ? b : a; }
};

struct Sum_f32 {
  typedef float T;
  static __device__ __forceinline__ T identity() { return 0.0f; }
  static __device__ __forceinline__ T combine(T a, T b) { return a + b; }
};

// Sizes of the loops, and strides of what is read, in elements.
struct Shape {
  u32 n0;
  u32 n1;
  u32 rows;
  u32 groups;
  i64 x0_by_0;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(
    const float* __restrict__ x0,
    float* __restrict__ y0,
    float* __restrict__ r0,
    const Shape shape) {
  const u32 lane = threadIdx.x & 15;
  const u32 group = (threadIdx.x >> 4) & (shape.groups - 1);
  const u32 rows_each = 16 / shape.groups;
  __shared__ float parts1[2][16];
  RowReduction<Max_f32> reduction1(parts1);
  __shared__ float parts4[2][16];
  RowReduction<Sum_f32> reduction4(parts4);
#pragma unroll 1
  for (u32 first = blockIdx.x * rows_each; first < shape.rows; first += gridDim.x * rows_each) {
    // A row that is not there is one without elements.
    const u32 wanted = first + threadIdx.x / (16 * shape.groups);
    const bool there = wanted < shape.rows;
    const u32 row = there ? wanted : shape.rows - 1;
    const u32 columns = there ? shape.n1 : 0;
    const u32 i0 = row;
    const i64 begin = i64(row) * shape.n1;
    const float* __restrict__ const from0 = x0 + i64(i0) * shape.x0_by_0;
    reduction1.begin();
#pragma unroll 1
    for (u32 pass = 0; pass < shape.n1; pass += 1024 * shape.groups) {
      const u32 chunk = pass + 1024 * group;
      const u32 end = min(chunk + 1024, columns);
      float sum1 = Max_f32::identity();
#pragma unroll 4
      for (u32 c = chunk + lane; c < end; c += 16) {
        const float v0 = from0[c];  // %v0 = load f32 [strided, contiguous]
        sum1 = Max_f32::combine(sum1, v0);
      }
      reduction1.put(sum1, shape.groups);
      if (shape.groups > 2) __syncthreads();
      reduction1.take(shape.groups);
    }
    const float v1 = reduction1.result();  // %v1 = reduce max(%v0) : f32 in f32
    reduction4.begin();
#pragma unroll 1
    for (u32 pass = 0; pass < shape.n1; pass += 1024 * shape.groups) {
      const u32 chunk = pass + 1024 * group;
      const u32 end = min(chunk + 1024, columns);
      float sum4 = Sum_f32::identity();
#pragma unroll 4
      for (u32 c = chunk + lane; c < end; c += 16) {
        const float v0 = from0[c];  // %v0 = load f32 [strided, contiguous]
        const float v2 = v0 - v1;  // %v2 = sub(%v0, %v1) : f32 in f32
        const float v3 = exp_f32(v2);  // %v3 = exp(%v2) : f32 in f32
        y0[begin + c] = v3;  // keep it
        sum4 = Sum_f32::combine(sum4, v3);
      }
      reduction4.put(sum4, shape.groups);
      if (shape.groups > 2) __syncthreads();
      reduction4.take(shape.groups);
    }
    const float v4 = reduction4.result();  // %v4 = reduce sum(%v3) : f32 in f32
#pragma unroll 1
    for (u32 pass = 0; pass < columns; pass += 1024 * shape.groups) {
      const u32 chunk = pass + 1024 * group;
      const u32 end = min(chunk + 1024, columns);
#pragma unroll 4
      for (u32 c = chunk + lane; c < end; c += 16) {
        const float v3 = y0[begin + c];  // kept
        const float v5 = v3 / v4;  // %v5 = div(%v3, %v4) : f32 in f32
        y0[begin + c] = v5;
      }
    }
    if (there && lane == 0 && group == 0) {
      r0[row] = v1;
    }
  }
}
