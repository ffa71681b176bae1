// Reductions, and the order in which every reduction of Gradus combines its elements.
//
// The order is part of what an operator means, as its equation is: the reference loops, the fused
// CPU kernels and the CUDA kernels all follow it, so that a sum has the same bits on each of them,
// whatever the layout, the instruction set and the number of threads. It depends on the number R of
// reduced elements alone:
//
//   The elements of the reduced index space are numbered r = 0 .. R-1 in row-major order (the
//   reduced dimensions ascending, the last one fastest).
//   1. chunk c covers r in [1024 c, min(R, 1024 (c+1))). Within a chunk there are 16 lanes. Lane l
//      starts from the identity and takes the elements with r mod 16 = l, r ascending:
//      lane = combine(lane, x[r]).
//   2. The lanes of a chunk fold by halves: for w = 8, 4, 2, 1: lane[l] = combine(lane[l],
//      lane[l + w]) for l < w. Lane 0 is the chunk's partial.
//   3. Partials combine with their neighbours, level by level: p'[i] = combine(p[2i], p[2i+1]), an
//      odd last one passes as it is, until one is left.
//   R = 0 gives the identity.
//
// Lanes that got no element may be left out of step 2: combining with the identity changes no bit
// of what a lane can hold (a sum that started from +0 is never -0). An aligned block of 2^k chunks
// reduces to one node of the tree of step 3, so blocks may be worked on independently. Step 3 is
// what a binary counter does: a partial that meets one of its own level combines with it and moves
// up; at the end what is left combines from the lowest level up.
//
// Elements are converted to the accumulator's type first: f64 for f64; f32 for f32, f16, bf16; i64
// for integers and bool, whose sums and products wrap; `all` and `any` ask of each element whether
// it is not zero.
#pragma once

#include <span>

#include "work/axes.h"

namespace gradus::work {

inline constexpr int64_t reduce_lanes = 16;
inline constexpr int64_t reduce_chunk = 1024;

enum class Reducer : uint8_t {
  sum,   // a + b, identity 0
  prod,  // a * b, identity 1
  max,   // b > a or b is NaN ? b : a, identity -inf or the least integer: a NaN stays
  min,   // b < a or b is NaN ? b : a, identity inf or the greatest integer
  all,   // a and b, identity true
  any,   // a or b, identity false
};
std::string_view name_of(Reducer reducer);

// Operand 0 over the reduced axes into result 0, whose elements lie in order.
struct Reduce {
  static constexpr std::string_view name = "reduce";
  Reducer reducer = Reducer::sum;
  DType in = DType::f32, out = DType::f32;
  Axes kept, reduced;  // never empty
  int64_t outputs = 1, count = 1;
  static constexpr auto fields() {
    return std::tuple(field("reducer", &Reduce::reducer), field("in", &Reduce::in),
                      field("out", &Reduce::out), field("kept", &Reduce::kept),
                      field("reduced", &Reduce::reduced), field("outputs", &Reduce::outputs),
                      field("count", &Reduce::count));
  }
  friend bool operator==(const Reduce&, const Reduce&) = default;
};
// The reduction of `in` over `dims` (ascending, each once). Result 0 holds the reductions in
// row-major order of the other dimensions, converted to `out`.
Reduce reduce(Reducer reducer, const Layout& in, std::span<const int64_t> dims, DType out);

// Where the greatest or least element is: of the elements of operand 0 over the reduced axes the
// first NaN, else the first of the greatest (least) ones. Result `index` (i64) is its number in
// row-major order of the reduced dimensions, result `value` (unless -1) the element itself.
struct Extremum {
  static constexpr std::string_view name = "extremum";
  bool greatest = true;
  DType dtype = DType::f32;
  Axes kept, reduced;  // never empty
  int64_t outputs = 1, count = 1;
  int value = -1, index = 0;
  static constexpr auto fields() {
    return std::tuple(field("greatest", &Extremum::greatest), field("dtype", &Extremum::dtype),
                      field("kept", &Extremum::kept), field("reduced", &Extremum::reduced),
                      field("outputs", &Extremum::outputs), field("count", &Extremum::count),
                      field("value", &Extremum::value), field("index", &Extremum::index));
  }
  friend bool operator==(const Extremum&, const Extremum&) = default;
};
// Over `dims`, ascending, of sizes other than 0.
Extremum extremum(bool greatest, const Layout& in, std::span<const int64_t> dims, int value,
                  int index);

}  // namespace gradus::work
