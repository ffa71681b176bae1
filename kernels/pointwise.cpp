// The pointwise driver: layouts, dtypes at the edges, tiles, threads. Once for all operators.
#include "gradus/pointwise.h"

#include <algorithm>
#include <cstring>

#include "gradus/error.h"
#include "kernels/make.h"
#include "kernels/tiles.h"
#include "ops/powers.h"
#include "ops/rounding.h"

namespace gradus::kernels {

namespace {

constexpr int64_t tile = 512;                // elements worked on at a time
constexpr int64_t chunk_elements = 1 << 15;  // what one worker takes at a time
constexpr int64_t short_row = 64;            // rows below it are not worth a loop of their own
constexpr size_t max_operands = 5;

struct Operand {
  DType dtype;
  DType tile_dtype;  // the compute type, or bool for conditions
  Sizes strides;     // per collapsed dimension of the result
  bool direct;       // its rows can be handed to the loop as they are
  bool constant;     // one element for all
  bool as_result;    // lies as the result does
};

struct Plan {
  ops::PointwiseLoop loop = nullptr;
  ir::Attributes attributes;
  Sizes shape;  // of the result, collapsed; never empty
  int64_t count = 0;
  SmallVector<Operand, 2> operands;
  DType result_dtype, result_tile;
};

// The place of the element with this row-major number.
void index_of_element(const Plan& p, int64_t element, Sizes& index) {
  for (size_t d = p.shape.size(); d-- > 0;) {
    index[d] = element % p.shape[d];
    element /= p.shape[d];
  }
}

// Elements [first, last) of the result; `first` is a multiple of nothing in particular.
void run_range(const Plan& p, std::byte* const* args, int64_t first, int64_t last) {
  alignas(64) std::byte buffers[max_operands + 1][tile * 8];
  const size_t n_operands = p.operands.size();
  const int rank = static_cast<int>(p.shape.size());
  const int64_t row = p.shape.back();
  const void* in[max_operands];
  int64_t at[max_operands];
  Sizes index(p.shape.size());
  index_of_element(p, first, index);
  for (size_t k = 0; k < n_operands; ++k) {
    const Operand& o = p.operands[k];
    at[k] = 0;
    for (int d = 0; d < rank; ++d) at[k] += index[d] * o.strides[d];
    if (o.constant) {
      load_tile(o.dtype, o.tile_dtype, args[k], 0, std::min(tile, last - first), buffers[k]);
      in[k] = buffers[k];
    }
  }
  std::byte* out = args[n_operands];
  const bool direct_out = p.result_dtype == p.result_tile;
  for (int64_t done = first; done < last;) {
    int64_t n = std::min({tile, last - done, row - index[rank - 1]});
    for (size_t k = 0; k < n_operands; ++k) {
      const Operand& o = p.operands[k];
      if (o.constant) continue;
      const std::byte* source = args[k] + at[k] * static_cast<int64_t>(size_of(o.dtype));
      if (o.direct) {
        in[k] = source;
      } else {
        load_tile(o.dtype, o.tile_dtype, source, o.strides[rank - 1], n, buffers[k]);
        in[k] = buffers[k];
      }
    }
    std::byte* target = out + done * static_cast<int64_t>(size_of(p.result_dtype));
    if (direct_out) {
      p.loop(n, in, target, p.attributes.get());
    } else {
      p.loop(n, in, buffers[max_operands], p.attributes.get());
      store_tile(p.result_tile, p.result_dtype, buffers[max_operands], n, target);
    }
    done += n;
    index[rank - 1] += n;
    for (size_t k = 0; k < n_operands; ++k) at[k] += n * p.operands[k].strides[rank - 1];
    for (int d = rank - 1; d > 0 && index[d] == p.shape[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
      for (size_t k = 0; k < n_operands; ++k)
        at[k] += p.operands[k].strides[d - 1] - p.shape[d] * p.operands[k].strides[d];
    }
  }
}

// The same where rows are short: tiles run on over the ends of rows.
void run_short_rows(const Plan& p, std::byte* const* args, int64_t first, int64_t last) {
  alignas(64) std::byte buffers[max_operands + 1][(tile + tile_slack) * 8];
  const size_t n_operands = p.operands.size();
  const void* in[max_operands];
  Sizes start(p.shape.size()), index(p.shape.size());
  for (size_t k = 0; k < n_operands; ++k) {
    const Operand& o = p.operands[k];
    in[k] = buffers[k];
    if (o.constant)
      load_tile(o.dtype, o.tile_dtype, args[k], 0, std::min(tile, last - first), buffers[k]);
  }
  const bool direct_out = p.result_dtype == p.result_tile;
  for (int64_t done = first; done < last; done += tile) {
    int64_t n = std::min(tile, last - done);
    index_of_element(p, done, start);
    for (size_t k = 0; k < n_operands; ++k) {
      const Operand& o = p.operands[k];
      if (o.constant) continue;
      const std::byte* source = args[k] + done * static_cast<int64_t>(size_of(o.dtype));
      if (o.as_result && o.dtype == o.tile_dtype) {
        in[k] = source;
      } else if (o.as_result) {
        load_tile(o.dtype, o.tile_dtype, source, 1, n, buffers[k]);
      } else {
        index = start;
        load_tile(o.dtype, o.tile_dtype, args[k], p.shape, o.strides, index, n, buffers[k]);
      }
    }
    std::byte* target = args[n_operands] + done * static_cast<int64_t>(size_of(p.result_dtype));
    if (direct_out) {
      p.loop(n, in, target, p.attributes.get());
    } else {
      p.loop(n, in, buffers[max_operands], p.attributes.get());
      store_tile(p.result_tile, p.result_dtype, buffers[max_operands], n, target);
    }
  }
}

void run_general(const Plan& p, std::byte* const* args, KernelScope& scope) {
  auto run = p.shape.size() > 1 && p.shape.back() < short_row ? run_short_rows : run_range;
  scope.workers.parallel_parts(p.count, chunk_elements,
                               [&](int64_t first, int64_t last) { run(p, args, first, last); });
}

// All operands lie as the result does, in the compute type.
void run_direct(const Plan& p, std::byte* const* args, KernelScope&) {
  p.loop(p.count, reinterpret_cast<const void* const*>(args), args[p.operands.size()],
         p.attributes.get());
}

// One row of one tile: operands that are numbers, or of another dtype, are read into tiles.
void run_tile(const Plan& p, std::byte* const* args, KernelScope&) {
  alignas(64) std::byte buffers[max_operands][tile * 8];
  const void* in[max_operands];
  const size_t n = p.operands.size();
  for (size_t k = 0; k < n; ++k) {
    const Operand& o = p.operands[k];
    in[k] = o.direct ? args[k] : buffers[k];
    if (!o.direct) load_tile(o.dtype, o.tile_dtype, args[k], o.strides[0], p.count, buffers[k]);
  }
  p.loop(p.count, in, args[n], p.attributes.get());
}

Plan plan_of(const ops::PointwiseInfo& info, const Pointwise& w) {
  Plan p;
  p.loop = info.loops[static_cast<int>(w.compute)];
  GRADUS_CHECK(p.loop && w.operands.size() <= max_operands);
  p.attributes = w.call.attributes;
  p.shape = w.shape;
  p.count = numel(w.shape);
  p.result_dtype = w.out;
  p.result_tile = info.result == ops::Result::boolean ? DType::boolean : dtype_of(w.compute);
  for (size_t k = 0; k < w.operands.size(); ++k) {
    const bool condition = info.roles[k] == ops::Role::condition;
    Operand o{w.operands[k].dtype, condition ? DType::boolean : dtype_of(w.compute),
              w.operands[k].strides};
    if (p.count <= 1) o.strides.assign(p.shape.size(), 1);
    o.constant = std::all_of(o.strides.begin(), o.strides.end(), [](int64_t n) { return n == 0; });
    o.direct = !o.constant && o.dtype == o.tile_dtype && o.strides.back() == 1;
    int64_t step = 1;
    o.as_result = !o.constant;
    for (size_t d = p.shape.size(); d-- > 0; step *= p.shape[d])
      o.as_result = o.as_result && o.strides[d] == step;
    p.operands.push_back(std::move(o));
  }
  return p;
}

Kernel make_loop(const ops::PointwiseInfo& info, const Pointwise& w) {
  Plan p = plan_of(info, w);
  const bool one_row = p.shape.size() == 1 && p.result_dtype == p.result_tile;
  const bool all_direct =
      one_row && std::ranges::all_of(p.operands, [](const Operand& o) { return o.direct; });
  const bool small = p.count <= chunk_elements;
  const bool one_tile = one_row && p.count > 0 && p.count <= tile;
  if (all_direct && small) return Kernel::of<run_direct>(std::move(p));
  return one_tile ? Kernel::of<run_tile>(std::move(p)) : Kernel::of<run_general>(std::move(p));
}

// A division of integers, refused where the divisor has a zero.
struct CheckedDivision {
  Kernel division;
  const ir::Operator* op;
  Sizes shape;
  PointwiseOperand divisor;
};

// Whether any element is zero: rows of the last dimension, converted a tile at a time.
bool has_zero(const CheckedDivision& p, const std::byte* data, size_t d) {
  const int64_t stride = p.divisor.strides[d];
  const int64_t count = stride ? p.shape[d] : std::min<int64_t>(p.shape[d], 1);
  const int64_t step = stride * static_cast<int64_t>(size_of(p.divisor.dtype));
  if (d + 1 < p.shape.size()) {
    for (int64_t i = 0; i < count; ++i)
      if (has_zero(p, data + i * step, d + 1)) return true;
    return false;
  }
  int64_t buffer[tile];
  for (int64_t i = 0; i < count; i += tile) {
    int64_t n = std::min(tile, count - i);
    load_tile(p.divisor.dtype, DType::i64, data + i * step, stride, n, buffer);
    if (std::find(buffer, buffer + n, 0) != buffer + n) return true;
  }
  return false;
}

void run_checked_division(const CheckedDivision& p, std::byte* const* args, KernelScope& scope) {
  if (has_zero(p, args[1], 0)) throw ops::zero_divisor_error(*p.op);
  p.division.run(p.division.parameters.get(), args, scope);
}

constexpr size_t cases = ops::cheap_half_powers.size();

struct PowerPlan {
  DType number;  // what the exponent is written as
  Kernel general;
  std::array<Kernel, cases> cheap;
};

// A number is known when it is stored, and the same in every run: nothing is decided by element.
void run_power(const PowerPlan& p, std::byte* const* args, KernelScope& scope) {
  double exponent = 0;
  if (p.number == DType::f64) {
    std::memcpy(&exponent, args[1], sizeof(double));
  } else if (p.number == DType::i64) {
    int64_t n = 0;
    std::memcpy(&n, args[1], sizeof n);
    exponent = static_cast<double>(n);
  }
  for (size_t i = 0; i < cases; ++i)
    if (exponent * 2 == ops::cheap_half_powers[i]) {
      std::byte* unary[]{args[0], args[2]};
      return p.cheap[i].run(p.cheap[i].parameters.get(), unary, scope);
    }
  p.general.run(p.general.parameters.get(), args, scope);
}

Kernel make_power(const ops::PointwiseInfo& general, const Pointwise& w) {
  PowerPlan p{w.operands[1].dtype, make_loop(general, w), {}};
  Pointwise unary = w;
  unary.operands = {w.operands[0]};
  for (size_t i = 0; i < cases; ++i)
    p.cheap[i] = make_loop(ops::half_power_info(ops::cheap_half_powers[i]), unary);
  return Kernel::of<run_power>(std::move(p));
}

}  // namespace

Kernel make_kernel(const Pointwise& w) {
  const ops::PointwiseInfo& info = w.call.op->pointwise();
  if (w.exponent_is_number) return make_power(info, w);
  Kernel loop = make_loop(info, w);
  if (!info.refuses_zero_divisors || is_floating(w.out) || numel(w.shape) == 0) return loop;
  return Kernel::of<run_checked_division>(
      CheckedDivision{std::move(loop), w.call.op, w.shape, w.operands[1]});
}

}  // namespace gradus::kernels
