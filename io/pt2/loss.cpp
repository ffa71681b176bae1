// Losses. Kinks have ATen's derivatives: 0 where a margin is just kept.
#include <algorithm>

#include "io/pt2/call.h"
#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// Python's names of what ATen numbers.
const char* reduction_of(Call& c) {
  const int64_t reduction = c.integer("reduction", 1);
  if (reduction < 0 || reduction > 2) c.fail("its reduction is {}; 0, 1 or 2 is wanted", reduction);
  constexpr const char* names[] = {"none", "mean", "sum"};
  return names[reduction];
}

Value reduced_loss(Call& c, const Value& losses) {
  const std::string_view reduction = reduction_of(c);
  if (reduction == "none") return losses;
  return unary(reduction, losses);
}

std::vector<Value> loss_operands(Call& c, std::initializer_list<std::string_view> names) {
  std::vector<Value> operands;
  for (std::string_view name : names) operands.push_back(in_result_dtype_or_undefined(c, name));
  return operands;
}

void loss_rule(Call& c) {
  c.give(emit_all(c.world(), c.ours(), loss_operands(c, {"self", "target"}),
                  {{"reduction", reduction_of(c)}})[0]);
}

void smooth_l1_rule(Call& c) {
  c.give(emit_all(c.world(), "smooth_l1_loss", loss_operands(c, {"self", "target"}),
                  {{"reduction", reduction_of(c)}, {"beta", c.number("beta", 1)}})[0]);
}

// Where the distance is delta, the slope is constant: its derivative is 0.
void huber_rule(Call& c) {
  const double delta = c.number("delta", 1);
  Value d = in_result_dtype(c) - in_result_dtype(c, "target");
  Value size = unary("abs", d);
  Value inner = unary("square", d) * 0.5, outer = (size - 0.5 * delta) * delta;
  c.give(reduced_loss(c, where(lt(size, num(delta)), inner, outer)));
}

void kl_div_rule(Call& c) {
  c.give(
      emit_all(c.world(), "kl_div", loss_operands(c, {"self", "target"}),
               {{"reduction", reduction_of(c)}, {"log_target", c.flag("log_target", false)}})[0]);
}

void entropy_loss_rule(Call& c) {
  c.give(emit_all(c.world(), "bce", loss_operands(c, {"self", "target", "weight"}),
                  {{"reduction", reduction_of(c)}})[0]);
}

void logits_loss_rule(Call& c) {
  c.give(emit_all(c.world(), "bce_with_logits",
                  loss_operands(c, {"self", "target", "weight", "pos_weight"}),
                  {{"reduction", reduction_of(c)}})[0]);
}

void poisson_rule(Call& c) {
  c.give(emit_all(c.world(), "poisson_nll_loss", loss_operands(c, {"input", "target"}),
                  {{"log_input", c.flag("log_input", true)},
                   {"full", c.flag("full", false)},
                   {"eps", c.number("eps", 1e-8)},
                   {"reduction", reduction_of(c)}})[0]);
}

// Classes

// Numbers [N, C, d..] with several d as [N, C, d]; places have no say in a loss.
Value with_one_place(const Value& x, int leading) {
  if (x.rank() <= leading + 1) return x;
  Dims places(x.dims().begin() + leading, x.dims().end());
  Dims shape(x.dims().begin(), x.dims().begin() + leading);
  shape.push_back(ir::numel(places));
  return reshape(x, shape);
}

// The sum of the weights of targets that count, a further result of some forms.
Value total_weight(Call& c, const Value& target, const Value& weight) {
  Value counts = ne(target, num(c.integer("ignore_index", -100)));
  if (!weight.defined()) return sum_all(cast(counts, c.result(1).dtype));
  Value row = reshape(where(counts, target, num(int64_t{0})), {ir::numel(target.dims())});
  Value weights = reshape(index_select(weight, row, 0), target.dims());
  return sum_all(keep_where(counts, weights));
}

void class_loss_rule(Call& c) {
  Value logs = in_result_dtype(c), target = c.x("target");
  Value weight = in_result_dtype_or_undefined(c, "weight");
  Value y = emit_all(
      c.world(), "nll_loss", std::array{with_one_place(logs, 2), with_one_place(target, 1), weight},
      {{"reduction", reduction_of(c)}, {"ignore_index", c.integer("ignore_index", -100)}})[0];
  c.give(y.rank() > 0 ? reshape(y, target.dims()) : y);
  if (c.results() == 1) return;
  if (c.wants(1))
    c.give(total_weight(c, target, weight));
  else
    c.give_nothing();
}

