// Operators on the bits of integers: shifts, and, or, other readings of the same bits.
#include <array>
#include <cstring>

#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

using namespace ops;

namespace {

int64_t bits_of(DType dtype) { return 8 * static_cast<int64_t>(size_of(dtype)); }

// 2^by as i64, for by of 0 to 62.
Value power_of_two(Call& c, const Value& by) {
  return cast(binary("pow", full(c.world(), {}, 2, DType::i64), by), DType::i64);
}

// Of i64 by up to 63, in two steps: 2^63 is no i64.
Value shifted_left(Call& c, const Value& x, const Value& by) {
  Value first = binary("minimum", by, num(int64_t{62}));
  return x * power_of_two(c, first) * power_of_two(c, by - first);
}
Value shifted_right(Call& c, const Value& x, const Value& by) {
  Value first = binary("minimum", by, num(int64_t{62}));
  Value y = binary("floor_divide", x, power_of_two(c, first));
  return binary("floor_divide", y, power_of_two(c, by - first));
}

// Where the amount is negative, or as large as there are bits, all of them go: what is left is 0,
// or the sign to the right of a negative number.
void shift(Call& c) {
  const DType dtype = c.dtype();
  if (!is_integral(dtype) || dtype == DType::boolean) c.fail("it shifts integers");
  if (!is_unsigned(dtype) && c.opset() < 28)
    c.fail("integers with a sign are shifted since version 28 of the operators");
  std::string direction = c.attribute("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") c.fail("attribute 'direction': LEFT or RIGHT");
  // Others are shifted as products and quotients of i64, which models have.
  if (dtype == DType::u64)
    return c.give(
        binary(direction == "LEFT" ? "bitwise_left_shift" : "bitwise_right_shift", c.x(), c.x(1)));
  const int64_t bits = bits_of(dtype);
  Value x = cast(c.x(), DType::i64), by = cast(c.x(1), DType::i64);
  Value within = logical_and(ge(by, num(int64_t{0})), lt(by, num(bits)));
  by = where(within, by, num(bits - 1));
  if (direction == "LEFT") {
    Value y = where(within, shifted_left(c, x, by), num(int64_t{0}));
    if (dtype == DType::u8) y = binary("remainder", y, num(int64_t{256}));
    return c.give(cast(y, dtype));
  }
  Value y = shifted_right(c, x, by);
  // A number without a sign has one bit more to lose.
  if (is_unsigned(dtype)) y = where(within, y, num(int64_t{0}));
  c.give(cast(y, dtype));
}

void bitwise(Call& c) {
  std::vector<Value> operands;
  for (size_t i = 0; i < c.inputs(); ++i) operands.push_back(c.x(i));
  if (c.inputs() == 2 && c.dtype(0) != c.dtype(1)) c.fail("operands of one dtype are wanted");
  c.give(emit_all(c.world(), c.ours(), operands)[0]);
}

// The same bytes as another dtype: of values that are known; of others where a cast keeps the bits.
void bit_cast(Call& c) {
  const DType from = c.dtype(), to = c.dtype("to", 0);
  if (size_of(from) != size_of(to))
    c.fail("{} and {} have different numbers of bits", name_of(from), name_of(to));
  if (from == to) return c.give(c.item(0));
  if (to == DType::boolean) c.unsupported("BitCast of {} to {}", name_of(from), name_of(to));
  if (c.is_known(0)) {
    const Tensor& known = c.item(0)->known;
    Tensor value = known.contiguous(), other = Tensor::empty(to, known.shape());
    const size_t bytes = static_cast<size_t>(value.numel()) * size_of(to);
    if (bytes > 0) std::memcpy(other.mutable_data(), value.data(), bytes);
    return c.give(c.constant(std::move(other)));
  }
  // Integers of one size: where numbers wrap alike, bits are the same.
  if ((is_integral(from) || from == DType::boolean) && is_integral(to))
    return c.give(cast(c.x(), to));
  c.unsupported("BitCast of {} to {}", name_of(from), name_of(to));
}

constexpr RuleEntry bit_table[] = {
    {"BitShift", 11, shift},
    {"BitwiseAnd", 18, bitwise, "bitwise_and"},
    {"BitwiseOr", 18, bitwise, "bitwise_or"},
    {"BitwiseXor", 18, bitwise, "bitwise_xor"},
    {"BitwiseNot", 18, bitwise, "bitwise_not"},
    {"BitCast", 26, bit_cast},
};

}  // namespace

constinit const Rules bit_rules = bit_table;

}  // namespace gradus::onnx
