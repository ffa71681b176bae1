// The reference way to run a nest: the operators' own loops, values stored between the steps.
#include "tests/reference/nest.h"

#include <algorithm>
#include <cstring>

#include "kernels/bound_call.h"
#include "kernels/reduce.h"
#include "kernels/tiles.h"
#include "ops/powers.h"
#include "tensor/convert.h"

namespace gradus::fusion {

namespace {

constexpr int64_t tile = 512;
constexpr size_t widest = 8;  // bytes of an element
constexpr size_t max_operands = 5;

using Values = std::vector<std::byte>;

// Which of a load's parts an element of the loops is in.
size_t part_of(const std::vector<Frame::Part>& parts, const Sizes& element) {
  for (size_t p = 0;; ++p) {
    bool inside = true;
    for (size_t d = 0; d < element.size(); ++d)
      inside &=
          element[d] >= parts[p].first[d] && element[d] < parts[p].first[d] + parts[p].sizes[d];
    if (inside) return p;
  }
}

int64_t index_at(DType dtype, const Values& values, int64_t i) {
  int64_t index = 0;
  kernels::load_tile(dtype, DType::i64, values.data() + static_cast<size_t>(i) * size_of(dtype), 1,
                     1, &index);
  return index;
}

// Elements [first, first + n) of a load, row-major, without gaps. The loads before are there.
void gather(const Nest& nest, const Frame& frame, size_t load, std::byte* const* operands,
            int64_t first, int64_t n, const std::vector<Values>& values, std::byte* target) {
  const Load& l = nest.loads[load];
  const auto bytes = static_cast<int64_t>(size_of(l.dtype));
  const size_t rank = frame.sizes.size();
  Sizes index(rank);
  for (int64_t i = 0; i < n; ++i) {
    int64_t element = first + i, at = 0;
    for (size_t d = rank; d-- > 0; element /= frame.sizes[d]) index[d] = element % frame.sizes[d];
    size_t part = 0;
    if (l.operands > 1) {
      part = part_of(frame.parts[load], index);
      const Frame::Part& p = frame.parts[load][part];
      for (size_t d = 0; d < rank; ++d) at += (index[d] - p.first[d]) * p.strides[d];
    } else {
      for (size_t d = 0; d < rank; ++d) at += index[d] * frame.strides[load][d];
    }
    if (l.index)
      at += index_at(nest.loads[*l.index].dtype, values[*l.index], i) * frame.index_steps[load];
    std::memcpy(target + i * bytes, operands[part] + at * bytes, static_cast<size_t>(bytes));
  }
}

// Between any two dtypes.
void convert_all(DType from, DType to, int64_t n, const std::byte* source, std::byte* target) {
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

// target[0] n times.
void repeat(size_t bytes, int64_t n, std::byte* target) {
  for (int64_t i = 1; i < n; ++i)
    std::memcpy(target + static_cast<size_t>(i) * bytes, target, bytes);
}

void run_reduction(const Nest& nest, const Step& step, int64_t n, const std::byte* x,
                   std::byte* result) {
  const bool logical = *step.reducer == work::Reducer::all || *step.reducer == work::Reducer::any;
  const DType accumulator = logical ? DType::boolean : dtype_of(step.compute);
  std::vector<std::byte> elements(static_cast<size_t>(n) * size_of(accumulator));
  kernels::load_tile(nest.dtype_of(step.operands[0]), accumulator, x, 1, n, elements.data());
  alignas(8) std::byte reduced[widest];
  kernels::reduce_run(*step.reducer, step.compute, elements.data(), n, reduced);
  kernels::store_tile(accumulator, step.dtype, reduced, 1, result);
  repeat(size_of(step.dtype), n, result);
}

// An operator's step on at most a tile, from element `at` on.
void run_operator(const Nest& nest, const Step& step, int64_t at, int64_t n,
                  const std::vector<Values>& values, std::byte* result) {
  const int half = cheap_half_power(nest, step);
  const ops::PointwiseInfo& info = half ? ops::half_power_info(half) : step.op->pointwise();
  alignas(64) std::byte buffers[max_operands + 1][tile * widest];
  const void* in[max_operands];
  GRADUS_CHECK(info.roles.size() <= max_operands);
  for (size_t k = 0; k < info.roles.size(); ++k) {
    const DType from = nest.dtype_of(step.operands[k]);
    DType read = info.roles[k] == ops::Role::condition ? DType::boolean : dtype_of(step.compute);
    kernels::load_tile(from, read,
                       values[step.operands[k]].data() + static_cast<size_t>(at) * size_of(from), 1,
                       n, buffers[k]);
    in[k] = buffers[k];
  }
  info.loops[static_cast<size_t>(step.compute)](n, in, buffers[max_operands],
                                                step.attributes.get());
  DType computed = info.result == ops::Result::boolean ? DType::boolean : dtype_of(step.compute);
  kernels::store_tile(computed, step.dtype, buffers[max_operands], n,
                      result + static_cast<size_t>(at) * size_of(step.dtype));
}

void run_step(const Nest& nest, const Step& step, int64_t n, const std::vector<Values>& values,
              std::byte* result) {
  if (step.reduces_column()) return;  // when all rows are done
  const ValueNumber x = step.operands.empty() ? 0 : step.operands[0];
  if (!step.op && step.reducer) return run_reduction(nest, step, n, values[x].data(), result);
  if (!step.op) return convert_all(nest.dtype_of(x), step.dtype, n, values[x].data(), result);
  for (int64_t at = 0; at < n; at += tile)
    run_operator(nest, step, at, std::min(tile, n - at), values, result);
}

// What a step reduces of all elements, by column.
void reduce_columns(const Nest& nest, const Step& step, int64_t columns, const Values& all,
                    std::byte* result) {
  const DType from = nest.dtype_of(step.operands[0]);
  const size_t bytes = size_of(from), width = static_cast<size_t>(columns) * bytes;
  const size_t rows = all.size() / width;
  Values column(rows * bytes), reduced(rows * widest);
  for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
    for (size_t r = 0; r < rows; ++r)
      std::memcpy(&column[r * bytes], &all[r * width + c * bytes], bytes);
    run_reduction(nest, step, static_cast<int64_t>(rows), column.data(), reduced.data());
    std::memcpy(result + c * size_of(step.dtype), reduced.data(), size_of(step.dtype));
  }
}

}  // namespace

namespace {

// By load: whether anything reads it. One that only stands for an edge's operand need not have an
// element in each loop.
std::vector<bool> read_loads(const Nest& nest) {
  std::vector<bool> read(nest.values());
  for (const Load& l : nest.loads)
    if (l.index) read[*l.index] = true;
  for (const Step& step : nest.steps)
    for (ValueNumber v : step.operands) read[v] = true;
  for (const auto* list : {&nest.stores, &nest.row_stores, &nest.column_stores})
    for (ValueNumber v : *list) read[v] = true;
  return read;
}

}  // namespace

void evaluate(const Nest& nest, const Frame& frame, std::byte* const* args) {
  const int64_t count = frame.count();
  if (count == 0) return;
  // So many elements at a time: a row where rows are reduced or stored.
  const bool by_rows = nest.reduces() || !nest.row_stores.empty();
  std::vector<Values> of_columns(nest.column_stores.size());
  auto column_step = [&](size_t i) -> const Step& {
    return nest.steps[nest.column_stores[i] - nest.first_step()];
  };
  const std::vector<bool> read = read_loads(nest);
  const int64_t block = by_rows ? frame.sizes.back() : tile;
  std::vector<Values> values(nest.values(), Values(static_cast<size_t>(block) * widest));
  for (size_t i = 0; i < nest.numbers.size(); ++i) {
    Values& v = values[nest.first_number() + i];
    ops::store_number(nest.numbers[i], v.data());
    repeat(size_of(nest.dtype_of(static_cast<ValueNumber>(nest.first_number() + i))), block,
           v.data());
  }
  auto store = [&](ValueNumber v, std::byte* base, int64_t first, int64_t n) {
    const size_t bytes = size_of(nest.dtype_of(v));
    std::memcpy(base + static_cast<size_t>(first) * bytes, values[v].data(),
                static_cast<size_t>(n) * bytes);
  };
  for (int64_t first = 0; first < count; first += block) {
    const int64_t n = std::min(block, count - first);
    std::byte* const* to = args;
    for (size_t k = 0; k < nest.loads.size(); to += nest.loads[k++].operands)
      if (read[k]) gather(nest, frame, k, to, first, n, values, values[k].data());
    for (size_t i = 0; i < nest.steps.size(); ++i)
      run_step(nest, nest.steps[i], n, values, values[nest.first_step() + i].data());
    for (ValueNumber v : nest.stores) store(v, *to++, first, n);
    for (ValueNumber v : nest.row_stores) store(v, *to++, first / block, 1);
    for (size_t i = 0; i < of_columns.size(); ++i) {
      const ValueNumber x = column_step(i).operands[0];
      const auto bytes = n * static_cast<int64_t>(size_of(nest.dtype_of(x)));
      of_columns[i].insert(of_columns[i].end(), values[x].begin(), values[x].begin() + bytes);
    }
  }
  std::byte* const* to = args + nest.operands() + nest.stores.size() + nest.row_stores.size();
  for (size_t i = 0; i < of_columns.size(); ++i)
    reduce_columns(nest, column_step(i), frame.sizes.back(), of_columns[i], to[i]);
}

}  // namespace gradus::fusion
