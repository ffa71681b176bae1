#include "autograd/rule_tape.h"

#include "autograd/joined_tape.h"
#include "autograd/made_once.h"
#include "autograd/small_tape.h"
#include "autograd/tape_recorder.h"
#include "ops/reverse.h"

namespace gradus::autograd {

namespace {
// As an operand: undefined for what is left out.
ops::Value number_of(const OperatorCall::Operand& o) {
  return o.number ? ops::Value{nullptr, *o.number, {}, {}} : ops::Value();
}
}  // namespace

ops::Value RuleTape::Step::operand(size_t i, FunctionRef<ops::Value(uint32_t)> at) const {
  const uint32_t slot = operands[i].slot;
  return slot == none ? number_of(call->operands()[i]) : at(slot);
}

RuleTape::RuleTape(const OperatorCall& call, std::span<const bool> wanted,
                   std::span<const bool> arrived) {
  TapeRecorder world(*this);
  ops::PullBack at;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const OperatorCall::Operand& o = call.operands()[i];
    ops::Value x = world.make(o.type);  // has a slot, also if it is no tensor
    at.operand(o.is_tensor ? std::move(x) : number_of(o), wanted[i]);
  }
  SmallVector<ops::Value, 2> y;
  for (const ir::Type& type : call.results()) y.push_back(world.make(type));
  for (size_t i = 0; i < y.size(); ++i) {
    ops::Value dy = world.make(call.results()[i]);
    at.result(std::move(y[i]), arrived[i] ? std::move(dy) : ops::Value());
  }
  inputs_ = slots();
  const ops::VjpCall rule = at.call(world, call.op(), call.attributes());
  for (const ops::Value& g : rule.gradients) gradients_.push_back(TapeRecorder::slot_of(g));
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

Variables RuleTape::run(const Step& step, const SmallVector<Variable, 8>& slots) const {
  SmallVector<const Variable*, 4> operands;
  for (const Operand& o : step.operands)
    operands.push_back(o.slot == none ? nullptr : &slots[o.slot]);
  return apply(step.call, operands);
}

void RuleTape::make_again(SmallVector<Variable, 8>& slots,
                          FunctionRef<Edge(uint32_t)> edge_of) const {
  if (again_ == 0) return;
  GradModeGuard mode(GradMode::no_grad);
  for (size_t s = 0; s < again_; ++s) {
    Variables results = run(steps_[s], slots);
    for (size_t k = 0; k < results.size(); ++k) {
      auto slot = static_cast<uint32_t>(steps_[s].first_result + k);
      Edge edge = edge_of(slot);
      slots[slot] =
          edge.valid() ? Variable(results[k].data(), std::move(edge)) : std::move(results[k]);
    }
  }
}

Variables RuleTape::play(SmallVector<Variable, 8>&& slots,
                         FunctionRef<Edge(uint32_t)> edge_of) const {
  make_again(slots, edge_of);
  for (size_t s = again_; s < steps_.size(); ++s) {
    Variables results = run(steps_[s], slots);
    for (const Operand& o : steps_[s].operands)
      if (o.last) slots[o.slot] = Variable();
    for (size_t k = 0; k < results.size(); ++k)
      slots[steps_[s].first_result + k] = std::move(results[k]);
  }
  Variables gradients(gradients_.size());
  for (size_t i = 0; i < gradients_.size(); ++i)
    if (gradients_[i] != none) gradients[i] = slots[gradients_[i]];
  return gradients;
}

void RuleTape::visit(Told told) const {
  for (const Step& step : steps_) {
    SmallVector<uint32_t, 4> slots;
    for (const Operand& o : step.operands) slots.push_back(o.slot);
    told(*step.call, slots);
  }
}

std::vector<ops::Value> RuleTape::emit(ops::World& world, std::vector<ops::Value> slots) const {
  slots.resize(this->slots());
  for (size_t s = again_; s < steps_.size(); ++s) {
    const OperatorCall& call = *steps_[s].call;
    SmallVector<ops::Value, 4> operands;
    for (size_t i = 0; i < steps_[s].operands.size(); ++i)
      operands.push_back(steps_[s].operand(i, [&](uint32_t slot) { return slots[slot]; }));
    auto results = world.emit(call.op(), call.attributes(), operands);
    for (size_t k = 0; k < results.size(); ++k)
      slots[steps_[s].first_result + k] = std::move(results[k]);
  }
  std::vector<ops::Value> gradients;
  for (uint32_t slot : gradients_) gradients.push_back(slot == none ? ops::Value() : slots[slot]);
  return gradients;
}

const RuleTape::Small& RuleTape::small() const { return made_once(small_, *this); }
const JoinedTape& RuleTape::joined() const { return made_once(joined_, *this); }
bool RuleTape::is_small() const { return small().possible(); }

bool RuleTape::play_small(std::span<const Tensor* const> given, Context& context,
                          SmallVector<Tensor, 4>& gradients) const {
  return small().play(given, context, gradients);
}

const TapeRun& TapePlan::add(uint64_t wanted, uint64_t arrived, const RuleTape& tape) const {
  auto run = std::make_unique<TapeRun>();
  run->wanted = wanted;
  run->arrived = arrived;
  run->tape = &tape;
  bool all_there = tape.given().size() <= TapeInputs::most;
  for (uint32_t slot : tape.given()) {
    auto input = static_cast<uint32_t>(std::ranges::find(cotangents, slot) - cotangents.begin());
    auto place = static_cast<uint32_t>(std::ranges::find(kept, slot) - kept.begin());
    const bool arrives = input != cotangents.size();
    all_there &= arrives || place != kept.size();
    run->sources.push_back(arrives ? input | TapeRun::cotangent : place);
  }
  run->small = all_there && tape.is_small();
  return runs.add(std::move(run));
}

}  // namespace gradus::autograd
