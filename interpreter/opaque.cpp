// Opaque instructions of a run: functions and evals.
#include <cstring>

#include "interpreter/plan/bind_sizes.h"
#include "interpreter/state_impl.h"

namespace gradus {

using interpreter::OpaqueResults;
using interpreter::SegmentPlan;

namespace {

Sizes sizes_of(const ir::Type& type, const ir::DimEnvironment& known) {
  Sizes s;
  for (const ir::Dim& d : type.dims) s.push_back(d.evaluate(known));
  return s;
}

Tensor zeros_of(const ir::Type& type, const ir::DimEnvironment& known, Context& context) {
  Tensor t = Tensor::empty(type.dtype, sizes_of(type, known), context);
  if (t.numel())
    std::memset(t.mutable_data(), 0, static_cast<size_t>(t.numel()) * size_of(type.dtype));
  return t;
}

}  // namespace

std::shared_ptr<const SegmentPlan> State::Impl::run_opaque(size_t segment, uint32_t& at,
                                                           const RunOptions& options) {
  const StageCode& stage_code = code->stage(stage);
  at = *code->segment(segment).opaque;
  const Instruction& i = stage_code.instructions[at];
  const OpaqueInstruction& o = stage_code.opaque[i.opaque];
  const SegmentPlan& before = *plans[segment - 1];
  check_limits(options, at);
  if (options.observer) options.observer->before(stage, at);
  OpaqueResults results;
  {
    SmallVector<Tensor, 4> operands = opaque_operands(i, before);
    try {
      results = apply_opaque(i, operands);
    } catch (const Error& e) {
      if (e.where().known()) throw;
      throw Error("{}: {}", o.what, e.bare());
    }
  }
  check_opaque_results(i, results.tensors, before);
  for (Tensor& t : results.tensors) t = there(t);
  if (o.handle != no_register) handles[index_of(o.handle)] = std::move(results.handle);
  for (uint32_t k = i.first_operand; k < i.first_operand + i.operands; ++k) {
    if (!stage_code.frees[k]) continue;
    Register r = stage_code.operands[k].reg;
    if (code->is_handle(r))
      handles[index_of(r)] = nullptr;
    else
      registers[index_of(r)] = Tensor();
  }
  auto plan = find_plan(segment, results.tensors);
  check_versions(*plan);
  std::span<const Register> registers_of = interpreter::inputs_of(*code, segment);
  for (size_t k = 0; k < registers_of.size(); ++k)
    if (Register r = registers_of[k]; r != no_register)
      registers[index_of(r)] = std::move(results.tensors[k]);
  if (options.observer) options.observer->after(stage, at);
  return plan;
}

// A function sees zeros for what is absent, as any operator does. An eval sees nothing, unless it
// leaves a handle: then somebody may want the derivative with respect to that cotangent.
SmallVector<Tensor, 4> State::Impl::opaque_operands(const Instruction& i,
                                                    const SegmentPlan& before) const {
  const StageCode& stage_code = code->stage(stage);
  interpreter::SizesByName sizes(*code, before.sizes);
  bool dense =
      i.kind == Instruction::Kind::function || stage_code.opaque[i.opaque].handle != no_register;
  SmallVector<Tensor, 4> operands;
  for (uint32_t k = i.first_operand; k < i.first_operand + i.operands; ++k) {
    Register r = stage_code.operands[k].reg;
    if (r == no_register) {  // `none`
      operands.emplace_back();
      continue;
    }
    if (code->is_handle(r)) continue;
    const Tensor& constant = code->constant(r);
    if (!constant.defined() && registers[index_of(r)].defined()) check_version(r, before);
    operands.push_back(constant.defined() ? copy_of(constant) : here(registers[index_of(r)]));
    if (!operands.back().defined() && dense)
      operands.back() = zeros_of(code->type_of(r), sizes, *context);
  }
  return operands;
}

OpaqueResults State::Impl::apply_opaque(const Instruction& i,
                                        std::span<const Tensor> operands) const {
  const StageCode& stage_code = code->stage(stage);
  const OpaqueInstruction& o = stage_code.opaque[i.opaque];
  bool leaves_handle = o.handle != no_register;
  if (i.kind == Instruction::Kind::function)
    return interpreter::call_function(*o.function, operands, o.requires_grad, leaves_handle,
                                      context);
  // Its own reference: the register may be released by who shares the state's handle.
  auto handle = handles[index_of(stage_code.operands[i.first_operand + i.operands - 1].reg)];
  GRADUS_CHECK(handle);
  return interpreter::evaluate_handle(handle, operands, o.wanted, leaves_handle, context);
}

void State::Impl::check_opaque_results(const Instruction& i, std::span<const Tensor> results,
                                       const SegmentPlan& before) const {
  const OpaqueInstruction& o = code->stage(stage).opaque[i.opaque];
  const ir::Node& node = code->graph().stages[stage].nodes[i.node];
  interpreter::SizesByName sizes(*code, before.sizes);
  if (results.size() != o.tensors)
    throw Error("{}: it gave {} results, it must give {}", o.what, results.size(), o.tensors);
  for (size_t k = 0; k < results.size(); ++k) {
    const ir::Type& type = code->graph()[node.results[k]].type;
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

}  // namespace gradus
