// The pointwise driver: layouts, dtypes at the edges, tiles, threads. Once for all operators.
#include "ops/pointwise.h"

#include <algorithm>

#include "ops/tiles.h"
#include "tensor/convert.h"

namespace gradus::ops {

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
  PointwiseLoop loop;
  Attributes attributes;
  Sizes shape;  // of the result, collapsed; never empty
  int64_t count = 0;
  SmallVector<Operand, 2> operands;
  DType result_dtype, result_tile;
};

// Collapses neighbouring dimensions that all operands walk in one stride.
void collapse(Plan& p) {
  Sizes shape;
  SmallVector<Sizes, 3> strides(p.operands.size());
  for (size_t d = 0; d < p.shape.size(); ++d) {
    int64_t n = p.shape[d];
    if (n == 1) continue;
    bool joins = !shape.empty();
    for (size_t k = 0; k < p.operands.size() && joins; ++k)
      joins = strides[k].back() == p.operands[k].strides[d] * n;
    if (joins) {
      shape.back() *= n;
      for (size_t k = 0; k < p.operands.size(); ++k) strides[k].back() = p.operands[k].strides[d];
    } else {
      shape.push_back(n);
      for (size_t k = 0; k < p.operands.size(); ++k) strides[k].push_back(p.operands[k].strides[d]);
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    for (auto& s : strides) s.push_back(1);
  }
  p.shape = std::move(shape);
  for (size_t k = 0; k < p.operands.size(); ++k) p.operands[k].strides = std::move(strides[k]);
}

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
  alignas(64) std::byte buffers[max_operands + 1][tile * 8];
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

void run_general(const void* parameters, std::byte* const* args, ir::KernelScope& scope) {
  const Plan& p = *static_cast<const Plan*>(parameters);
  int64_t chunks = (p.count + chunk_elements - 1) / chunk_elements;
  if (chunks == 0) return;
  auto run = p.shape.size() > 1 && p.shape.back() < short_row ? run_short_rows : run_range;
  if (chunks == 1) return run(p, args, 0, p.count);
  scope.workers.parallel_for(chunks, [&](int64_t c) {
    run(p, args, c * chunk_elements, std::min(p.count, (c + 1) * chunk_elements));
  });
}

// All operands lie as the result does, in the compute type.
void run_direct(const void* parameters, std::byte* const* args, ir::KernelScope&) {
  const Plan& p = *static_cast<const Plan*>(parameters);
  p.loop(p.count, reinterpret_cast<const void* const*>(args), args[p.operands.size()],
         p.attributes.get());
}

// One row of one tile: operands that are numbers, or of another dtype, are read into tiles.
void run_tile(const void* parameters, std::byte* const* args, ir::KernelScope&) {
  const Plan& p = *static_cast<const Plan*>(parameters);
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

}  // namespace

void bind_pointwise(const PointwiseInfo& info, ir::BindCall& call) {
  SmallVector<ir::Type, 3> types;
  SmallVector<ir::OperandType, 3> operands;
  for (size_t i = 0; i < call.in.size(); ++i) {
    Dims dims;
    for (int64_t n : call.in[i].shape) dims.push_back(n);
    types.emplace_back(call.in[i].dtype, dims);
  }
  for (size_t i = 0; i < call.in.size(); ++i) {
    ir::OperandType t;
    t.kind = call.number[i] ? ir::OperandType::Kind::number : ir::OperandType::Kind::tensor;
    t.type = &types[i];
    t.category = category_of(call.in[i].dtype);
    operands.push_back(t);
  }
  ir::InferCall infer{call.op, operands, call.attributes, {}, nullptr};
  Compute compute = pointwise_compute(info, infer, call.out[0].dtype);
  Plan p;
  p.loop = info.loops[static_cast<int>(compute)];
  GRADUS_CHECK(p.loop && call.in.size() <= max_operands);
  p.attributes = call.attributes;
  p.shape = call.out[0].shape;
  p.count = call.out[0].numel();
  p.result_dtype = call.out[0].dtype;
  p.result_tile = info.result == Result::boolean ? DType::boolean : dtype_of(compute);
  for (size_t k = 0; k < call.in.size(); ++k) {
    const Layout& in = call.in[k];
    Operand o{in.dtype,
              info.roles[k] == Role::condition ? DType::boolean : dtype_of(compute),
              Sizes(p.shape.size(), 0),
              false,
              false,
              false};
    size_t lead = p.shape.size() - in.shape.size();
    for (size_t d = 0; d < in.shape.size(); ++d)
      o.strides[lead + d] = in.shape[d] == 1 ? 0 : in.strides[d];
    p.operands.push_back(std::move(o));
  }
  if (p.count == 0)
    p.shape.assign(1, 0);
  else
    collapse(p);
  const bool one_row = p.shape.size() == 1 && p.result_dtype == p.result_tile;
  bool all_direct = one_row;
  for (Operand& o : p.operands) {
    if (p.count <= 1) o.strides.assign(p.shape.size(), 1);
    o.constant = std::all_of(o.strides.begin(), o.strides.end(), [](int64_t s) { return s == 0; });
    o.direct = !o.constant && o.dtype == o.tile_dtype && o.strides.back() == 1;
    int64_t step = 1;
    o.as_result = !o.constant;
    for (size_t d = p.shape.size(); d-- > 0; step *= p.shape[d])
      o.as_result = o.as_result && o.strides[d] == step;
    all_direct = all_direct && o.direct;
  }
  bool small = p.count <= chunk_elements;
  const bool one_tile = one_row && p.count > 0 && p.count <= tile;
  call.set_kernel(all_direct && small ? run_direct
                  : one_tile          ? run_tile
                                      : run_general,
                  std::move(p));
}

}  // namespace gradus::ops
