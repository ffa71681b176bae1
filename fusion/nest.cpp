#include "fusion/nest.h"

#include <algorithm>

#include "ops/powers.h"

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

void verify_reduction(const Nest& nest, const Step& step, size_t v) {
  if (step.operands.size() != 1 || step.attributes)
    fail("reduction %v{} takes one operand and no attributes [N7]", v);
  if (*step.reducer == ops::Reducer::all || *step.reducer == ops::Reducer::any) {
    if (step.dtype != DType::boolean) fail("reduction %v{} gives bool [N6]", v);
    return;
  }
  const DType from = nest.dtype_of(step.operands[0]);
  if (compute_of(from) != step.compute)
    fail("reduction %v{} of {} computes in {}, not in {} [N9]", v, name_of(from),
         name_of(dtype_of(compute_of(from))), name_of(dtype_of(step.compute)));
  if (compute_of(step.dtype) != step.compute)
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
  if (!step.op && step.reducer) return verify_reduction(nest, step, v);
  if (!step.op) {
    if (step.operands.size() != 1 || step.attributes)
      fail("conversion %v{} takes one operand and no attributes [N7]", v);
    return;
  }
  if (!step.op->pointwise) fail("step %v{}: '{}' is not pointwise [N4]", v, step.op->name);
  const ops::PointwiseInfo& info = step.op->pointwise();
  if (step.operands.size() != info.roles.size())
    fail("step %v{}: '{}' takes {} operands, not {} [N3]", v, step.op->name, info.roles.size(),
         step.operands.size());
  if (!step.attributes) fail("step %v{} has no attributes [N7]", v);
  if (!info.loops[static_cast<size_t>(step.compute)])
    fail("step %v{}: '{}' is not computed in {} [N5]", v, step.op->name,
         name_of(dtype_of(step.compute)));
  bool fits = info.result == ops::Result::boolean ? step.dtype == DType::boolean
                                                  : compute_of(step.dtype) == step.compute;
  if (!fits)
    fail("step %v{}: '{}' in {} does not give {} [N6]", v, step.op->name,
         name_of(dtype_of(step.compute)), name_of(step.dtype));
}

}  // namespace

bool Nest::reduces() const { return std::ranges::any_of(steps, &Step::reduces_row); }

const ir::Number* Nest::number(ValueNumber v) const {
  return v >= first_number() && v < first_step() ? &numbers[v - first_number()] : nullptr;
}

DType Nest::dtype_of(ValueNumber v) const {
  if (v < first_number()) return loads[v].dtype;
  if (v >= first_step()) return steps[v - first_step()].dtype;
  Category c = numbers[v - first_number()].category;
  return c == Category::floating   ? DType::f64
         : c == Category::integral ? DType::i64
                                   : DType::boolean;
}

void verify(const Nest& nest) {
  if (nest.rank < 1 || nest.rank > max_rank)
    fail("the rank is {}, it must lie between 1 and {} [N1]", nest.rank, max_rank);
  for (size_t i = 0; i < nest.loads.size(); ++i) verify_load(nest, i);
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
  for (const Load& l : nest.loads) facts.of_row.push_back(l.walks.back() == Walk::broadcast);
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

int cheap_half_power(const Nest& nest, const Step& step) {
  // The one operator with such rules, told by its loops.
  static const ops::PointwiseInfo* pow = &ops::general_power_info();
  if (!step.op || &step.op->pointwise() != pow) return 0;
  const ir::Number* exponent = nest.number(step.operands[1]);
  bool plain = exponent && !nest.number(step.operands[0]) &&
               is_floating(nest.dtype_of(step.operands[0])) &&
               nest.dtype_of(step.operands[0]) == step.dtype;
  // A truth value is no exponent to look at: ops/powers.cpp.
  return plain && exponent->category != Category::boolean
             ? ops::cheap_half_power(exponent->as_double())
             : 0;
}

void check_frame(const Nest& nest, const Frame& frame) {
  if (frame.sizes.size() != static_cast<size_t>(nest.rank) ||
      frame.strides.size() != nest.loads.size())
    fail("the frame has {} dimensions and {} loads, the nest has {} and {}", frame.sizes.size(),
         frame.strides.size(), nest.rank, nest.loads.size());
  if (nest.reduces() && frame.sizes.back() < 1) fail("the frame's rows have nothing to reduce");
  if (!nest.column_stores.empty() && frame.count() < 1)
    fail("the frame's columns have nothing to reduce");
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    if (frame.strides[k].size() != frame.sizes.size())
      fail("the frame has {} strides for load %v{} in {} dimensions", frame.strides[k].size(), k,
           frame.sizes.size());
    for (size_t d = 0; d < frame.sizes.size(); ++d) {
      int64_t stride = frame.strides[k][d];
      Walk walk = nest.loads[k].walks[d];
      bool fits = walk == Walk::strided || stride == (walk == Walk::contiguous ? 1 : 0);
      if (frame.sizes[d] > 1 && !fits)
        fail("load %v{} has the stride {} in dimension {}, which it does not walk so", k, stride,
             d);
    }
  }
}

}  // namespace gradus::fusion
