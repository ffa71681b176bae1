// Pointwise operators: y[i] = scalar(x0[i], x1[i], …), with broadcasting and promotion, on any
// layout.
//
// The struct of a pointwise operator derives from Pointwise<n, result> and has
//   GRADUS_INLINE static auto scalar(auto x, auto y)   or with a last parameter `const Attr&`,
//   template <class S> GRADUS_INLINE static S scalar(S x, S y)   if the rule needs the type,
// a rule in one scalar type S. The rule is compiled for f64, f32, i64 and u64 arithmetic, and for
// the code generators of LLVM and CUDA. Operands that are conditions are S::Bool. The results of
// Result::boolean operators are S::Bool.
//
// The functions in a rule (exp, tanh, …) are found by argument-dependent lookup where the loops are
// compiled: the source file of a family includes gradus/scalar/math.h, its header need not. A loop
// is vectorised only if the rule is inlined: hence GRADUS_INLINE.
//
// An operator has one loop for each compute type and instruction set. kernels/pointwise.cpp has the
// rest (conversion of dtypes, strides, broadcasting, tiles, threads) once for all operators.
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "gradus/isa.h"
#include "gradus/scalar/num.h"
#include "gradus/value.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// The use of an operand, and the dtype of a result.
enum class Role : uint8_t { value, condition };  // a condition is read as bool
enum class Result : uint8_t {
  same,      // the promoted dtype
  floating,  // the promoted dtype; f32 for integers
  boolean,   // bool
};

// The base of pointwise operators.
template <size_t Operands, Result result_kind>
struct Pointwise {
  static constexpr size_t arity = Operands;
  static constexpr Result result = result_kind;
  // Operators override these members where they differ.
  static constexpr std::array<Role, Operands> roles{};
  static constexpr bool refuses_bool = false;  // as ATen's neg and sub do
  static constexpr bool computes_floating = result_kind == Result::floating;
  // Integer divisors of zero are an Error of the run.
  static constexpr bool refuses_zero_divisors = false;
  static constexpr bool is_function = false;       // see Function
  static constexpr bool is_long_function = false;  // see LongFunction
};

// An operator with many instructions, such as exp. The cost model uses it: recomputing such an
// operator in a kernel is expensive. For example: Function<Unary<>>.
template <class Kind>
struct Function : Kind {
  static constexpr bool is_function = true;
};

// An operator with so many instructions that an element takes tens of nanoseconds, such as
// polygamma. A kernel computes several elements at once.
template <class Kind>
struct LongFunction : Function<Kind> {
  static constexpr bool is_long_function = true;
};

// The usual names: y of x, and z of x and y.
template <Result result_kind = Result::same>
struct Unary : Pointwise<1, result_kind> {};
template <Result result_kind = Result::same>
struct Binary : Pointwise<2, result_kind> {
  static constexpr std::array<std::string_view, 2> inputs{"x", "y"};
  static constexpr std::array<std::string_view, 1> results{"z"};
};

template <class Op>
inline constexpr bool is_pointwise = requires {
  Op::arity;
  Op::roles;
};

// A contiguous loop over tiles of the compute type (bool for conditions).
using PointwiseLoop = void (*)(int64_t n, const void* const* in, void* out,
                               const ir::AttributeRecord* attributes);

// The data of a pointwise operator.
struct PointwiseInfo {
  std::span<const Role> roles;
  Result result;
  bool refuses_bool;
  bool computes_floating;  // integers are computed as f32
  // The loops do not check this. Code that runs them on integers has to.
  bool refuses_zero_divisors;
  // By Compute; null for compute types that do not occur.
  std::array<PointwiseLoop, compute_count> loops;
};

// The type rule and the binding of pointwise operators.
void infer_pointwise(const PointwiseInfo& info, ir::InferCall& call);
void bind_pointwise(const PointwiseInfo& info, BindCall& call);

// The common dtype of operands by ATen's rules: tensors with dimensions precede 0-d tensors, which
// precede numbers. Operands of a lower rank promote only to a higher category.
DType promoted_dtype(const ir::InferCall& call, std::span<const Role> roles);
// The compute type of a call. It follows from the promoted dtype, not from the dtype of the result,
// since comparisons give bool. `result` is the dtype of the type rule.
Compute pointwise_compute(const PointwiseInfo& info, const ir::InferCall& call, DType result);
// The common shape of the tensor operands. Two symbolic sizes are assumed to be equal, which is
// checked at run time.
Dims broadcast_dims(const ir::InferCall& call);

