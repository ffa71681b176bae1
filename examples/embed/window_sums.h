// An operator of our own: its type rule, its kernel, and its derivative.
#pragma once

#include "gradus/rules.h"
#include "gradus/table.h"

namespace embed {

using namespace std::literals;
using gradus::DType;

// y[i] = x[i] + … + x[i + width - 1]. Its gradient is sums over windows, too: so every order
// exists.
struct WindowSums {
  static constexpr auto name = "window_sums"sv, doc = "y[i] = x[i] + ... + x[i + width - 1]"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto no_batch_rule = "a window slides over a vector alone";
  struct Attr {
    int64_t width = 0;
    static constexpr auto fields() {
      return std::tuple(gradus::ops::required("width", &Attr::width));
    }
  };

  static void infer(gradus::ir::InferCall& call) {
    const gradus::ir::Type& x = call.tensor(0);
    const auto& a = gradus::ops::attributes_as<Attr>(call.attributes);
    if (x.rank() != 1 || (x.dtype != DType::f64 && x.dtype != DType::f32))
      call.fail("'x' is {}; it must be a vector of f64 or f32", to_string(x));
    if (a.width < 1) call.fail("width is {}; a window has at least one element", a.width);
    gradus::ir::Dim windows = x.dims[0] - (a.width - 1);
    if (windows.is_constant() && windows.value() < 0)
      call.fail("a window of {} elements is wider than {}", a.width, to_string(x));
    call.out.push_back(gradus::ir::Type(x.dtype, {windows}, x.device));
  }

  struct Loop {
    int64_t windows, step, width;
  };
  template <class T>
  static void run(const void* parameters, std::byte* const* args, gradus::work::KernelScope&) {
    const Loop& l = *static_cast<const Loop*>(parameters);
    const T* x = reinterpret_cast<const T*>(args[0]);
    T* y = reinterpret_cast<T*>(args[1]);
    for (int64_t i = 0; i < l.windows; ++i) {
      T sum = 0;
      for (int64_t k = 0; k < l.width; ++k) sum += x[(i + k) * l.step];
      y[i] = sum;
    }
  }
  static void bind(gradus::ops::BindCall& call) {
    Loop loop{call.out[0].shape[0], call.in[0].strides[0],
              gradus::ops::attributes_as<Attr>(call.attributes).width};
    call.set_kernel(call.in[0].dtype == DType::f64 ? run<double> : run<float>, loop);
  }

  // dx[j] is the sum of dy over the windows that x[j] lies in.
  static void vjp(gradus::ops::VjpCall& d) {
    const int64_t width = d.attr<Attr>().width;
    d.give(0, [&] {
      auto padded = gradus::ops::pad_zeros(d.dy(), 0, width - 1, width - 1);
      return gradus::ops::emit<WindowSums>({padded}, {.width = width});
    });
  }
};

}  // namespace embed
