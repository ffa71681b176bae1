#include "fusion/nest.h"

#include <algorithm>

#include "gradus/pointwise.h"

namespace gradus::fusion {

namespace {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error("nest: " + fmt::format(format, std::forward<Args>(args)...));
}

void verify_load(const Nest& nest, size_t i) {
  const Load& load = nest.loads[i];
  if (load.walks.size() != static_cast<size_t>(nest.rank))
    fail("load %v{} walks {} dimensions of {} [N2]", i, load.walks.size(), nest.rank);
  for (size_t d = 0; d + 1 < load.walks.size(); ++d)
    if (load.walks[d] == Walk::contiguous)
      fail("load %v{} is contiguous in dimension {}, which is not the last [N2]", i, d);
}

void verify_edge(const Nest& nest, size_t i) {
  const Load& load = nest.loads[i];
  const bool alone = load.index || !nest.column_stores.empty();
  if (load.operands < 1 || load.operands > (alone ? 1 : most_operands))
    fail("load %v{} has {} operands; it may have {} [N12]", i, load.operands,
         alone ? 1 : most_operands);
  if (!load.index) return;
  const ValueNumber v = *load.index;
  if (v >= i) fail("load %v{} reads at %v{}, which is no load before it [N13]", i, v);
  const Load& index = nest.loads[v];
  if ((index.dtype != DType::i64 && index.dtype != DType::i32) || index.operands != 1 ||
      index.index)
    fail("load %v{} reads at %v{}, which is not one operand of i64 or i32 [N13]", i, v);
}

void verify_reduction(const Nest& nest, const Step& step, size_t v) {
  if (step.operands.size() != 1 || step.call.attributes)
    fail("reduction %v{} takes one operand and no attributes [N7]", v);
  if (*step.reducer == work::Reducer::all || *step.reducer == work::Reducer::any) {
    if (step.dtype != DType::boolean) fail("reduction %v{} gives bool [N6]", v);
    return;
  }
  const DType from = nest.dtype_of(step.operands[0]);
  if (compute_of(from) != step.compute)
    fail("reduction %v{} of {} computes in {}, not in {} [N9]", v, name_of(from),
         name_of(dtype_of(compute_of(from))), name_of(dtype_of(step.compute)));
  // Integers are summed to i64, u64 too: it wraps.
  const bool sums = *step.reducer == work::Reducer::sum || *step.reducer == work::Reducer::prod;
  const bool wraps = sums && step.compute == Compute::u64 && step.dtype == DType::i64;
  if (compute_of(step.dtype) != step.compute && !wraps)
    fail("reduction %v{} in {} does not give {} [N6]", v, name_of(dtype_of(step.compute)),
         name_of(step.dtype));
}

void verify_step(const Nest& nest, size_t i) {
  const Step& step = nest.steps[i];
  const size_t v = nest.first_step() + i;
  for (ValueNumber o : step.operands)
    if (o >= v) fail("step %v{} uses %v{}, which is not defined before it [N3]", v, o);
  for (ValueNumber o : step.operands)
    if (o >= nest.first_step() && nest.steps[o - nest.first_step()].reduces_column())
      fail("step %v{} reads %v{}, which is there when all rows are done [N11]", v, o);
  if (step.reduces()) return verify_reduction(nest, step, v);
  if (!step.call.op) {
    if (step.operands.size() != 1 || step.call.attributes)
      fail("conversion %v{} takes one operand and no attributes [N7]", v);
    return;
  }
  if (!step.call.op->pointwise)
    fail("step %v{}: '{}' is not pointwise [N4]", v, step.call.op->name);
  const ops::PointwiseInfo& info = step.call.op->pointwise();
  if (step.operands.size() != info.roles.size())
    fail("step %v{}: '{}' takes {} operands, not {} [N3]", v, step.call.op->name, info.roles.size(),
         step.operands.size());
  if (!step.call.attributes) fail("step %v{} has no attributes [N7]", v);
  if (!info.loops[static_cast<size_t>(step.compute)])
    fail("step %v{}: '{}' is not computed in {} [N5]", v, step.call.op->name,
         name_of(dtype_of(step.compute)));
  bool fits = info.result == ops::Result::boolean ? step.dtype == DType::boolean
                                                  : compute_of(step.dtype) == step.compute;
  if (!fits)
    fail("step %v{}: '{}' in {} does not give {} [N6]", v, step.call.op->name,
         name_of(dtype_of(step.compute)), name_of(step.dtype));
}

}  // namespace

