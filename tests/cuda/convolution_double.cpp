#include "tests/cuda/convolution_double.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "gradus/convert.h"

namespace gradus::fusion::cuda {

struct CudnnContext {
  int mark = 4712;
  int streams = 0;  // that were set since the last call
};
struct CudnnTensorDescriptor {
  int type = -1;
  std::vector<int> sizes;
};
struct CudnnFilterDescriptor {
  int type = -1;
  std::vector<int> sizes;
};
struct CudnnConvolutionDescriptor {
  std::vector<int> padding, stride, dilation;
  int compute = -1, groups = 1, math = 0;
};

}  // namespace gradus::fusion::cuda

namespace gradus::fusion::test {

namespace {

using namespace cuda;
using Direction = work::Direction;

constexpr int ok = 0, bad_parameter = 2000;

void expect(bool good, const char* what) {
  if (!good) convolution_double().faults.emplace_back(what);
}

template <class T>
int make(T** to) {
  *to = new T;
  ++convolution_double().left;
  return ok;
}
template <class T>
int destroy(T* which) {
  delete which;
  --convolution_double().left;
  return ok;
}

int create(CudnnHandle** h) {
  if (const int status = convolution_double().create_status) return status;
  return make(h);
}
int set_stream(CudnnHandle* h, DriverStream) {
  expect(h->mark == 4712, "a handle");
  ++h->streams;
  return ok;
}
const char* status_name(int status) {
  return status == 1001   ? "CUDNN_STATUS_NOT_INITIALIZED"
         : status == 5000 ? "CUDNN_STATUS_EXECUTION_FAILED"
                          : "CUDNN_UNKNOWN_STATUS";
}

std::vector<int> list_of(int n, const int* list) { return {list, list + n}; }
bool positive(const std::vector<int>& sizes) {
  return std::ranges::all_of(sizes, [](int n) { return n > 0; });
}

int set_tensor(CudnnTensor* t, int type, int rank, const int* sizes, const int* strides) {
  expect(rank == 4 || rank == 5, "dimensions of a tensor");
  t->type = type;
  t->sizes = list_of(rank, sizes);
  expect(positive(t->sizes), "sizes of a tensor");
  int stride = 1;
  for (int d = rank; d-- > 0; stride *= sizes[d])
    expect(strides[d] == stride, "a tensor's strides");
  return ok;
}
int set_filter(CudnnFilter* f, int type, int format, int rank, const int* sizes) {
  expect(format == 0, "a kernel's format");
  expect(rank == 4 || rank == 5, "dimensions of a kernel");
  f->type = type;
  f->sizes = list_of(rank, sizes);
  expect(positive(f->sizes), "sizes of a kernel");
  return ok;
}
int set_what(CudnnWhat* w, int axes, const int* padding, const int* stride, const int* dilation,
             int mode, int compute) {
  expect(mode == 1, "a convolution that turns the kernel");
  w->padding = list_of(axes, padding);
  w->stride = list_of(axes, stride);
  w->dilation = list_of(axes, dilation);
  expect(positive(w->stride) && positive(w->dilation), "strides and dilations");
  w->compute = compute;
  return ok;
}
int set_groups(CudnnWhat* w, int groups) {
  expect(groups > 0, "groups");
  w->groups = groups;
  return ok;
}
int set_math(CudnnWhat* w, int math) {
  w->math = math;
  return ok;
}

// The sizes fit: the library takes no result but of all windows.
bool fits(const CudnnTensor* x, const CudnnFilter* k, const CudnnWhat* w, const CudnnTensor* y) {
  const size_t rank = x->sizes.size();
  if (k->sizes.size() != rank || y->sizes.size() != rank || w->padding.size() + 2 != rank ||
      w->stride.size() + 2 != rank || w->dilation.size() + 2 != rank)
    return false;
  if (x->type != k->type || x->type != y->type || x->sizes[0] != y->sizes[0] ||
      y->sizes[1] != k->sizes[0] || k->sizes[1] * w->groups != x->sizes[1] ||
      k->sizes[0] % w->groups)
    return false;
  for (size_t d = 2; d < rank; ++d) {
    const size_t a = d - 2;
    const int room = x->sizes[d] + 2 * w->padding[a] - w->dilation[a] * (k->sizes[d] - 1) - 1;
    if (room < 0 || y->sizes[d] != room / w->stride[a] + 1) return false;
  }
  // f64 is added up in f64, all others in f32; f32 without TF32.
  return (x->type == 0 || x->type == 1 || x->type == 2 || x->type == 9) &&
         w->compute == (x->type == 1 ? 1 : 0) && (x->type != 0 || w->math == 3);
}

// What a library lists: the quickest are no sums, or not the same at every run.
int find(Direction direction, bool good, int most, int* count, CudnnFound* found) {
  ConvolutionDouble& self = convolution_double();
  expect(good, "a search for what does not fit");
  ++self.searches;
  if (self.find_status) return self.find_status;
  std::vector<CudnnFound> list = self.offered;
  if (list.empty()) {
    list.push_back({direction == Direction::result ? 7 : 5, 0, 1, 0, 1, 1, {}});  // Winograd's
    // By a transform, or by atomic additions.
    list.push_back({direction == Direction::result  ? 4
                    : direction == Direction::image ? 0
                                                    : 3,
                    0,
                    2,
                    0,
                    direction == Direction::result,
                    1,
                    {}});
    list.push_back({1, 0, 3, 0, 1, 1, {}});
  }
  expect(most >= static_cast<int>(list.size()), "a list that is too short");
  std::ranges::copy(list, found);
  *count = static_cast<int>(list.size());
  return ok;
}
int find_result(CudnnHandle*, CudnnTensor* x, CudnnFilter* w, CudnnWhat* c, CudnnTensor* y,
                int most, int* count, CudnnFound* found) {
  return find(Direction::result, fits(x, w, c, y), most, count, found);
}
int find_image(CudnnHandle*, CudnnFilter* w, CudnnTensor* dy, CudnnWhat* c, CudnnTensor* dx,
               int most, int* count, CudnnFound* found) {
  return find(Direction::image, fits(dx, w, c, dy), most, count, found);
}
int find_kernel(CudnnHandle*, CudnnTensor* x, CudnnTensor* dy, CudnnWhat* c, CudnnFilter* dw,
                int most, int* count, CudnnFound* found) {
  return find(Direction::kernel, fits(x, dw, c, dy), most, count, found);
}
int room(size_t* bytes) {
  *bytes = convolution_double().workspace_bytes;
  return ok;
}
int room_for_result(CudnnHandle*, CudnnTensor*, CudnnFilter*, CudnnWhat*, CudnnTensor*, int,
                    size_t* bytes) {
  return room(bytes);
}
int room_for_image(CudnnHandle*, CudnnFilter*, CudnnTensor*, CudnnWhat*, CudnnTensor*, int,
                   size_t* bytes) {
  return room(bytes);
}
int room_for_kernel(CudnnHandle*, CudnnTensor*, CudnnTensor*, CudnnWhat*, CudnnFilter*, int,
                    size_t* bytes) {
  return room(bytes);
}

DType dtype_of(int type) {
  return type == 0 ? DType::f32 : type == 1 ? DType::f64 : type == 2 ? DType::f16 : DType::bf16;
}
size_t elements_of(const std::vector<int>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), size_t{1},
                         [](size_t n, int size) { return n * static_cast<size_t>(size); });
}
std::vector<double> read(const void* from, int type, const std::vector<int>& sizes) {
  const DType dtype = dtype_of(type);
  const size_t n = elements_of(sizes);
  std::vector<std::byte> bytes(n * size_of(dtype));
  // What was never written must not be read.
  convolution_double().memory->read(bytes.data(), reinterpret_cast<uint64_t>(from), bytes.size());
  std::vector<double> values(n);
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>)
      for (size_t i = 0; i < n; ++i)
        values[i] = convert<double>(reinterpret_cast<const T*>(bytes.data())[i]);
  });
  return values;
}
void write(void* to, int type, const std::vector<double>& values) {
  const DType dtype = dtype_of(type);
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>)
      for (size_t i = 0; i < values.size(); ++i)
        reinterpret_cast<T*>(bytes.data())[i] = convert<T>(values[i]);
  });
  convolution_double().memory->write(reinterpret_cast<uint64_t>(to), bytes.data(), bytes.size());
}

