// The heavy primitives beside the libraries called bare: oneDNN (f32, bf16), OpenBLAS (f64).
//
// A bare product is one primitive on the same memory. A bare convolution takes and gives images as
// we do, [N, C, ..] without gaps: the library's own layouts and the reorders to them included. One
// worker is timed by its own thread's clock; two by the wall's.
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cblas.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "bench/bound.h"
#include "bench/side_by_side.h"

extern "C" void omp_set_num_threads(int);

namespace gradus::bench {
namespace {

using dnnl::memory;

Tensor filled(DType dtype, const Sizes& shape, int64_t step) {
  std::vector<double> v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<double>(static_cast<int64_t>(i) * step % 201 - 100) / 64;
  return Tensor::from(dtype, shape, v);
}

Tensor swapped(const Tensor& x) {
  return ops::evaluate("transpose", {x}, {{"dim0", int64_t{-2}, {}}, {"dim1", int64_t{-1}, {}}})[0];
}

memory::data_type data_type(DType d) {
  return d == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}
dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}
dnnl::stream& stream() {
  static dnnl::stream s(engine());
  return s;
}
memory::desc described(const Tensor& t) {
  return memory::desc(memory::dims(t.shape().begin(), t.shape().end()), data_type(t.dtype()),
                      memory::dims(t.strides().begin(), t.strides().end()));
}
memory on(const Tensor& t) {
  return memory(described(t), engine(), const_cast<std::byte*>(t.data()));
}

// A list of primitives with all their arguments.
struct Bare {
  std::vector<std::pair<dnnl::primitive, std::vector<dnnl_exec_arg_t>>> steps;
  std::vector<memory> memories;

