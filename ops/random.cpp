#include "ops/random.h"

#include <numbers>

#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/operands.h"
#include "ops/sorting.h"

namespace gradus::ops {

namespace {

Value bits(ComposeCall& c, const Dims& shape) {
  const Value& key = tensor_operand(c, 0);
  if (key.rank() != 1)
    c.fail("'key' is {}; it must be i64[2], a key and a stream of it", to_string(key.type));
  return emit<RandomBits>({key}, {.shape = shape});
}

// The upper bits of 32-bit numbers, `n` of them, as a floating dtype.
Value upper(const Value& bits, int n, DType dtype) {
  return cast(emit<FloorDivide>({bits, num(int64_t{1} << (32 - n))}), dtype);
}

Value uniform(ComposeCall& c, const Dims& shape, DType dtype) {
  if (dtype != DType::f64) {
    const int n = dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
    return upper(bits(c, shape), n, dtype) * (1.0 / static_cast<double>(int64_t{1} << n));
  }
  Dims two = shape;
  two.push_back(2);
  Value pairs = bits(c, two);
  auto number = [&](int64_t i) { return select(pairs, -1, i); };
  Value high = upper(number(0), 27, DType::f64) * 0x1p26;
  Value low = upper(number(1), 26, DType::f64);
  return (high + low) * 0x1p-53;
}

void require_floating(ComposeCall& c) {
  DType dtype = c.attr<RandomAttr>().dtype;
  if (!is_floating(dtype))
    c.fail("'dtype' is {}; it must be floating (random_bits gives integers)", name_of(dtype));
}

}  // namespace

void RandomBits::infer(InferCall& call, const Attr& a) {
  const Type& key = call.tensor(0);
  if (key.dtype != DType::i64 || key.rank() < 1 || key.rank() > 2)
    call.fail("'key' is {}; it must be i64[2], a key and a stream of it, or a list of such",
              to_string(key));
  call.require_equal(key.dims.back(), 2, "'key' must be i64[2], a key and a stream of it");
  Dims dims(key.dims.begin(), key.dims.end() - 1);
  dims.append(a.shape.begin(), a.shape.end());
  call.out.emplace_back(DType::i64, std::move(dims), key.device);
}
void RandomBits::bind(BindCall& call, const Attr& a) {
  for (int64_t n : call.out[0].shape)
    if (n < 0) call.fail("'shape' is {}; a size cannot be negative", to_string(call.out[0].shape));
  const Layout& key = call.in[0];
  const bool list = key.rank() == 2;
  const int64_t count = numel(std::span<const int64_t>(call.out[0].shape).subspan(list ? 1 : 0));
  call.set_work(work::RandomBits{list ? key.shape[0] : 1, list ? key.strides[0] : 0,
                                 key.strides.back(), count, a.by_block});
}
BatchedResults RandomBits::batch(const BatchedCall& c) {
  return c.own_rank(0) == 1 ? batch_last_dimensions(c) : batch_samples(c);
}

void Uniform::compose(ComposeCall& c, const Attr& a) {
  require_floating(c);
  c.give(uniform(c, a.shape, a.dtype));
}

void Normal::compose(ComposeCall& c, const Attr& a) {
  require_floating(c);
  Dims two{2};
  two.append(a.shape.begin(), a.shape.end());
  Value pairs = uniform(c, two, a.dtype == DType::f64 ? DType::f64 : DType::f32);
  auto number = [&](int64_t i) { return select(pairs, 0, i); };
  Value u = number(0), v = number(1);
  Value radius = emit<Sqrt>(emit<Log1p>(-u) * -2.0);
  Value y = radius * emit<Cos>(v * (2 * std::numbers::pi));
  c.give(cast(y, a.dtype));
}

void Randperm::compose(ComposeCall& c, const Attr& a) {
  Value pairs = bits(c, {a.n, 2});
  Value draws = select(pairs, 1, 0) * num(int64_t{1} << 32) + select(pairs, 1, 1);
  c.give(emit<Argsort>({draws}, {.dim = 0}));
}

Family random_family() { return fold<RandomOperators>(); }

}  // namespace gradus::ops