void cross_entropy_rule(Call& c) {
  Value x = in_result_dtype(c), target = c.x("target");
  const bool probabilities = is_floating(target.dtype());
  if (probabilities) target = in_result_dtype(c, "target");
  Dims each = target.dims();
  if (probabilities && each.size() > 1) each.erase(each.begin() + 1);
  if (probabilities && each.size() == 1 && x.rank() == 1) each = {};
  Value y = emit_all(c.world(), "cross_entropy",
                     std::array{with_one_place(x, 2), with_one_place(target, probabilities ? 2 : 1),
                                in_result_dtype_or_undefined(c, "weight")},
                     {{"reduction", reduction_of(c)},
                      {"ignore_index", c.integer("ignore_index", -100)},
                      {"label_smoothing", c.number("label_smoothing", 0)}})[0];
  c.give(y.rank() > 0 ? reshape(y, each) : y);
}

// Margins

void ranking_rule(Call& c) {
  Value difference = in_result_dtype(c, "input1") - in_result_dtype(c, "input2");
  Value kept = in_result_dtype(c, "target") * difference;
  c.give(reduced_loss(c, positive_part(c.number("margin", 0) - kept)));
}

void hinge_rule(Call& c) {
  Value x = in_result_dtype(c), target = in_result_dtype(c, "target");
  Value apart = positive_part(c.number("margin", 1) - x);
  Value unlike = where(eq(target, num(1.0)), num(0.0), apart);
  Value like = where(eq(target, num(-1.0)), num(0.0), x);
  c.give(reduced_loss(c, unlike + like));
}

Value length(const Value& x, double p, bool keepdim) {
  return emit("norm", {x}, {{"p", p}, {"dim", ir::Literal::list(Ints{-1})}, {"keepdim", keepdim}});
}

void pairwise_rule(Call& c) {
  Value difference = in_result_dtype(c, "x1") - in_result_dtype(c, "x2");
  c.give(length(difference + c.number("eps", 1e-6), c.number("p", 2), c.flag("keepdim", false)));
}

void triplet_rule(Call& c) {
  const double p = c.number("p", 2), eps = c.number("eps", 1e-6);
  Value anchor = in_result_dtype(c, "anchor");
  Value positive = in_result_dtype(c, "positive"), negative = in_result_dtype(c, "negative");
  Value like = length(anchor - positive + eps, p, false);
  Value unlike = length(anchor - negative + eps, p, false);
  if (c.flag("swap", false))
    unlike = binary("minimum", unlike, length(positive - negative + eps, p, false));
  c.give(reduced_loss(c, positive_part(like - unlike + c.number("margin", 1))));
}

void cosine_similarity_rule(Call& c) {
  Value x = in_result_dtype(c, "x1"), y = in_result_dtype(c, "x2");
  c.give(emit(
      "cosine_similarity", {x, y},
      {{"dim", c.dim("dim", 1, std::max(x.rank(), y.rank()))}, {"eps", c.number("eps", 1e-8)}}));
}

void cosine_embedding_rule(Call& c) {
  constexpr double eps = 1e-12;  // ATen's, under the root
  Value x = in_result_dtype(c, "input1"), y = in_result_dtype(c, "input2");
  Value target = c.x("target");
  const Ints dims{target.rank() == 0 ? 0 : 1};
  Value squares = (sum(x * x, dims, false) + eps) * (sum(y * y, dims, false) + eps);
  Value cosine = sum(x * y, dims, false) / unary("sqrt", squares);
  Value like = where(eq(target, num(int64_t{1})), 1.0 - cosine, num(0.0));
  Value apart = positive_part(cosine - c.number("margin", 0));
  Value unlike = where(eq(target, num(int64_t{-1})), apart, num(0.0));
  c.give(reduced_loss(c, like + unlike));
}

