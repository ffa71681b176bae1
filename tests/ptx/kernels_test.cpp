// Compiled kernels (data/kernels.cu), as they lie in the tree and as NVRTC makes them now, against
// what the host computes.
#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>

#include <dlfcn.h>

#include "gradus/dtype.h"
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using s64 = int64_t;

std::string data(const std::string& name) {
  std::ifstream in(std::string(GRADUS_SOURCE_DIR) + "/tests/ptx/data/" + name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// NVRTC where the toolkit is installed.
class Nvrtc {
 public:
  static const Nvrtc& get() {
    static const Nvrtc n;
    return n;
  }
  bool usable() const { return library_; }

  std::string compile(const std::string& source) const {
    void* program = nullptr;
    check(create_(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr));
    const char* options[] = {"--gpu-architecture=compute_90", "--std=c++17", "-lineinfo",
                             "--fmad=false", "-I/usr/local/cuda/include"};
    const int failed = compile_(program, 5, options);
    size_t n = 0;
    log_size_(program, &n);
    std::string log(n, '\0');
    log_(program, log.data());
    if (failed) throw std::runtime_error(log);
    check(ptx_size_(program, &n));
    std::string ptx(n, '\0');
    check(ptx_(program, ptx.data()));
    destroy_(&program);
    return ptx;
  }

 private:
  Nvrtc() {
    const char* names[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
                           "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12"};
    for (const char* name : names)
      if (!library_) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library_) return;
    load(create_, "nvrtcCreateProgram");
    load(compile_, "nvrtcCompileProgram");
    load(log_size_, "nvrtcGetProgramLogSize");
    load(log_, "nvrtcGetProgramLog");
    load(ptx_size_, "nvrtcGetPTXSize");
    load(ptx_, "nvrtcGetPTX");
    load(destroy_, "nvrtcDestroyProgram");
  }
  template <class F>
  void load(F& f, const char* name) {
    f = reinterpret_cast<F>(dlsym(library_, name));
  }
  static void check(int code) {
    if (code) throw std::runtime_error(fmt::format("NVRTC's error {}", code));
  }

  void* library_ = nullptr;
  int (*create_)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile_)(void*, int, const char* const*);
  int (*log_size_)(void*, size_t*);
  int (*log_)(void*, char*);
  int (*ptx_size_)(void*, size_t*);
  int (*ptx_)(void*, char*);
  int (*destroy_)(void**);
};

// Where the PTX comes from: the tree, or NVRTC.
struct Tree {
  static const Module* module() {
    static const Module m = Module::parse(data("kernels.ptx"));
    return &m;
  }
};
struct NeedsNvrtc {
  static const Module* module() {
    if (!Nvrtc::get().usable()) return nullptr;
    static const Module m = Module::parse(Nvrtc::get().compile(data("kernels.cu")));
    return &m;
  }
};

template <class Origin>
class Kernels : public testing::Test {
 public:
  void SetUp() override {
    module = Origin::module();
    if (!module) GTEST_SKIP() << "no NVRTC is installed";
  }
  template <class... A>
  LaunchCounts run(const char* name, Dim3 grid, Dim3 block, const A&... args) {
    Launch l;
    l.grid = grid;
    l.block = block;
    l.args = {static_cast<const void*>(&args)...};
    return launch(*module, name, l, memory);
  }
  const Module* module = nullptr;
  Memory memory;
};
struct Names {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, Tree> ? "Tree" : "NeedsNvrtc";
  }
};
using Origins = testing::Types<Tree, NeedsNvrtc>;
TYPED_TEST_SUITE(Kernels, Origins, Names);

std::vector<float> numbers(size_t n, u64 seed) {
  std::mt19937_64 random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(static_cast<s64>(random() % 2000000) - 1000000) * 1e-3f;
  return v;
}

