#include "devices/cuda/convolutions.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradus/error.h"

namespace gradus::fusion::cuda {

namespace {

constexpr size_t most_workspace_of_convolutions = 32 << 20;  // as for products
constexpr int64_t most_elements = INT32_MAX;
constexpr int most_found = 16;  // the library has fewer algorithms of a kind

int cudnn_type_of(DType d) {
  return d == DType::f64    ? cudnn::type_f64
         : d == DType::f16  ? cudnn::type_f16
         : d == DType::bf16 ? cudnn::type_bf16
                            : cudnn::type_f32;
}

// What a descriptor is told: sizes with at least two spatial ones, since the library knows no less.
struct Numbers {
  SmallVector<int, 5> list;
  void add(int64_t n) { list.push_back(static_cast<int>(n)); }
  int count() const { return static_cast<int>(list.size()); }
};
size_t first_axis(int rank) { return rank < 5 ? 1 : 0; }

Numbers sizes_of(int64_t first, int64_t second, const work::ConvAxes& axes, int rank,
                 int64_t work::ConvAxis::*size) {
  Numbers n;
  n.add(first);
  n.add(second);
  for (size_t d = first_axis(rank); d < axes.size(); ++d) n.add(axes[d].*size);
  return n;
}
Numbers strides_of(const Numbers& sizes) {
  Numbers n;
  for (int64_t stride : contiguous_strides(Sizes(sizes.list.begin(), sizes.list.end())))
    n.add(stride);
  return n;
}

// All windows that fit into the image: the library knows no fewer.
bool has_all_windows(const work::ConvAxes& axes) {
  return std::ranges::all_of(axes, [](const work::ConvAxis& a) {
    return a.windows == (a.image + 2 * a.padding - a.dilation * (a.kernel - 1) - 1) / a.stride + 1;
  });
}

}  // namespace

Convolutions::Convolutions(const ConvolutionTable& table) : t_(table) {
  if (const int fault = t_.create(&handle_))
    throw ResourceError("cuDNN does not start: {}", t_.status_name(fault));
}

Convolutions::~Convolutions() { t_.destroy(handle_); }

std::shared_ptr<const Convolution> Convolutions::make(const work::Convolution& w) const {
  for (const Layout* l : {&w.first, &w.second, &w.result})
    if (l->numel() < 1 || l->numel() > most_elements) return nullptr;
  for (const work::ConvAxis& a : w.axes)
    if (std::max({a.padding, a.stride, a.dilation}) > INT32_MAX) return nullptr;
  if (!has_all_windows(w.axes)) return nullptr;
  std::shared_ptr<Convolution> convolution(new Convolution(*this, w.direction));
  if (!convolution->describe(w) || !convolution->find_algorithm()) return nullptr;
  return convolution;
}

bool Convolution::describe(const work::Convolution& w) {
  const ConvolutionTable& t = library_.t_;
  const Layout& image = direction_ == Direction::image ? w.result : w.first;
  const Layout& kernel = direction_ == Direction::kernel ? w.result : w.second;
  const Layout& result = direction_ == Direction::result  ? w.result
                         : direction_ == Direction::image ? w.first
                                                          : w.second;
  const DType dtype = image.dtype;
  f64_ = dtype == DType::f64;
  f32_ = dtype == DType::f32;
  const int type = cudnn_type_of(dtype), rank = image.rank();
  using Axis = work::ConvAxis;
  auto tensor = [&](CudnnTensor*& to, const Layout& l, int64_t Axis::*size) {
    const Numbers sizes = sizes_of(l.shape[0], l.shape[1], w.axes, rank, size);
    return !t.make_tensor(&to) &&
           !t.set_tensor(to, type, sizes.count(), sizes.list.data(), strides_of(sizes).list.data());
  };
  const Numbers taps = sizes_of(kernel.shape[0], kernel.shape[1], w.axes, rank, &Axis::kernel);
  Numbers padding, stride, dilation;
  for (size_t d = first_axis(rank); d < w.axes.size(); ++d) {
    padding.add(w.axes[d].padding);
    stride.add(w.axes[d].stride);
    dilation.add(w.axes[d].dilation);
  }
  const int math = f32_ ? cudnn::fma_math : f64_ ? cudnn::default_math : cudnn::tensor_core_math;
  return tensor(image_, image, &Axis::image) && tensor(result_, result, &Axis::windows) &&
         !t.make_filter(&kernel_) &&
         !t.set_filter(kernel_, type, cudnn::format_nchw, taps.count(), taps.list.data()) &&
         !t.make_what(&what_) &&
         !t.set_what(what_, padding.count(), padding.list.data(), stride.list.data(),
                     dilation.list.data(), cudnn::cross_correlation,
                     f64_ ? cudnn::type_f64 : cudnn::type_f32) &&
         !t.set_groups(what_, static_cast<int>(w.groups)) && !t.set_math(what_, math);
}

int Convolution::find(int most, int* count, CudnnFound* found) const {
  const ConvolutionTable& t = library_.t_;
  CudnnHandle* h = library_.handle_;
  switch (direction_) {
    case Direction::result:
      return t.find_result(h, image_, kernel_, what_, result_, most, count, found);
    case Direction::image:
      return t.find_image(h, kernel_, result_, what_, image_, most, count, found);
    case Direction::kernel:
      break;
  }
  return t.find_kernel(h, image_, result_, what_, kernel_, most, count, found);
}

int Convolution::room_for(int algorithm, size_t* bytes) const {
  const ConvolutionTable& t = library_.t_;
  CudnnHandle* h = library_.handle_;
  switch (direction_) {
    case Direction::result:
      return t.room_for_result(h, image_, kernel_, what_, result_, algorithm, bytes);
    case Direction::image:
      return t.room_for_image(h, kernel_, result_, what_, image_, algorithm, bytes);
    case Direction::kernel:
      break;
  }
  return t.room_for_kernel(h, image_, result_, what_, kernel_, algorithm, bytes);
}

bool Convolution::is_sum(int algorithm) const {
  return direction_ == Direction::result  ? std::ranges::count(cudnn::result_gemms, algorithm) > 0
         : direction_ == Direction::image ? algorithm == cudnn::image_gemm
                                          : algorithm == cudnn::kernel_gemm;
}

// The first that will do, of those that the library lists by the time that it expects of them. It
// measures nothing, so that the choice is the same at every run.
bool Convolution::find_algorithm() {
  std::lock_guard guard(library_.mutex_);
  CudnnFound found[most_found] = {};
  int count = 0;
  if (find(most_found, &count, found)) return false;
  for (const CudnnFound& one : std::span(found, static_cast<size_t>(count))) {
    if (one.status || !one.deterministic || !is_sum(one.algorithm)) continue;
    // An algorithm goes with the kind of arithmetic that it was listed with; for f32 there is one.
    const bool other_math =
        !f32_ && (one.math == cudnn::default_math || one.math == cudnn::tensor_core_math ||
                  one.math == cudnn::fma_math);
    if (other_math && library_.t_.set_math(what_, one.math)) continue;
    size_t bytes = 0;
    if (room_for(one.algorithm, &bytes) || bytes > most_workspace_of_convolutions) continue;
    algorithm_ = one.algorithm;
    workspace_bytes_ = bytes;
    return true;
  }
  return false;
}

Convolution::~Convolution() {
  const ConvolutionTable& t = library_.t_;
  for (CudnnTensor* tensor : {image_, result_})
    if (tensor) t.destroy_tensor(tensor);
  if (kernel_) t.destroy_filter(kernel_);
  if (what_) t.destroy_what(what_);
}

int Convolution::run(DevicePointer first, DevicePointer second, DevicePointer result,
                     DevicePointer workspace, DriverStream stream) const {
  // Alpha and beta are read before the call returns: f64 for f64, else f32.
  const double one = 1, zero = 0;
  const float one_f32 = 1, zero_f32 = 0;
  const void* alpha = f64_ ? static_cast<const void*>(&one) : &one_f32;
  const void* beta = f64_ ? static_cast<const void*>(&zero) : &zero_f32;
  const auto *a = reinterpret_cast<const void*>(first), *b = reinterpret_cast<const void*>(second);
  auto *to = reinterpret_cast<void*>(result), *room = reinterpret_cast<void*>(workspace);
  const ConvolutionTable& t = library_.t_;
  CudnnHandle* h = library_.handle_;
  std::lock_guard guard(library_.mutex_);
  if (const int status = t.set_stream(h, stream)) return status;
  switch (direction_) {
    case Direction::result:
      return t.run_result(h, alpha, image_, a, kernel_, b, what_, algorithm_, room,
                          workspace_bytes_, beta, result_, to);
    case Direction::image:
      return t.run_image(h, alpha, kernel_, b, result_, a, what_, algorithm_, room,
                         workspace_bytes_, beta, image_, to);
    case Direction::kernel:
      break;
  }
  return t.run_kernel(h, alpha, image_, a, result_, b, what_, algorithm_, room, workspace_bytes_,
                      beta, kernel_, to);
}

std::string Convolution::name_of(int status) const {
  const char* name = library_.t_.status_name(status);
  return name ? name : fmt::format("status {}", status);
}

}  // namespace gradus::fusion::cuda