// An operator whose attributes select between two variants may have a loop for each:
//   template <class F> static void specialise(const Attr& a, F f)
// calls f once, with an attribute equal to `a` in which the selecting fields are constants.
//
// An operator may have a cheaper rule for usual operands:
//   template <class S> static S::Bool is_usual(S x)
//   template <class S> static S scalar_usual(S x)    bit-identical where is_usual holds
// A loop uses it for blocks in which all elements are usual.
template <class Op, class S>
inline constexpr bool has_usual = requires(S x) {
  Op::template scalar_usual<S>(x);
};

template <class Op, class C, size_t... I>
[[gnu::always_inline]] inline void pointwise_body(int64_t n, const void* const* in, void* out,
                                                  const ir::AttributeRecord* record,
                                                  std::index_sequence<I...>) {
  using S = scalar::Num<C>;
  using Out = std::conditional_t<Op::result == Result::boolean, bool, C>;
  // Conditions are read as bytes: g++ does not vectorise a select whose bool condition is loaded.
  auto pointers = std::tuple(
      static_cast<const std::conditional_t<Op::roles[I] == Role::condition, uint8_t, C>*>(
          in[I])...);
  Out* __restrict target = static_cast<Out*>(out);
  auto load = [](auto v) __attribute__((always_inline)) {
    if constexpr (std::is_same_v<decltype(v), uint8_t>)
      return typename S::Bool{v != 0};
    else
      return S{v};
  };
  auto run = [&](int64_t first, int64_t last, auto rule) __attribute__((always_inline)) {
    for (int64_t i = first; i < last; ++i)
      target[i] = static_cast<Out>(rule(load(std::get<I>(pointers)[i])...).value);
  };
  if constexpr (requires { typename Op::Attr; }) {
    auto run_with = [&](auto attr) __attribute__((always_inline)) {
      run(
          0, n, [attr](auto... x) __attribute__((always_inline)) {
            return Op::template scalar<S>(x..., attr);
          });
    };
    // A copy, which stores to the result cannot change.
    const typename Op::Attr a = static_cast<const Record<typename Op::Attr>*>(record)->value;
    if constexpr (requires { Op::specialise(a, run_with); })
      Op::specialise(a, run_with);
    else
      run_with(a);
  } else if constexpr (has_usual<Op, S>) {
    constexpr int64_t block = 256;
    const C* x = std::get<0>(pointers);
    for (int64_t first = 0; first < n; first += block) {
      int64_t last = first + block < n ? first + block : n;
      int unusual = 0;
      for (int64_t i = first; i < last; ++i)
        unusual += Op::template is_usual<S>(S{x[i]}).value ? 0 : 1;
      if (unusual == 0) {
        run(
            first, last,
            [](S v) __attribute__((always_inline)) { return Op::template scalar_usual<S>(v); });
      } else {
        run(
            first, last,
            [](S v) __attribute__((always_inline)) { return Op::template scalar<S>(v); });
      }
    }
  } else {
    run(
        0, n,
        [](auto... x) __attribute__((always_inline)) { return Op::template scalar<S>(x...); });
  }
}

template <class Op, class C>
[[gnu::always_inline]] inline void pointwise_loop(int64_t n, const void* const* in, void* out,
                                                  const ir::AttributeRecord* record) {
  pointwise_body<Op, C>(n, in, out, record, std::make_index_sequence<Op::arity>());
}

template <class Op>
struct PointwiseEntry {
  static const PointwiseInfo& info() {
    static const PointwiseInfo i = [] {
      PointwiseInfo p{
          Op::roles, Op::result, Op::refuses_bool, Op::computes_floating, Op::refuses_zero_divisors,
          {}};
      p.loops[0] = Levels<pointwise_loop<Op, double>>::best();
      p.loops[1] = Levels<pointwise_loop<Op, float>>::best();
      if constexpr (!Op::computes_floating) {
        p.loops[2] = Levels<pointwise_loop<Op, int64_t>>::best();
        p.loops[3] = Levels<pointwise_loop<Op, uint64_t>>::best();
      }
      return p;
    }();
    return i;
  }
  static void infer(ir::InferCall& call) { infer_pointwise(info(), call); }
  static void bind(BindCall& call) { bind_pointwise(info(), call); }
};

}  // namespace gradus::ops

#pragma GCC visibility pop
