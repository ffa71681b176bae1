typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

__device__ __forceinline__ float from_bf16(u16 b) { return __int_as_float(i32(u32(b) << 16)); }

// Reads or writes where indices say.
typedef u32 Count;
struct Fault {
  u64 met, value;
};
struct Work {
  float* indexed;
  u16* plain;
  Fault* faults;
  i64 items;
  i64 steps;
  i64 alpha;
  i64 size[2];
  i64 indexed_by[2];
  i64 plain_by[2];
  const i64* index0;
  i64 bound0;
  i64 step0;
  i64 index0_by[2];
};

// A place as the sides and the indices see it.
struct At {
  i64 indexed, plain;
  i64 index[1];  // one at least, so that there is a list
};

template <i32 first, i32 end>
__device__ __forceinline__ void walk(const Work& work, Count left, At& at) {
#pragma unroll
  for (i32 d = end - 1; d >= first; --d) {
    const Count size = Count(work.size[d]), next = d > first ? left / size : 0;
    const i64 i = i64(left - next * size);
    at.indexed += i * work.indexed_by[d];
    at.plain += i * work.plain_by[d];
    at.index[0] += i * work.index0_by[d];
    left = next;
  }
}

template <class T>
__device__ __forceinline__ bool pick(const T* index, i64 at, i64 bound, i64 step, bool wraps,
                                     Fault* fault, i64& offset) {
  const i64 given = i64(index[at]), i = wraps && given < 0 ? given + bound : given;
  if (i < 0 || i >= bound) {
    if (atomicCAS(&fault->met, 0ull, 1ull) == 0) atomicExch(&fault->value, u64(given));
    return false;
  }
  offset += i * step;
  return true;
}

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count stride = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < Count(work.items);
       item += stride) {
    At outside = {};
    walk<0, 1>(work, item, outside);
#pragma unroll 1
    for (Count step = 0; step < Count(work.steps); ++step) {
      At at = outside;
      walk<1, 2>(work, step, at);
      bool good = true;
      good &= pick(work.index0, at.index[0], work.bound0, work.step0, false,
                   work.faults + 0, at.indexed);
      if (good) work.indexed[at.indexed] = (work.indexed[at.indexed] + (from_bf16(work.plain[at.plain])) * float(__longlong_as_double(work.alpha)));
    }
  }
}