  void add(dnnl::primitive p, std::initializer_list<std::pair<int, memory>> args) {
    std::vector<dnnl_exec_arg_t> list;
    for (const auto& [name, m] : args) {
      memories.push_back(m);
      list.push_back({name, memories.back().get()});
    }
    steps.emplace_back(std::move(p), std::move(list));
  }
  void operator()() const {
    for (const auto& [p, args] : steps)
      dnnl_primitive_execute(p.get(), stream().get(), static_cast<int>(args.size()), args.data());
  }
};

struct Product {
  const char* name;
  int64_t batch, m, k, n;
  bool a_swapped = false, b_swapped = false;
};

// Gradus's worker threads set their own limit; this is the bare calls' and the caller's.
void use_threads(int n) { omp_set_num_threads(n); }

std::function<void()> bare_product(const Tensor& a, const Tensor& b, Tensor& y) {
  if (a.dtype() == DType::f64) {
    auto rows = [](const Tensor& t) { return t.strides().back() == 1; };
    auto leading = [&](const Tensor& t) {
      return static_cast<blasint>(std::max(t.strides()[t.rank() - 1], t.strides()[t.rank() - 2]));
    };
    const int64_t count = a.rank() == 3 ? a.shape()[0] : 1;
    const int64_t m = y.shape()[y.rank() - 2], n = y.shape()[y.rank() - 1],
                  k = a.shape()[a.rank() - 1];
    return [=, &y, pa = a.data_as<double>(), pb = b.data_as<double>()] {
      for (int64_t i = 0; i < count; ++i)
        cblas_dgemm(
            CblasRowMajor, rows(a) ? CblasNoTrans : CblasTrans, rows(b) ? CblasNoTrans : CblasTrans,
            static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1,
            pa + i * m * k, leading(a), pb + i * k * n, leading(b), 0,
            reinterpret_cast<double*>(y.mutable_data()) + i * m * n, static_cast<blasint>(n));
    };
  }
  auto bare = std::make_shared<Bare>();
  dnnl::matmul::primitive_desc d(dnnl::matmul::desc(described(a), described(b), described(y)),
                                 engine());
  bare->add(dnnl::matmul(d),
            {{DNNL_ARG_SRC, on(a)}, {DNNL_ARG_WEIGHTS, on(b)}, {DNNL_ARG_DST, on(y)}});
  return [bare] { (*bare)(); };
}

void run_product(benchmark::State& state, const Product& p, DType dtype, int workers) {
  use_threads(workers);
  auto shape = [&](int64_t rows, int64_t columns) {
    return p.batch > 1 ? Sizes{p.batch, rows, columns} : Sizes{rows, columns};
  };
  Tensor a =
      p.a_swapped ? swapped(filled(dtype, shape(p.k, p.m), 7)) : filled(dtype, shape(p.m, p.k), 7);
  Tensor b =
      p.b_swapped ? swapped(filled(dtype, shape(p.n, p.k), 5)) : filled(dtype, shape(p.k, p.n), 5);
  Tensor y = Tensor::zeros(dtype, shape(p.m, p.n));
  Bound ours("matmul", {a, b}, {}, workers);
  side_by_side(state, workers == 1 ? Clock::thread : Clock::wall, std::ref(ours),
               bare_product(a, b, y));
  use_threads(1);
}

// One row of 64 times a matrix of 16 columns, beside the loop that one would write for it: the sums
// stay in registers.
#if defined(__x86_64__)
[[gnu::noinline, gnu::target("arch=x86-64-v3")]] void bare_row(const float* a, const float* b,
                                                               float* c) {
  __m256 low = _mm256_setzero_ps(), high = low;
  for (int64_t i = 0; i < 64; ++i, b += 16) {
    __m256 x = _mm256_broadcast_ss(a + i);
    low = _mm256_fmadd_ps(x, _mm256_loadu_ps(b), low);
    high = _mm256_fmadd_ps(x, _mm256_loadu_ps(b + 8), high);
  }
  _mm256_storeu_ps(c, low);
  _mm256_storeu_ps(c + 8, high);
}
[[gnu::noinline, gnu::target("arch=x86-64-v3")]] void bare_row(const double* a, const double* b,
                                                               double* c) {
  __m256d s0 = _mm256_setzero_pd(), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < 64; ++i, b += 16) {
    __m256d x = _mm256_broadcast_sd(a + i);
    s0 = _mm256_fmadd_pd(x, _mm256_loadu_pd(b), s0);
    s1 = _mm256_fmadd_pd(x, _mm256_loadu_pd(b + 4), s1);
    s2 = _mm256_fmadd_pd(x, _mm256_loadu_pd(b + 8), s2);
    s3 = _mm256_fmadd_pd(x, _mm256_loadu_pd(b + 12), s3);
  }
  _mm256_storeu_pd(c, s0);
  _mm256_storeu_pd(c + 4, s1);
  _mm256_storeu_pd(c + 8, s2);
  _mm256_storeu_pd(c + 12, s3);
}
#else
template <class T>
[[gnu::noinline]] void bare_row(const T* a, const T* b, T* c) {
  T sums[16] = {};
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t j = 0; j < 16; ++j) sums[j] = std::fma(a[i], b[i * 16 + j], sums[j]);
  for (int64_t j = 0; j < 16; ++j) c[j] = sums[j];
}
#endif

template <class T>
void run_tiny(benchmark::State& state, DType dtype) {
  Tensor a = filled(dtype, Sizes{1, 64}, 7), b = filled(dtype, Sizes{64, 16}, 5),
         y = Tensor::zeros(dtype, Sizes{1, 16});
  Bound ours("matmul", {a, b}, {}, 1);
  const T *pa = a.data_as<T>(), *pb = b.data_as<T>();
  T* py = reinterpret_cast<T*>(y.mutable_data());
  side_by_side(state, Clock::thread, std::ref(ours), [=] {
    bare_row(pa, pb, py);
    benchmark::ClobberMemory();
  });
  state.counters["ns_above"] = (state.counters["gradus_us"] - state.counters["bare_us"]) * 1000;
}