void verify(const Nest& nest) {
  if (nest.rank < 1 || nest.rank > max_rank)
    fail("the rank is {}, it must lie between 1 and {} [N1]", nest.rank, max_rank);
  if (nest.registers != 0 && nest.registers != 256)
    fail("registers have {} bits, they may have 256, or 0 for the widest there are [N14]",
         nest.registers);
  if (nest.row_size != 0 && (nest.row_size < 0 || nest.row_size > most_row_size || nest.rank < 2 ||
                             !nest.column_stores.empty()))
    fail(
        "rows have {} elements; where there are rows, and no columns are reduced, they may have up "
        "to {}, or 0 for any number [N15]",
        nest.row_size, most_row_size);
  for (size_t i = 0; i < nest.loads.size(); ++i) {
    verify_load(nest, i);
    verify_edge(nest, i);
  }
  for (size_t i = 0; i < nest.steps.size(); ++i) verify_step(nest, i);
  if (nest.stores.empty() && nest.row_stores.empty() && nest.column_stores.empty())
    fail("nothing is stored [N8]");
  for (const auto* stores : {&nest.stores, &nest.row_stores, &nest.column_stores})
    for (ValueNumber v : *stores) {
      if (v >= nest.values()) fail("%v{} is stored, but there is no such value [N8]", v);
      const bool of_column =
          v >= nest.first_step() && nest.steps[v - nest.first_step()].reduces_column();
      if (of_column != (stores == &nest.column_stores))
        fail("%v{} {} for columns [N11]", v,
             of_column ? "is reduced, but not stored," : "is stored, but not reduced,");
    }
  const RowFacts facts = row_facts(nest);
  for (ValueNumber v : nest.row_stores)
    if (!facts.of_row[v])
      fail("%v{} is stored once for a row, but each element has its own [N10]", v);
}

RowFacts row_facts(const Nest& nest) {
  RowFacts facts;
  for (const Load& l : nest.loads)
    facts.of_row.push_back(l.walks.back() == Walk::broadcast &&
                           (!l.index || facts.of_row[*l.index]));
  facts.of_row.resize(nest.first_step(), true);
  facts.level.resize(nest.first_step(), 0);
  for (const Step& s : nest.steps) {
    bool of_row = true;
    int level = 0;
    for (ValueNumber o : s.operands) {
      of_row = of_row && facts.of_row[o];
      level = std::max(level, facts.level[o]);
    }
    const bool reduction = s.reduces_row();
    of_row = of_row && !s.reduces_column();
    facts.of_row.push_back(of_row || reduction);
    facts.level.push_back(level + reduction);
  }
  return facts;
}

namespace {

void check_strides(const Nest& nest, size_t load, const Sizes& sizes, const Sizes& strides) {
  if (strides.size() != sizes.size())
    fail("the frame has {} strides for load %v{} in {} dimensions", strides.size(), load,
         sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    const Walk walk = nest.loads[load].walks[d];
    const bool fits = walk == Walk::strided || strides[d] == (walk == Walk::contiguous ? 1 : 0);
    if (sizes[d] > 1 && !fits)
      fail("load %v{} has the stride {} in dimension {}, which it does not walk so", load,
           strides[d], d);
  }
}

bool overlap(const Frame::Part& a, const Frame::Part& b) {
  for (size_t d = 0; d < a.first.size(); ++d)
    if (a.first[d] + a.sizes[d] <= b.first[d] || b.first[d] + b.sizes[d] <= a.first[d])
      return false;
  return true;
}

void check_parts(const Nest& nest, const Frame& frame, size_t load) {
  const auto& parts = frame.parts[load];
  const size_t rank = frame.sizes.size();
  const bool whole_rows = nest.reduces() || !nest.row_stores.empty() || nest.row_size;
  int64_t count = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Frame::Part& part = parts[p];
    bool fits = part.first.size() == rank && part.sizes.size() == rank;
    for (size_t d = 0; fits && d < rank; ++d)
      fits = part.first[d] >= 0 && part.sizes[d] >= 1 &&
             part.first[d] + part.sizes[d] <= frame.sizes[d];
    if (!fits) fail("part {} of load %v{} does not lie in the loops", p, load);
    if (whole_rows && part.sizes[rank - 1] != frame.sizes[rank - 1])
      fail("part {} of load %v{} cuts rows", p, load);
    for (size_t q = 0; q < p; ++q)
      if (overlap(part, parts[q])) fail("parts {} and {} of load %v{} overlap", q, p, load);
    check_strides(nest, load, part.sizes, part.strides);
    count += numel(part.sizes);
  }
  if (count != frame.count()) fail("the parts of load %v{} are not all of the loops", load);
}

}  // namespace

void check_frame(const Nest& nest, const Frame& frame) {
  if (frame.sizes.size() != static_cast<size_t>(nest.rank) ||
      frame.strides.size() != nest.loads.size())
    fail("the frame has {} dimensions and {} loads, the nest has {} and {}", frame.sizes.size(),
         frame.strides.size(), nest.rank, nest.loads.size());
  if (nest.reduces() && frame.sizes.back() < 1) fail("the frame's rows have nothing to reduce");
  if (nest.row_size != 0 && frame.sizes.back() != nest.row_size)
    fail("the frame's rows have {} elements, the nest's have {}", frame.sizes.back(),
         nest.row_size);
  if (!nest.column_stores.empty() && frame.count() < 1)
    fail("the frame's columns have nothing to reduce");
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    const Load& load = nest.loads[k];
    if (load.operands > 1) {
      if (k >= frame.parts.size() || frame.parts[k].size() != load.operands)
        fail("the frame does not have a part for each of the {} operands of load %v{}",
             load.operands, k);
      check_parts(nest, frame, k);
      continue;
    }
    if (load.index && k >= frame.index_steps.size())
      fail("the frame does not say how far apart the indices of load %v{} are", k);
    check_strides(nest, k, frame.sizes, frame.strides[k]);
  }
}

}  // namespace gradus::fusion