TYPED_TEST(Kernels, BlockSum) {
  const int n = 5003, blocks = 3, threads = 160;
  const auto x = numbers(n, 1);
  const u64 px = upload(this->memory, x), py = this->memory.allocate(4 * blocks);
  this->run("block_sum", {blocks}, {threads}, px, py, n);
  const auto y = download<float>(this->memory, py, blocks);
  const auto tree = [](std::array<float, 32> v) {
    for (size_t d = 16; d; d >>= 1)
      for (size_t i = 0; i < d; ++i) v[i] += v[i + d];
    return v[0];
  };
  for (int b = 0; b < blocks; ++b) {
    std::array<float, 32> warps{};
    for (int w = 0; w < threads / 32; ++w) {
      std::array<float, 32> lanes{};
      for (int l = 0; l < 32; ++l)
        for (int i = b * threads + w * 32 + l; i < n; i += blocks * threads)
          lanes[static_cast<size_t>(l)] += x[static_cast<size_t>(i)];
      warps[static_cast<size_t>(w)] = tree(lanes);
    }
    EXPECT_EQ(y[static_cast<size_t>(b)], tree(warps));
  }
}

TYPED_TEST(Kernels, Calls) {
  const int n = 100;
  std::vector<double> x(n);
  for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = i * 0.37 - 11;
  const u64 p = upload(this->memory, x);
  this->run("calls", {2}, {64}, p, n);
  // nvcc contracts x * 1.5 + k, NVRTC is told not to: the product is exact here or rounded alike.
  const std::function<double(double, int)> climb = [&](double v, int k) {
    return k <= 0 ? v : climb(v * 1.5 + k, k - 1) + k;
  };
  const auto y = download<double>(this->memory, p, n);
  for (int i = 0; i < n; ++i)
    EXPECT_NEAR(y[static_cast<size_t>(i)], climb(x[static_cast<size_t>(i)], i % 7), 1e-10);
}

TYPED_TEST(Kernels, LocalArrays) {
  const int n = 75;
  std::vector<int> index(n);
  for (int i = 0; i < n; ++i) index[static_cast<size_t>(i)] = i * 7 % 23;
  const u64 px = this->memory.allocate(4 * n), pi = upload(this->memory, index);
  this->run("locals", {3}, {32}, px, pi, n);
  const auto x = download<u32>(this->memory, px, n);
  for (u32 i = 0; i < n; ++i) {
    u32 a[16], s = 0;
    for (u32 k = 0; k < 16; ++k) a[k] = i * k;
    const auto at = static_cast<u32>(index[i]);
    a[at & 15] += 7;
    for (u32 k = 0; k < 16; ++k) s = s * 31 + a[(k * 5 + at) & 15];
    EXPECT_EQ(x[i], s);
  }
}

TYPED_TEST(Kernels, Dispatch) {
  struct {
    u64 x, y;
    s64 n;
    int steps[4];
  } f{0, 0, 200, {7, 3, 0, 9}};
  auto x = numbers(200, 5);
  for (float& v : x) v = std::fabs(v);
  f.x = upload(this->memory, x);
  f.y = this->memory.allocate(800);
  this->run("dispatch", {4}, {64}, f);
  const auto y = download<float>(this->memory, f.y, 200);
  for (size_t i = 0; i < 200; ++i) {
    const float v = x[i], table[] = {1, 2, 3, 4, 5};
    const float expected[] = {v + table[f.steps[i & 3] % 5],
                              std::sqrt(v),
                              v / 3.f,
                              std::floor(v),
                              std::fma(v, v, v),
                              3.f};
    EXPECT_EQ(y[i], expected[i % 6]) << i;
  }
}

TYPED_TEST(Kernels, Histogram) {
  const int n = 1000;
  std::vector<uint8_t> x(n);
  u64 sum = 0;
  std::vector<u32> counts(8);
  for (int i = 0; i < n; ++i) {
    const auto v = static_cast<uint8_t>(i * i * 31 >> 3);
    x[static_cast<size_t>(i)] = v;
    sum += v;
    ++counts[v & 7];
  }
  const u64 px = upload(this->memory, x), pc = upload(this->memory, std::vector<u32>(8));
  const u64 pt = upload(this->memory, std::vector<u64>(1));
  this->run("histogram", {3}, {96}, px, pc, n, pt);
  EXPECT_EQ(download<u32>(this->memory, pc, 8), counts);
  EXPECT_EQ(download<u64>(this->memory, pt, 1)[0], sum);
}

TYPED_TEST(Kernels, Transpose) {
  const int rows = 45, columns = 70;
  const auto x = numbers(static_cast<size_t>(rows) * columns, 9);
  const u64 px = upload(this->memory, x), py = this->memory.allocate(x.size() * 4);
  this->run("transpose", {3, 2}, {32, 8}, px, py, rows, columns);
  const auto y = download<float>(this->memory, py, x.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) EXPECT_EQ(y[c * rows + r], x[r * columns + c]);
}

