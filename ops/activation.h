// Activation functions.
#pragma once

#include "gradus/rules.h"
#include "gradus/table.h"
#include "ops/declared.h"
#include "ops/number_literal.h"

namespace gradus::ops {

struct FastSigmoid;
struct Sigmoid : Function<Unary<Result::floating>> {  // y = 1 / (1 + e^-x)
  static constexpr std::string_view name = "sigmoid", doc = "y = 1 / (1 + e^-x)";
  using Fast = FastSigmoid;
  GRADUS_INLINE static auto scalar(auto x) { return sigmoid(x); }
  static Value dx(VjpCall& d) { return d.dy() * (d.y() * (1.0 - d.y())); }
};

struct FastSigmoid : Function<Unary<Result::floating>> {  // y = 1 / (1 + e^-x)
  static constexpr std::string_view name = "fast_sigmoid";
  static constexpr std::string_view doc = "y = 1 / (1 + e^-x), within 4 ulp in f32";
  GRADUS_INLINE static auto scalar(auto x) { return fast_sigmoid(x); }
  static Value dx(VjpCall& d) { return Sigmoid::dx(d); }
};

struct Logsigmoid : Function<Unary<Result::floating>> {  // y = -log(1 + e^-x)
  static constexpr std::string_view name = "logsigmoid", doc = "y = log(1 / (1 + e^-x))";
  GRADUS_INLINE static auto scalar(auto x) { return logsigmoid(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Sigmoid>(-d.x()); }
};

struct Relu : Function<Unary<>> {  // y = max(x, 0)
  static constexpr std::string_view name = "relu", doc = "y = max(x, 0); its derivative at 0 is 0";
  static constexpr bool refuses_bool = true;
  GRADUS_INLINE static auto scalar(auto x) { return select(x <= 0, 0, x); }
  static Value dx(VjpCall& d) {
    return where(le(d.y(), num(0.0)), num(0.0), d.dy());
  }  // by y, which a layer keeps anyway
};

struct LeakyRelu : Function<Unary<Result::floating>> {  // y = x where x > 0, else slope x
  static constexpr std::string_view name = "leaky_relu", doc = "y = x > 0 ? x : slope * x";
  struct Attr {
    double slope = 0.01;
    static constexpr auto fields() { return std::tuple(field("slope", &Attr::slope)); }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S below = x * a.slope;
    return select(x > 0.0, x, below);
  }
  static Value dx(VjpCall& d, const Attr& a) {
    Value below = d.dy() * a.slope;
    return where(gt(d.x(), num(0.0)), d.dy(), below);
  }
};

struct AlphaOfElu {
  double alpha = 1;
  static constexpr auto fields() { return std::tuple(field("alpha", &AlphaOfElu::alpha)); }
};

struct Elu : Function<Unary<Result::floating>> {  // y = x where x > 0, else alpha (e^x - 1)
  static constexpr std::string_view name = "elu", doc = "y = x > 0 ? x : alpha * (e^x - 1)";
  using Attr = AlphaOfElu;
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S below = expm1(x) * a.alpha;
    return select(x > 0.0, x, below);
  }
  static Value dx(VjpCall&, const Attr&);
};

struct Celu
    : Function<Unary<Result::floating>> {  // y = x where x > 0, else alpha (e^(x / alpha) - 1)
  static constexpr std::string_view name = "celu",
                                    doc = "y = x > 0 ? x : alpha * (e^(x / alpha) - 1)";
  using Attr = AlphaOfElu;
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S below = expm1(x / a.alpha) * a.alpha;
    return select(x > 0.0, x, below);
  }
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Selu
    : Function<Unary<Result::floating>> {  // y = scale (x where x > 0, else alpha (e^x - 1))
  static constexpr std::string_view name = "selu",
                                    doc = "y = 1.0507... * (x > 0 ? x : 1.6733... * (e^x - 1))";
  // G. Klambauer et al., Self-Normalizing Neural Networks, 2017.
  static constexpr double alpha = 1.6732632423543772848170429916717;
  static constexpr double scale = 1.0507009873554804934193349852946;
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    S above = x * scale;
    S below = expm1(x) * (alpha * scale);
    return select(x > 0.0, above, below);
  }
  static Value dx(VjpCall&);
};

