#include "ops/losses.h"

#include <algorithm>

#include "gradus/rules.h"
#include "ops/comparison.h"
#include "ops/declared.h"
#include "ops/distances.h"
#include "ops/element_losses.h"
#include "ops/families.h"
#include "ops/normalization.h"
#include "ops/operands.h"
#include "ops/reduction_rules.h"

namespace gradus::ops {

bool read_literal(const Literal& l, Reduction& r, std::string& what) {
  const std::string* s = std::get_if<std::string>(&l.value);
  what = "\"mean\", \"sum\" or \"none\"";
  if (!s || (*s != "none" && *s != "mean" && *s != "sum")) return false;
  r = *s == "none" ? Reduction::none : *s == "mean" ? Reduction::mean : Reduction::sum;
  return true;
}
Literal write_literal(const Reduction& r) {
  return r == Reduction::none ? "none" : r == Reduction::mean ? "mean" : "sum";
}

Value reduced(const Value& losses, Reduction r) {
  if (r == Reduction::none) return losses;
  return r == Reduction::sum ? sum_all(losses) : emit<Mean>(losses);
}

Value at_least(const Value& x, double bound) { return emit<Clamp>({x}, {.min = bound}); }

namespace {

// Where the classes of x stand, and targets that name a class each.
struct Classes {
  int64_t dim;
  Value counts;  // bool: targets that are not to be ignored
  Value target;  // 0 where ignored
};

Classes classes_of(const ComposeCall& c, const Value& x, int64_t ignore_index) {
  Value target = tensor_operand(c, 1);
  if (target.dtype() != DType::i64 && target.dtype() != DType::i32)
    c.fail("operand 'target' is {}; classes are i64 or i32", to_string(target.type));
  Classes k;
  k.dim = x.rank() == 1 ? 0 : 1;
  Dims shape;
  for (int d = 0; d < x.rank(); ++d)
    if (d != k.dim) shape.push_back(x.dims()[d]);
  if (x.rank() == 0 || target.dims().size() != shape.size())
    c.fail(
        "operand '{}' is {} and 'target' is {}; they must be [N, C, ..] and [N, ..], or [C] and []",
        c.op.operand(0).name, to_string(x.type), to_string(target.type));
  for (size_t d = 0; d < shape.size(); ++d)
    same_size(c, target.dims()[d], shape[d],
              fmt::format("dimension {} of 'target' and the one it stands for in {}", d,
                          to_string(x.type)));
  target = expand(target, shape);  // a size that only a run can prove is checked by it
  k.counts = ne(target, num(ignore_index));
  k.target = where(k.counts, target, num(int64_t{0}));
  return k;
}

// Operand 2, a weight for each class, in the dtype that losses are worked out in.
Value class_weights(const ComposeCall& c, const Dim& classes) {
  if (!c.given(2)) return {};
  const Value& w = floating_operand(c, 2);
  if (w.rank() != 1)
    c.fail("operand 'weight' is {}; it must hold one number per class", to_string(w.type));
  same_size(c, w.dims()[0], classes, "'weight' and the classes");
  return expand(widened(w), {classes});
}

// The weight of each target that counts, 0 for the others.
Value target_weights(const Classes& k, const Value& weight, DType dtype) {
  if (!weight.defined()) return cast(k.counts, dtype);
  Value flat = reshape(k.target, {ir::numel(k.target.dims())});
  Value picked = index_select(weight, flat, 0);
  return keep_where(k.counts, reshape(picked, k.target.dims()));
}

// Losses of the targets that count, reduced; the mean is over their weights.
Value reduced_by_weight(const Value& losses, const Value& weights, Reduction r) {
  if (r == Reduction::none) return losses;
  return r == Reduction::sum ? sum_all(losses) : sum_all(losses) / sum_all(weights);
}

Value negative_log_likelihood(const Classes& k, const Value& logp, const Value& weight,
                              Reduction r) {
  Value at = unsqueeze(k.target, k.dim);
  Value picked = squeeze(gather(logp, at, k.dim), k.dim);
  Value weights = target_weights(k, weight, logp.dtype());
  Value weighted = weight.defined() ? picked * weights : picked;
  return reduced_by_weight(keep_where(k.counts, -weighted), weights, r);
}

// [C] -> [C, 1, ..], to go with x [N, C, ..].
Value along_classes(const Value& weight, const Value& x) {
  if (x.rank() < 2) return weight;
  Dims shape(x.dims().size() - 1, Dim(1));
  shape[0] = weight.dims()[0];
  return reshape(weight, shape);
}

Value entropy_with_classes(const ComposeCall& c, const Value& logp) {
  const auto& a = c.attr<CrossEntropy::Attr>();
  Classes k = classes_of(c, logp, a.ignore_index);
  const Dim& classes = logp.dims()[k.dim];
  Value weight = class_weights(c, classes);
  Value loss = negative_log_likelihood(k, logp, weight, a.reduction);
  if (a.label_smoothing == 0) return loss;
  Value every = weight.defined() ? logp * along_classes(weight, logp) : logp;
  Value smooth = keep_where(k.counts, -sum(every, {k.dim}, false));
  Value weights = target_weights(k, weight, logp.dtype());
  Value spread = reduced_by_weight(smooth, weights, a.reduction) / classes;
  return loss * (1 - a.label_smoothing) + spread * a.label_smoothing;
}

Value entropy_with_probabilities(const ComposeCall& c, const Value& logp) {
  const auto& a = c.attr<CrossEntropy::Attr>();
  Value target = widened(c.x(1));
  int64_t dim = logp.rank() == 1 ? 0 : 1;
  bool fits = target.rank() == logp.rank() && logp.rank() > 0;
  for (int d = 0; fits && d < logp.rank(); ++d)
    same_size(c, target.dims()[d], logp.dims()[d],
              fmt::format("dimension {} of 'x' and 'target'", d));
  if (!fits)
    c.fail("operand 'target' is {}, 'x' is {}; probabilities have x's shape, classes are i64",
           to_string(target.type), to_string(c.x(0).type));
  target = expand(target, logp.dims());
  const Dim& classes = logp.dims()[dim];
  if (a.label_smoothing > 0) {
    Value share = full(*target.world, {}, a.label_smoothing, target.dtype()) / classes;
    target = target * (1 - a.label_smoothing) + share;
  }
  Value weight = class_weights(c, classes);
  Value terms = logp * target;
  if (weight.defined()) terms = terms * along_classes(weight, logp);
  Value losses = -sum(terms, {dim}, false);
  if (a.reduction == Reduction::none) return losses;
  Value sum_of = sum_all(losses);
  if (a.reduction == Reduction::sum) return sum_of;
  Dim count = 1;
  for (const Dim& d : losses.dims()) count = count * d;
  return sum_of / count;
}

}  // namespace

void MseLoss::compose(ComposeCall& c, const Attr& a) {
  Value difference = floating_operand(c, 0) - floating_operand(c, 1);
  Value wide = widened(difference);
  c.give(cast(reduced(emit<Square>(wide), a.reduction), difference.dtype()));
}

void NllLoss::compose(ComposeCall& c, const Attr& a) {
  const Value& logp = floating_operand(c, 0);
  Classes k = classes_of(c, logp, a.ignore_index);
  Value weight = class_weights(c, logp.dims()[k.dim]);
  c.give(cast(negative_log_likelihood(k, widened(logp), weight, a.reduction), logp.dtype()));
}

void CrossEntropy::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  const Value& target = tensor_operand(c, 1);
  if (!(a.label_smoothing >= 0 && a.label_smoothing <= 1))
    c.fail("'label_smoothing' is {}; it must be from 0 to 1", a.label_smoothing);
  Value logp = emit<LogSoftmax>({widened(x)}, {.dim = x.rank() < 2 ? 0 : 1});
  bool classes = !target.type.is_floating();
  c.give(cast(classes ? entropy_with_classes(c, logp) : entropy_with_probabilities(c, logp),
              x.dtype()));
}

void BceWithLogits::compose(ComposeCall& c, const Attr& a) {
  const Value &x = floating_operand(c, 0), &target = floating_operand(c, 1);
  for (size_t i : {2, 3})
    if (c.given(i)) floating_operand(c, i);
  Value wide = widened(x), t = widened(target);
  Value positive = emit<Logsigmoid>(wide);
  if (c.given(3)) {
    Value extra = (widened(c.x(3)) - 1.0) * t;
    positive = (extra + 1.0) * positive;
  }
  Value losses = (1.0 - t) * wide - positive;
  if (c.given(2)) losses = losses * widened(c.x(2));
  c.give(cast(reduced(losses, a.reduction), x.dtype()));
}

Family loss_family() {
  return fold<decltype(std::tuple_cat(LossOperators(), ElementLossOperators(),
                                      DistanceOperators()))>();
}

}  // namespace gradus::ops
