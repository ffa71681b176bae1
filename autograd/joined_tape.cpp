#include "autograd/joined_tape.h"

#include <algorithm>

#include "autograd/tape_derivative.h"

namespace gradus::autograd {

JoinedTape::JoinedTape(const RuleTape& tape) : tape_(tape) {
  if (tape.slots() - tape.inputs() > most || !tape.is_small()) return;
  find_uses();
  possible_ = uses_.size() <= most;
}

bool JoinedTape::recorded(const RuleTape::Step& step) {
  return !step.call->op().traits.zero_gradient;
}

void JoinedTape::find_uses() {
  leads_.resize(tape_.slots() - tape_.inputs());
  for (size_t s = tape_.steps_.size(); s-- > tape_.again_;) {
    const RuleTape::Step& step = tape_.steps_[s];
    if (!recorded(step)) continue;
    for (size_t i = 0; i < step.operands.size(); ++i)
      if (uint32_t slot = step.operands[i].slot;
          slot < tape_.inputs() && tape_.types_[slot].is_floating())
        uses_.push_back({static_cast<uint32_t>(s), static_cast<uint32_t>(i), slot});
  }
  if (uses_.size() > most) return;
  for (size_t s = tape_.again_; s < tape_.steps_.size(); ++s) {
    const RuleTape::Step& step = tape_.steps_[s];
    Set leads = 0;
    if (recorded(step))
      for (size_t i = 0; i < step.operands.size(); ++i) leads |= leads_to(s, i);
    for (size_t k = 0; k < step.call->results().size(); ++k)
      if (step.call->results()[k].is_floating())
        leads_[step.first_result + k - tape_.inputs()] = leads;
  }
}

JoinedTape::Set JoinedTape::leads_to(size_t step, size_t operand) const {
  uint32_t slot = tape_.steps_[step].operands[operand].slot;
  if (slot == RuleTape::none) return 0;
  if (slot >= tape_.inputs()) return leads_[slot - tape_.inputs()];
  size_t use = use_of(step, operand);
  return use == uses_.size() ? 0 : Set{1} << use;
}

size_t JoinedTape::use_of(size_t step, size_t operand) const {
  auto use = std::ranges::find_if(
      uses_, [&](const Use& u) { return u.step == step && u.operand == operand; });
  return static_cast<size_t>(use - uses_.begin());
}

const JoinedTape::Plan& JoinedTape::plan(Set leading) const {
  for (const Plan* p = plans_.first(); p; p = p->next)
    if (p->leading == leading) return *p;
  auto made = std::make_unique<Plan>();
  made->leading = leading;
  try {
    made->possible = possible_ && !refuses(leading) && fill(*made);
  } catch (const Error&) {
    made->possible = false;  // a rule refuses: the step's own node says so, should it run
  }
  return plans_.add(std::move(made));
}

const RuleTape& JoinedTape::derivative(Set wanted, Set cotangents) const {
  for (const Derivative* d = derivatives_.first(); d; d = d->next)
    if (d->wanted == wanted && d->cotangents == cotangents) return *d->tape;
  auto made = std::make_unique<Derivative>();
  made->wanted = wanted;
  made->cotangents = cotangents;
  made->tape = TapeDerivative(*this, wanted, cotangents).take();
  return *derivatives_.add(std::move(made)).tape;
}

// Whether a step that leads to one of these has no derivative.
bool JoinedTape::refuses(Set leading) const {
  for (size_t s = tape_.again_; s < tape_.steps_.size(); ++s) {
    const OperatorCall& call = *tape_.steps_[s].call;
    Set leads = 0;
    for (size_t i = 0; i < tape_.steps_[s].operands.size(); ++i) leads |= leads_to(s, i);
    if ((leads & leading) != 0 && recorded(tape_.steps_[s]) &&
        !call.op().has_vjp(call.attributes()))
      return true;
  }
  return false;
}

bool JoinedTape::fill(Plan& plan) const {
  auto leads = [&](uint32_t slot) {
    return slot != RuleTape::none && slot >= tape_.inputs() &&
           (leads_[slot - tape_.inputs()] & plan.leading) != 0;
  };
  // Rules look at which cotangents there are: all together, and each alone.
  SmallVector<Set, 4> variants(1, 0);
  for (auto slot = static_cast<uint32_t>(tape_.inputs()); slot < tape_.slots(); ++slot)
    if (leads(slot)) variants[0] |= bit_of(slot);
  bool several = std::ranges::any_of(
      tape_.steps_, [](const RuleTape::Step& s) { return s.call->results().size() > 1; });
  for (auto slot = static_cast<uint32_t>(tape_.inputs()); several && slot < tape_.slots(); ++slot)
    if (leads(slot)) variants.push_back(bit_of(slot));
  std::vector<bool> reads(tape_.slots(), false), kept(tape_.slots(), false);
  for (Set cotangents : variants) {
    TapeDerivative derivative(*this, plan.leading, cotangents);
    for (size_t s = 0; s < tape_.slots(); ++s) reads[s] = reads[s] || derivative.reads()[s];
    auto tape = derivative.take();
    for (uint32_t slot : tape->given())
      if (slot < tape_.slots()) kept[slot] = true;
  }
  for (uint32_t slot = 0; slot < tape_.slots(); ++slot) {
    if (!kept[slot]) continue;
    // Only to make others again: that would notice changes which the others need not.
    if (!reads[slot]) return false;
    plan.kept.push_back(slot);
    plan.kept_places.push_back(static_cast<uint32_t>(std::ranges::lower_bound(tape_.given(), slot) -
                                                     tape_.given().begin()));
  }
  auto joint = [&](uint32_t slot) {
    auto known = std::ranges::find(plan.joints, slot, &Joint::slot);
    if (known == plan.joints.end()) {
      plan.joints.push_back({slot, leads_[slot - tape_.inputs()] & plan.leading});
      plan.selective |= plan.joints.back().leads != plan.leading;
      plan.inputs.add(metadata_of(tape_.types_[slot]));
      plan.cotangents.push_back(cotangent_of(slot));
      known = plan.joints.end() - 1;
    }
    return static_cast<uint32_t>(known - plan.joints.begin());
  };
  for (uint32_t slot : tape_.gradients()) {
    plan.joint_of_gradient.push_back(leads(slot) ? joint(slot) : RuleTape::none);
    if (slot < tape_.inputs() && std::ranges::count(tape_.given(), slot) == 0) return false;
  }
  for (auto slot = static_cast<uint32_t>(tape_.inputs()); slot < tape_.slots(); ++slot)
    if (reads[slot] && leads(slot)) joint(slot);
  Set all = 0;
  for (const Joint& j : plan.joints) all |= bit_of(j.slot);
  return TapeDerivative(*this, plan.leading, all).keeps_order();
}

std::string JoinedTape::what(uint32_t slot) const {
  for (size_t s = tape_.steps_.size(); s-- > 0;) {
    const RuleTape::Step& step = tape_.steps_[s];
    for (size_t i = 0; i < step.operands.size(); ++i)
      if (step.operands[i].slot == slot) {
        const ir::Operator& op = step.call->op();
        return fmt::format("operand '{}' of '{}'", op.operand(i).name, op.name);
      }
  }
  return fmt::format("a value of the derivative '{}'", name());
}

std::string_view JoinedTape::name() const {
  for (uint32_t slot : tape_.gradients())
    for (const RuleTape::Step& step : tape_.steps_)
      if (slot != RuleTape::none && slot >= tape_.inputs() && slot >= step.first_result &&
          slot < step.first_result + step.call->results().size())
        return step.call->op().name;
  return "derivative";
}

}  // namespace gradus::autograd
