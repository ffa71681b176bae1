// Attributes that name dimensions.
//
// An attribute that is declared with `dimension` or `required_dimension` (gradus/attributes.h) may
// count dimensions from the end: -1 is the last one. Only the functions below check such dimensions
// against the operand's rank and count them from the front. Rules receive the result. The program
// keeps the dimensions as written.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "gradus/batching.h"
#include "gradus/bind.h"
#include "gradus/value.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// The number of dimensions that can be named for a tensor of this rank. A 0-d tensor counts as one
// of rank 1.
inline int nameable(int rank) { return std::max(rank, 1); }

// Calls f for each dimension in a member of an attribute's type.
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
// Calls f for each dimension that attributes of type A name.
template <class A, class F>
void for_each_dimension(A& a, F f) {
  auto visit = [&](const auto& field) {
    if (field.names_dimensions) each_dimension(a.*field.member, f);
  };
  std::apply([&](const auto&... field) { (visit(field), ...); }, std::remove_const_t<A>::fields());
}
// Whether a member of A names dimensions.
template <class A>
inline constexpr bool names_dimensions = std::apply(
    [](const auto&... field) { return (false || ... || field.names_dimensions); }, A::fields());

// Attributes whose dimensions are counted from the front of a tensor of this rank. Borrows
// `written`.
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

// Throws Error for a dimension that a tensor of this rank does not have.
void check_dimension(const Operator& op, int64_t dim, int rank);
// Throws Error if operand 'x' has fewer dimensions.
void check_least_rank(const Operator& op, const Type& x, int least);

// Throws Error for a dimension that 'dims' contains twice.
void refuse_repeated(const InferCall& call, const Ints& dims);
// Returns the type of x with `size` along `dim`.
Type resized(Type x, int64_t dim, const Dim& size);

// The rank of operand i in each kind of call.
inline int rank_of(const InferCall& c, size_t i) { return c.tensor(i).rank(); }
inline int rank_of(const ComposeCall& c, size_t i) { return c.x(i).rank(); }
inline int rank_of(const VjpCall& c, size_t i) { return c.x_type(i).rank(); }
inline int rank_of(const BindCall& c, size_t i) { return c.in[i].rank(); }
inline int rank_of(const BatchedCall& c, size_t i) { return c.own_rank(i); }

// The rank of the tensor whose dimensions attributes name: that of operand 0, or the largest rank
// of all operands if their number varies.
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

// Checks the dimensions of a call's attributes, and that operand 0 has `least` dimensions. Does
// nothing for a call without operands and for a composition's operand that is no tensor; the rule
// rejects these.
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

// The batch rule of operators whose attributes name dimensions: adds 1 to each dimension. A 0-d
// operand becomes an operand with one element.
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
