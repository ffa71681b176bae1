// Parts of a tensor, as views of it.
#pragma once

#include "ops/shape.h"

namespace gradus::ops {

using namespace std::literals;

// A slice's bound within a dimension, as ATen clamps it: a negative constant counts from the end,
// then everything is brought into [0, size]. A symbolic bound counts from the front.
Dim clamp_bound(const Dim& bound, const Dim& size);
int64_t clamp_bound(const BindCall& call, const Dim& bound, int64_t size);
struct Select {
  static constexpr std::string_view name = "select", doc = "y[..] = x[.., index, ..]";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim = 0;
    Dim index = 0;
    static constexpr auto fields() {
      return std::tuple(required("dim", &Attr::dim), required("index", &Attr::index));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Slice {  // bounds are clamped: see clamp_bound
  static constexpr std::string_view name = "slice",
                                    doc = "y[.., i, ..] = x[.., start + i*step, ..], up to end";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim = 0;
    std::optional<Dim> start, end;
    int64_t step = 1;
    static constexpr auto fields() {
      return std::tuple(field("dim", &Attr::dim), field("start", &Attr::start),
                        field("end", &Attr::end), field("step", &Attr::step));
    }
    // How far apart the bounds are within a dimension of that size; never negative.
    Dim span(const Dim& size) const;
    // The bounds, end - start == span.
    std::pair<Dim, Dim> range(const Dim& size) const;
    std::pair<int64_t, int64_t> range(const BindCall& call, int64_t size) const;
    Dim count(const Dim& size) const;
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Narrow {  // unlike `slice`, out of range is an error
  static constexpr std::string_view name = "narrow",
                                    doc = "y[.., i, ..] = x[.., start + i, ..], i < length";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto no_batch_rule = "not written: `dim` would move on, as slice's does";
  struct Attr {
    int64_t dim = 0;
    Dim start = 0, length = 0;
    static constexpr auto fields() {
      return std::tuple(required("dim", &Attr::dim), required("start", &Attr::start),
                        required("length", &Attr::length));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Split {
  static constexpr std::string_view name = "split", doc = "x cut along `dim` into these sizes";
  static constexpr std::array inputs{"x"sv};
  static constexpr std::array results{"y..."sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    Dims sizes;
    int64_t dim = 0;
    static constexpr auto fields() {
      return std::tuple(required("sizes", &Attr::sizes), field("dim", &Attr::dim));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Chunk {  // a symbolic size must be provably divisible by `chunks`
  static constexpr std::string_view name = "chunk",
                                    doc = "x cut along `dim` into at most `chunks` equal parts";
  static constexpr std::array inputs{"x"sv};
  static constexpr std::array results{"y..."sv};
  struct Attr {
    int64_t chunks = 1, dim = 0;
    static constexpr auto fields() {
      return std::tuple(required("chunks", &Attr::chunks), field("dim", &Attr::dim));
    }
  };
  static void compose(ComposeCall&);
};

struct Unbind {
  static constexpr std::string_view name = "unbind", doc = "y[i] = x[.., i, ..], one result each";
  static constexpr std::array inputs{"x"sv};
  static constexpr std::array results{"y..."sv};
  struct Attr {
    int64_t dim = 0;
    static constexpr auto fields() { return std::tuple(field("dim", &Attr::dim)); }
  };
  static void compose(ComposeCall&);
};

struct Diagonal {
  static constexpr std::string_view name = "diagonal",
                                    doc = "y[.., i] = x[.., i, .., i + offset, ..]";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t offset = 0, dim1 = 0, dim2 = 1;
    static constexpr auto fields() {
      return std::tuple(field("offset", &Attr::offset), field("dim1", &Attr::dim1),
                        field("dim2", &Attr::dim2));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

using SlicingOperators = std::tuple<Select, Slice, Narrow, Split, Chunk, Unbind, Diagonal>;

}  // namespace gradus::ops
