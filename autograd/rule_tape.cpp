#include "autograd/rule_tape.h"

#include "autograd/joined_tape.h"
#include "autograd/small_tape.h"
#include "autograd/tape_recorder.h"

namespace gradus::autograd {

RuleTape::RuleTape() : wanted_(0), cotangents_(0) {}

RuleTape::RuleTape(const OperatorCall& call, SlotMask wanted, SlotMask cotangents)
    : wanted_(std::move(wanted)), cotangents_(std::move(cotangents)) {
  TapeRecorder world(*this);
  SmallVector<ops::Value, 4> x;
  SmallVector<ops::Value, 2> y, dy;
  SmallVector<bool, 4> wants;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const OperatorCall::Operand& o = call.operands()[i];
    x.push_back(world.make(o.type));  // has a slot, also if it is no tensor
    if (!o.is_tensor) x.back() = o.number ? ops::Value{nullptr, *o.number, {}, {}} : ops::Value();
    wants.push_back(wanted_[i]);
  }
  for (const ir::Type& type : call.results()) y.push_back(world.make(type));
  for (size_t i = 0; i < y.size(); ++i) {
    dy.push_back(world.make(call.results()[i]));
    if (!cotangents_[i]) dy.back() = ops::Value();
  }
  inputs_ = slots();
  ops::VjpCall rule{call.op(), world, x, y, dy, call.attributes(), wants, {}};
  rule.gradients.resize(x.size());
  call.op().vjp(rule);
  for (size_t i = 0; i < x.size(); ++i)
    gradients_.push_back(wants[i] ? TapeRecorder::slot_of(rule.gradients[i]) : none);
  mark_reads();
}

RuleTape::~RuleTape() {
  delete small_.load(std::memory_order_acquire);
  delete joined_.load(std::memory_order_acquire);
}

void RuleTape::mark_reads() {
  read_.resize(inputs_, false);
  std::vector<bool> seen(slots(), false), made(slots(), false);
  for (uint32_t slot : gradients_) {
    if (slot == none) continue;
    seen[slot] = true;
    if (slot < inputs_) read_[slot] = true;
  }
  for (size_t s = steps_.size(); s-- > 0;) {
    for (size_t k = 0; k < steps_[s].call->results().size(); ++k)
      made[steps_[s].first_result + k] = true;
    for (size_t i = steps_[s].operands.size(); i-- > 0;) {
      Operand& o = steps_[s].operands[i];
      if (o.slot == none) continue;
      o.last = !seen[o.slot];
      seen[o.slot] = true;
      if (o.slot < inputs_) read_[o.slot] = true;
    }
  }
  for (uint32_t i = 0; i < inputs_; ++i)
    if (read_[i] && !made[i]) given_.push_back(i);
}

Variables RuleTape::play(SmallVector<Variable, 8>&& slots,
                         FunctionRef<Edge(uint32_t)> edge_of) const {
  slots.resize(this->slots());
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    const bool again = s < again_;
    SmallVector<const Variable*, 4> operands;
    for (const Operand& o : step.operands)
      operands.push_back(o.slot == none ? nullptr : &slots[o.slot]);
    GradModeGuard mode(again ? GradMode::no_grad : grad_mode());
    Variables results = apply(step.call, operands);
    for (const Operand& o : step.operands)
      if (o.last) slots[o.slot] = Variable();
    for (size_t k = 0; k < results.size(); ++k) {
      auto slot = static_cast<uint32_t>(step.first_result + k);
      if (Edge edge = again ? edge_of(slot) : Edge(); edge.valid())
        slots[slot] = Variable(results[k].data(), std::move(edge));
      else
        slots[slot] = std::move(results[k]);
    }
  }
  Variables gradients(gradients_.size());
  for (size_t i = 0; i < gradients_.size(); ++i)
    if (gradients_[i] != none) gradients[i] = slots[gradients_[i]];
  return gradients;
}

void RuleTape::make_again(SmallVector<Variable, 8>& slots) const {
  for (size_t s = 0; s < again_; ++s) {
    SmallVector<const Variable*, 4> operands;
    for (const Operand& o : steps_[s].operands)
      operands.push_back(o.slot == none ? nullptr : &slots[o.slot]);
    Variables results = apply(steps_[s].call, operands);
    for (size_t k = 0; k < results.size(); ++k)
      slots[steps_[s].first_result + k] = std::move(results[k]);
  }
}

void RuleTape::visit(FunctionRef<void(const OperatorCall&, std::span<const uint32_t>)> tell) const {
  for (const Step& step : steps_) {
    SmallVector<uint32_t, 4> slots;
    for (const Operand& o : step.operands) slots.push_back(o.slot);
    tell(*step.call, slots);
  }
}

std::vector<ops::Value> RuleTape::emit(ops::World& world, std::vector<ops::Value> slots) const {
  slots.resize(this->slots());
  for (size_t s = again_; s < steps_.size(); ++s) {
    const OperatorCall& call = *steps_[s].call;
    SmallVector<ops::Value, 4> operands;
    for (size_t i = 0; i < steps_[s].operands.size(); ++i) {
      uint32_t slot = steps_[s].operands[i].slot;
      const auto& number = call.operands()[i].number;
      operands.push_back(slot != none ? slots[slot]
                         : number     ? ops::Value{nullptr, *number, {}, {}}
                                      : ops::Value());
    }
    auto results = world.emit(call.op(), call.attributes(), operands);
    for (size_t k = 0; k < results.size(); ++k)
      slots[steps_[s].first_result + k] = std::move(results[k]);
  }
  std::vector<ops::Value> gradients;
  for (uint32_t slot : gradients_) gradients.push_back(slot == none ? ops::Value() : slots[slot]);
  return gradients;
}

namespace {

// Made by whoever comes first.
template <class T, class... Args>
const T& made_once(std::atomic<const T*>& place, Args&&... args) {
  if (const T* known = place.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<const T>(std::forward<Args>(args)...);
  const T* expected = nullptr;
  if (place.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *expected;
}

}  // namespace

const RuleTape::Small& RuleTape::small() const { return made_once(small_, *this); }
const JoinedTape& RuleTape::joined() const { return made_once(joined_, *this); }
bool RuleTape::is_small() const { return small().possible(); }

bool RuleTape::play_small(std::span<const Tensor* const> given, Context& context,
                          SmallVector<Tensor, 4>& gradients) const {
  return small().play(given, context, gradients);
}

}  // namespace gradus::autograd
