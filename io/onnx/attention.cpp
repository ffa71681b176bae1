// Attention, with caches of keys and values, and rotary positions.
#include <cmath>
#include <limits>

#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

const Dim& size_at(const Value& x, size_t d) { return x.dims()[d]; }

// Heads as a dimension of their own, [batch, heads, steps, each]: of [batch, steps, heads * each]
// where there are three dimensions.
Value with_heads(Call& c, const Value& x, std::string_view heads_name) {
  if (x.rank() == 4) return x;
  const int64_t heads = c.attribute(heads_name, int64_t{0});
  if (x.rank() != 3 || heads < 1)
    c.fail("it wants [batch, heads, steps, size], or [batch, steps, heads * size] and '{}'",
           heads_name);
  Value split = reshape(x, {size_at(x, 0), size_at(x, 1), heads, floor_div(size_at(x, 2), heads)});
  return permute(split, {0, 2, 1, 3});
}

// Back to the three dimensions that it came from.
Value without_heads(const Value& x) {
  return reshape(permute(x, {0, 2, 1, 3}),
                 {size_at(x, 0), size_at(x, 2), size_at(x, 1) * size_at(x, 3)});
}

// The heads of keys and values, each as often as there are queries' heads for it.
Value heads_repeated(Call& c, const Value& x, const Dim& heads) {
  const Dim& mine = size_at(x, 1);
  if (mine == heads) return x;
  auto all = heads.constant(), each = mine.constant();
  if (!all || !each || *each < 1 || *all % *each != 0)
    c.fail("{} heads of queries are no multiple of {} of keys", heads.to_string(),
           mine.to_string());
  return emit("repeat_interleave", {x}, {{"repeats", *all / *each}, {"dim", 1}});
}

// Which keys a query sees, as truth that broadcasts to [batch, heads, queries, keys]; undefined
// where it sees all. `holes`: whether a query may see none.
struct Sight {
  Value truth;
  bool holes = false;
  void also(const Value& more) { truth = truth.defined() ? logical_and(truth, more) : more; }
};

struct Lengths {
  Dim queries, keys, past;
};

// The mask is of fewer keys than there are: those behind are not seen.
Value padded_mask(const Value& mask, const Dim& keys) {
  if (mask.rank() == 0) return mask;
  const Dim& n = mask.dims().back();
  if (n == keys || n == Dim(1)) return mask;
  if (mask.dtype() == DType::boolean) return pad_zeros(mask, mask.rank() - 1, 0, keys - n);
  return emit("constant_pad_nd", {mask},
              {{"pad", Literal::list(Dims{0, keys - n})},
               {"value", -std::numeric_limits<double>::infinity()}});
}

// Queries and keys have places in the whole sequence: a query's is that in its block, and how many
// keys come before the block.
Sight sight_of(Call& c, const Lengths& n) {
  Sight sight;
  const bool causal = c.flag("is_causal");
  int64_t left = c.attribute("left_window_size", int64_t{-1});
  int64_t right = c.attribute("right_window_size", int64_t{-1});
  Value key = arange(c.world(), n.keys);
  Value query = unsqueeze(arange(c.world(), n.queries), 1);
  if (c.given(6)) {
    if (c.rank(6) != 1)
      c.fail("nonpad_kv_seqlen has {} dimensions; it is a list of one number for each sample",
             c.rank(6));
    Value there = reshape(c.x(6), {c.type(6).dims[0], 1, 1, 1});
    sight.also(lt(key, there));
    sight.holes = true;
    query = query + (there - Value::number(n.queries));
  } else if (!(n.past == Dim(0))) {
    query = query + Value::number(n.past);
  }
  if (causal) sight.also(le(key, query));
  if (left >= 0) sight.also(ge(key, query - num(left)));
  if (right >= 0) sight.also(le(key, query + num(right)));
  // Of as many keys as queries, or more, the nearest one is there.
  sight.holes = sight.holes || left >= 0;
  return sight;
}

// Numbers for keys that a query sees, summing to 1; zeros for a query that sees none.
Value weights_of(const Value& scores, bool holes) {
  if (!holes) return emit("softmax", {scores}, {{"dim", -1}});
  Value greatest =
      emit("amax", {detach(scores)},
           {{"dim", Literal::list(Ints{-1})}, {"keepdim", true}, {"allow_empty", true}});
  Value none = eq(greatest, num(-std::numeric_limits<double>::infinity()));
  // Derivatives of infinities that are all alike would be NaN.
  Value weights = emit("softmax", {where(none, num(0.0), scores)}, {{"dim", -1}});
  return where(none, num(0.0), weights);
}

// Scores after each step that a model may ask for.
struct Scores {
  Value products, capped, biased, weights;
};

Scores scores_of(Call& c, const Value& q, const Value& k, Lengths n) {
  auto each = q.dims().back().constant();
  if (!c.has("scale") && !each) c.unsupported("Attention whose head's size has a name");
  const double scale =
      c.has("scale") ? c.attribute("scale", 1.0) : 1 / std::sqrt(static_cast<double>(*each));
  const double root = std::sqrt(scale), cap = c.attribute("softcap", 0.0);
  const DType dtype = q.dtype();
  Scores s;
  s.products = matmul_transposed(q * root, k * root);
  s.capped = cap > 0 ? unary("tanh", s.products / cap) * cap : s.products;
  Sight sight = sight_of(c, n);
  s.biased = s.capped;
  if (c.given(3)) {
    Value mask = padded_mask(c.x(3), n.keys);
    sight.holes = true;
    if (mask.dtype() == DType::boolean)
      sight.also(mask);
    else
      s.biased = s.biased + cast(mask, dtype);
  }
  if (sight.truth.defined())
    s.biased = where(sight.truth, s.biased, num(-std::numeric_limits<double>::infinity()));
  const DType precise = c.has("softmax_precision") ? c.dtype("softmax_precision", 1) : dtype;
  s.weights = cast(weights_of(cast(s.biased, precise), sight.holes), dtype);
  return s;
}

