// Layers of language models that carry a state from one call to the next: attention as a
// recurrence, and a convolution that looks back.
#include <cmath>

#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// All are nodes of the program.
constexpr int64_t most_tokens = 10'000;

// [batch, steps, heads * each] as [batch, heads, steps, each].
Value unpacked(Call& c, const Value& x, int64_t heads) {
  if (x.rank() != 3) c.fail("it wants [batch, steps, heads * size]");
  Dim each = floor_div(x.dims()[2], heads);
  return permute(reshape(x, {x.dims()[0], x.dims()[1], heads, each}), {0, 2, 1, 3});
}

// The states of all heads, [batch, heads, key, value], through the steps of a sequence.
struct Recurrence {
  Call& c;
  Value keys, values;  // [batch, heads, steps, each]
  Value decay, rate;   // the same, or [.., 1]; undefined where the rule has none

  static Value at(const Value& x, int64_t step) { return select(x, 2, step); }
  Value next(Value state, int64_t step) const {
    Value key = at(keys, step), value = at(values, step);
    if (decay.defined()) state = state * unsqueeze(unary("exp", at(decay, step)), -1);
    if (rate.defined()) {
      Value found = squeeze(matmul(unsqueeze(key, -2), state), -2);
      value = at(rate, step) * (value - found);
    }
    return state + unsqueeze(key, -1) * unsqueeze(value, -2);
  }
};

void linear_attention(Call& c) {
  const int64_t q_heads = c.attribute("q_num_heads", int64_t{0});
  const int64_t heads = c.attribute("kv_num_heads", int64_t{0});
  if (heads < 1 || q_heads < 1 || q_heads % heads != 0)
    c.fail("{} heads of queries are no multiple of {} of keys", q_heads, heads);
  const std::string rule = c.attribute("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") c.fail("there is no update_rule '{}'", rule);
  if (c.given(4) != gated || c.given(5) != delta)
    c.fail("update_rule '{}' has {} decay and {} beta", rule, gated ? "a" : "no",
           delta ? "a" : "no");
  const DType wide = c.dtype() == DType::f64 ? DType::f64 : DType::f32;
  auto part = [&](size_t i, int64_t n) { return unpacked(c, cast(c.x(i), wide), n); };
  Value q = part(0, q_heads);
  Recurrence r{c, part(1, heads), part(2, heads), {}, {}};
  if (gated) r.decay = part(4, heads);
  if (delta && c.rank(5) != 3)
    c.fail("its beta has {} dimensions; [batch, steps, heads * size] is wanted", c.rank(5));
  if (delta) r.rate = part(5, c.type(5).dims.back() == Dim(1) ? 1 : heads);
  auto steps = q.dims()[2].constant();
  if (!steps || *steps > most_tokens)
    c.unsupported("LinearAttention of {} steps", q.dims()[2].to_string());
  auto size = q.dims()[3].constant();
  double scale = c.attribute("scale", 0.0);
  if (scale == 0 && !size) c.unsupported("LinearAttention whose head's size has a name");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(*size));
  const Dims& v = r.values.dims();
  Value state =
      c.given(3) ? cast(c.x(3), wide) : full(c.world(), {v[0], heads, q.dims()[3], v[3]}, 0, wide);
  std::vector<Value> outputs;
  for (int64_t i = 0; i < *steps; ++i) {
    state = r.next(state, i);
    // A state serves as many queries' heads as there are for it.
    Value seen = q_heads == heads ? state
                                  : emit("repeat_interleave", {state},
                                         {{"repeats", q_heads / heads}, {"dim", 1}});
    outputs.push_back(squeeze(matmul(unsqueeze(Recurrence::at(q, i), -2), seen), -2) * scale);
  }
  if (outputs.empty()) c.unsupported("LinearAttention without steps");
  Value y = emit_all(c.world(), "stack", outputs, {{"dim", 1}})[0];
  c.give(cast(reshape(y, {v[0], *steps, v[3] * Dim(q_heads)}), c.dtype()));
  c.give(cast(state, c.given(3) ? c.dtype(3) : c.dtype()));
}

// Of [batch, channels, steps], each channel by itself; what came before lies in front.
void causal_conv(Call& c) {
  Value x = c.x(), w = c.x(1);
  auto kernel = w.rank() == 3 ? w.dims()[2].constant() : std::nullopt;
  if (x.rank() != 3 || !kernel || *kernel < 1)
    c.fail("it wants [batch, channels, steps] and a kernel [channels, 1, size]");
  auto channels = w.dims()[0].constant();
  if (!channels) c.unsupported("CausalConvWithState of channels whose number has a name");
  Value whole = c.given(3) ? cat(std::vector{c.x(3), x}, 2) : pad_zeros(x, 2, *kernel - 1, 0);
  std::vector<Value> operands{whole, w};
  if (c.given(2)) operands.push_back(c.x(2));
  Value y = emit_all(c.world(), "conv1d", operands, {{"groups", *channels}})[0];
  const std::string activation = c.attribute("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = unary("silu", y);
  else if (activation != "none")
    c.fail("there is no activation '{}'", activation);
  c.give(y);
  const Dim& n = whole.dims()[2];
  c.give(slice(whole, 2, n - Dim(*kernel - 1), n));
}

constexpr RuleEntry state_table[] = {
    {"LinearAttention", 27, linear_attention},
    {"CausalConvWithState", 27, causal_conv},
};

}  // namespace

constinit const Rules state_rules = state_table;

}  // namespace gradus::onnx
