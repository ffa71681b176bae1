#include "autograd/rule_tape.h"

#include "autograd/small_tape.h"
#include "ops/registry.h"

namespace gradus::autograd {

namespace {

Layout layout_of(const ir::Type& type) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.value());
  return Layout(type.dtype, std::move(shape));
}

}  // namespace

// A world whose operations become steps. A value is known by its slot.
class TapeRecorder final : public ops::World {
 public:
  explicit TapeRecorder(RuleTape& tape) : tape_(tape) {}

  ops::Value input(const ir::Type& type) { return make(type); }

  SmallVector<ops::Value, 2> emit(const ir::Operator& op, ir::Attributes attributes,
                                  std::span<const ops::Value> operands) override {
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
    step.first_result = static_cast<uint32_t>(tape_.slots_);
    SmallVector<ops::Value, 2> out;
    for (const ir::Type& type : step.call->results()) out.push_back(make(type));
    tape_.steps_.push_back(std::move(step));
    return out;
  }

  static uint32_t slot_of(const ops::Value& v) {
    return v.world ? static_cast<uint32_t>(std::get<ir::ValueId>(v.operand)) : RuleTape::none;
  }

 private:
  ops::Value make(const ir::Type& type) {
    ops::Value v;
    v.world = this;
    v.operand = static_cast<ir::ValueId>(tape_.slots_++);
    v.type = type;
    return v;
  }

  RuleTape& tape_;
};

RuleTape::RuleTape(const OperatorCall& call, SlotMask wanted, SlotMask cotangents)
    : wanted_(std::move(wanted)), cotangents_(std::move(cotangents)) {
  TapeRecorder world(*this);
  SmallVector<ops::Value, 4> x;
  SmallVector<ops::Value, 2> y, dy;
  SmallVector<bool, 4> wants;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const OperatorCall::Operand& o = call.operands()[i];
    x.push_back(world.input(o.type));  // has a slot, also if it is no tensor
    if (!o.is_tensor) x.back() = o.number ? ops::Value{nullptr, *o.number, {}, {}} : ops::Value();
    wants.push_back(wanted_[i]);
  }
  for (const ir::Type& type : call.results()) y.push_back(world.input(type));
  for (size_t i = 0; i < y.size(); ++i) {
    dy.push_back(world.input(call.results()[i]));
    if (!cotangents_[i]) dy.back() = ops::Value();
  }
  inputs_ = slots_;
  for (const OperatorCall::Operand& o : call.operands()) layouts_.push_back(o.layout);
  for (int round = 0; round < 2; ++round)
    for (const ir::Type& type : call.results()) layouts_.push_back(layout_of(type));
  ops::VjpCall rule{call.op(), world, x, y, dy, call.attributes(), wants, {}};
  rule.gradients.resize(x.size());
  call.op().vjp(rule);
  for (size_t i = 0; i < x.size(); ++i)
    gradients_.push_back(wants[i] ? TapeRecorder::slot_of(rule.gradients[i]) : none);
  mark_reads();
}

RuleTape::~RuleTape() { delete small_.load(std::memory_order_acquire); }

void RuleTape::mark_reads() {
  read_.resize(inputs_, false);
  std::vector<bool> seen(slots_, false);
  for (uint32_t slot : gradients_) {
    if (slot == none) continue;
    seen[slot] = true;
    if (slot < inputs_) read_[slot] = true;
  }
  for (size_t s = steps_.size(); s-- > 0;)
    for (size_t i = steps_[s].operands.size(); i-- > 0;) {
      Operand& o = steps_[s].operands[i];
      if (o.slot == none) continue;
      o.last = !seen[o.slot];
      seen[o.slot] = true;
      if (o.slot < inputs_) read_[o.slot] = true;
    }
}

Variables RuleTape::play(SmallVector<Variable, 8>&& slots) const {
  slots.resize(slots_);
  for (const Step& step : steps_) {
    SmallVector<const Variable*, 4> operands;
    for (const Operand& o : step.operands)
      operands.push_back(o.slot == none ? nullptr : &slots[o.slot]);
    Variables results = apply(step.call, operands);
    for (const Operand& o : step.operands)
      if (o.last) slots[o.slot] = Variable();
    for (size_t k = 0; k < results.size(); ++k)
      slots[step.first_result + k] = std::move(results[k]);
  }
  Variables gradients(gradients_.size());
  for (size_t i = 0; i < gradients_.size(); ++i)
    if (gradients_[i] != none) gradients[i] = slots[gradients_[i]];
  return gradients;
}

const RuleTape::Small& RuleTape::small() const {
  if (const Small* known = small_.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<const Small>(*this);
  const Small* expected = nullptr;
  if (small_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *expected;
}

std::optional<SmallVector<Tensor, 2>> RuleTape::play_small(std::span<const Tensor> inputs) const {
  return small().play(inputs);
}

}  // namespace gradus::autograd