// gelu's `approximate`, "none" or "tanh".
struct GeluForm {
  bool by_tanh = false;
};
bool read_literal(const Literal&, GeluForm&, std::string& what);
Literal write_literal(const GeluForm&);

struct Gelu : Function<Unary<Result::floating>> {  // y = x Phi(x)
  static constexpr std::string_view name = "gelu";
  static constexpr std::string_view doc =
      "y = x * normal_cdf(x), or x / (1 + e^(-2 c (x + 0.044715 x^3)))";
  struct Attr {
    GeluForm approximate;
    static constexpr auto fields() { return std::tuple(field("approximate", &Attr::approximate)); }
  };
  template <class F>
  [[gnu::always_inline]] static void specialise(const Attr& attr, F f) {
    if (attr.approximate.by_tanh)
      f(Attr{{true}});
    else
      f(Attr{{false}});
  }
  // tanh's argument doubled, 2 sqrt(2 / pi) (x + 0.044715 x^3), since (1 + tanh u) / 2 =
  // sigmoid(2u): a x + b x^3.
  static constexpr double a = 2 * 0.79788456080286535587989211986876;
  static constexpr double b = a * 0.044715;
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& attr) {
    if (attr.approximate.by_tanh) return x * sigmoid(x * (x * x * b + a));
    return x * (erfc(x * -0.70710678118654752440) * 0.5);
  }
  static Value dx(VjpCall&, const Attr&);
};

struct FastSilu;
struct Silu : Function<Unary<Result::floating>> {  // y = x sigmoid(x)
  static constexpr std::string_view name = "silu", doc = "y = x / (1 + e^-x)";
  using Fast = FastSilu;
  GRADUS_INLINE static auto scalar(auto x) { return x * sigmoid(x); }
  static Value dx(VjpCall&);
};

struct FastSilu : Function<Unary<Result::floating>> {  // y = x sigmoid(x)
  static constexpr std::string_view name = "fast_silu",
                                    doc = "y = x / (1 + e^-x), within 4 ulp in f32";
  GRADUS_INLINE static auto scalar(auto x) { return x * fast_sigmoid(x); }
  static Value dx(VjpCall& d) { return Silu::dx(d); }
};

struct Softplus : Function<Unary<Result::floating>> {  // y = log(1 + e^(beta x)) / beta
  static constexpr std::string_view name = "softplus";
  static constexpr std::string_view doc =
      "y = log(1 + e^(beta * x)) / beta; x where beta * x > threshold";
  struct Attr {
    double beta = 1, threshold = 20;
    static constexpr auto fields() {
      return std::tuple(field("beta", &Attr::beta), field("threshold", &Attr::threshold));
    }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S scaled = x * a.beta;
    S soft = log1p_exp(scaled) / a.beta;
    return select(scaled > a.threshold, x, soft);
  }
  static Value dx(VjpCall&, const Attr&);
};

struct Hardtanh : Function<Unary<>> {  // y = min(max(x, lower), upper)
  static constexpr std::string_view name = "hardtanh";
  static constexpr std::string_view doc =
      "y = x kept within [min, max]; derivative 0 on the bounds";
  struct Attr {
    NumberLiteral min = -1, max = 1;
    static constexpr auto fields() {
      return std::tuple(field("min", &Attr::min), field("max", &Attr::max));
    }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S lower = constant_like(x, a.min);
    S upper = constant_like(x, a.max);
    S y = select(x < lower, lower, x);
    return select(y > upper, upper, y);
  }
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Relu6 : Function<Unary<>> {  // y = min(max(x, 0), 6)
  static constexpr std::string_view name = "relu6",
                                    doc = "y = min(max(x, 0), 6); derivative 0 at 0 and 6";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    S y = select(x < 0, 0, x);
    return select(y > 6, 6, y);
  }
  static Value dx(VjpCall&);
};

// The attribute of the shrinking functions.
struct LambdAttr {
  double lambd = 0.5;
  static constexpr auto fields() { return std::tuple(field("lambd", &LambdAttr::lambd)); }
};

struct Hardshrink : Function<Unary<Result::floating>> {  // y = 0 where |x| <= lambd, else x
  static constexpr std::string_view name = "hardshrink", doc = "y = |x| <= lambd ? 0 : x";
  using Attr = LambdAttr;
  GRADUS_INLINE static auto scalar(auto x, const Attr& a) {
    return select((x >= -a.lambd) & (x <= a.lambd), 0.0, x);
  }
  static Value dx(VjpCall&, const Attr&);
};

