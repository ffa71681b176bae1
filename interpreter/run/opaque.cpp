#include <algorithm>
#include <cstring>

#include "interpreter/plan/bind_sizes.h"
#include "interpreter/run/steps.h"

namespace gradus::interpreter {

namespace {

// A function sees zeros for what is absent, as any operator does. An eval sees nothing, unless it
// leaves a handle: then somebody may want the derivative with respect to that cotangent.
SmallVector<Tensor, 4> opaque_operands(const Snapshot& s, const Instruction& i,
                                       const SegmentPlan& before) {
  const StageCode& stage_code = s.code->stage(s.stage);
  SizesByName sizes(*s.code, before.sizes);
  bool dense =
      i.kind == Instruction::Kind::function || stage_code.opaque[i.opaque].handle != no_register;
  SmallVector<Tensor, 4> operands;
  for (uint32_t k = i.first_operand; k < i.first_operand + i.operands; ++k) {
    Register r = stage_code.operands[k].reg;
    if (r == no_register) {  // `none`
      operands.emplace_back();
      continue;
    }
    if (s.code->is_handle(r)) continue;
    const bool constant = s.code->constant(r).defined();
    if (!constant) check_version(s, r, before);
    operands.push_back(constant ? s.place.copy_of(s.value(r)) : s.place.here(s.value(r)));
    if (operands.back().defined() || !dense) continue;
    const ir::Type& type = s.code->type_of(r);
    Tensor& zeros = operands.back();
    zeros = Tensor::empty(type.dtype, sizes_of(type, sizes), *s.place.context);
    std::memset(zeros.mutable_data(), 0, zeros.storage()->bytes());
  }
  return operands;
}

OpaqueResults apply_opaque(const Snapshot& s, const Instruction& i,
                           std::span<const Tensor> operands) {
  const StageCode& stage_code = s.code->stage(s.stage);
  const OpaqueInstruction& o = stage_code.opaque[i.opaque];
  bool leaves_handle = o.handle != no_register;
  if (i.kind == Instruction::Kind::function)
    return call_function(*o.function, operands, o.requires_grad, leaves_handle, s.place.context);
  // Its own reference: the register may be released by who shares the state's handle.
  auto handle = s.handles[index_of(stage_code.operands[i.first_operand + i.operands - 1].reg)];
  GRADUS_CHECK(handle);
  return evaluate_handle(handle, operands, o.wanted, leaves_handle, s.place.context);
}

void check_opaque_results(const Snapshot& s, const Instruction& i, std::span<const Tensor> results,
                          const SegmentPlan& before) {
  const OpaqueInstruction& o = s.code->stage(s.stage).opaque[i.opaque];
  const ir::Node& node = s.code->graph().stages[s.stage].nodes[i.node];
  SizesByName sizes(*s.code, before.sizes);
  if (results.size() != o.tensors)
    throw Error("{}: it gave {} results, it must give {}", o.what, results.size(), o.tensors);
  for (size_t k = 0; k < results.size(); ++k) {
    const ir::Type& type = s.code->graph()[node.results[k]].type;
    const Tensor& t = results[k];
    if (!t.defined()) {
      if (i.kind == Instruction::Kind::eval) continue;
      throw Error("{}: result {} is undefined, it must be {}", o.what, k, to_string(type));
    }
    Sizes shape = sizes_of(type, sizes);
    if (t.dtype() != type.dtype || t.device() != Device() || !std::ranges::equal(t.shape(), shape))
      throw Error("{}: result {} is {}, it must be {} ({}{})", o.what, k, describe(t),
                  to_string(type), name_of(type.dtype), gradus::to_string(shape));
  }
}

}  // namespace

std::shared_ptr<const SegmentPlan> run_opaque(StageRun& run, size_t segment) {
  StateData& s = run.s;
  const RunOptions& options = run.options;
  const StageCode& stage_code = s.code->stage(s.stage);
  run.at = *s.code->segment(segment).opaque;
  const Instruction& i = stage_code.instructions[run.at];
  const OpaqueInstruction& o = stage_code.opaque[i.opaque];
  const SegmentPlan& before = *s.plans[segment - 1];
  check_limits(run);
  if (options.observer) options.observer->before(s.stage, run.at);
  OpaqueResults results;
  {
    SmallVector<Tensor, 4> operands = opaque_operands(s, i, before);
    try {
      results = apply_opaque(s, i, operands);
    } catch (const Error& e) {
      if (e.where().known()) throw;
      throw Error("{}: {}", o.what, e.bare());
    }
  }
  check_opaque_results(s, i, results.tensors, before);
  for (Tensor& t : results.tensors) t = s.place.there(t);
  if (o.handle != no_register) s.handles[index_of(o.handle)] = std::move(results.handle);
  for (uint32_t k = i.first_operand; k < i.first_operand + i.operands; ++k) {
    if (!stage_code.frees[k]) continue;
    Register r = stage_code.operands[k].reg;
    if (s.code->is_handle(r))
      s.handles[index_of(r)] = nullptr;
    else
      s.registers[index_of(r)] = Tensor();
  }
  auto plan = find_plan(s, segment, results.tensors);
  check_versions(s, *plan);
  std::span<const Register> registers_of = inputs_of(*s.code, segment);
  for (size_t k = 0; k < registers_of.size(); ++k)
    if (Register r = registers_of[k]; r != no_register)
      s.registers[index_of(r)] = std::move(results.tensors[k]);
  if (options.observer) options.observer->after(s.stage, run.at);
  return plan;
}

std::shared_ptr<const SegmentPlan> run_count(StageRun& run, size_t segment) {
  StateData& s = run.s;
  const StageCode& stage_code = s.code->stage(s.stage);
  run.at = s.code->segment(segment).first;
  const Instruction& i = stage_code.instructions[run.at];
  Register r = stage_code.operands[i.first_operand].reg;
  const Tensor counted = s.place.here(s.value(r));
  const Tensor* x = &counted;
  // What is absent is zeros.
  auto plan = find_plan(s, segment, {}, x->defined() ? i.op->count({&x, 1}) : 0);
  check_versions(s, *plan);
  return plan;
}

}  // namespace gradus::interpreter
