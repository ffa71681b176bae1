// Random numbers: those of torch.func._random, which follow from a key. Others are refused.
//
// A key is u64[2]: Philox's key, and the block of four numbers with which it begins.
#include <cmath>
#include <numbers>

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

constexpr int64_t two_to_32 = int64_t{1} << 32;

Value key_of(Call& c) {
  Value key = c.x("key");
  if (key.dtype() != DType::u64) c.fail("its key is {}; torch's are uint64", to_string(key.type));
  if (key.rank() != 1)
    c.fail("a batch of keys ({}) is not supported: draw from one key, or stack what each gives",
           to_string(key.type));
  return cast(key, DType::i64);
}

// Numbers of 32 bits, in i64.
Value words_of(const Value& key, const Dims& shape) {
  return emit("random_bits", {key}, {{"shape", Literal::list(shape)}, {"by_block", true}});
}
// Numbers of 64 bits, of two each, in u64: the first is the upper half.
Value wide_words_of(const Value& key, Dims shape) {
  shape.push_back(2);
  const Value halves = cast(words_of(key, shape), DType::u64);
  return select(halves, -1, 0) * num(two_to_32) + select(halves, -1, 1);
}

// Two words make each of a key's numbers, the lower half first.
Value keys_from(const Value& words) {
  const Value halves = cast(words, DType::u64);
  return select(halves, -1, 1) * num(two_to_32) + select(halves, -1, 0);
}

void split_key(Call& c) {
  const int64_t count = c.integer("num_splits");
  if (count < 1) c.fail("num_splits is {}; it must be at least 1", count);
  c.give(keys_from(words_of(key_of(c), {count, 2, 2})));
}

// The key of that number of those that a split gives.
void fold_in_key(Call& c) {
  const Value key = key_of(c);
  Value number = c.is_tensor("data") ? reshape(cast(c.x("data"), DType::i64), {1})
                                     : full(c.world(), {1}, 0, DType::i64) + num(c.integer("data"));
  const Value place = cat(std::array{full(c.world(), {1}, 0, DType::i64), number}, 0);
  c.give(keys_from(words_of(key + place, {2, 2})));
}

// As many low bits as the dtype's mantissa has.
Value unit_draws(const Value& key, const Dims& shape, DType dtype) {
  const int bits = dtype == DType::f64   ? 53
                   : dtype == DType::f32 ? 24
                   : dtype == DType::f16 ? 11
                                         : 8;
  const Value words = dtype == DType::f64 ? wide_words_of(key, shape) : words_of(key, shape);
  const int64_t size = int64_t{1} << bits;
  const Value low = binary("remainder", words, num(size));
  const DType compute = dtype == DType::f64 ? dtype : DType::f32;
  return cast(low, compute) * num(1 / static_cast<double>(size));
}

void uniform_by_key(Call& c) {
  const TensorMeta& made = c.result();
  const double low = c.number("low", 0), high = c.number("high", 1);
  Value y = unit_draws(key_of(c), made.sizes, made.dtype);
  if (low != 0 || high != 1) y = y * num(high - low) + num(low);
  c.give(cast(y, made.dtype));
}

// Numbers 2 i and 2 i + 1 are sqrt(-2 log u) times the cosine and sine of 2 pi v, u and v in (0, 1)
// in the middle of what draws 2 i and 2 i + 1 stand for.
void normal_by_key(Call& c) {
  const TensorMeta& made = c.result();
  const Dim count = ir::numel(made.sizes), pairs = floor_div(count + 1, 2);
  const bool wide = made.dtype == DType::f64;
  const Value key = key_of(c);
  const Value words = wide ? wide_words_of(key, {pairs, 2}) : words_of(key, {pairs, 2});
  const double unit = std::exp2(wide ? -64 : -32);
  const Value draws = cast(words, DType::f64) * num(unit) + num(unit / 2);
  const Value radius = unary("sqrt", unary("log", select(draws, 1, 0)) * num(-2.0));
  const Value angle = select(draws, 1, 1) * num(2 * std::numbers::pi);
  const Value two = emit_all(c.world(), "stack",
                             std::array{radius * unary("cos", angle), radius * unary("sin", angle)},
                             {{"dim", int64_t{1}}})[0];
  Value y = reshape(slice(reshape(two, {2 * pairs}), 0, 0, count), made.sizes);
  const DType compute = wide ? made.dtype : DType::f32;
  y = cast(y, compute) * num(c.number("std", 1)) + num(c.number("mean", 0));
  c.give(cast(y, made.dtype));
}

// low + the remainder of a word by high - low. A bound that is not given is the dtype's; of both
// bounds of the dtype the word itself.
void integers_by_key(Call& c) {
  const TensorMeta& made = c.result();
  if (is_floating(made.dtype) || made.dtype == DType::boolean)
    c.fail("it draws integers, and its result is {}", name_of(made.dtype));
  const bool wide = size_of(made.dtype) == 8;
  const Value key = key_of(c);
  Value words = wide ? wide_words_of(key, made.sizes) : words_of(key, made.sizes);
  const int bits = static_cast<int>(8 * size_of(made.dtype));
  const bool is_signed = made.dtype == DType::i64 || made.dtype == DType::i32 ||
                         made.dtype == DType::i16 || made.dtype == DType::i8;
  // In numbers of 64 bits, which wrap.
  const auto least = static_cast<uint64_t>(is_signed ? -1 : 0) << (bits - 1);
  const auto low = c.given("low") ? static_cast<uint64_t>(c.integer("low")) : least;
  const uint64_t end = bits == 64 ? least : least + (uint64_t{1} << bits);
  const auto high = c.given("high") ? static_cast<uint64_t>(c.integer("high")) : end;
  const uint64_t range = high - low;
  if (range == end - least) return c.give(cast(words, made.dtype));
  const Value size = full(c.world(), {}, 0, DType::u64) + num(static_cast<int64_t>(range));
  words = cast(binary("remainder", cast(words, DType::u64), size), DType::i64);
  c.give(cast(words + num(static_cast<int64_t>(low)), made.dtype));
}

void drawn_without_key(Call& c) {
  c.fail(
      "random numbers are not supported: pass them as an input, draw them from a key "
      "(torch.func._random), or export in eval mode");
}

constexpr RuleEntry random_table[] = {
    {"_philox_key_split", split_key},
    {"_philox_key_fold_in", fold_in_key},
    {"_philox_uniform", uniform_by_key},
    {"_philox_normal", normal_by_key},
    {"_philox_randint", integers_by_key},
    {"rand", drawn_without_key},
    {"rand_like", drawn_without_key},
    {"randn", drawn_without_key},
    {"randn_like", drawn_without_key},
    {"randint", drawn_without_key},
    {"randint_like", drawn_without_key},
    {"randperm", drawn_without_key},
    {"random", drawn_without_key},
    {"bernoulli", drawn_without_key},
    {"multinomial", drawn_without_key},
    {"normal", drawn_without_key},
    {"normal_functional", drawn_without_key},
    {"uniform", drawn_without_key},
    {"exponential", drawn_without_key},
    {"poisson", drawn_without_key},
};

}  // namespace

constinit const Rules random_rules = random_table;

}  // namespace gradus::pt2