TYPED_TEST(Kernels, Integers) {
  const int n = 500;
  auto x = samples<s64>(n, 77);
  for (s64& v : x)
    if (v == -1 || v == INT64_MIN) v = 12345;  // the host's division, too, has to be defined
  const u64 px = upload(this->memory, x), py = this->memory.allocate(8 * n);
  this->run("integers", {8}, {64}, px, py, n);
  const auto y = download<s64>(this->memory, py, n);
  for (size_t i = 0; i < n; ++i) {
    __extension__ using Wide = __int128;
    const s64 a = x[i], b = x[(i + 1) % n];
    const u64 ua = static_cast<u64>(a), ub = static_cast<u64>(b);
    const u32 u = static_cast<u32>(a), v = static_cast<u32>(b);
    u64 r = static_cast<u64>((static_cast<Wide>(a) * b) >> 64) ^ (ua * ub);
    r += static_cast<u64>(std::countl_zero(u) + std::popcount(ub) * 3 +
                          (v ? std::countr_zero(v) + 1 : 0) * 5);
    u32 reversed = 0;
    for (int k = 0; k < 32; ++k) reversed |= (u >> k & 1) << (31 - k);
    r ^= static_cast<u64>(reversed) << 7;
    const u32 funnel = v & 31 ? v << (v & 31) | u >> (32 - (v & 31)) : v;
    r += funnel ^ ((u & 255) | (v & 255) << 8 | (u >> 8 & 255) << 16 | (v >> 8 & 255) << 24);
    r -= static_cast<u64>(b ? a / b : 11);
    r += static_cast<u64>(a >> (b & 63)) + (ua >> (v & 63)) +
         static_cast<u64>(static_cast<int8_t>(a) + static_cast<int16_t>(b));
    r ^= static_cast<u64>(a < b ? a % 7 : b % 1000003);
    EXPECT_EQ(static_cast<u64>(y[i]), r) << a << " " << b;
  }
}

TYPED_TEST(Kernels, Lanes) {
  const u64 p = this->memory.allocate(4 * 64);
  this->run("lanes", {1}, {64}, p);
  const auto y = download<u32>(this->memory, p, 64);
  for (u32 t = 0; t < 64; ++t) {
    const u32 lane = t % 32;
    u32 v = lane * 3;
    v = lane < 7 ? v + (6 - lane) * 3 : v - 25;
    EXPECT_EQ(y[t], v + 0xaaaaaaaau + 3 * 496 + (0x11111111u << (lane & 3)) + 1 + 59);
  }
}

TYPED_TEST(Kernels, Axpy) {
  const int n = 1003;
  const float a = 1.7f;
  const auto x = numbers(n, 2), y = numbers(n, 3);
  const u64 px = upload(this->memory, x), py = upload(this->memory, y);
  this->run("axpy", {2}, {64}, px, py, a, n);
  const auto r = download<float>(this->memory, py, n);
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(r[i], std::fma(a, x[i], y[i]));
}

// A kernel that lacks its barrier: the one that is there is taken away.
TEST(KernelFaults, AMissingBarrierIsARace) {
  std::string ptx = data("kernels.ptx");
  const size_t begin = ptx.find(".entry block_sum"), at = ptx.find("bar.sync", begin);
  ptx.replace(at, ptx.find(';', at) - at, "");
  Memory memory;
  const int n = 5003;
  const u64 px = upload(memory, numbers(n, 1)), py = memory.allocate(16);
  Launch l;
  l.block.x = 160;
  l.args = {&px, &py, &n};
  const std::string message = error_of([&] { launch(Module::parse(ptx), "block_sum", l, memory); });
  // Warp 0 runs first: it reads what nobody wrote yet.
  EXPECT_NE(message.find("which was never written"), std::string::npos) << message;
  EXPECT_NE(message.find("kernels.cu:"), std::string::npos) << message;
}

