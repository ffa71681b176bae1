#include "autograd/tape_derivative.h"

#include <algorithm>

#include "ops/reverse.h"

namespace gradus::autograd {

TapeDerivative::TapeDerivative(const JoinedTape& of, Set wanted, Set cotangents)
    : of_(of),
      tape_(of.tape_),
      wanted_(wanted),
      made_(new RuleTape),
      world_(*made_),
      cotangents_(tape_.slots() - tape_.inputs()) {
  made_->types_ = tape_.types_;
  for (size_t s = tape_.inputs(); s < tape_.slots(); ++s) {
    ops::Value c = world_.make(tape_.types_[s]);
    if (cotangents >> (s - tape_.inputs()) & 1) cotangents_[s - tape_.inputs()] = std::move(c);
  }
  made_->inputs_ = made_->slots();
  made_->gradients_.resize(of.uses().size(), RuleTape::none);
  made_->on_cpu_ = tape_.on_cpu_;
  for (size_t s = tape_.steps_.size(); s-- > tape_.again_;) run_rule(s);
  look_at_order();
  make_again();
  made_->mark_reads();
}

void TapeDerivative::run_rule(size_t number) {
  const RuleTape::Step& step = tape_.steps_[number];
  if (!of_.recorded(step)) return;
  const OperatorCall& call = *step.call;
  ops::PullBack at;
  for (size_t i = 0; i < step.operands.size(); ++i)
    at.operand(step.operand(i, [&](uint32_t slot) { return world_.at(slot); }),
               call.operands()[i].type.is_floating() && (of_.leads_to(number, i) & wanted_) != 0);
  for (size_t k = 0; k < call.results().size(); ++k) {
    auto slot = static_cast<uint32_t>(step.first_result + k);
    at.result(world_.at(slot), cotangents_[slot - tape_.inputs()]);
  }
  ops::VjpCall rule = at.call(world_, call.op(), call.attributes());
  for (size_t i = 0; i < rule.gradients.size(); ++i) {
    ops::Value& g = rule.gradients[i];
    if (!g.defined()) continue;
    // As the engine does.
    if (!g.type.is_floating())
      throw Error("a gradient has to be floating; it is {}", to_string(g.type));
    g = ops::fit(g, rule.x_type(i));
  }
  hand_on(number, rule.gradients);
}

void TapeDerivative::hand_on(size_t number, std::span<const ops::Value> gradients) {
  const RuleTape::Step& step = tape_.steps_[number];
  const size_t after = made_->steps_.size();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    uint32_t slot = step.operands[i].slot;
    if (slot >= tape_.inputs()) {
      ops::accumulate(cotangents_[slot - tape_.inputs()], gradients[i]);
      continue;
    }
    uint32_t value = TapeRecorder::slot_of(gradients[i]);
    made_->gradients_[of_.use_of(number, i)] = value;
    handed_.push_back({value, after});
  }
}

void TapeDerivative::look_at_order() {
  if (handed_.empty()) return;
  auto used_after = [&](uint32_t slot, size_t after) {
    for (size_t s = after; s < made_->steps_.size(); ++s)
      if (std::ranges::any_of(made_->steps_[s].operands,
                              [&](const RuleTape::Operand& o) { return o.slot == slot; }))
        return true;
    return false;
  };
  for (const Handed& h : handed_) keeps_order_ &= !used_after(h.slot, h.after);
  // What arrives may be what was first in the sum that a use's gradient goes into.
  for (uint32_t slot : tape_.gradients_)
    if (slot != RuleTape::none && slot >= tape_.inputs())
      keeps_order_ &= !used_after(of_.cotangent_of(slot), handed_.front().after);
}

// Steps of the tape whose results are read go first.
void TapeDerivative::make_again() {
  reads_.resize(tape_.slots(), false);
  for (const RuleTape::Step& step : made_->steps_)
    for (const RuleTape::Operand& o : step.operands)
      if (o.slot < tape_.slots()) reads_[o.slot] = true;
  for (uint32_t slot : made_->gradients_)
    if (slot < tape_.slots()) reads_[slot] = true;
  std::vector<bool> needed = reads_;
  std::vector<RuleTape::Step> again;
  for (size_t s = tape_.steps_.size(); s-- > 0;) {
    RuleTape::Step step = tape_.steps_[s];
    bool read = false;
    for (size_t k = 0; k < step.call->results().size(); ++k) read |= needed[step.first_result + k];
    if (!read) continue;
    for (RuleTape::Operand& o : step.operands) {
      if (o.slot != RuleTape::none) needed[o.slot] = true;
      o.last = false;
    }
    again.push_back(std::move(step));
  }
  made_->again_ = again.size();
  made_->steps_.insert(made_->steps_.begin(), again.rbegin(), again.rend());
}

std::unique_ptr<const RuleTape> TapeDerivative::take() { return std::move(made_); }

}  // namespace gradus::autograd
