// Pooling over windows of images [N, C, spatial..]; a sample may come alone, [C, spatial..]. A list
// attribute of one number holds for every dimension; `stride` is `kernel` where it is left out.
// With `ceil_mode` a window may reach past the end if it begins before it.
#pragma once

#include "gradus/table.h"
#include "ops/bind_work.h"

namespace gradus::ops {

using namespace std::literals;

struct MaxPoolAttr {
  Ints kernel;
  std::optional<Ints> stride;
  Ints padding{0}, dilation{1};
  bool ceil_mode = false;
  static constexpr auto fields() {
    return std::tuple(
        required("kernel", &MaxPoolAttr::kernel), field("stride", &MaxPoolAttr::stride),
        field("padding", &MaxPoolAttr::padding), field("dilation", &MaxPoolAttr::dilation),
        field("ceil_mode", &MaxPoolAttr::ceil_mode));
  }
};

// Of equal ones the first, of NaNs the last. Its derivative goes to where the values were.
struct MaxPool {
  static constexpr auto name = "max_pool"sv;
  static constexpr auto doc =
      "values = the greatest x of each window, indices = where it is in x[n, c], row-major"sv;
  static constexpr std::array results{"values"sv, "indices"sv};
  static constexpr auto batch = batch_samples;
  using Attr = MaxPoolAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&);
};

template <int spatial>
struct MaxPoolNd {
  static constexpr std::array<std::string_view, 3> names{"max_pool1d", "max_pool2d", "max_pool3d"};
  static constexpr std::string_view name = names[spatial - 1],
                                    doc = "y = the greatest x of each window";
  using Attr = MaxPoolAttr;
  static void compose(ComposeCall&);
};

struct MaxPool2dIdx {
  static constexpr auto name = "max_pool2d_idx"sv,
                        doc = "y = max_pool2d(x), indices = where it is in x[n, c], h*W + w"sv;
  static constexpr std::array results{"y"sv, "indices"sv};
  using Attr = MaxPoolAttr;
  static void compose(ComposeCall&);
};

struct AvgPoolAttr {
  Ints kernel;
  std::optional<Ints> stride;
  Ints padding{0};
  bool ceil_mode = false, count_include_pad = true;
  std::optional<int64_t> divisor_override = {};  // what sums are divided by instead of counts
  static constexpr auto fields() {
    return std::tuple(
        required("kernel", &AvgPoolAttr::kernel), field("stride", &AvgPoolAttr::stride),
        field("padding", &AvgPoolAttr::padding), field("ceil_mode", &AvgPoolAttr::ceil_mode),
        field("count_include_pad", &AvgPoolAttr::count_include_pad),
        field("divisor_override", &AvgPoolAttr::divisor_override));
  }
};

template <int spatial>
struct AvgPoolNd {
  static constexpr std::array<std::string_view, 3> names{"avg_pool1d", "avg_pool2d", "avg_pool3d"};
  static constexpr std::string_view name = names[spatial - 1],
                                    doc = "y = the mean of x over each window";
  using Attr = AvgPoolAttr;
  static void compose(ComposeCall&);
};

struct AdaptivePoolAttr {
  Ints output_size;
  static constexpr auto fields() {
    return std::tuple(required("output_size", &AdaptivePoolAttr::output_size));
  }
};

// work::Window i of n is [floor(i H / n), ceil((i + 1) H / n)), along each dimension.
template <int spatial>
struct AdaptiveAvgPoolNd {
  static constexpr std::array<std::string_view, 3> names{
      "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"};
  static constexpr std::string_view name = names[spatial - 1],
                                    doc = "y = the mean of x over each of output_size windows";
  using Attr = AdaptivePoolAttr;
  static void compose(ComposeCall&, const Attr&);
};

template <int spatial>
struct AdaptiveMaxPoolNd {
  static constexpr std::array<std::string_view, 3> names{
      "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"};
  static constexpr std::string_view name = names[spatial - 1],
                                    doc = "y = the greatest x of each of output_size windows";
  using Attr = AdaptivePoolAttr;
  static void compose(ComposeCall&, const Attr&);
};

struct LpPool2d {
  static constexpr auto name = "lp_pool2d"sv, doc = "y = (sum of x^p over each window)^(1/p)"sv;
  struct Attr {
    double p = 2;
    Ints kernel;
    std::optional<Ints> stride;
    static constexpr auto fields() {
      return std::tuple(required("p", &Attr::p), required("kernel", &Attr::kernel),
                        field("stride", &Attr::stride));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct LocalResponseNorm {  // windows of `size` channels around each, 0 outside
  static constexpr auto name = "local_response_norm"sv,
                        doc = "y = x / (k + alpha * mean of x^2 over nearby channels)^beta"sv;
  struct Attr {
    int64_t size = 1;
    double alpha = 1e-4, beta = 0.75, k = 1;
    static constexpr auto fields() {
      return std::tuple(required("size", &Attr::size), field("alpha", &Attr::alpha),
                        field("beta", &Attr::beta), field("k", &Attr::k));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

using PoolingOperators =
    std::tuple<MaxPool, MaxPoolNd<1>, MaxPoolNd<2>, MaxPoolNd<3>, MaxPool2dIdx, AvgPoolNd<1>,
               AvgPoolNd<2>, AvgPoolNd<3>, AdaptiveAvgPoolNd<1>, AdaptiveAvgPoolNd<2>,
               AdaptiveAvgPoolNd<3>, AdaptiveMaxPoolNd<1>, AdaptiveMaxPoolNd<2>,
               AdaptiveMaxPoolNd<3>, LpPool2d, LocalResponseNorm>;

}  // namespace gradus::ops