// The definition, for each element of y and of the kernel: `visit` gets places in x, w and y.
template <class F>
void each_product(const std::vector<int>& x, const std::vector<int>& w, const std::vector<int>& y,
                  const CudnnWhat& c, F visit) {
  // Filled up to three axes in front.
  auto axis = [](const std::vector<int>& list, size_t skip, size_t d, int none) {
    const size_t missing = 3 - (list.size() - skip);
    return d < missing ? none : list[skip + d - missing];
  };
  int image[3], taps[3], windows[3], padding[3], stride[3], dilation[3];
  for (size_t d = 0; d < 3; ++d) {
    image[d] = axis(x, 2, d, 1), taps[d] = axis(w, 2, d, 1), windows[d] = axis(y, 2, d, 1);
    padding[d] = axis(c.padding, 0, d, 0), stride[d] = axis(c.stride, 0, d, 1);
    dilation[d] = axis(c.dilation, 0, d, 1);
  }
  const int each = w[0] / c.groups;
  int at[3];
  auto along = [&](size_t d, int window, int tap) {
    at[d] = window * stride[d] - padding[d] + tap * dilation[d];
    return at[d] >= 0 && at[d] < image[d];
  };
  size_t to = 0;
  for (int n = 0; n < y[0]; ++n)
    for (int o = 0; o < y[1]; ++o)
      for (int i = 0; i < windows[0]; ++i)
        for (int j = 0; j < windows[1]; ++j)
          for (int k = 0; k < windows[2]; ++k, ++to) {
            size_t tap = static_cast<size_t>(o) * elements_of(w) / static_cast<size_t>(w[0]);
            for (int channel = 0; channel < w[1]; ++channel)
              for (int p = 0; p < taps[0]; ++p)
                for (int q = 0; q < taps[1]; ++q)
                  for (int r = 0; r < taps[2]; ++r, ++tap) {
                    // All three, so that `at` is known.
                    const bool a = along(0, i, p), b = along(1, j, q), in = along(2, k, r);
                    if (!a || !b || !in) continue;
                    const int64_t plane = int64_t{n} * x[1] + o / each * w[1] + channel;
                    const int64_t from =
                        ((plane * image[0] + at[0]) * image[1] + at[1]) * image[2] + at[2];
                    visit(static_cast<size_t>(from), tap, to);
                  }
          }
}