struct Image {
  const char* name;
  int64_t batch, channels, size, outputs, kernel, stride, padding, groups;
  int64_t windows() const { return (size + 2 * padding - kernel) / stride + 1; }
};

enum class Direction { forward, image, kernel };

// Leads from what a caller has to what a primitive wants, or back; nothing where they are the same.
memory inward(Bare& bare, const memory& from, const memory::desc& wanted) {
  if (from.get_desc() == wanted) return from;
  memory to(wanted, engine());
  bare.add(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  return to;
}

std::function<void()> bare_convolution(const Image& s, Direction direction, const Tensor& x,
                                       const Tensor& w, const Tensor& y) {
  auto bare = std::make_shared<Bare>();
  memory::dims xs(x.shape().begin(), x.shape().end()), ys(y.shape().begin(), y.shape().end()),
      ws(w.shape().begin(), w.shape().end());
  if (s.groups > 1) {
    ws.insert(ws.begin(), s.groups);
    ws[1] /= s.groups;
  }
  const auto type = data_type(x.dtype());
  auto any = [&](const memory::dims& d) { return memory::desc(d, type, memory::format_tag::any); };
  const memory::dims stride{s.stride, s.stride}, padding{s.padding, s.padding};
  const auto algorithm = dnnl::algorithm::convolution_direct;
  dnnl::convolution_forward::primitive_desc f(
      dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, algorithm, any(xs),
                                      any(ws), any(ys), stride, padding, padding),
      engine());
  auto plain = [&](const memory::dims& d, const Tensor& t) {
    return memory(
        memory::desc(d, type, d.size() == 5 ? memory::format_tag::goihw : memory::format_tag::nchw),
        engine(), const_cast<std::byte*>(t.data()));
  };
  memory px = plain(xs, x), pw = plain(ws, w), py = plain(ys, y);
  auto outward = [&](const memory& from, const memory& to) {
    if (from.get_desc() == to.get_desc()) return;
    bare->add(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  };
  if (direction == Direction::forward) {
    memory a = inward(*bare, px, f.src_desc()), b = inward(*bare, pw, f.weights_desc()),
           c(f.dst_desc(), engine());
    bare->add(dnnl::convolution_forward(f),
              {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    outward(c, py);
  } else if (direction == Direction::image) {
    dnnl::convolution_backward_data::primitive_desc d(
        dnnl::convolution_backward_data::desc(algorithm, any(xs), any(ws), any(ys), stride, padding,
                                              padding),
        engine(), f);
    memory a = inward(*bare, py, d.diff_dst_desc()), b = inward(*bare, pw, d.weights_desc()),
           c(d.diff_src_desc(), engine());
    bare->add(dnnl::convolution_backward_data(d),
              {{DNNL_ARG_DIFF_DST, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DIFF_SRC, c}});
    outward(c, px);
  } else {
    dnnl::convolution_backward_weights::primitive_desc d(
        dnnl::convolution_backward_weights::desc(algorithm, any(xs), any(ws), any(ys), stride,
                                                 padding, padding),
        engine(), f);
    memory a = inward(*bare, px, d.src_desc()), b = inward(*bare, py, d.diff_dst_desc()),
           c(d.diff_weights_desc(), engine());
    bare->add(dnnl::convolution_backward_weights(d),
              {{DNNL_ARG_SRC, a}, {DNNL_ARG_DIFF_DST, b}, {DNNL_ARG_DIFF_WEIGHTS, c}});
    outward(c, pw);
  }
  return [bare] { (*bare)(); };
}

void run_convolution(benchmark::State& state, const Image& s, Direction direction, DType dtype,
                     int workers) {
  use_threads(workers);
  const int64_t q = s.windows();
  Tensor x = filled(dtype, Sizes{s.batch, s.channels, s.size, s.size}, 7),
         w = filled(dtype, Sizes{s.outputs, s.channels / s.groups, s.kernel, s.kernel}, 5),
         y = filled(dtype, Sizes{s.batch, s.outputs, q, q}, 3);
  ir::LiteralList attributes{
      {"stride", s.stride, {}}, {"padding", s.padding, {}}, {"groups", s.groups, {}}};
  auto sizes = [](int64_t n) { return ir::Literal::list(ir::Dims{ir::Dim(n), ir::Dim(n)}); };
  const char* op = "convolution";
  if (direction == Direction::image) {
    op = "convolution_input";
    attributes.push_back({"size", sizes(s.size), {}});
  } else if (direction == Direction::kernel) {
    op = "convolution_weight";
    attributes.push_back({"kernel", sizes(s.kernel), {}});
  }
  Bound ours(op, {direction == Direction::image ? y : x, direction == Direction::kernel ? y : w},
             attributes, workers);
  // Results of their own: the operands are shared.
  Tensor rx = x, rw = w, ry = y;
  if (direction == Direction::forward) ry = Tensor::zeros(dtype, Sizes(y.shape()));
  if (direction == Direction::image) rx = Tensor::zeros(dtype, Sizes(x.shape()));
  if (direction == Direction::kernel) rw = Tensor::zeros(dtype, Sizes(w.shape()));
  side_by_side(state, workers == 1 ? Clock::thread : Clock::wall, std::ref(ours),
               bare_convolution(s, direction, rx, rw, ry));
  use_threads(1);
}

constexpr Product products[] = {
    {"square_512", 1, 512, 512, 512},
    {"square_1024", 1, 1024, 1024, 1024},
    {"mlp_y", 1, 128, 784, 512, false, true},   // x w^T
    {"mlp_dx", 1, 128, 512, 784},               // dy w
    {"mlp_dw", 1, 512, 128, 784, true, false},  // dy^T x
    {"transformer_qkv", 1, 1024, 256, 768, false, true},
    {"transformer_up", 1, 1024, 256, 1024, false, true},
    {"transformer_down", 1, 1024, 1024, 256, false, true},
    {"transformer_up_dw", 1, 1024, 1024, 256, true, false},
    {"attention_scores", 32, 128, 64, 128, false, true},
    {"attention_values", 32, 128, 128, 64},
};
constexpr Image images[] = {
    {"cifar_first", 32, 3, 32, 32, 3, 1, 1, 1},  {"cifar_32", 32, 32, 32, 32, 3, 1, 1, 1},
    {"cifar_down", 32, 64, 16, 128, 3, 2, 1, 1}, {"cifar_64", 32, 64, 16, 128, 3, 1, 1, 1},
    {"resnet_14", 8, 256, 14, 256, 3, 1, 1, 1},  {"resnet_1x1", 8, 256, 14, 64, 1, 1, 0, 1},
    {"by_channel", 32, 64, 16, 64, 3, 1, 1, 64},
};

void add(const std::string& name, std::function<void(benchmark::State&)> run) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(run))
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void add_all() {
  using benchmark::State;
  add("tiny_1x64x16/f32/1", [](State& s) { run_tiny<float>(s, DType::f32); });
  add("tiny_1x64x16/f64/1", [](State& s) { run_tiny<double>(s, DType::f64); });
  for (int workers : {1, 2}) {
    for (DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const Product& p : products)
        // The serial OpenBLAS has one thread.
        if (dtype != DType::f64 || workers == 1)
          add(fmt::format("{}/{}/{}", p.name, name_of(dtype), workers),
              [=](State& s) { run_product(s, p, dtype, workers); });
    for (DType dtype : {DType::f32, DType::bf16})
      for (const Image& i : images)
        for (auto [direction, name] :
             {std::pair(Direction::forward, "y"), std::pair(Direction::image, "dx"),
              std::pair(Direction::kernel, "dw")})
          add(fmt::format("{}_{}/{}/{}", i.name, name, name_of(dtype), workers),
              [=, direction = direction](State& s) {
                run_convolution(s, i, direction, dtype, workers);
              });
  }
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  gradus::bench::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
