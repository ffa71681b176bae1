// Losses.
#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Of log-probabilities [N, C, d..] and classes [N, d..].
Value likelihood(Call& c, const Value& logs) {
  Value target = cast(c.x(1), DType::i64);
  if (logs.rank() < 2 || target.rank() != logs.rank() - 1)
    c.fail("it wants numbers [N, C, d..] and classes [N, d..]");
  std::vector<Value> operands{logs, target};
  if (c.given(2)) operands.push_back(c.x(2));
  Dims each = target.dims();
  // All places lie in one dimension where there are many.
  bool many = logs.rank() > 3;
  if (many) {
    Dims places(each.begin() + 1, each.end());
    operands[0] = reshape(logs, {logs.dims()[0], logs.dims()[1], ir::numel(places)});
    operands[1] = reshape(target, {each[0], ir::numel(places)});
  }
  std::string reduction = c.attribute("reduction", "mean");
  // A number that no class has: nothing is ignored.
  int64_t ignored = c.attribute("ignore_index", int64_t{INT64_MIN});
  Value y = emit_all(c.world(), "nll_loss", operands,
                     {{"reduction", reduction}, {"ignore_index", ignored}})[0];
  return many && reduction == "none" ? reshape(y, each) : y;
}

void nll_loss(Call& c) { c.give(likelihood(c, c.x())); }

void softmax_cross_entropy(Call& c) {
  Value logs = emit("log_softmax", {c.x()}, {{"dim", 1}});
  c.give(likelihood(c, logs));
  if (c.wants(1)) c.give(logs);
}

constexpr RuleEntry loss_table[] = {
    {"NegativeLogLikelihoodLoss", 12, nll_loss},
    {"SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy},
};

}  // namespace

constinit const Rules loss_rules = loss_table;

}  // namespace gradus::onnx
