#include "fusion/cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fusion/cells.h"
#include "fusion/rows.h"

namespace gradus::fusion {

namespace {

// In nanoseconds, of kernels in registers of some width beside the loops that they replace:
// least squares over the times of bench_corpus' programs, all their groups fused and none. Those of
// 256 bits are of times relative to each program's, on Zen 3, and moved to where the choices lose
// least (docs/decisions.md).
struct Costs {
  // Saved.
  double call;               // of an instruction of its own
  double reduction;          // one that reduces rows takes more
  double byte;               // stored and read again
  double element;            // of a step
  double function;           // the same of exp and its like
  double reduced_element;    // of a row that is reduced by a loop of its own
  double reduced_row;        // at most
  double broadcast_row;      // a row with one element for all others
  double row_anew;           // a row of an operand that does not follow the last one
  double strided_row;        // the same where its elements do not follow each other
  double broadcast_element;  // an element of a broadcast row beside that
  double part;               // one that is joined, beside the call
  // Lost.
  double row;            // a row of its own
  double cell_row;       // beside that, one more where parts cut rows
  double rest;           // a row's end that is no whole vector, in each loop over the row
  double rest_step;      // what each step does for it
  double rest_function;  // the same of exp and its like
  double lacking;        // of such a step, an element that a row lacks to whole vectors
  double lacking_wide;   // the same of f64 and i64
  double short_row;      // more than that, where a row is less than half a vector
  double short_reduced;  // the same where rows are reduced
  double short_again;    // beside that, in each loop over a row from the third on
  double level;          // a row's lanes folded
  double level_wide;     // the same of f64 and i64
  double own_index;      // an element read at an index that no other row has
  double gathered_rest;  // an element that a row's end lacks, read at an index that rows share
  double columns;        // summed: accumulators are laid out, and folded
  double short_columns;  // the same of few columns and rows: their own loop takes as long to begin
};
constexpr Costs costs_512 = {.call = 5.3,
                             .reduction = 43,
                             .byte = 0.02,
                             .element = 0.044,
                             .function = 0.4,
                             .reduced_element = 4.7,
                             .reduced_row = 4.7,
                             .broadcast_row = 4.3,
                             .row_anew = 2,
                             .strided_row = 0,
                             .broadcast_element = 0.05,
                             .part = 0,
                             .row = 0.7,
                             .cell_row = 0,
                             .rest = 0,
                             .rest_step = 0,
                             .rest_function = 9,
                             .lacking = 0,
                             .lacking_wide = 0,
                             .short_row = 0.9,
                             .short_reduced = 6,
                             .short_again = 3,
                             .level = 0.5,
                             .level_wide = 1.3,
                             .own_index = 0.2,
                             .gathered_rest = 0,
                             .columns = 300,
                             .short_columns = 300};
constexpr Costs costs_256 = {.call = 14.4,
                             .reduction = 70,
                             .byte = 0.012,
                             .element = 0.11,
                             .function = 0.06,
                             .reduced_element = 1.2,
                             .reduced_row = 10.7,
                             .broadcast_row = 5.5,
                             .row_anew = 1.5,
                             .strided_row = 1.2,
                             .broadcast_element = 0.058,
                             .part = 18,
                             .row = 0,
                             .cell_row = 3,
                             .rest = 0,
                             .rest_step = 0.2,
                             .rest_function = 0,
                             .lacking = 0.6,
                             .lacking_wide = 1.9,
                             .short_row = 2,
                             .short_reduced = 0,
                             .short_again = 5,
                             .level = 5.5,
                             .level_wide = 8.6,
                             .own_index = 0,
                             .gathered_rest = 2.2,
                             .columns = 300,
                             .short_columns = -40};
// The same in all.
constexpr int64_t gathered_row = 64;            // shorter rows of a loop are gathered into tiles
constexpr double gathered_broadcast = 1;        // a broadcast row that is gathered
constexpr double slot = 0.6;                    // a load or a store
constexpr double cell_slot = 3;                 // the same for one more part that is joined
constexpr double strided_again = 0.6;           // an element gathered once more
constexpr double strided_rest = 2;              // the end of a row that is gathered
constexpr double indexed = 0.2;                 // read at an index that rows share
constexpr double small_indexed = 0.6;           // the same of less than 4 bytes
constexpr double strided_apart = 0.3;           // read by a loop of its own, in short rows
constexpr double side_by_side = 0.1;            // an element whose neighbour is another row's
constexpr double function_side_by_side = 0.3;   // the same of exp and its like
constexpr double column_element = 0.03;         // added to its column
constexpr double short_column = 5;              // its accumulators, where columns are few
constexpr double again = 0.03;                  // an element of a step computed once more
constexpr double function_again = 0.4;          // the same of exp and its like
constexpr double long_function = 25;            // an element of polygamma and its like
constexpr double alone = 1 << 16;               // elements that more than one worker is worth
constexpr double least_alone = 20e3;            // what a kernel for one instruction is to save
constexpr int64_t most_accumulators = 1 << 14;  // columns by sums, of which each has sixteen

// Of a vector and of a call in a stage's function.
constexpr double stage_call = 6, stage_slot = 3, stage_reduced = 15;

}  // namespace

bool is_function(const ir::Operator* op) { return op && op->traits.is_function; }

namespace {

// That are summed over any number of rows.
constexpr int64_t many_columns = 32, many_wide_columns = 24;

}  // namespace

bool takes_columns(int64_t rows, int64_t columns, DType dtype, unsigned vector_bits) {
  const bool wide = vector_bits <= 256 && size_of(dtype) == 8;
  if (columns >= (wide ? many_wide_columns : many_columns)) return columns <= most_accumulators / 2;
  constexpr int64_t fewest = 2, most = 2 * work::reduce_lanes;
  return wide && columns > 1 && rows >= fewest && rows <= most;
}

bool may_gain_alone(const Sizes& shape) {
  constexpr int64_t many_elements = 1 << 14;
  return !shape.empty() && shape.back() < gathered_row && numel(shape) >= many_elements;
}

namespace {

// Whether it computes in nothing narrower than f64 and i64.
bool takes_wide_lanes(const Nest& nest) {
  bool narrow = false;
  auto look = [&](DType d) { narrow |= is_floating(d) && d != DType::f64; };
  for (const Load& l : nest.loads) look(l.dtype);
  for (const Step& s : nest.steps) {
    look(s.dtype);
    if (s.call.op) look(dtype_of(s.compute));
  }
  return !narrow;
}

}  // namespace

int worthwhile_registers(const Nest& nest) {
  const bool functions =
      std::ranges::any_of(nest.steps, [](const Step& s) { return is_function(s.call.op); });
  const bool sums = nest.reduces() || !nest.column_stores.empty();
  // Arithmetic takes longer than loads and stores.
  constexpr size_t many_steps = 16, steps_by_slot = 4;
  const size_t slots = nest.operands() + nest.stores.size();
  const bool dense = nest.steps.size() >= many_steps && nest.steps.size() >= steps_by_slot * slots;
  return functions || dense || (sums && takes_wide_lanes(nest)) ? 0 : 256;
}

int64_t worthwhile_row_size(const Nest& nest, const StatedRows& rows, unsigned vector_bits) {
  constexpr int64_t fewest = 2;                   // elements of a row
  const int64_t most = nest.reduces() ? 31 : 12;  // rows of more elements leave few lanes empty
  constexpr int64_t function = 32, most_steps = 1200;  // instructions for vectors, about
  if (vector_bits > 256 || nest.rank < 2 || !nest.column_stores.empty()) return 0;
  if (rows.size < fewest || rows.size > most) return 0;
  if (rows.count != 0 && rows.count < work::reduce_lanes / 2) return 0;
  auto is_joined = [](const Load& l) { return l.operands > 1; };
  if (!nest.reduces() && std::ranges::any_of(nest.loads, is_joined)) return 0;  // rows are cut
  int64_t steps = 0;
  const RowFacts facts = row_facts(nest);
  for (size_t i = 0; i < nest.steps.size(); ++i) {
    const Step& s = nest.steps[i];
    if (s.call.op && s.call.op->traits.is_long_function) return 0;
    steps += (facts.of_row[nest.first_step() + i] && !s.reduces() ? 1 : rows.size) *
             (is_function(s.call.op) ? function : 1);
  }
  return steps <= most_steps ? rows.size : 0;
}

namespace {

// Whether there are functions, and each waits for the one before.
bool functions_wait(const Nest& nest) {
  std::vector<int64_t> before(nest.values(), 0);  // functions on the longest way to each value
  int64_t functions = 0;
  for (size_t i = 0; i < nest.steps.size(); ++i) {
    const Step& s = nest.steps[i];
    int64_t& most = before[nest.first_step() + i];
    for (ValueNumber in : s.operands) most = std::max(most, before[in]);
    if (!is_function(s.call.op)) continue;
    if (most++ != functions++) return false;
  }
  return functions > 1;
}

}  // namespace

int64_t lanes_of(const Nest& nest, unsigned vector_bits) {
  const unsigned bits = register_bits(nest, vector_bits);
  const int64_t lanes = bits / (takes_wide_lanes(nest) ? 64 : 32);
  constexpr int64_t fewest_in_registers = 4;
  if (nest.row_size) return (nest.row_size <= fewest_in_registers ? 2 : 1) * lanes;
  if (nest.reduces()) return std::min(2 * lanes, work::reduce_lanes);
  return (bits == 256 && functions_wait(nest) ? 4 : 2) * lanes;
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

namespace {

// Rows as a kernel runs through them: parts cut them into pieces.
struct Rows {
  double all = 0;
  double rests = 0;    // that are no whole vectors
  double shorts = 0;   // that are less than half of one
  double lacking = 0;  // elements that rests lack to whole vectors
};
Rows rows_of(const Nest& nest, const Frame& frame, int64_t lanes) {
  const double rows = static_cast<double>(frame.count()) / static_cast<double>(frame.sizes.back());
  Rows r;
  if (nest.row_size) {
    r.all = rows;
    return r;
  }
  for (int64_t piece : row_pieces(nest, frame)) {
    r.all += rows;
    if (piece % lanes != 0) r.rests += rows;
    if (2 * piece <= lanes) r.shorts += rows;
    r.lacking += rows * static_cast<double>((lanes - piece % lanes) % lanes);
  }
  return r;
}

// Whether rows of a load lie in no order in which a loop runs on from one to the next.
bool begins_rows_anew(const Load& load, const Frame& frame, size_t number) {
  if (load.walks.back() == Walk::broadcast) return false;
  int64_t next = 1;
  for (size_t d = frame.sizes.size(); d-- > 0; next *= frame.sizes[d])
    if (frame.sizes[d] > 1 && frame.strides[number][d] != next) return true;
  return false;
}

// Whether all rows of a load are the same one.
bool repeats_row(const Load& load) {
  return std::all_of(load.walks.begin(), load.walks.end() - 1,
                     [](Walk w) { return w == Walk::broadcast; });
}

// Elements that are read and stored with those of other rows.
double elements_side_by_side(const Nest& nest, double elements) {
  if (!nest.row_size) return 0;
  const auto loads = std::ranges::count_if(nest.loads, [](const Load& l) {
    return l.walks.back() != Walk::broadcast && l.walks[l.walks.size() - 2] != Walk::broadcast;
  });
  return elements * static_cast<double>(loads + static_cast<long>(nest.stores.size()));
}

// The loads and what they save and lose.
void judge_loads(const Nest& nest, const Frame& frame, const Costs& costs, int levels,
                 const Rows& run, Estimate& e) {
  const auto elements = static_cast<double>(frame.count());
  const double rows = elements / static_cast<double>(frame.sizes.back());
  for (size_t v = 0; v < nest.loads.size(); ++v) {
    const Load& l = nest.loads[v];
    if (l.walks.back() == Walk::strided)
      e.lost += levels * elements * strided_again + run.rests * strided_rest;
    if (nest.row_size && l.walks.back() == Walk::strided) e.saved += elements * strided_apart;
    const bool gathered = frame.sizes.back() < gathered_row;
    if (l.walks.back() == Walk::broadcast && rows > 1)
      e.saved += gathered ? rows * gathered_broadcast
                          : rows * costs.broadcast_row + elements * costs.broadcast_element;
    if (l.operands == 1 && !l.index && begins_rows_anew(l, frame, v)) {
      const bool strided = l.walks.back() == Walk::strided;
      if (!gathered || !(strided || repeats_row(l)))
        e.saved += rows * (strided ? costs.strided_row : costs.row_anew);
    }
    if (l.operands <= 1 && !l.index) continue;
    if (l.operands > 1) e.saved += costs.part;
    // What an edge moves is not stored and read again; it is read at an index as before.
    const double bytes = elements * static_cast<double>(size_of(l.dtype));
    e.saved += (std::ranges::count(nest.stores, v) > 0 ? 1 : 2) * bytes * costs.byte;
    if (!l.index) continue;
    const Load& index = nest.loads[*l.index];
    const bool shared = index.walks.back() == Walk::broadcast || repeats_row(index);
    e.lost += elements * (size_of(l.dtype) < 4 ? small_indexed
                          : shared             ? indexed
                                               : costs.own_index);
    if (repeats_row(index) && index.walks.back() != Walk::broadcast)
      e.lost += run.lacking * costs.gathered_rest;
  }
}

void judge_steps(const Nest& nest, const Frame& frame, const Costs& costs, const RowLoops& loops,
                 const Rows& run, Estimate& e) {
  const auto elements = static_cast<double>(frame.count());
  const double rows = elements / static_cast<double>(frame.sizes.back());
  std::vector<bool> read(nest.values());
  for (const Step& s : nest.steps)
    for (ValueNumber o : s.operands) read[o] = true;
  double of_elements = 0;
  const double lacking = takes_wide_lanes(nest) ? costs.lacking_wide : costs.lacking;
  for (size_t i = 0; i < nest.steps.size(); ++i) {
    const Step& step = nest.steps[i];
    const auto v = static_cast<ValueNumber>(nest.first_step() + i);
    if (step.reduces_column()) {
      const auto columns = static_cast<double>(frame.sizes.back());
      e.lost += elements * column_element + (frame.sizes.back() < many_columns
                                                 ? costs.short_columns + columns * short_column
                                                 : costs.columns);
    } else if (step.reduces()) {
      e.saved +=
          costs.reduction + std::min(rows * costs.reduced_row, elements * costs.reduced_element);
    }
    if (loops.facts.of_row[v]) continue;
    ++of_elements;
    const bool function = is_function(step.call.op);
    if (function) e.saved += elements * costs.function;
    if (step.call.op && step.call.op->traits.is_long_function) e.saved += elements * long_function;
    e.lost += run.rests * costs.rest_step;
    // A loop of its own has one end as well.
    const double others = run.rests > 0 ? (run.rests - 1) / run.rests : 0;
    if (function)
      e.lost += others * (run.rests * costs.rest_function + run.lacking * lacking) +
                elements * (nest.row_size ? function_side_by_side : 0);
    if (step.reduces_column()) continue;
    const double bytes = elements * static_cast<double>(size_of(step.dtype));
    const bool stored = std::ranges::count(nest.stores, v) > 0;
    e.saved += ((read[v] ? 1 : 0) + (stored ? 0 : 1)) * bytes * costs.byte;
  }
  e.saved += elements * costs.element * std::max(of_elements - 1, 0.0);
}

}  // namespace

Estimate estimate(const Nest& nest, const Frame& frame, const Machine& machine) {
  const unsigned vector_bits = machine.vector_bits;
  const auto edges = static_cast<size_t>(
      std::ranges::count_if(nest.loads, [](const Load& l) { return l.operands > 1 || l.index; }));
  const auto elements = static_cast<double>(frame.count());
  const int64_t columns = frame.sizes.back();
  const double rows = elements / static_cast<double>(columns);
  const RowLoops loops = row_loops(nest);
  const int levels = nest.row_size ? 0 : loops.levels;
  const bool whole_rows = nest.reduces() || !nest.row_stores.empty();
  if (!nest.column_stores.empty() && whole_rows &&
      columns * static_cast<int64_t>(nest.column_stores.size()) > most_accumulators)
    return {.refused = "its columns stay in no cache"};
  const Costs& costs = vector_bits >= 512 ? costs_512 : costs_256;
  const Rows run = rows_of(nest, frame, lanes_of(nest, vector_bits));
  Estimate e;
  e.saved = costs.call * static_cast<double>(nest.steps.size() + edges - 1);
  const auto slots = static_cast<double>(nest.operands() + nest.stores.size());
  if (edges) e.lost += slots * cell_slot * static_cast<double>(count_cells(nest, frame) - 1);
  e.lost += (run.all - rows) * costs.cell_row;
  e.lost += slots * slot;
  if (rows > 1) e.lost += run.all * costs.row;
  e.lost += run.rests * costs.rest * (levels + 1);
  if (levels > 0)
    e.lost += run.shorts * (costs.short_reduced + costs.short_again * (levels - 1));
  else if (rows > 1)
    e.lost += run.shorts * costs.short_row;
  const double level = takes_wide_lanes(nest) ? costs.level_wide : costs.level;
  e.lost += rows * levels * level;
  if (!nest.row_size) e.lost += repeated(nest, loops, elements);
  e.lost += elements_side_by_side(nest, elements) * side_by_side;
  judge_loads(nest, frame, costs, levels, run, e);
  judge_steps(nest, frame, costs, loops, run, e);
  if (nest.steps.size() + edges < 2 && e.saved < e.lost + least_alone)
    e.refused = "it is one instruction";
  // A reduced row is one worker's. Single instructions have all of them.
  if (levels > 0 && rows < 4 && elements > alone && machine.workers > 1) {
    const double kernel = nanoseconds_of(nest, frame);
    const double apart = (kernel + e.saved - e.lost) / machine.workers;
    if (apart < kernel / std::min(rows, static_cast<double>(machine.workers)))
      e.refused = "its rows are too few for all workers";
  }
  return e;
}

bool fits_into_stage(const Nest& nest, const Frame& frame) {
  constexpr int64_t most_elements = 1 << 13, most_calls = 16;
  if (frame.count() == 0 || frame.count() > most_elements || !nest.column_stores.empty())
    return false;
  int64_t calls = count_cells(nest, frame);  // of the code of the two innermost loops
  for (size_t d = 0; d + 2 < frame.sizes.size(); ++d) calls *= frame.sizes[d];
  return calls <= most_calls;
}

double nanoseconds_of(const Nest& nest, const Frame& frame) {
  constexpr double vector = 16, step = 0.5, function = 10;  // of a vector
  const double columns = static_cast<double>(frame.sizes.back());
  const double vectors =
      nest.row_size ? static_cast<double>(frame.count()) / vector
                    : static_cast<double>(frame.count()) / columns * std::ceil(columns / vector);
  double cost = stage_slot * static_cast<double>(nest.operands() + nest.stores.size());
  for (const Step& s : nest.steps) cost += vectors * (is_function(s.call.op) ? function : step);
  return cost + vectors * stage_reduced * static_cast<double>(nest.reduces());
}

namespace {

double nanoseconds_of(const work::Gemm& product) {
  constexpr double vector = 16, multiplication = 0.5;  // of a vector
  const work::Gemm wide = work::with_wide_result(product);
  return stage_call + multiplication * static_cast<double>(wide.m * wide.k) *
                          std::ceil(static_cast<double>(wide.n) / vector);
}

}  // namespace

double nanoseconds_of_piece(const work::Work& piece, int64_t elements) {
  if (const auto* loops = std::get_if<work::Loops>(&piece))
    return nanoseconds_of(loops->nest, loops->frame);
  if (const auto* product = std::get_if<work::Product>(&piece))
    return nanoseconds_of(product->gemm);
  if (const auto* sum = std::get_if<work::Reduce>(&piece)) elements = sum->outputs * sum->count;
  return stage_call + 0.1 * static_cast<double>(elements);
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
