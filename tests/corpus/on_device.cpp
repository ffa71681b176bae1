#include "tests/corpus/on_device.h"

#include <cmath>
#include <cstdlib>

#include "devices/cuda/kernels.h"

namespace gradus::corpus {

namespace {

std::shared_ptr<Context>& test_device() {
  static std::shared_ptr<Context> context;
  return context;
}

double allowed(DType dtype) { return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-5 : 0; }

bool near(const Tensor& a, const Tensor& b) {
  if (describe(a) != describe(b)) return false;
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double largest = 1;
  for (double v : x)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i] && !(std::isnan(x[i]) && std::isnan(y[i])) &&
        !(std::fabs(x[i] - y[i]) <= allowed(a.dtype()) * largest))
      return false;
  return true;
}

}  // namespace

void set_test_device(std::shared_ptr<Context> context) { test_device() = std::move(context); }

std::string why_no_device() { return test_device() ? "" : fusion::cuda::why_no_device(0); }

const char* device_test_name() {
  static const bool there = why_no_device().empty();
  return there ? "device" : "skipped_without_a_device";
}

Results run_on_device(const Subject& subject) {
  if (!test_device()) {
    auto context = std::make_shared<Context>(ContextOptions{});
    const char* folder = std::getenv("GRADUS_CUDA_TEST_KERNELS");
    fusion::cuda::use_device(*context, 0, {.folder = folder ? folder : ""});
    test_device() = std::move(context);
  }
  State state(subject.code, test_device(), {.fusion = FusionMode::first});
  return run_all(state, subject);
}

std::string device_difference(const Subject& subject, const Results& cpu, const Results& device) {
  for (size_t s = 0; s < cpu.size(); ++s)
    for (size_t r = 0; r < cpu[s].size(); ++r) {
      const Tensor &a = cpu[s][r], &b = device[s][r];
      if (a.defined() != b.defined() || (a.defined() && !bitwise_equal(a, b) && !near(a, b)))
        return fmt::format("{} of stage {} is another on the device",
                           subject.code->results(s)[r].name, s);
    }
  return {};
}

}  // namespace gradus::corpus
