// New tensors, and copies of tensors: full, arange, cast, clone, …
#pragma once

#include "gradus/table.h"
#include "ops/bind_work.h"

namespace gradus::ops {

using namespace std::literals;

// A tensor that is made of attributes alone.
struct Created {
  static constexpr std::array<std::string_view, 0> inputs{};
  static constexpr bool zero_gradient = true;
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto no_batch_rule = "it has no operands";
};

struct Full : Created {  // dtype by the value if absent: bool, i64 or f32
  static constexpr std::string_view name = "full", doc = "y[..] = value";
  struct Attr {
    Dims shape;
    Literal value;
    std::optional<DType> dtype;
    static constexpr auto fields() {
      return std::tuple(required("shape", &Attr::shape), required("value", &Attr::value),
                        field("dtype", &Attr::dtype));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
};

struct FullLike {
  static constexpr std::string_view name = "full_like",
                                    doc = "y[..] = value, of x's shape and dtype";
  static constexpr bool zero_gradient = true;
  struct Attr {
    Literal value;
    std::optional<DType> dtype;
    static constexpr auto fields() {
      return std::tuple(required("value", &Attr::value), field("dtype", &Attr::dtype));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Arange : Created {  // dtype i64 if all three are integers, else f32; sizes may be symbolic
  static constexpr std::string_view name = "arange", doc = "y[i] = start + i*step, up to end";
  struct Attr {
    Literal start = Dim(0), end, step = Dim(1);
    std::optional<DType> dtype;
    static constexpr auto fields() {
      return std::tuple(field("start", &Attr::start), required("end", &Attr::end),
                        field("step", &Attr::step), field("dtype", &Attr::dtype));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
};

struct Linspace : Created {
  static constexpr std::string_view name = "linspace",
                                    doc = "y[i] = start + i * (end - start) / (steps - 1)";
  struct Attr {
    double start = 0, end = 0;
    Dim steps = 100;
    DType dtype = DType::f32;
    static constexpr auto fields() {
      return std::tuple(required("start", &Attr::start), required("end", &Attr::end),
                        required("steps", &Attr::steps), field("dtype", &Attr::dtype));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
};

struct Eye : Created {
  static constexpr std::string_view name = "eye", doc = "y[i, j] = 1 if i = j else 0";
  struct Attr {
    Dim n = 0;
    std::optional<Dim> m;
    DType dtype = DType::f32;
    static constexpr auto fields() {
      return std::tuple(required("n", &Attr::n), field("m", &Attr::m),
                        field("dtype", &Attr::dtype));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
};

struct OneHot {
  static constexpr std::string_view name = "one_hot",
                                    doc = "y[.., c] = 1 if c = x[..] else 0, as i64";
  static constexpr bool zero_gradient = true;
  static constexpr auto recompute_cost = ir::again::never;  // a class may be outside
  static constexpr auto batch = batch_last_dimensions;
  struct Attr {
    Dim classes = 0;
    static constexpr auto fields() { return std::tuple(required("classes", &Attr::classes)); }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
};

// y = x, of x's type; derivatives pass through, and the caller casts them back.
struct SameElements {
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall& call) { call.out.push_back(call.tensor(0)); }
  static Value dx(VjpCall& d) { return d.dy(); }
};

// Floats into integers truncate and saturate, NaN becomes 0; anything into bool asks for not zero.
struct Cast : SameElements {
  static constexpr std::string_view name = "cast", doc = "y = x as another dtype";
  static constexpr bool may_be_view = true;
  static constexpr bool converts = true;
  struct Attr {
    DType dtype = DType::f32;
    static constexpr auto fields() { return std::tuple(required("dtype", &Attr::dtype)); }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
};

struct Clone : SameElements {
  static constexpr std::string_view name = "clone", doc = "y = x, in memory of its own";
  static constexpr auto linear = ir::Linear::jointly;
  static void bind(BindCall& call) { bind_copy(call); }
};

struct Contiguous : SameElements {
  static constexpr std::string_view name = "contiguous", doc = "y = x, in row-major order";
  static constexpr bool may_be_view = true;
  static void bind(BindCall&);
};

struct Detach : View {
  static constexpr std::string_view name = "detach", doc = "y = x, without a derivative";
  static constexpr bool zero_gradient = true;
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall& call) { SameElements::infer(call); }
  static void bind(BindCall& call) { call.set_view(0, 0, call.in[0], 0); }
};

using CreationOperators =
    std::tuple<Full, FullLike, Arange, Linspace, Eye, OneHot, Cast, Clone, Contiguous, Detach>;

}  // namespace gradus::ops