struct Softshrink : Function<Unary<Result::floating>> {  // y = x moved towards 0 by lambd
  static constexpr std::string_view name = "softshrink";
  static constexpr std::string_view doc =
      "y = 0 where |x| <= lambd, else x - lambd or x + lambd by its sign";
  using Attr = LambdAttr;
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S above = x - a.lambd;
    S below = x + a.lambd;  // NaN for NaN
    S moved = select(x > a.lambd, above, below);
    return select((x >= -a.lambd) & (x <= a.lambd), 0.0, moved);
  }
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall& d, const Attr&);
};

struct Threshold : Function<Unary<>> {  // y = x where x > threshold, else value
  static constexpr std::string_view name = "threshold", doc = "y = x <= threshold ? value : x";
  struct Attr {
    NumberLiteral threshold, value;
    static constexpr auto fields() {
      return std::tuple(required("threshold", &Attr::threshold), required("value", &Attr::value));
    }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S value = constant_like(x, a.value);
    return select(x <= constant_like(x, a.threshold), value, x);
  }
  static Value dx(VjpCall& d, const Attr& a) {
    return where(le(d.x(), num(a.threshold.as_double())), num(0.0), d.dy());
  }
};

struct Mish : Function<Unary<Result::floating>> {  // y = x tanh(log(1 + e^x))
  static constexpr std::string_view name = "mish", doc = "y = x * tanh(log(1 + e^x))";
  GRADUS_INLINE static auto scalar(auto x) { return x * tanh(log1p_exp(x)); }
  static Value dx(VjpCall&);
};

struct Softsign : Function<Unary<Result::floating>> {  // y = x / (1 + |x|)
  static constexpr std::string_view name = "softsign", doc = "y = x / (1 + |x|)";
  GRADUS_INLINE static auto scalar(auto x) { return x / (abs(x) + 1.0); }
  static Value dx(VjpCall& d) { return d.dy() / emit<Square>(emit<Abs>(d.x()) + 1.0); }
};

struct Tanhshrink : Function<Unary<Result::floating>> {  // y = x - tanh(x)
  static constexpr std::string_view name = "tanhshrink", doc = "y = x - tanh(x)";
  GRADUS_INLINE static auto scalar(auto x) { return x - tanh(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Square>(emit<Tanh>(d.x())); }
};

// Compositions.

struct Prelu {  // y = x where x > 0, else w x, one w for all or one per channel
  static constexpr std::string_view name = "prelu", doc = "y = x > 0 ? x : w * x, w per channel";
  static constexpr std::array<std::string_view, 2> inputs{"x", "w"};
  static void compose(ComposeCall&);
};

struct NanToNum {  // y = x where it is finite
  static constexpr std::string_view name = "nan_to_num";
  static constexpr std::string_view doc =
      "y = x, NaN and infinities replaced (by the dtype's extremes)";
  struct Attr {
    double nan = 0;
    std::optional<double> posinf, neginf;
    static constexpr auto fields() {
      return std::tuple(field("nan", &Attr::nan), field("posinf", &Attr::posinf),
                        field("neginf", &Attr::neginf));
    }
  };
  static constexpr auto batch = batch_last_dimensions;
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall& d) { return keep_where(emit<Isfinite>(d.x()), d.dy()); }
};

struct Glu {  // y = a sigmoid(b), x = [a, b] along dim
  static constexpr std::string_view name = "glu",
                                    doc = "y = a * sigmoid(b), the halves of x along dim";
  static constexpr int least_rank = 1;
  struct Attr {
    int64_t dim = -1;
    static constexpr auto fields() { return std::tuple(dimension("dim", &Attr::dim)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

using ActivationOperators =
    std::tuple<Sigmoid, FastSigmoid, Logsigmoid, Relu, LeakyRelu, Elu, Celu, Selu, Gelu, Silu,
               FastSilu, Softplus, Hardtanh, Relu6, Hardshrink, Softshrink, Threshold, Mish,
               Softsign, Tanhshrink, Prelu, NanToNum, Glu>;

}  // namespace gradus::ops