void attention(Call& c) {
  Value q = with_heads(c, c.x(0), "q_num_heads");
  Value k = with_heads(c, c.x(1), "kv_num_heads"), v = with_heads(c, c.x(2), "kv_num_heads");
  Lengths n{size_at(q, 2), 0, 0};
  if (c.given(4) != c.given(5)) c.fail("past_key and past_value come together");
  if (c.given(4)) {
    if (c.given(6)) c.fail("nonpad_kv_seqlen and past_key exclude each other");
    n.past = c.type(4).dims.size() == 4 ? c.type(4).dims[2] : Dim(0);
    k = cat(std::vector{c.x(4), k}, 2);
    v = cat(std::vector{c.x(5), v}, 2);
  }
  n.keys = size_at(k, 2);
  const Dim& heads = size_at(q, 1);
  Scores s = scores_of(c, q, heads_repeated(c, k, heads), n);
  Value values = heads_repeated(c, v, heads);
  Value y = cast(matmul(cast(s.weights, values.dtype()), values), q.dtype());
  c.give(c.rank(0) == 3 ? without_heads(y) : y);
  c.give_wanted(1, [&] { return k; });
  c.give_wanted(2, [&] { return v; });
  c.give_wanted(3, [&] {
    const int64_t mode = c.attribute("qk_matmul_output_mode", int64_t{0});
    if (mode < 0 || mode > 3) c.fail("there is no qk_matmul_output_mode {}", mode);
    return std::array{s.products, s.capped, s.biased, s.weights}[static_cast<size_t>(mode)];
  });
}

// Cosines or sines as they lie under [batch, heads, steps, half]: given for each step, or found by
// its position.
Value angles(Call& c, size_t i) {
  Value table = c.x(i);
  if (c.given(3)) table = emit_all(c.world(), "index", std::vector{table, c.x(3)})[0];
  if (table.rank() != 3) c.fail("its caches are [positions, half], or [batch, steps, half]");
  return unsqueeze(table, 1);
}

// Pairs of elements turned by an angle: the halves of the turned part, or its neighbours.
void rotate(Call& c) {
  Value x = with_heads(c, c.x(), "num_heads");
  auto size = x.dims().back().constant();
  if (!size) c.unsupported("RotaryEmbedding of a size that has a name");
  int64_t turned = c.attribute("rotary_embedding_dim", int64_t{0});
  if (turned == 0) turned = *size;
  if (turned < 0 || turned > *size || turned % 2 != 0)
    c.fail("{} of {} elements cannot be turned in pairs", turned, *size);
  const bool neighbours_turn = c.flag("interleaved");
  Value a = neighbours_turn ? slice(x, -1, 0, turned, 2) : slice(x, -1, 0, turned / 2);
  Value b = neighbours_turn ? slice(x, -1, 1, turned, 2) : slice(x, -1, turned / 2, turned);
  Value cosine = angles(c, 1), sine = angles(c, 2);
  Value real = cosine * a - sine * b, imaginary = sine * a + cosine * b;
  Dims part = x.dims();
  part.back() = turned;
  Value y =
      neighbours_turn
          ? reshape(emit_all(c.world(), "stack", std::vector{real, imaginary}, {{"dim", -1}})[0],
                    part)
          : cat(std::vector{real, imaginary}, -1);
  if (turned < *size) y = cat(std::vector{y, slice(x, -1, turned, *size)}, -1);
  c.give(c.rank() == 3 ? without_heads(y) : y);
}

// Writes updates into a cache from a place on that each sample has for itself.
void tensor_scatter(Call& c) {
  Value cache = c.x(), update = c.x(1);
  const int axis = c.axis("axis", -2);
  const std::string mode = c.attribute("mode", "linear");
  if (axis == 0) c.fail("its axis is not that of the samples");
  if (mode != "linear" && mode != "circular") c.fail("there is no mode '{}'", mode);
  if (update.rank() != cache.rank())
    c.fail("update and cache have different numbers of dimensions");
  auto front = [&](const Value& v, int from, int to) {
    return emit("movedim", {v}, {{"source", from}, {"destination", to}});
  };
  Value x = front(cache, axis, 1), rows = front(update, axis, 1);
  Value sample = unsqueeze(arange(c.world(), size_at(x, 0)), 1);
  Value place = unsqueeze(arange(c.world(), size_at(rows, 1)), 0);
  if (c.given(2)) place = place + unsqueeze(c.x(2), 1);
  if (mode == "circular") place = binary("remainder", place, Value::number(size_at(x, 1)));
  Value y = emit_all(c.world(), "index_put", std::vector{x, rows, sample, place})[0];
  c.give(front(y, 1, axis));
}

constexpr RuleEntry attention_table[] = {
    {"Attention", 23, attention},
    {"RotaryEmbedding", 23, rotate},
    {"TensorScatter", 24, tensor_scatter},
};

}  // namespace

constinit const Rules attention_rules = attention_table;

}  // namespace gradus::onnx
