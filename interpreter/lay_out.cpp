// Makes plans: where values lie, and what happens around the steps.
#include <algorithm>

#include "interpreter/planner.h"

namespace gradus::interpreter {

// A root made here leaves if it, or a view of it, is returned or read later. It leaves as a tensor
// if somebody will see it, or a view of it, as one.
void Planner::find_leaving() {
  for (uint32_t n = 0; n < bound_.size(); ++n)
    for (Register r : results_of(n))
      if (r != no_register && code_.last_segment(r) > number_) leave(r);
  for (uint32_t i = 0; i < returns().size(); ++i) {
    const Register r = returns()[i];
    plan_->absent_returns.push_back(r == no_register || find(r).kind == Local::Kind::absent);
    if (r == no_register) continue;
    leave(r);
    Local& l = local(r);
    if (!l.returned) l.result = i;
    l.returned = true;
  }
  choose_carried();
  sort_deaths();
}

void Planner::leave(Register r) {
  Local& l = local(r);
  if (l.kind == Local::Kind::absent || l.kind == Local::Kind::unknown) return;
  l.leaves = true;
  Local& root = local(l.root);
  if (root.kind != Local::Kind::slot) return;
  root.leaves = true;
  root.pinned |= code_.is_seen(r);
}

void Planner::choose_carried() {
  for (Local& l : locals_) {
    if (l.kind != Local::Kind::slot) continue;
    const Local& root = local(l.root);
    if (!root.leaves) continue;
    // A device's memory is cheap to ask for.
    bool carried = !choice_.device && !root.pinned && root.bytes() <= most_carried_bytes;
    l.kind = carried ? Local::Kind::carried : Local::Kind::tensor;
  }
}

// What dies after each instruction: memory by root, grouped by the last use.
void Planner::sort_deaths() {
  auto dies = [](const Local& l) {
    return l.kind != Local::Kind::unknown && l.kind != Local::Kind::constant &&
           l.kind != Local::Kind::inside && l.root == l.reg && l.last_use != Local::never;
  };
  first_death_.assign(bound_.size() + 1, 0);
  for (const Local& l : locals_)
    if (dies(l)) ++first_death_[l.last_use + 1];
  for (size_t i = 0; i < bound_.size(); ++i) first_death_[i + 1] += first_death_[i];
  deaths_.resize(first_death_.back());
  std::vector<uint32_t> next(first_death_.begin(), first_death_.end() - 1);
  for (const Local& l : locals_)
    if (dies(l)) deaths_[next[l.last_use]++] = l.reg;
}

void Planner::lay_out(uint32_t index) {
  const Instruction& i = instruction(index);
  lay_out_packings(index);
  Step step;
  step.instruction = segment_.first + index;
  step.first_event = static_cast<uint32_t>(plan_->events.size());
  if (const uint32_t g = bound_[index].group; g != Local::never) {
    if (bound_[index].run)
      for (Register y : plan_->groups[g].stored) place_result(y, index);
  } else if (i.kind == Instruction::Kind::kernel && !bound_[index].checks) {
    for (Register y : results_of(index))
      if (y != no_register) place_result(y, index);
  }
  step.before = static_cast<uint32_t>(plan_->events.size()) - step.first_event;
  if (bound_[index].run) {
    lay_out_kernel(bound_[index], step, index);
    step.group = bound_[index].group;
    step.host = bound_[index].host;
  } else if (step.before) {
    note_peak(index, 0);
  }
  release_packings(index);
  for (uint32_t d = first_death_[index]; d < first_death_[index + 1]; ++d) die(deaths_[d]);
  step.after = static_cast<uint32_t>(plan_->events.size()) - step.first_event - step.before;
  if (step.run || step.before || step.after) plan_->steps.push_back(step);
}

void Planner::lay_out_kernel(const Bound& bound, Step& step, uint32_t index) {
  SmallVector<int64_t, 2> temporary;
  int64_t scratch = 0;
  auto allocate = [&](int64_t bytes) {
    temporary.push_back(slots_.allocate(bytes));
    scratch += bytes;
    return temporary.back();
  };
  const bool there = choice_.device && !bound.host;
  step.work = bound.work.get();
  step.run = bound.run;
  step.parameters = bound.parameters;
  if (bound.scratch_bytes) step.scratch = allocate(static_cast<int64_t>(bound.scratch_bytes));
  step.args = static_cast<uint32_t>(plan_->args.size());
  for (uint32_t a = bound.first_arg; a < bound.first_arg + bound.args; ++a) {
    const BoundArg& from = args_[a];
    Arg arg;
    switch (from.kind) {
      case BoundArg::Kind::null:
        break;
      case BoundArg::Kind::fixed:
        arg.kind = Arg::Kind::fixed;
        arg.fixed = there ? number_there(from.fixed) : from.fixed;
        break;
      case BoundArg::Kind::value:
        arg = arg_of(from.reg);
        if (there && arg.kind == Arg::Kind::fixed) {
          const Local& l = local(from.reg);
          arg.fixed = constant_there(l.root) + l.offset;
        }
        break;
      case BoundArg::Kind::dropped:
        arg.kind = Arg::Kind::slot;
        arg.offset = allocate(from.bytes);
        break;
      case BoundArg::Kind::faults:
        arg.kind = Arg::Kind::slot;
        arg.offset =
            plan_->faults_at + static_cast<int64_t>(from.packing) * SegmentPlan::fault_bytes;
        break;
      case BoundArg::Kind::packed:
        arg.kind = Arg::Kind::slot;
        arg.offset = packings_[from.packing].slot;
        break;
    }
    plan_->args.push_back(arg);
  }
  note_peak(index, scratch);
  for (int64_t address : temporary) slots_.release(address);
}

void Planner::place_result(Register y, uint32_t index) {
  Local& l = local(y);
  if (l.kind == Local::Kind::absent) return;
  if (l.root == y) l.born = index;
  if (l.root != y) {
    if (l.leaves) place_view(y);
  } else if (l.kind == Local::Kind::slot) {
    if (Local* dying = dying_operand(index)) {
      l.slot = dying->slot;
      dying->handed_on = true;
    } else {
      l.slot = slots_.allocate(l.bytes());
    }
  } else if (l.kind == Local::Kind::carried) {
    l.extent = l.bytes();
    l.slot = carry(l.extent);
  } else if (l.kind == Local::Kind::tensor) {
    tensor_bytes_ += l.bytes();
    plan_->events.push_back({Event::Kind::allocate, y, no_register, 0, l.layout, 0, 0, l.result});
  }
}

// Of an instruction whose result may lie in an operand's place: that, if it is free then.
Local* Planner::dying_operand(uint32_t index) {
  const Register r = bound_[index].in_place;
  if (r == no_register) return nullptr;
  Local& l = local(r);
  return l.kind == Local::Kind::slot && l.last_use == index ? &l : nullptr;
}

// Of a view that outlives the segment. One of a block that this segment leaves needs nothing.
void Planner::place_view(Register y) {
  const Local& l = local(y);
  Local& root = local(l.root);
  if (l.kind != Local::Kind::carried) {
    int64_t elements = l.offset / static_cast<int64_t>(size_of(l.layout.dtype));
    plan_->events.push_back({Event::Kind::view, y, l.root, elements, l.layout});
  } else if (code_.is_seen(y)) {
    GRADUS_CHECK(root.before);
    plan_->events.push_back({Event::Kind::take, y, l.root, root.slot + l.offset, l.layout});
  } else if (root.before && !root.brought) {
    root.brought = carry(root.extent);
    plan_->events.push_back(
        {Event::Kind::bring, y, l.root, root.slot, {}, root.extent, *root.brought});
  }
}

// A place in the block that this segment leaves.
int64_t Planner::carry(int64_t bytes) {
  int64_t at = plan_->block_bytes;
  plan_->block_bytes += std::max(SlotAllocator::rounded(bytes), SlotAllocator::alignment);
  return at;
}

Arg Planner::arg_of(Register r) {
  const Local& l = local(r);
  const Local& root = local(l.root);
  Arg arg;
  if (l.kind == Local::Kind::constant) {
    arg.kind = Arg::Kind::fixed;
    arg.fixed = code_.constant(l.root).data() + l.offset;
  } else if (l.kind == Local::Kind::carried) {
    arg.kind = Arg::Kind::carried;
    arg.base = l.root;
    arg.offset = root.slot + l.offset;
  } else if (root.kind == Local::Kind::slot) {
    arg.kind = Arg::Kind::slot;
    arg.offset = root.slot + l.offset;
  } else {
    arg.kind = Arg::Kind::tensor;
    arg.base = l.root;
    arg.offset = l.offset;
  }
  return arg;
}

void Planner::die(Register r) {
  Local& l = local(r);
  if (l.kind == Local::Kind::slot && !l.handed_on) slots_.release(l.slot);
  if (l.kind != Local::Kind::tensor) return;
  if (code_.last_segment(r) > number_ || l.returned) return;
  if (!l.before) tensor_bytes_ -= l.bytes();
  plan_->events.push_back({Event::Kind::release, r, no_register, 0, {}});
}

// From slots' addresses to where they lie in the buffer.
void Planner::settle_slots() {
  slots_.settle();
  for (Arg& a : plan_->args)
    if (a.kind == Arg::Kind::slot) a.offset = slots_.offset(a.offset);
  for (Step& s : plan_->steps) s.scratch = slots_.offset(s.scratch);
  plan_->faults_at = slots_.offset(plan_->faults_at);
}

// Called when all that an instruction needs has its place, and nothing was given back yet.
void Planner::note_peak(uint32_t index, int64_t scratch) {
  const int64_t bytes = slots_.live() + tensor_bytes_ + plan_->block_bytes;
  if (peak_index_ != Local::never && bytes <= plan_->peak.bytes) return;
  peak_index_ = index;
  plan_->peak.bytes = bytes;
  plan_->peak.scratch = scratch;
}

void Planner::record_peak() {
  SegmentPlan::Peak& peak = plan_->peak;
  if (peak_index_ == Local::never) return;
  peak.instruction = segment_.first + peak_index_;
  for (const Local& l : locals_) {
    if (l.born == Local::never || l.born > peak_index_) continue;
    // What leaves is there when the segment ends.
    const bool stays =
        l.kind == Local::Kind::carried ||
        (l.kind == Local::Kind::tensor && (code_.last_segment(l.reg) > number_ || l.returned));
    // What was handed on at the peak is its reader's.
    if (!stays && (l.last_use < peak_index_ || (l.handed_on && l.last_use == peak_index_)))
      continue;
    peak.living.push_back({l.reg, l.bytes(), segment_.first + l.born,
                           stays ? Local::never : segment_.first + l.last_use});
  }
  for (const SharedPacking& p : packings_)
    if (p.readers.front() <= peak_index_ && peak_index_ <= p.readers.back())
      peak.living.push_back({p.reg, p.bytes(), segment_.first + p.readers.front(),
                             segment_.first + p.readers.back()});
}

// Groups the pointers that follow from each external tensor, then those into each block.
void Planner::finish_patches() {
  std::vector<uint32_t> external_of(code_.registers(), Local::never);
  std::vector<uint32_t> counts;
  auto external = [&](Register r) {
    uint32_t& e = external_of[index_of(r)];
    if (e == Local::never) {
      e = static_cast<uint32_t>(plan_->externals.size());
      plan_->externals.push_back(r);
      plan_->external_before.push_back(local(r).before);
      counts.push_back(0);
    }
    return e;
  };
  for (const Event& e : plan_->events)
    if (e.kind == Event::Kind::view && local(e.base).kind != Local::Kind::constant)
      external(e.base);
  std::map<uint32_t, std::vector<SegmentPlan::Patch>> by_block;
  for (uint32_t a = 0; a < plan_->args.size(); ++a) {
    const Arg& arg = plan_->args[a];
    if (arg.kind == Arg::Kind::tensor) ++counts[external(arg.base)];
    if (arg.kind == Arg::Kind::carried)
      by_block[code_.made_in(arg.base)].push_back({a, arg.offset});
  }
  for (Register r : returns())
    if (r != no_register && local(r).kind == Local::Kind::tensor && local(r).before) external(r);
  plan_->patch_begin.assign(1, 0);
  for (uint32_t n : counts) plan_->patch_begin.push_back(plan_->patch_begin.back() + n);
  plan_->patches.resize(plan_->patch_begin.back());
  std::vector<uint32_t> at(plan_->patch_begin.begin(), plan_->patch_begin.end() - 1);
  for (uint32_t a = 0; a < plan_->args.size(); ++a) {
    const Arg& arg = plan_->args[a];
    if (arg.kind == Arg::Kind::tensor)
      plan_->patches[at[external_of[index_of(arg.base)]]++] = {a, arg.offset};
  }
  for (const auto& [segment, patches] : by_block) {
    plan_->blocks.push_back({segment, static_cast<uint32_t>(plan_->patches.size()),
                             static_cast<uint32_t>(patches.size())});
    plan_->patches.insert(plan_->patches.end(), patches.begin(), patches.end());
  }
  plan_->external_of_event.reserve(plan_->events.size());
  for (const Event& e : plan_->events)
    plan_->external_of_event.push_back(external_of[index_of(e.reg)]);
}

void Planner::record_held() {
  plan_->held_inputs.assign(inputs_.size(), false);
  for (Register r : input_registers_) hold(r);
  for (uint32_t n = 0; n < bound_.size(); ++n)
    for (uint32_t k = 0; k < instruction(n).results; ++k)
      hold(stage_code_.results[instruction(n).first_result + k]);
  std::sort(plan_->held.begin(), plan_->held.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (Register r = input_registers_[i]; r != no_register) plan_->held_inputs[i] = local(r).held;
}

void Planner::hold(Register r) {
  if (r == no_register || code_.last_segment(r) <= number_ || code_.constant(r).defined()) return;
  const Local& l = local(r);
  Held held{l.kind == Local::Kind::absent, l.layout, r};
  if (l.kind == Local::Kind::constant || (l.kind == Local::Kind::carried && code_.is_seen(r))) {
    // A view of a constant, or of a block, is copied when it leaves.
    held.layout = Layout(l.layout.dtype, l.layout.shape);
  } else if (l.kind == Local::Kind::carried) {
    const Local& root = local(l.root);
    held.carried = {root.brought.value_or(root.slot), root.extent, l.offset};
  } else if (!held.absent) {
    Local& root = local(l.root);
    root.held = true;
    uint32_t from = code_.made_in(l.root);
    held.owner =
        from == number_ ? l.root : plan_->previous->of_segment(from).find_held(l.root).owner;
  }
  plan_->held.emplace_back(r, std::move(held));
}
}  // namespace gradus::interpreter
