// Random numbers that follow from a key and an element's place alone: the same in every run, on any
// number of threads.
//
// A key is i64[2]: the generator's key, and the upper half of its counter (a stream of the key).
// Element i is number i of that stream, row-major. Blocks of four numbers have one counter. Of a
// list of keys, i64[K, 2], random_bits gives the numbers of each along a first dimension.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct RandomBits {
  static constexpr auto name = "random_bits"sv, doc = "y[i] = number i of key, in [0, 2^32)"sv;
  static constexpr std::array inputs{"key"sv};
  static constexpr bool zero_gradient = true;
  struct Attr {
    Dims shape;
    bool by_block = false;  // the key's second number is the first block instead, of stream 0
    static constexpr auto fields() {
      return std::tuple(required("shape", &Attr::shape), field("by_block", &Attr::by_block));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&);
};

struct RandomAttr {
  Dims shape;
  DType dtype = DType::f32;
  static constexpr auto fields() {
    return std::tuple(required("shape", &RandomAttr::shape), field("dtype", &RandomAttr::dtype));
  }
};

// As many random bits as the dtype's mantissa has: 53 (of two numbers), 24, 11, 8.
struct Uniform {
  static constexpr auto name = "uniform"sv, doc = "random y[i], uniform in [0, 1)"sv;
  static constexpr std::array inputs{"key"sv};
  static constexpr bool zero_gradient = true;
  using Attr = RandomAttr;
  static void compose(ComposeCall&, const Attr&);
};

// y = sqrt(-2 log(1 - u)) cos(2 pi v) of uniform u and v (G. Box, M. Muller, 1958).
struct Normal {
  static constexpr auto name = "normal"sv, doc = "random y[i], of mean 0 and variance 1"sv;
  static constexpr std::array inputs{"key"sv};
  static constexpr bool zero_gradient = true;
  using Attr = RandomAttr;
  static void compose(ComposeCall&, const Attr&);
};

// The order of n draws of 64 bits, of which numbers 2 i and 2 i + 1 are the upper and lower half of
// the signed number i. Equal draws, of which n^2 / 2^65 pairs are expected, keep their order.
struct Randperm {
  static constexpr auto name = "randperm"sv, doc = "a random order of 0, 1, .. n - 1, as i64"sv;
  static constexpr std::array inputs{"key"sv};
  static constexpr bool zero_gradient = true;
  struct Attr {
    Dim n = 0;
    static constexpr auto fields() { return std::tuple(required("n", &Attr::n)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

using RandomOperators = std::tuple<RandomBits, Uniform, Normal, Randperm>;

}  // namespace gradus::ops
