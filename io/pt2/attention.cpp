// Attention.
#include <cmath>
#include <limits>

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

constexpr double never = -std::numeric_limits<double>::infinity();

// scores * scale; 1 / sqrt(E) where the node does not say.
Value scaled(Call& c, const Value& scores, const Dim& width) {
  if (c.given("scale")) return scores * c.number("scale");
  if (width.is_constant()) return scores * (1 / std::sqrt(static_cast<double>(width.value())));
  Value wide = full(c.world(), {}, 0, scores.dtype()) + Value::number(width);
  return scores * unary("rsqrt", wide);
}

// Each head of the keys and values serves several of the queries.
Value for_all_heads(const Value& x, const Value& query) {
  if (x.rank() < 3 || query.rank() < 3) return x;
  const int dim = x.rank() - 3;
  const Dim &have = size_at(x.dims(), dim), &want = size_at(query.dims(), query.rank() - 3);
  if (have == want) return x;
  return emit("repeat_interleave", {x}, {{"repeats", floor_div(want, have)}, {"dim", dim}});
}

// Rows may be masked as a whole; these give zeros, as do their derivatives.
struct Masked {
  Value scores;
  Value nothing;  // [.., T, 1]: no key is left; undefined where that cannot be
};

Masked masked_scores(Call& c, const Value& scores) {
  if (c.flag("is_causal", false)) {
    const Dim &t = size_at(scores.dims(), scores.rank() - 2), &s = scores.dims().back();
    Value earlier = ge(unsqueeze(arange(c.world(), t), 1), unsqueeze(arange(c.world(), s), 0));
    return {where(earlier, scores, num(never)), {}};
  }
  if (!c.given("attn_mask")) return {scores, {}};
  Value mask = c.x("attn_mask");
  const bool choice = mask.dtype() == DType::boolean;
  Value kept = choice ? mask : ne(mask, num(never));
  if (!choice) mask = cast(mask, scores.dtype());
  if (mask.rank() == 0) return {choice ? where(mask, scores, num(never)) : scores + mask, {}};
  Value some = emit("any", {kept}, {{"dim", kept.rank() - 1}, {"keepdim", true}});
  Value nothing = logical_not(some);
  Value y = choice ? where(mask, scores, num(never)) : scores + mask;
  return {where(nothing, num(0.0), y), nothing};
}

void attend(Call& c) {
  if (c.number("dropout_p", 0) > 0)
    c.fail("dropout_p is {}; random numbers are not supported: export in eval mode",
           c.number("dropout_p"));
  Value q = c.x("query"), k = c.x("key"), v = c.x("value");
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) c.fail("it wants [.., T, E]");
  if (c.flag("enable_gqa", false)) {
    k = for_all_heads(k, q);
    v = for_all_heads(v, q);
  }
  Masked m = masked_scores(c, scaled(c, matmul_transposed(q, k), q.dims().back()));
  Value p = emit("softmax", {m.scores}, {{"dim", m.scores.rank() - 1}});
  if (m.nothing.defined()) p = where(m.nothing, num(0.0), p);
  c.give(matmul(p, v));
}

constexpr RuleEntry attention_table[] = {
    {"scaled_dot_product_attention", attend},
    {"_scaled_dot_product_attention_math", attend},
    {"_scaled_dot_product_flash_attention_for_cpu", attend},
};

}  // namespace

constinit const Rules attention_rules = attention_table;

}  // namespace gradus::pt2