// Common to the three calls.
struct Call {
  Direction direction;
  CudnnHandle* handle;
  const void *alpha, *beta;
  CudnnTensor *x, *y;
  CudnnFilter* w;
  CudnnWhat* c;
  const void *first, *second;
  void* result;
  int algorithm;
  void* workspace;
  size_t workspace_bytes;
};
int run(const Call& call) {
  ConvolutionDouble& self = convolution_double();
  const CudnnTensor &x = *call.x, &y = *call.y;
  const CudnnFilter& w = *call.w;
  expect(call.handle->mark == 4712 && call.handle->streams == 1, "a stream for each call");
  call.handle->streams = 0;
  if (self.run_status) return self.run_status;
  if (!fits(&x, &w, call.c, &y)) {
    expect(false, "sizes that do not fit");
    return bad_parameter;
  }
  expect(call.algorithm == 1, "an algorithm that is no sum of products");
  const bool f64 = x.type == 1;
  expect(f64 ? *static_cast<const double*>(call.alpha) == 1 &&
                   *static_cast<const double*>(call.beta) == 0
             : *static_cast<const float*>(call.alpha) == 1 &&
                   *static_cast<const float*>(call.beta) == 0,
         "alpha and beta");
  for (const void* p : {call.first, call.second, static_cast<const void*>(call.result)})
    expect(reinterpret_cast<uintptr_t>(p) % 16 == 0, "a pointer's alignment");
  expect(call.workspace_bytes == self.workspace_bytes, "the workspace's size");
  expect(reinterpret_cast<uintptr_t>(call.workspace) % 256 == 0, "the workspace's alignment");
  // All of it is the library's.
  const std::vector<std::byte> dirt(call.workspace_bytes, std::byte{0xff});
  self.memory->write(reinterpret_cast<uint64_t>(call.workspace), dirt.data(), dirt.size());
  self.calls.push_back({call.direction, x.sizes, w.sizes, y.sizes, call.c->padding, call.c->stride,
                        call.c->dilation, call.c->groups, x.type, call.c->compute, call.c->math,
                        call.algorithm});
  auto each = [&](auto visit) { each_product(x.sizes, w.sizes, y.sizes, *call.c, visit); };
  std::vector<double> to;
  if (call.direction == Direction::result) {
    const auto a = read(call.first, x.type, x.sizes), b = read(call.second, w.type, w.sizes);
    to.resize(elements_of(y.sizes));
    each([&](size_t i, size_t j, size_t k) { to[k] += a[i] * b[j]; });
  } else if (call.direction == Direction::image) {
    const auto a = read(call.first, y.type, y.sizes), b = read(call.second, w.type, w.sizes);
    to.resize(elements_of(x.sizes));
    each([&](size_t i, size_t j, size_t k) { to[i] += a[k] * b[j]; });
  } else {
    const auto a = read(call.first, x.type, x.sizes), b = read(call.second, y.type, y.sizes);
    to.resize(elements_of(w.sizes));
    each([&](size_t i, size_t j, size_t k) { to[j] += a[i] * b[k]; });
  }
  write(call.result, x.type, to);
  return ok;
}
int run_result(CudnnHandle* h, const void* alpha, CudnnTensor* x, const void* xs, CudnnFilter* w,
               const void* ws, CudnnWhat* c, int algorithm, void* workspace, size_t bytes,
               const void* beta, CudnnTensor* y, void* ys) {
  return run(
      {Direction::result, h, alpha, beta, x, y, w, c, xs, ws, ys, algorithm, workspace, bytes});
}
int run_image(CudnnHandle* h, const void* alpha, CudnnFilter* w, const void* ws, CudnnTensor* dy,
              const void* dys, CudnnWhat* c, int algorithm, void* workspace, size_t bytes,
              const void* beta, CudnnTensor* dx, void* dxs) {
  return run(
      {Direction::image, h, alpha, beta, dx, dy, w, c, dys, ws, dxs, algorithm, workspace, bytes});
}
int run_kernel(CudnnHandle* h, const void* alpha, CudnnTensor* x, const void* xs, CudnnTensor* dy,
               const void* dys, CudnnWhat* c, int algorithm, void* workspace, size_t bytes,
               const void* beta, CudnnFilter* dw, void* dws) {
  return run(
      {Direction::kernel, h, alpha, beta, x, dy, dw, c, xs, dys, dws, algorithm, workspace, bytes});
}

}  // namespace

ConvolutionDouble& convolution_double() {
  static ConvolutionDouble self;
  return self;
}

const ConvolutionTable& convolution_double_table() {
  static const ConvolutionTable table{[] { return size_t{91301}; },
                                      status_name,
                                      create,
                                      destroy<CudnnHandle>,
                                      set_stream,
                                      make<CudnnTensor>,
                                      destroy<CudnnTensor>,
                                      set_tensor,
                                      make<CudnnFilter>,
                                      destroy<CudnnFilter>,
                                      set_filter,
                                      make<CudnnWhat>,
                                      destroy<CudnnWhat>,
                                      set_what,
                                      set_groups,
                                      set_math,
                                      find_result,
                                      find_image,
                                      find_kernel,
                                      room_for_result,
                                      room_for_image,
                                      room_for_kernel,
                                      run_result,
                                      run_image,
                                      run_kernel};
  return table;
}

}  // namespace gradus::fusion::test