TEST(KernelFaults, ATooLongLoopLeavesItsArrays) {
  Memory memory;
  const int n = 1004;  // one more quad than there is memory for
  const u64 px = upload(memory, numbers(1000, 1)), py = upload(memory, numbers(1000, 1));
  const float a = 2;
  Launch l;
  l.block.x = 64;
  l.args = {&px, &py, &a, &n};
  const std::string message =
      error_of([&] { launch(Module::parse(data("kernels.ptx")), "axpy", l, memory); });
  EXPECT_NE(message.find("load of 16 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("outside of what is allocated"), std::string::npos) << message;
}

const char* halves = R"(
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void halves(const __half* a, const __half* b, __half* c,
                                  const __nv_bfloat16* d, __nv_bfloat16* e, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half r = __hfma(a[i], b[i], a[i]);
  if (__hgt(a[i], b[i])) r = __hmax(r, a[i]);
  c[i] = __hadd(r, __float2half(0.5f));
  e[i] = __hmin(__hmul(d[i], d[i]), __float2bfloat16(__bfloat162float(d[i]) + 1.0f));
}
extern "C" __global__ void functions(const float* x, float* y, double* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = expf(x[i]) + tanhf(x[i]) + logf(fabsf(x[i]) + 1.f) + sinf(x[i]) + erff(x[i]);
  z[i] = exp((double)x[i]) + log1p(fabs((double)x[i])) + cos((double)x[i]) + cbrt((double)x[i]);
}
)";

// What NVIDIA's headers and device functions are made of. Their functions are within some units
// of the host's; they use approximations.
TEST(KernelsNeedNvrtc, HeadersAndFunctions) {
  if (!Nvrtc::get().usable()) GTEST_SKIP() << "no NVRTC is installed";
  const Module m = Module::parse(Nvrtc::get().compile(halves));
  Memory memory;
  const int n = 300;
  const auto x = numbers(n, 4);
  std::vector<uint16_t> a, b, d;
  std::vector<float> small;
  for (size_t i = 0; i < n; ++i) {
    a.push_back(float_to_half(x[i]));
    b.push_back(float_to_half(x[n - 1 - i] * 0.01f));
    d.push_back(float_to_bfloat16(x[i]));
    small.push_back(x[i] * 0.01f);
  }
  const u64 pa = upload(memory, a), pb = upload(memory, b), pc = memory.allocate(2 * n);
  const u64 pd = upload(memory, d), pe = memory.allocate(2 * n);
  Launch l;
  l.grid.x = 5;
  l.block.x = 64;
  l.args = {&pa, &pb, &pc, &pd, &pe, &n};
  launch(m, "halves", l, memory);
  const auto c = download<uint16_t>(memory, pc, n), e = download<uint16_t>(memory, pe, n);
  const auto half = [](double v) { return float_to_half(static_cast<float>(v)); };
  for (size_t i = 0; i < n; ++i) {
    const double p = static_cast<double>(half_to_float(a[i]));
    const double q = static_cast<double>(half_to_float(b[i]));
    // Sums of halves are exact in double; through float they are rounded twice only at a tie.
    double r = static_cast<double>(half_to_float(half(std::fma(p, q, p))));
    if (p > q) r = std::max(r, p);
    EXPECT_EQ(c[i], half(r + 0.5)) << i;
    const float v = bfloat16_to_float(d[i]);
    EXPECT_EQ(bfloat16_to_float(e[i]), std::min(bfloat16_to_float(float_to_bfloat16(v * v)),
                                                bfloat16_to_float(float_to_bfloat16(v + 1.0f))));
  }
  const u64 px = upload(memory, small), py = memory.allocate(4 * n), pz = memory.allocate(8 * n);
  l.args = {&px, &py, &pz, &n};
  EXPECT_NE(error_of([&] { launch(m, "functions", l, memory); }).find("without an exact result"),
            std::string::npos);
  l.allow_approximate = true;
  launch(m, "functions", l, memory);
  const auto y = download<float>(memory, py, n);
  const auto z = download<double>(memory, pz, n);
  for (size_t i = 0; i < n; ++i) {
    const float v = small[i];
    const float f =
        std::exp(v) + std::tanh(v) + std::log(std::fabs(v) + 1.f) + std::sin(v) + std::erf(v);
    EXPECT_NEAR(y[i], f, 1e-6f * std::max(1.0f, std::fabs(f)) + 2e-6f);
    const double w = static_cast<double>(v);
    const double g = std::exp(w) + std::log1p(std::fabs(w)) + std::cos(w) + std::cbrt(w);
    EXPECT_NEAR(z[i], g, 1e-14 * std::max(1.0, std::fabs(g)));
  }
}

}  // namespace
}  // namespace gradus::ptx::test
