#include "ops/reverse.h"

#include "gradus/rules.h"
#include "ops/collectives.h"

namespace gradus::ops {

void PullBack::operand(Value&& x, bool wanted) {
  x_.push_back(std::move(x));
  wanted_.push_back(wanted);
  wants_ |= wanted;
}

void PullBack::result(Value&& y, Value dy) {
  arrives_ |= dy.defined();
  y_.push_back(std::move(y));
  dy_.push_back(std::move(dy));
}

VjpCall PullBack::call(World& world, const Operator& op, const Attributes& attributes) const {
  VjpCall call{op, world, x_, y_, dy_, attributes, wanted_, {}};
  call.gradients.resize(x_.size());
  if (arrives_ && wants_) op.vjp(call);
  for (size_t i = 0; i < x_.size(); ++i) {
    GRADUS_CHECK(!call.gradients[i].is_number());
    if (!wanted_[i]) call.gradients[i] = Value();
  }
  return call;
}

Value fit(const Value& gradient, Type type) {
  Value g = fit_here(gradient, type);
  return same_sharing(g.type, type) ? g : share_as(g, type);
}

Value fit_here(const Value& gradient, Type type) {
  if (gradient.dims() == type.dims) return cast(gradient, type.dtype);
  Value g = cast(sum_to(gradient, type.dims), type.dtype);
  // Where an f64[N] met an f64[M], the gradient may be of the other name: the same size, which
  // `expand` leaves to be checked.
  return expand(g, type.dims);
}

void accumulate(Value& sum, const Value& contribution) {
  sum = sum.defined() ? sum + contribution : contribution;
}

}  // namespace gradus::ops
