// Kernels as a compiler makes PTX of: kernels.ptx is what nvcc -O3 -lineinfo -arch=sm_90 -ptx makes
// of this file, without its comments. kernels_test.cpp says what each gives.

// The sum of each block's share of x, by shuffles and shared memory.
extern "C" __global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[32];
  float a = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a += x[i];
  for (int d = 16; d; d >>= 1) a += __shfl_down_sync(~0u, a, d);
  if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = a;
  __syncthreads();
  if (threadIdx.x < 32) {
    a = threadIdx.x < (blockDim.x >> 5) ? s[threadIdx.x] : 0.f;
    for (int d = 16; d; d >>= 1) a += __shfl_down_sync(~0u, a, d);
    if (threadIdx.x == 0) y[blockIdx.x] = a;
  }
}

// A function that stays one, and calls itself.
__device__ __noinline__ double climb(double x, int k) {
  return k <= 0 ? x : climb(x * 1.5 + k, k - 1) + k;
}
extern "C" __global__ void calls(double* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = climb(x[i], i % 7);
}

// An array that is indexed by what only a run knows.
extern "C" __global__ void locals(int* x, const int* index, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int a[16];
  for (int k = 0; k < 16; ++k) a[k] = i * k;
  if (i >= n) return;
  a[index[i] & 15] += 7;
  int s = 0;
  for (int k = 0; k < 16; ++k) s = s * 31 + a[(k * 5 + index[i]) & 15];
  x[i] = s;
}

struct Frame {
  const float* x;
  float* y;
  long long n;
  int steps[4];
};
__constant__ float table[5] = {1, 2, 3, 4, 5};
__device__ int offset = 3;
// A structure as its parameter, a table, a switch.
extern "C" __global__ void dispatch(Frame f) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= f.n) return;
  float v = f.x[i];
  switch ((int)i % 6) {
    case 0: v += table[f.steps[i & 3] % 5]; break;
    case 1: v = sqrtf(v); break;
    case 2: v = v / 3.f; break;
    case 3: v = floorf(v); break;
    case 4: v = fmaf(v, v, v); break;
    default: v = (float)offset;
  }
  f.y[i] = v;
}

// Counts by atomics in shared memory, then in global memory.
extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts, int n,
                                     unsigned long long* total) {
  __shared__ unsigned own[8];
  if (threadIdx.x < 8) own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&own[x[i] & 7], 1u);
    atomicAdd(total, (unsigned long long)x[i]);
  }
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}

// A tile turned over in shared memory, 16 bytes at a time where rows allow it.
extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x;
  for (int k = threadIdx.y; k < 32; k += blockDim.y) {
    int r = blockIdx.y * 32 + k;
    if (r < rows && c < columns) tile[k][threadIdx.x] = x[(long long)r * columns + c];
  }
  __syncthreads();
  int r = blockIdx.y * 32 + threadIdx.x;
  for (int k = threadIdx.y; k < 32; k += blockDim.y) {
    int d = blockIdx.x * 32 + k;
    if (r < rows && d < columns) y[(long long)d * rows + r] = tile[threadIdx.x][k];
  }
}

// What integers are asked for beside sums.
extern "C" __global__ void integers(const long long* x, long long* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long a = x[i], b = x[(i + 1) % n];
  unsigned u = (unsigned)a, v = (unsigned)b;
  long long r = __mul64hi(a, b) ^ (a * b);
  r += __clz((int)u) + __popcll(b) * 3 + __ffs((int)v) * 5;
  r ^= (long long)__brev(u) << 7;
  r += __funnelshift_l(u, v, v & 31) ^ __byte_perm(u, v, 0x5140);
  r -= b ? a / b : 11;
  r += (a >> (b & 63)) + (long long)((unsigned long long)a >> (v & 63)) + (char)a + (short)b;
  r ^= a < b ? a % 7 : b % 1000003;
  y[i] = r;
}

// The lanes of a warp see one another.
extern "C" __global__ void lanes(int* y) {
  int lane = threadIdx.x & 31, v = lane * 3;
  unsigned odd = __ballot_sync(~0u, v & 1);
  int sum = __reduce_add_sync(~0u, v);
  unsigned equal = __match_any_sync(~0u, lane & 3);
  if (lane < 7)
    v += __shfl_sync(0x7f, v, 6 - lane);
  else
    v -= __popc(__activemask());
  __syncwarp();
  y[threadIdx.x] = v + odd + sum + equal + __any_sync(~0u, lane == 3) +
                   __syncthreads_count(threadIdx.x > 4);
}

// Four at a time, and those that are left.
extern "C" __global__ void axpy(const float4* x, float4* y, float a, int n) {
  int quads = n / 4;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
    float4 u = __ldg(&x[i]), v = y[i];
    v.x = fmaf(a, u.x, v.x);
    v.y = fmaf(a, u.y, v.y);
    v.z = fmaf(a, u.z, v.z);
    v.w = fmaf(a, u.w, v.w);
    y[i] = v;
  }
  const float* tail = (const float*)x;
  float* out = (float*)y;
  for (int i = quads * 4 + blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = fmaf(a, tail[i], out[i]);
}
