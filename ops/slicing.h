// Parts of a tensor, as views of it.
#pragma once

#include "ops/shape.h"

namespace gradus::ops {

using namespace std::literals;

// A slice's bound within a dimension, as ATen clamps it: a negative constant counts from the end,
// then everything is brought into [0, size]. A symbolic bound counts from the front.
Dim clamp_bound(const Dim& bound, const Dim& size);
int64_t clamp_bound(const BindCall& call, const Dim& bound, int64_t size);
// Likewise of an index, or a part's start, which is not clamped.
Dim from_start(const Dim& index, const Dim& size);

struct Select : View {
  static constexpr std::string_view name = "select", doc = "y[..] = x[.., index, ..]";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 1;
  struct Attr {
    int64_t dim = 0;
    Dim index = 0;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim", &Attr::dim), required("index", &Attr::index));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Slice : View {  // bounds are clamped: see clamp_bound
  static constexpr std::string_view name = "slice",
                                    doc = "y[.., i, ..] = x[.., start + i*step, ..], up to end";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 1;
  struct Attr {
    int64_t dim = 0;
    std::optional<Dim> start, end;
    int64_t step = 1;
    static constexpr auto fields() {
      return std::tuple(dimension("dim", &Attr::dim), field("start", &Attr::start),
                        field("end", &Attr::end), field("step", &Attr::step));
    }
    // How far apart the bounds are within a dimension of that size; never negative.
    Dim span(const Dim& size) const;
    // The bounds, end - start == span.
    std::pair<Dim, Dim> range(const Dim& size) const;
    std::pair<int64_t, int64_t> range(const BindCall& call, int64_t size) const;
    Dim count(const Dim& size) const;
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Narrow : View {  // unlike `slice`, out of range is an error
  static constexpr std::string_view name = "narrow",
                                    doc = "y[.., i, ..] = x[.., start + i, ..], i < length";
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 1;
  struct Attr {
    int64_t dim = 0;
    Dim start = 0, length = 0;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim", &Attr::dim), required("start", &Attr::start),
                        required("length", &Attr::length));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Split : View {
  static constexpr std::string_view name = "split", doc = "x cut along `dim` into these sizes";
  static constexpr std::array results{"y..."sv};
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 1;
  struct Attr {
    Dims sizes;
    int64_t dim = 0;
    static constexpr auto fields() {
      return std::tuple(required("sizes", &Attr::sizes), dimension("dim", &Attr::dim));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Chunk {  // a symbolic size must be provably divisible by `chunks`
  static constexpr std::string_view name = "chunk",
                                    doc = "x cut along `dim` into at most `chunks` equal parts";
  static constexpr std::array results{"y..."sv};
  static constexpr int least_rank = 1;
  struct Attr {
    int64_t chunks = 1, dim = 0;
    static constexpr auto fields() {
      return std::tuple(required("chunks", &Attr::chunks), dimension("dim", &Attr::dim));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Unbind {
  static constexpr std::string_view name = "unbind", doc = "y[i] = x[.., i, ..], one result each";
  static constexpr std::array results{"y..."sv};
  static constexpr int least_rank = 1;
  struct Attr {
    int64_t dim = 0;
    static constexpr auto fields() { return std::tuple(dimension("dim", &Attr::dim)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Diagonal : View {
  static constexpr std::string_view name = "diagonal",
                                    doc = "y[.., i] = x[.., i, .., i + offset, ..]";
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 2;
  struct Attr {
    int64_t offset = 0, dim1 = 0, dim2 = 1;
    static constexpr auto fields() {
      return std::tuple(field("offset", &Attr::offset), dimension("dim1", &Attr::dim1),
                        dimension("dim2", &Attr::dim2));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

using SlicingOperators = std::tuple<Select, Slice, Narrow, Split, Chunk, Unbind, Diagonal>;

}  // namespace gradus::ops
