// Of the evaluator: elements where indices say, and element by element.
#include "ops/powers.h"
#include "ops/rounding.h"
#include "tests/reference/parts.h"

namespace gradus::reference {

namespace {

// The index that `o` has for an element of whoever reads it, from 0 on.
int64_t index_at(const ir::Operator& op, const IndexOperand& o, const std::byte* first,
                 int64_t offset) {
  const auto given = Array{o.dtype, const_cast<std::byte*>(first)}.get<int64_t>(offset);
  const int64_t index = o.wraps && given < 0 ? given + o.size : given;
  if (index < 0 || index >= o.size) throw index_error(op, o, given);
  return index;
}

// sum[at] += x * alpha, in the sum's dtype.
void add_scaled(const Array& sum, int64_t at, const Array& x, int64_t x_at, double alpha) {
  visit_dtype(sum.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T before = sum.get<T>(at), more = x.get<T>(x_at);
    if constexpr (std::is_same_v<T, bool>)
      sum.set(at, before || more);
    else if constexpr (std::is_integral_v<T>)
      sum.set(at, add<int64_t>(before, multiply<int64_t>(more, convert<int64_t>(alpha))));
    else if constexpr (std::is_floating_point_v<T>)
      sum.set(at, before + more * static_cast<T>(alpha));
  });
}

}  // namespace

void evaluate(const Index& w, Args args) {
  std::vector<std::byte> sums(static_cast<size_t>(w.sums_bytes()));
  run_copies(w.begin, args, sums.data());
  const IndexSides& s = w.sides;
  const Array indexed{w.indexed_dtype(), w.sums ? sums.data() : args[s.indexed]};
  std::byte number[8];
  const Array plain{s.dtype, s.plain_is_number ? number : args[s.plain]};
  if (s.plain_is_number) plain.set(0, Array{s.number_dtype, args[s.plain]}, 0);
  for (int64_t i = 0; i < numel(w.shape); ++i) {
    const int64_t at = s.plain_is_number ? 0 : offset_of(i, w.shape, w.plain);
    int64_t place = w.indexed_offset + offset_of(i, w.shape, w.indexed);
    for (const IndexOperand& o : w.indices)
      place += o.step * index_at(*w.op, o, args[o.argument], offset_of(i, w.shape, o.strides));
    switch (s.action) {
      case IndexAction::read:
        plain.set(at, indexed, place);
        break;
      case IndexAction::write:
        indexed.set(place, plain, at);
        break;
      case IndexAction::add:
        add_scaled(indexed, place, plain, at, s.alpha);
        break;
    }
  }
  run_copies(w.end, args, sums.data());
}

void evaluate(const IndexCheck& w, Args args) {
  for (int64_t i = 0; i < numel(w.shape); ++i)
    index_at(*w.op, w.of, args[0], offset_of(i, w.shape, w.of.strides));
}

void evaluate(const Pointwise& w, Args args) {
  if (w.call.op->pointwise().refuses_zero_divisors && !is_floating(w.out))
    for (int64_t i = 0; i < numel(w.shape); ++i)
      if (Array{w.operands[1].dtype, args[1]}.get<int64_t>(
              offset_of(i, w.shape, w.operands[1].strides)) == 0)
        throw ops::zero_divisor_error(*w.call.op);
  run_pointwise(w, args);
}

void run_pointwise(const Pointwise& w, Args args) {
  const ops::PointwiseInfo* info = &w.call.op->pointwise();
  size_t operands = w.operands.size();
  if (w.exponent_is_number)
    if (int half = ops::cheap_half_power(Array{w.operands[1].dtype, args[1]}.get<double>(0))) {
      info = &ops::half_power_info(half);
      operands = 1;
    }
  const DType compute = dtype_of(w.compute);
  const Array y{w.out, args[w.operands.size()]};
  for (int64_t i = 0; i < numel(w.shape); ++i) {
    // As the operator's loop wants them.
    alignas(8) std::byte elements[8][8], result[8];
    const void* in[8];
    for (size_t k = 0; k < operands; ++k) {
      const bool condition = info->roles[k] == ops::Role::condition;
      Array{condition ? DType::boolean : compute, elements[k]}.set(
          0, {w.operands[k].dtype, args[k]}, offset_of(i, w.shape, w.operands[k].strides));
      in[k] = elements[k];
    }
    info->loops[static_cast<size_t>(w.compute)](1, in, result, w.call.attributes.get());
    const bool boolean = info->result == ops::Result::boolean;
    y.set(i, Array{boolean ? DType::boolean : compute, result}, 0);
  }
}

}  // namespace gradus::reference