// The numbers of classes [N, C], or [1, C] of one sample, and the targets likewise.
struct Samples {
  Value x, target;
  bool one;
};
Samples samples_of(Call& c, bool classes) {
  Samples s{in_result_dtype(c), c.x("target"), false};
  s.one = s.x.rank() < 2;
  if (s.one) s.x = reshape(s.x, {1, ir::numel(s.x.dims())});
  if (s.one) s.target = classes ? reshape(s.target, {1}) : reshape(s.target, s.x.dims());
  return s;
}

// Of samples [N]; of one sample as the archive has it, with a dimension or without.
void give_of_samples(Call& c, const Samples& s, const Value& losses) {
  Value y = reduced_loss(c, losses);
  c.give(s.one ? reshape(y, c.result().sizes) : y);
}

// How many classes there are, as a row 0, 1, ..
Value class_row(Call& c, const Value& x) { return arange(c.world(), x.dims()[1]); }

void multi_margin_rule(Call& c) {
  Samples s = samples_of(c, true);
  Value at = unsqueeze(s.target, 1);
  Value over = positive_part(s.x - gather(s.x, at, 1) + c.number("margin", 1));
  const double p = c.number("p", 1);
  if (p != 1 && p != 2) c.fail("its p is {}; it must be 1 or 2", p);
  if (p == 2) over = unary("square", over);
  if (c.given("weight")) over = over * unsqueeze(index_select(c.x("weight"), s.target, 0), 1);
  Value others = where(eq(at, class_row(c, s.x)), num(0.0), over);
  give_of_samples(c, s, sum(others, {1}, false) / s.x.dims()[1]);
}

// Targets name classes up to the first -1. Each target should lie above every class that is none.
void multilabel_margin_rule(Call& c) {
  Samples s = samples_of(c, false);
  Value ended = cast(lt(s.target, num(int64_t{0})), DType::i64);
  Value counts = eq(emit("cumsum", {ended}, {{"dim", 1}}), num(int64_t{0}));  // [N, targets]
  Value target = where(counts, s.target, num(int64_t{0}));
  Value named = logical_and(unsqueeze(counts, 2), eq(unsqueeze(target, 2), class_row(c, s.x)));
  Value is_target = emit("any", {named}, {{"dim", 1}});  // [N, classes]
  Value picked = unsqueeze(gather(s.x, target, 1), 2);
  Value over = positive_part(1.0 - (picked - unsqueeze(s.x, 1)));  // [N, targets, classes]
  Value wanted = logical_and(unsqueeze(counts, 2), logical_not(unsqueeze(is_target, 1)));
  give_of_samples(c, s, sum(keep_where(wanted, over), {1, 2}, false) / s.x.dims()[1]);
  if (c.results() > 1) c.give_nothing();
}

void ctc_rule(Call& c) { c.fail("there is no operator for the CTC loss"); }

constexpr RuleEntry loss_table[] = {
    {"mse_loss", loss_rule},
    {"l1_loss", loss_rule},
    {"soft_margin_loss", loss_rule},
    {"smooth_l1_loss", smooth_l1_rule},
    {"huber_loss", huber_rule},
    {"kl_div", kl_div_rule},
    {"binary_cross_entropy", entropy_loss_rule},
    {"binary_cross_entropy_with_logits", logits_loss_rule},
    {"poisson_nll_loss", poisson_rule},
    {"nll_loss", class_loss_rule},
    {"nll_loss2d", class_loss_rule},
    {"nll_loss_nd", class_loss_rule},
    {"nll_loss_forward", class_loss_rule},
    {"nll_loss2d_forward", class_loss_rule},
    {"cross_entropy_loss", cross_entropy_rule},
    {"margin_ranking_loss", ranking_rule},
    {"hinge_embedding_loss", hinge_rule},
    {"triplet_margin_loss", triplet_rule},
    {"cosine_embedding_loss", cosine_embedding_rule},
    {"multi_margin_loss", multi_margin_rule},
    {"multilabel_margin_loss", multilabel_margin_rule},
    {"multilabel_margin_loss_forward", multilabel_margin_rule},
    {"cosine_similarity", cosine_similarity_rule},
    {"pairwise_distance", pairwise_rule},
    {"ctc_loss", ctc_rule},
    {"_ctc_loss", ctc_rule},
};

}  // namespace

constinit const Rules loss_rules = loss_table;

}  // namespace gradus::pt2
