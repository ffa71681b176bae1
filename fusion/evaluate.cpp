// The reference way to run a nest: the operators' own loops, values stored between the steps.
#include <algorithm>
#include <cstring>

#include "fusion/nest.h"
#include "ops/bound_call.h"
#include "ops/powers.h"
#include "ops/tiles.h"
#include "tensor/convert.h"

namespace gradus::fusion {

namespace {

constexpr int64_t tile = 512;
constexpr size_t widest = 8;  // bytes of an element
constexpr size_t max_operands = 5;

using Tile = std::vector<std::byte>;

// Elements [first, first + n) of a load, row-major, without gaps.
void gather(const Frame& frame, size_t load, size_t bytes, const std::byte* base, int64_t first,
            int64_t n, std::byte* target) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t element = first + i, at = 0;
    for (size_t d = frame.sizes.size(); d-- > 0; element /= frame.sizes[d])
      at += element % frame.sizes[d] * frame.strides[load][d];
    std::memcpy(target + static_cast<size_t>(i) * bytes, base + at * static_cast<int64_t>(bytes),
                bytes);
  }
}

// Between any two dtypes.
void convert_tile(DType from, DType to, int64_t n, const std::byte* source, std::byte* target) {
  visit_dtype(from, [&](auto f) {
    visit_dtype(to, [&](auto t) {
      using From = typename decltype(f)::type;
      using To = typename decltype(t)::type;
      const From* s = reinterpret_cast<const From*>(source);
      To* out = reinterpret_cast<To*>(target);
      for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(s[i]);
    });
  });
}

void run_step(const Nest& nest, const Step& step, int64_t n, std::vector<Tile>& values,
              std::byte* result) {
  if (!step.op) {
    ValueNumber x = step.operands[0];
    return convert_tile(nest.dtype_of(x), step.dtype, n, values[x].data(), result);
  }
  const int half = cheap_half_power(nest, step);
  const ops::PointwiseInfo& info = half ? ops::half_power_info(half) : step.op->pointwise();
  alignas(64) std::byte buffers[max_operands + 1][tile * widest];
  const void* in[max_operands];
  GRADUS_CHECK(info.roles.size() <= max_operands);
  for (size_t k = 0; k < info.roles.size(); ++k) {
    ValueNumber x = step.operands[k];
    DType read = info.roles[k] == ops::Role::condition ? DType::boolean : dtype_of(step.compute);
    ops::load_tile(nest.dtype_of(x), read, values[x].data(), 1, n, buffers[k]);
    in[k] = buffers[k];
  }
  info.loops[static_cast<size_t>(step.compute)](n, in, buffers[max_operands],
                                                step.attributes.get());
  DType computed = info.result == ops::Result::boolean ? DType::boolean : dtype_of(step.compute);
  ops::store_tile(computed, step.dtype, buffers[max_operands], n, result);
}

}  // namespace

void evaluate(const Nest& nest, const Frame& frame, std::byte* const* args) {
  std::vector<Tile> values(nest.values(), Tile(tile * widest));
  for (size_t i = 0; i < nest.numbers.size(); ++i) {
    Tile& t = values[nest.first_number() + i];
    const size_t bytes = size_of(nest.dtype_of(static_cast<ValueNumber>(nest.first_number() + i)));
    ops::store_number(nest.numbers[i], t.data());
    for (size_t k = 1; k < tile; ++k) std::memcpy(t.data() + k * bytes, t.data(), bytes);
  }
  const int64_t count = frame.count();
  for (int64_t first = 0; first < count; first += tile) {
    const int64_t n = std::min(tile, count - first);
    for (size_t k = 0; k < nest.loads.size(); ++k)
      gather(frame, k, size_of(nest.loads[k].dtype), args[k], first, n, values[k].data());
    for (size_t i = 0; i < nest.steps.size(); ++i)
      run_step(nest, nest.steps[i], n, values, values[nest.first_step() + i].data());
    for (size_t i = 0; i < nest.stores.size(); ++i) {
      const ValueNumber v = nest.stores[i];
      const size_t bytes = size_of(nest.dtype_of(v));
      std::memcpy(args[nest.loads.size() + i] + static_cast<size_t>(first) * bytes,
                  values[v].data(), static_cast<size_t>(n) * bytes);
    }
  }
}

}  // namespace gradus::fusion
