// Dimensions as attributes name them.
//
// An attribute that is declared to name dimensions (`dimension` and `required_dimension` of
// gradus/attributes.h) may count them from the end: -1 is the last one. Here, and nowhere else,
// they are held to the operand's rank and counted from the front: rules are given the result. What
// is written stays in the program.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "gradus/batching.h"
#include "gradus/bind.h"
#include "gradus/value.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// How many dimensions can be named of a tensor of this rank: a scalar counts as having one.
inline int nameable(int rank) { return std::max(rank, 1); }

// Calls f for the dimensions that a member of an attribute's type names.
template <class F>
void each_dimension(auto& named, F f) {
  using T = std::remove_cvref_t<decltype(named)>;
  if constexpr (std::is_same_v<T, int64_t>) {
    f(named);
  } else if constexpr (std::is_same_v<T, Ints>) {
    for (auto& d : named) f(d);
  } else if constexpr (std::is_same_v<T, std::optional<int64_t>> ||
                       std::is_same_v<T, std::optional<Ints>>) {
    if (named) each_dimension(*named, f);
  }
}
// Calls f for every dimension that attributes of type A name.
template <class A, class F>
void for_each_dimension(A& a, F f) {
  auto visit = [&](const auto& field) {
    if (field.names_dimensions) each_dimension(a.*field.member, f);
  };
  std::apply([&](const auto&... field) { (visit(field), ...); }, std::remove_const_t<A>::fields());
}
template <class A>
inline constexpr bool names_dimensions = std::apply(
    [](const auto&... field) { return (false || ... || field.names_dimensions); }, A::fields());

// Attributes whose dimensions are counted from the front, those of a tensor of this rank.
template <class A>
class FromFront {
 public:
  FromFront(const Attributes& written, int rank) : seen_(&attributes_as<A>(written)) {
    bool counted_from_end = false;
    for_each_dimension(*seen_, [&](int64_t d) { counted_from_end |= d < 0; });
    if (!counted_from_end) return;
    own_.emplace(*seen_);
    for_each_dimension(*own_, [&](int64_t& d) { d += d < 0 ? nameable(rank) : 0; });
    seen_ = &*own_;
  }
  FromFront(const FromFront&) = delete;
  const A& operator*() const { return *seen_; }

 private:
  const A* seen_;
  std::optional<A> own_;
};

// Throws Error for a dimension that a tensor of this rank has not.
void check_dimension(const Operator& op, int64_t dim, int rank);
// Throws Error for an operand 'x' of fewer dimensions.
void check_least_rank(const Operator& op, const Type& x, int least);

// Throws Error for one that 'dims' lists twice.
void refuse_repeated(const InferCall& call, const Ints& dims);
// x's type, but with `size` along `dim`.
Type resized(Type x, int64_t dim, const Dim& size);

// The rank of operand i, as each kind of call knows it; 0 of what is no tensor.
inline int rank_of(const InferCall& c, size_t i) { return c.tensor(i).rank(); }
inline int rank_of(const ComposeCall& c, size_t i) { return c.x(i).rank(); }
inline int rank_of(const VjpCall& c, size_t i) { return c.x_type(i).rank(); }
inline int rank_of(const BindCall& c, size_t i) { return c.in[i].rank(); }
inline int rank_of(const BatchedCall& c, size_t i) { return c.own_rank(i); }

// The rank of the tensor whose dimensions attributes name: that of operand 0, or the greatest of
// all operands where there may be any number of them.
int named_rank(const auto& call, bool of_all) {
  size_t operands = 1;
  if constexpr (requires { call.operands(); })
    operands = call.operands();
  else if constexpr (requires { call.operands; })
    operands = call.operands.size();
  else
    operands = call.in.size();
  int rank = 0;
  for (size_t i = 0; i < (of_all ? operands : 1); ++i) rank = std::max(rank, rank_of(call, i));
  return rank;
}

// Checks what a call's attributes name, and that operand 0 has `least` dimensions. A call without
// operands, and a composition's operand that is no tensor, are refused by the rule itself.
template <class A>
void check_dimensions(const auto& call, int rank, int least) {
  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(call)>, InferCall>) {
    if (call.operands() == 0) return;
    check_least_rank(call.op, call.tensor(0), least);
  } else {
    if (call.operands.empty() || !call.x().is_tensor()) return;
    check_least_rank(call.op, call.x().type, least);
  }
  for_each_dimension(attributes_as<A>(call.attributes),
                     [&](int64_t d) { check_dimension(call.op, d, rank); });
}

// The batch rule of operators whose attributes name dimensions: those move on by the added one. A
// 0-d operand is taken as one of one element.
BatchedResults batch_stretched(const BatchedCall& c, Attributes attributes);
struct BatchNamedDimensions {
  BatchedResults operator()(const BatchedCall& c, auto a) const {
    for_each_dimension(a, [](int64_t& d) { ++d; });
    return batch_stretched(c, make_attributes(std::move(a)));
  }
};
inline constexpr BatchNamedDimensions batch_named_dimensions;

}  // namespace gradus::ops

#pragma GCC visibility pop
