#include "fusion/cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fusion/cells.h"
#include "fusion/rows.h"

namespace gradus::fusion {

namespace {

// In nanoseconds.
constexpr double call = 6;                // of an instruction of its own
constexpr double byte_near = 0.006;       // stored and read again, from the nearest cache
constexpr double byte_far = 0.014;        // from those behind
constexpr int64_t near_bytes = 16 << 10;  // of one value that stays near
constexpr double slot = 3;                // a load or a store: what was just stored comes late
constexpr double row = 3;                 // a row of its own
constexpr double rest = 45;               // a row's end that is no whole vector
constexpr double strided_element = 0.6;   // gathered one by one
constexpr double again = 0.03;            // an element of a step computed once more
constexpr double function_again = 0.4;    // the same of exp and its like
constexpr double reduced_row = 15;        // a row's lanes folded
constexpr double alone = 1 << 16;         // elements that more than one worker is worth
constexpr int64_t most_accumulators = 1 << 14;  // columns by sums, of which each has sixteen

}  // namespace

bool is_function(const ir::Operator* op) { return op && op->traits.is_function; }

bool takes_columns(int64_t columns) {
  return columns <= most_accumulators / 2 &&
         (columns >= 256 || (columns >= 32 && columns % work::reduce_lanes == 0));
}

int64_t lanes_of(const Nest& nest, unsigned vector_bits) {
  bool narrow = false;
  auto look = [&](DType d) { narrow |= is_floating(d) && d != DType::f64; };
  for (const Load& l : nest.loads) look(l.dtype);
  for (const Step& s : nest.steps) {
    look(s.dtype);
    if (s.call.op) look(dtype_of(s.compute));
  }
  const int64_t lanes = 2 * vector_bits / (narrow ? 32 : 64);
  return nest.reduces() ? std::min(lanes, work::reduce_lanes) : lanes;
}

namespace {

// What single elements' steps cost that are computed in more than one loop over a row, or kept.
double repeated(const Nest& nest, const RowLoops& rows, double elements) {
  double cost = elements * again * 2 * static_cast<double>(rows.kept.size());
  for (size_t i = 0; i < nest.steps.size(); ++i) {
    const auto loops = std::ranges::count_if(rows.loops, [&](const auto& l) { return l.steps[i]; });
    if (loops > 1)
      cost += static_cast<double>(loops - 1) * elements *
              (is_function(nest.steps[i].call.op) ? function_again : again);
  }
  return cost;
}

}  // namespace

bool worth_a_kernel(const Nest& nest, const Frame& frame, unsigned vector_bits) {
  const auto edges = static_cast<size_t>(
      std::ranges::count_if(nest.loads, [](const Load& l) { return l.operands > 1 || l.index; }));
  if (nest.steps.size() + edges < 2) return false;
  const auto elements = static_cast<double>(frame.count());
  const int64_t columns = frame.sizes.back();
  const double rows = elements / static_cast<double>(columns);
  const RowLoops loops = row_loops(nest);
  const int levels = loops.levels;
  if (levels > 0 && rows < 4 && elements > alone) return false;
  const bool whole_rows = nest.reduces() || !nest.row_stores.empty();
  if (!nest.column_stores.empty() && whole_rows &&
      columns * static_cast<int64_t>(nest.column_stores.size()) > most_accumulators)
    return false;
  double saved = call * static_cast<double>(nest.steps.size() + edges - 1), lost = 0;
  std::vector<int> reads(nest.values());  // by how many steps
  for (const Step& s : nest.steps)
    for (ValueNumber o : s.operands) ++reads[o];
  auto moved = [](double bytes) { return bytes * (bytes <= near_bytes ? byte_near : byte_far); };
  for (size_t v = 0; v < nest.loads.size(); ++v)
    if (reads[v] > 1 && nest.loads[v].walks.back() == Walk::contiguous)
      saved += (reads[v] - 1) * moved(elements * static_cast<double>(size_of(nest.loads[v].dtype)));
  // What an edge moves is not stored and read again; it is read at an index as before.
  for (size_t v = 0; v < nest.loads.size(); ++v)
    if (const Load& l = nest.loads[v]; l.operands > 1 || l.index) {
      const bool stored = std::ranges::count(nest.stores, v) > 0;
      saved += ((reads[v] ? 1 : 0) + (stored ? 0 : 1)) *
               moved(elements * static_cast<double>(size_of(l.dtype)));
      if (l.index && size_of(l.dtype) < 4) lost += elements * strided_element;
    }
  if (edges) lost += call * static_cast<double>(count_cells(nest, frame) - 1);
  for (size_t i = 0; i < nest.steps.size(); ++i) {
    const auto v = static_cast<ValueNumber>(nest.first_step() + i);
    const double bytes = elements * static_cast<double>(size_of(nest.steps[i].dtype));
    if (loops.facts.of_row[v] || nest.steps[i].reduces_column()) continue;
    const bool stored = std::ranges::count(nest.stores, v) > 0;
    const double moves = (reads[v] ? 1 : 0) + (stored ? 0 : 1);
    saved += moves * moved(bytes);
  }
  lost += slot * static_cast<double>(nest.operands() + nest.stores.size());
  if (rows > 1) lost += rows * row;
  if (columns % lanes_of(nest, vector_bits)) lost += rows * rest * (levels + 1);
  lost += rows * levels * reduced_row + repeated(nest, loops, elements);
  for (const Load& l : nest.loads)
    if (l.walks.back() == Walk::strided) lost += elements * strided_element;
  return saved > lost;
}

bool fits_into_stage(const Nest& nest, const Frame& frame) {
  constexpr int64_t most_elements = 1 << 13, most_calls = 16;
  if (frame.count() == 0 || frame.count() > most_elements || !nest.column_stores.empty())
    return false;
  int64_t calls = count_cells(nest, frame);  // of the code of the two innermost loops
  for (size_t d = 0; d + 2 < frame.sizes.size(); ++d) calls *= frame.sizes[d];
  return calls <= most_calls;
}

namespace {

double nanoseconds_of(const Nest& nest, const Frame& frame) {
  constexpr double vector = 16, step = 0.5, function = 10;  // of a vector
  const double columns = static_cast<double>(frame.sizes.back());
  const double vectors = static_cast<double>(frame.count()) / columns * std::ceil(columns / vector);
  double cost = slot * static_cast<double>(nest.operands() + nest.stores.size());
  for (const Step& s : nest.steps) cost += vectors * (is_function(s.call.op) ? function : step);
  return cost + vectors * reduced_row * static_cast<double>(nest.reduces());
}

double nanoseconds_of(const work::Gemm& product) {
  constexpr double vector = 16, multiplication = 0.5;  // of a vector
  const work::Gemm wide = work::with_wide_result(product);
  return call + multiplication * static_cast<double>(wide.m * wide.k) *
                    std::ceil(static_cast<double>(wide.n) / vector);
}

}  // namespace

double nanoseconds_of_piece(const work::Work& piece, int64_t elements) {
  if (const auto* loops = std::get_if<work::Loops>(&piece))
    return nanoseconds_of(loops->nest, loops->frame);
  if (const auto* product = std::get_if<work::Product>(&piece))
    return nanoseconds_of(product->gemm);
  if (const auto* sum = std::get_if<work::Reduce>(&piece)) elements = sum->outputs * sum->count;
  return call + 0.1 * static_cast<double>(elements);
}

// What takes each element a few times at most; a kernel that multiplies what it reads with each
// other takes less than the power 3/2 of it.
double nanoseconds_of_call(const work::Work& work, int64_t elements) {
  constexpr double base = 30, element = 0.5;
  const bool linear = std::holds_alternative<work::Reduce>(work) ||
                      std::holds_alternative<work::Move>(work) ||
                      std::holds_alternative<work::Index>(work);
  const auto n = static_cast<double>(elements);
  return base + element * (linear ? n : n * std::sqrt(n));
}

}  // namespace gradus::fusion
