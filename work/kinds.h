// Kinds of work that stand alone.
#pragma once

#include "gradus/communicator.h"
#include "work/fields.h"

namespace gradus::work {

// What a triangle keeps of operand 0's matrices (its last two dimensions): element [i, j] where
// j - i <= diagonal if `lower`, else where j - i >= diagonal. The rest of result 0 is zero. Its
// elements lie in order.
struct Triangle {
  static constexpr std::string_view name = "triangle";
  Layout x;
  int64_t diagonal = 0;
  bool lower = true;
  static constexpr auto fields() {
    return std::tuple(field("x", &Triangle::x), field("diagonal", &Triangle::diagonal),
                      field("lower", &Triangle::lower));
  }
  friend bool operator==(const Triangle&, const Triangle&) = default;
};

// result 0 [i] = start + i * step in i64, which wraps, if `integral`, else first + i * by in f64.
struct Range {
  static constexpr std::string_view name = "range";
  DType dtype = DType::f32;
  int64_t count = 0;
  bool integral = true;  // the integers, else the floats
  int64_t start = 0, step = 0;
  Real first, by;
  static constexpr auto fields() {
    return std::tuple(field("dtype", &Range::dtype), field("count", &Range::count),
                      field("integral", &Range::integral), field("start", &Range::start),
                      field("step", &Range::step), field("first", &Range::first),
                      field("by", &Range::by));
  }
  friend bool operator==(const Range&, const Range&) = default;
};

// Numbers evenly spaced from `start` to `end` into result 0: from both ends towards the middle, as
// ATen does. With step = (end - start) / (count - 1), or 0 where count is 1:
//   result 0 [i] = start + step * i              where i < count / 2 (rounded down) or count is 1
//                  end - step * (count - 1 - i)  elsewhere
// In f32 for 32- and 16-bit floats, start and end rounded to it; in f64 for all others.
struct Spacing {
  static constexpr std::string_view name = "spacing";
  DType dtype = DType::f32;
  int64_t count = 0;
  Real start, end;
  static constexpr auto fields() {
    return std::tuple(field("dtype", &Spacing::dtype), field("count", &Spacing::count),
                      field("start", &Spacing::start), field("end", &Spacing::end));
  }
  friend bool operator==(const Spacing&, const Spacing&) = default;
};

// result 0 [i.., c] = 1 where operand 0 [i..] is c, else 0: i64, in order. A class outside of
// 0 .. classes - 1 is an Error.
struct OneHot {
  static constexpr std::string_view name = "one_hot";
  Layout index;
  int64_t classes = 0;
  static constexpr auto fields() {
    return std::tuple(field("index", &OneHot::index), field("classes", &OneHot::classes));
  }
  friend bool operator==(const OneHot&, const OneHot&) = default;
};

// The places of operand 0's elements that are not zero into result 0, in row-major order: `count`
// rows of i64, one number for each dimension. Another count is an Error.
struct Nonzero {
  static constexpr std::string_view name = "nonzero";
  Layout x;
  int64_t count = 0;
  static constexpr auto fields() {
    return std::tuple(field("x", &Nonzero::x), field("count", &Nonzero::count));
  }
  friend bool operator==(const Nonzero&, const Nonzero&) = default;
};

// Philox 4x32-10 (ops/philox.h) into result 0: i64, in order. Operand 0 is `keys` times two numbers
// of i64, a key and a stream of it. result 0 [k, i], i < count, is word i mod 4 of the block of key
// k with the counter [i / 4, stream], each number's low 32 bits first. `by_block`: the second
// number is the first block instead, of stream 0, so that the counter is [second + i / 4, 0].
struct RandomBits {
  static constexpr std::string_view name = "random_bits";
  int64_t keys = 1, keys_stride = 0;  // from a key to the next
  int64_t key_stride = 1, count = 0;
  bool by_block = false;
  static constexpr auto fields() {
    return std::tuple(field("keys", &RandomBits::keys),
                      field("keys_stride", &RandomBits::keys_stride),
                      field("key_stride", &RandomBits::key_stride),
                      field("count", &RandomBits::count), field("by_block", &RandomBits::by_block));
  }
  friend bool operator==(const RandomBits&, const RandomBits&) = default;
};

// Rows of operand 0 in order, equal elements as they were and NaN greatest; the first `kept` of
// each into result 0, and where they were into result 1, which is i64. Element i of row r lies at
// r / inner * outer_stride + r % inner + i * step of both.
struct Sort {
  static constexpr std::string_view name = "sort";
  Layout x;  // its rows' dimension last
  int64_t rows = 0, kept = 0, inner = 1, outer_stride = 0, step = 1;
  bool descending = false;
  static constexpr auto fields() {
    return std::tuple(field("x", &Sort::x), field("rows", &Sort::rows), field("kept", &Sort::kept),
                      field("inner", &Sort::inner), field("outer_stride", &Sort::outer_stride),
                      field("step", &Sort::step), field("descending", &Sort::descending));
  }
  friend bool operator==(const Sort&, const Sort&) = default;
};

enum class ScanStep : uint8_t {
  sum,          // s = s + x
  prod,         // s = s * x
  recurrence,   // s = a * s + b, product and sum rounded each; two operands of one shape
  log_sum_exp,  // s = h + log1p(exp(l - h)), h the greater of s and x, l the other; h where it is
                // infinite or NaN, which is the greatest. By the functions of gradus/scalar/math.h
  cut_recurrence,  // recurrence, but s = b where the third operand, a bool of that shape, holds
};
std::string_view name_of(ScanStep step);

// result 0 = the states along `dim` of the operands, which have its shape; it lies in order. The
// state is f64 for floats and a wrapping i64 for integers; it starts from 0 (prod: 1, log_sum_exp:
// -inf).
struct Scan {
  static constexpr std::string_view name = "scan";
  ScanStep next = ScanStep::sum;
  bool exclusive = false;  // y[i] is the state before x[i], else after it
  bool reverse = false;    // from the last element to the first
  int dim = 0;
  SmallVector<Layout, 2> in;
  DType out = DType::f32;
  static constexpr auto fields() {
    return std::tuple(field("next", &Scan::next), field("exclusive", &Scan::exclusive),
                      field("reverse", &Scan::reverse), field("dim", &Scan::dim),
                      field("in", &Scan::in), field("out", &Scan::out));
  }
  friend bool operator==(const Scan&, const Scan&) = default;
};

// The greatest of operand 0 so far along `dim` into result 0, its place there into result 1, which
// is i64. Ties and NaN go to the later one. Both lie in order.
struct RunningMax {
  static constexpr std::string_view name = "running_max";
  Layout x;
  int dim = 0;
  static constexpr auto fields() {
    return std::tuple(field("x", &RunningMax::x), field("dim", &RunningMax::dim));
  }
  friend bool operator==(const RunningMax&, const RunningMax&) = default;
};

enum class MatrixFunction : uint8_t { cholesky, inverse, det, cofactor, lu, qr, eigh, svd, exp };
std::string_view name_of(MatrixFunction function);

// The function of operand 0's matrices, its last two dimensions, into the results, which lie in
// order: of operand 0's dtype, unless another is said. Computed in f64, rounded once. A matrix that
// has no such function is an Error when it is met.
//
// cholesky: the lower factor, row by row; a's upper triangle has no say. For j <= i:
//     s = a[i, j] - y[i, 0] * y[j, 0] - y[i, 1] * y[j, 1] - …   over k < j, in that order
//     y[i, j] = sqrt(s) where i = j, else s / y[j, j]
//   An s that is not positive where i = j is the Error. Elements with j > i are 0.
// inverse: a pivot of 0 is the Error, each column's pivot being its largest element that is left.
// det, cofactor: of every matrix.
// lu: of m x n matrices. Result 0 has u on and above the diagonal, below it l, whose diagonal
//   is 1; result 1, in i32, what rows were exchanged: row i with row result[i] - 1 in step i;
//   result 2, in i64, where row i of l u was in the matrix. The pivot is the first of the largest
//   elements left in the column, NaN before all.
// qr: of m >= n. Results q, m x n with orthonormal columns, and r, n x n and upper triangular, by
//   Householder's reflections; with signs as LAPACK has them.
// eigh: of the symmetric matrix whose lower triangle operand 0 has. The eigenvalues, ascending, and
//   their vectors of length 1 as columns.
// svd: of m >= n. Results u, m x n, s, n of them descending, and v^T, n x n.
//   Of eigh's columns and svd's rows of v^T the largest element, the first of such, is positive.
//   An element that is not finite is the Error of both.
// exp: of every matrix; NaN where an element is not finite.
// The order of the sums of all but cholesky is not specified.
struct Factor {
  static constexpr std::string_view name = "factor";
  const ir::Operator* op = nullptr;  // for messages
  MatrixFunction function = MatrixFunction::det;
  Layout x;
  static constexpr auto fields() {
    return std::tuple(field("op", &Factor::op), field("function", &Factor::function),
                      field("x", &Factor::x));
  }
  friend bool operator==(const Factor&, const Factor&) = default;
};

// The triangle t of operand 0's matrices, or all of them if `general`, transposed if `transpose`,
// and the columns b of operand
// 1's, with the same dimensions before the last two: the solutions y of t y = b into result 0, of
// operand 1's dtype and in order. In f64, rounded once:
//   y[i] = (b[i] - t[i, k] * y[k] - …) / t[i, i]
// If t, as it stands in that equation, is lower, i goes up from the first row, and so does k < i;
// else i goes down from the last one, and so does k > i. General ones are made upper triangles by
// elimination: for each column the row with the first of its largest elements left, NaN before all,
// is exchanged into place c, and f times it is taken from each row i below, f = t[i, c] / t[c, c].
// A pivot of 0 is an Error then.
struct Solve {
  static constexpr std::string_view name = "solve";
  const ir::Operator* op = nullptr;  // for messages
  Layout a, b;
  bool upper = false, transpose = false, general = false;
  static constexpr auto fields() {
    return std::tuple(field("op", &Solve::op), field("a", &Solve::a), field("b", &Solve::b),
                      field("upper", &Solve::upper), field("transpose", &Solve::transpose),
                      field("general", &Solve::general));
  }
  friend bool operator==(const Solve&, const Solve&) = default;
};

// The discrete Fourier transform of operand 0's complex numbers along `dim` into result 0, of its
// dtype and in order. The last dimension has two elements, the real and the imaginary part; `dim`
// is another one.
//   y[k] = scale * sum over m of x[m] * exp(-2 pi i k m / n), of n elements; exp(+...) if `inverse`
// `of_real`: x has no parts, and of y there are the first n / 2 + 1 numbers. real_size > 0: of y,
// of that many numbers n, there are the real parts alone, and of x the first n / 2 + 1 numbers,
// over which the sum is; of x[0] and, for an even n, x[n / 2] the imaginary parts have no say. The
// first is never `inverse`, the second always.
// Computed in f64, rounded once. The order of the sums is not specified.
struct Fourier {
  static constexpr std::string_view name = "fourier";
  Layout x;
  int dim = 0;
  bool inverse = false;
  Real scale = 1;
  bool of_real = false;
  int64_t real_size = 0;
  static constexpr auto fields() {
    return std::tuple(field("x", &Fourier::x), field("dim", &Fourier::dim),
                      field("inverse", &Fourier::inverse), field("scale", &Fourier::scale),
                      field("of_real", &Fourier::of_real), field("real_size", &Fourier::real_size));
  }
  friend bool operator==(const Fourier&, const Fourier&) = default;
};

// What the ranks of a group exchange, as gradus/communicator.h says: operand 0 is what this rank
// gives (absent for `receive`), result 0 what it gets, both in order but for operand 0's strides.
// Where `ranks` is not -1, the group has to have so many: an Error else. Where it only begins,
// result 1 is an i64, the call's ticket: operand 0, which lies in order then, is read, and result 0
// written, until a CollectiveEnd has waited for it.
struct Collective {
  static constexpr std::string_view name = "collective";
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveReducer reducer = CollectiveReducer::sum;
  std::string group;
  Layout x;          // operand 0; of `receive` result 0
  int64_t peer = 0;  // a rank, or how far a shift goes
  int64_t ranks = -1;
  bool begins = false;
  static constexpr auto fields() {
    return std::tuple(field("kind", &Collective::kind), field("reducer", &Collective::reducer),
                      field("group", &Collective::group), field("x", &Collective::x),
                      field("peer", &Collective::peer), field("ranks", &Collective::ranks),
                      field("begins", &Collective::begins));
  }
  friend bool operator==(const Collective&, const Collective&) = default;
};

// Waits for a call of the group; operand 0, an i64, is its ticket.
struct CollectiveEnd {
  static constexpr std::string_view name = "collective_end";
  std::string group;
  static constexpr auto fields() { return std::tuple(field("group", &CollectiveEnd::group)); }
  friend bool operator==(const CollectiveEnd&, const CollectiveEnd&) = default;
};

// result 0, an i64 without dimensions = this rank's number in the group.
struct OwnRank {
  static constexpr std::string_view name = "own_rank";
  std::string group;
  static constexpr auto fields() { return std::tuple(field("group", &OwnRank::group)); }
  friend bool operator==(const OwnRank&, const OwnRank&) = default;
};

// result 0 = operand 0 [r], r this rank's number in the group, which has as many ranks as operand 0
// is long: an Error else. In order.
struct OwnBlock {
  static constexpr std::string_view name = "own_block";
  std::string group;
  Layout x;
  static constexpr auto fields() {
    return std::tuple(field("group", &OwnBlock::group), field("x", &OwnBlock::x));
  }
  friend bool operator==(const OwnBlock&, const OwnBlock&) = default;
};

// An operand of a pointwise operator. The strides are over the result's shape.
struct PointwiseOperand {
  DType dtype = DType::f32;
  Sizes strides;
  static constexpr auto fields() {
    return std::tuple(field("dtype", &PointwiseOperand::dtype),
                      field("strides", &PointwiseOperand::strides));
  }
  friend bool operator==(const PointwiseOperand&, const PointwiseOperand&) = default;
};

// result 0 [i] = call(operands[i]..) by the operator's scalar rule: operands are converted to
// `compute` (conditions to bool), and what the rule gives is converted to `out`. The result's
// elements lie in order. Dimensions that all operands walk in one stride are joined. Where an
// operator refuses zero divisors and `out` is no floating dtype, a zero in operand 1 is an Error.
struct Pointwise {
  static constexpr std::string_view name = "pointwise";
  Call call;
  Compute compute = Compute::f32;
  Sizes shape;  // never empty
  SmallVector<PointwiseOperand, 2> operands;
  DType out = DType::f32;
  // Operand 1 is written as a number, one for all and the same in each run: an exponent that
  // ops/powers.h has a rule for is computed by that rule.
  bool exponent_is_number = false;
  static constexpr auto fields() {
    return std::tuple(field("call", &Pointwise::call), field("compute", &Pointwise::compute),
                      field("shape", &Pointwise::shape), field("operands", &Pointwise::operands),
                      field("out", &Pointwise::out),
                      field("exponent_is_number", &Pointwise::exponent_is_number));
  }
  friend bool operator==(const Pointwise&, const Pointwise&) = default;
};

}  // namespace gradus::work
