// Pointwise operators: y[i] = scalar(x0[i], x1[i], …), broadcast, promoted, on any layout.
//
// A pointwise operator's struct derives from Pointwise<n, result> and has
//   template <class S> static S scalar(S x, S y)                 or with `const Attr&` at the end,
// a rule in one scalar type S (f64, f32 or i64 arithmetic here; LLVM and CUDA later). Operands that
// are conditions come as S::Bool; results of Result::boolean operators are S::Bool.
//
// The functions that a scalar rule calls (exp, tanh, …) are found by argument-dependent lookup where
// its loops are made: a family's source file includes ops/scalar/math.h, its header need not.
//
// Per operator there is one loop per compute type and instruction set; everything else (dtypes at
// the edges, strides, broadcasting, tiles, threads) is written once in pointwise.cpp.
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "ops/isa.h"
#include "ops/scalar/num.h"
#include "ops/value.h"

namespace gradus::ops {

enum class Role : uint8_t { value, condition };  // a condition is read as bool
enum class Result : uint8_t {
  same,      // the promoted dtype
  floating,  // the promoted dtype, integers to f32
  boolean,   // bool
};

template <size_t Operands, Result result_kind>
struct Pointwise {
  static constexpr size_t arity = Operands;
  static constexpr Result result = result_kind;
  // Shadow these in the operator where they differ.
  static constexpr std::array<Role, Operands> roles{};
  static constexpr bool refuses_bool = false;      // as ATen's neg and sub do
  static constexpr bool computes_floating = result_kind == Result::floating;
};

// The usual operands' names.
template <Result result_kind = Result::same>
struct Unary : Pointwise<1, result_kind> {
  static constexpr std::array<std::string_view, 1> inputs{"x"};
};
template <Result result_kind = Result::same>
struct Binary : Pointwise<2, result_kind> {
  static constexpr std::array<std::string_view, 2> inputs{"x", "y"};
};

template <class Op>
inline constexpr bool is_pointwise = requires { Op::arity; Op::roles; };

// A contiguous loop: operands in tiles of the compute type (bool for conditions), then the result.
using PointwiseLoop = void (*)(int64_t n, const void* const* in, void* out,
                               const ir::AttributeRecord* attributes);

struct PointwiseInfo {
  std::span<const Role> roles;
  Result result;
  bool refuses_bool;
  bool computes_floating;                 // integers are computed as f32
  std::array<PointwiseLoop, 3> loops;     // by Compute; null where it cannot occur
};

void infer_pointwise(const PointwiseInfo& info, ir::InferCall& call);
void bind_pointwise(const PointwiseInfo& info, ir::BindCall& call);

// The common dtype of operands under ATen's rules: tensors with dimensions, then 0-d tensors, then
// numbers; a lower rank only promotes across categories.
DType promoted_dtype(const ir::InferCall& call, std::span<const Role> roles);
// The common shape of the tensor operands; sizes that are both symbolic are taken to be equal and
// checked at run time.
Dims broadcast_dims(const ir::InferCall& call);

template <class Op, class C, size_t... I>
[[gnu::always_inline]] inline void pointwise_body(int64_t n, const void* const* in, void* out,
                                                  const ir::AttributeRecord* record,
                                                  std::index_sequence<I...>) {
  using S = scalar::Num<C>;
  using Out = std::conditional_t<Op::result == Result::boolean, bool, C>;
  auto pointers = std::tuple(
      static_cast<const std::conditional_t<Op::roles[I] == Role::condition, bool, C>*>(in[I])...);
  Out* __restrict target = static_cast<Out*>(out);
  auto load = [](auto v) __attribute__((always_inline)) {
    if constexpr (std::is_same_v<decltype(v), bool>) return typename S::Bool{v};
    else return S{v};
  };
  auto store = [](auto v) __attribute__((always_inline)) {
    return static_cast<Out>(v.value);
  };
  if constexpr (requires { typename Op::Attr; }) {
    // A copy of its own: nothing the loop writes can change it, so branches on it leave the loop.
    static_assert(std::is_trivially_copyable_v<typename Op::Attr>);
    const typename Op::Attr a = static_cast<const Record<typename Op::Attr>*>(record)->value;
    for (int64_t i = 0; i < n; ++i)
      target[i] = store(Op::template scalar<S>(load(std::get<I>(pointers)[i])..., a));
  } else {
    for (int64_t i = 0; i < n; ++i)
      target[i] = store(Op::template scalar<S>(load(std::get<I>(pointers)[i])...));
  }
}

template <class Op, class C>
void pointwise_loop(int64_t n, const void* const* in, void* out,
                    const ir::AttributeRecord* record) {
  pointwise_body<Op, C>(n, in, out, record, std::make_index_sequence<Op::arity>());
}
#if GRADUS_HAS_V3
template <class Op, class C>
[[gnu::target("arch=x86-64-v3")]] void pointwise_loop_v3(int64_t n, const void* const* in,
                                                         void* out,
                                                         const ir::AttributeRecord* record) {
  pointwise_body<Op, C>(n, in, out, record, std::make_index_sequence<Op::arity>());
}
#endif

template <class Op, class C>
PointwiseLoop choose_loop() {
#if GRADUS_HAS_V3
  if (cpu_has_v3()) return pointwise_loop_v3<Op, C>;
#endif
  return pointwise_loop<Op, C>;
}

template <class Op>
struct PointwiseEntry {
  static const PointwiseInfo& info() {
    static const PointwiseInfo i = [] {
      PointwiseInfo p{Op::roles, Op::result, Op::refuses_bool, Op::computes_floating, {}};
      p.loops[0] = choose_loop<Op, double>();
      p.loops[1] = choose_loop<Op, float>();
      if constexpr (!Op::computes_floating) p.loops[2] = choose_loop<Op, int64_t>();
      return p;
    }();
    return i;
  }
  static void infer(ir::InferCall& call) { infer_pointwise(info(), call); }
  static void bind(ir::BindCall& call) { bind_pointwise(info(), call); }
};

}  // namespace gradus::ops
