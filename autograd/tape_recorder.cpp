#include "autograd/tape_recorder.h"

#include "gradus/registry.h"

namespace gradus::autograd {

Layout layout_of(const ir::Type& type) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.value());
  return Layout(type.dtype, std::move(shape));
}

ops::Value TapeRecorder::make(const ir::Type& type) {
  tape_.types_.push_back(type);
  return at(static_cast<uint32_t>(tape_.types_.size() - 1));
}

ops::Value TapeRecorder::at(uint32_t slot) {
  ops::Value v;
  v.world = this;
  v.operand = static_cast<ir::ValueId>(slot);
  v.type = tape_.types_[slot];
  return v;
}

SmallVector<ops::Value, 2> TapeRecorder::emit(const ir::Operator& op, ir::Attributes attributes,
                                              std::span<const ops::Value> operands) {
  if (op.compose && !op.has_vjp(attributes)) {
    ops::ComposeCall call{op, *this, operands, attributes, {}};
    op.compose(call);
    return SmallVector<ops::Value, 2>(std::span<const ops::Value>(call.results));
  }
  SmallVector<OperatorCall::Operand, 2> typed(operands.size());
  RuleTape::Step step;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ops::Value& v = operands[i];
    uint32_t slot = slot_of(v);
    step.operands.push_back({slot, false});
    if (slot != RuleTape::none) {
      typed[i].is_tensor = true;
      typed[i].type = v.type;
      typed[i].layout = layout_of(v.type);
    } else if (const auto* n = std::get_if<ir::Number>(&v.operand)) {
      typed[i].number = *n;
    } else if (const auto* d = std::get_if<ir::Dim>(&v.operand)) {
      typed[i].number = ir::Number::of(d->value());
    }
  }
  step.call = make_ref<const OperatorCall>(op, std::move(attributes), std::move(typed));
  if (step.call->device().kind != DeviceKind::cpu) tape_.on_cpu_ = false;
  step.first_result = static_cast<uint32_t>(tape_.slots());
  SmallVector<ops::Value, 2> out;
  for (const ir::Type& type : step.call->results()) out.push_back(make(type));
  tape_.steps_.push_back(std::move(step));
  return out;
}

}  // namespace gradus::autograd
