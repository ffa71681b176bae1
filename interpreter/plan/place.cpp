// Planning: where values lie, and what happens around the steps.
#include <algorithm>
#include <map>

#include "interpreter/plan/steps.h"

namespace gradus::interpreter {

namespace {

class Placer {
 public:
  explicit Placer(Draft& draft) : d(draft) {}
  void run();

 private:
  void find_leaving();
  void leave(Register r);
  void choose_carried();
  void sort_deaths();
  void lay_out(uint32_t index);
  void lay_out_kernel(const Bound& bound, Step& step, uint32_t index);
  void place_result(Register y, uint32_t index);
  Local* dying_operand(uint32_t index);
  void place_view(Register y);
  int64_t carry(int64_t bytes);
  const std::byte* sent(const std::byte* begin, size_t bytes, const std::byte* at);
  const std::byte* sent_number(const std::byte* number);
  const std::byte* sent_constant(Register r, const std::byte* at);
  Arg arg_of(Register r);
  void die(Register r);
  void settle_slots();
  void note_peak(uint32_t index, int64_t scratch);
  void record_peak();
  void finish_patches();
  void record_held();
  void hold(Register r);
  void lay_out_copies(uint32_t index);
  void release_copies(uint32_t index);
  void lay_out_waits(uint32_t index);

  Draft& d;
  std::map<std::pair<const std::byte*, size_t>, const std::byte*> sent_;  // there, by what
  SlotPlan slots_;
  std::vector<uint32_t> first_death_;  // by instruction, one more at the end: slices of deaths_
  std::vector<Register> deaths_;
  std::vector<std::pair<uint32_t, size_t>> copy_ends_;  // last readers of shared copies, and whose
  size_t next_copy_ = 0, ended_copies_ = 0, next_wait_ = 0;
  int64_t tensor_bytes_ = 0;            // of tensors made here and not let go
  uint32_t peak_index_ = Local::never;  // see SegmentPlan::Peak
};

void Placer::run() {
  SegmentPlan& plan = *d.plan;
  for (size_t c = 0; c < d.copies.size(); ++c)
    copy_ends_.emplace_back(d.copies[c].readers.back(), c);
  std::ranges::sort(copy_ends_);
  find_leaving();
  if (!plan.faults.empty())
    plan.faults_at =
        slots_.allocate(static_cast<int64_t>(plan.faults.size()) * SegmentPlan::fault_bytes);
  const auto end = static_cast<uint32_t>(d.bound.size());
  for (uint32_t i = 0; i < end; ++i) lay_out(i);
  lay_out_waits(end);
  settle_slots();
  plan.buffer_bytes = slots_.end();
  plan.least_buffer_bytes = slots_.peak();
  record_peak();
  finish_patches();
  record_held();
}

// A root made here leaves if it, or a view of it, is returned or read later. It leaves as a tensor
// if somebody will see it, or a view of it, as one.
void Placer::find_leaving() {
  for (uint32_t n = 0; n < d.bound.size(); ++n)
    for (Register r : d.results_of(n))
      if (r != no_register && d.code.last_segment(r) > d.number) leave(r);
  for (uint32_t i = 0; i < d.returns().size(); ++i) {
    const Register r = d.returns()[i];
    d.plan->absent_returns.push_back(r == no_register || d.find(r).kind == Local::Kind::absent);
    if (r == no_register) continue;
    leave(r);
    Local& l = d.local(r);
    if (!l.returned) l.result = i;
    l.returned = true;
  }
  // What is returned as a view of all of it is made where the view's buffer is.
  for (uint32_t i = 0; i < d.returns().size(); ++i) {
    const Register r = d.returns()[i];
    if (r == no_register || d.find(r).kind == Local::Kind::absent) continue;
    const Local& l = d.local(r);
    Local& root = d.local(l.root);
    if (l.root != r && root.result == Local::never && l.result == i && l.offset == 0 &&
        l.layout == root.layout)
      root.result = i;
  }
  choose_carried();
  sort_deaths();
}

void Placer::leave(Register r) {
  Local& l = d.local(r);
  if (l.kind == Local::Kind::absent || l.kind == Local::Kind::unknown) return;
  l.leaves = true;
  Local& root = d.local(l.root);
  if (root.kind != Local::Kind::slot) return;
  root.leaves = true;
  root.pinned |= d.code.is_seen(r);
}

void Placer::choose_carried() {
  for (Local& l : d.locals) {
    if (l.kind != Local::Kind::slot) continue;
    const Local& root = d.local(l.root);
    if (!root.leaves) continue;
    // A device's memory is cheap to ask for.
    bool carried =
        d.choice.traits().host_memory && !root.pinned && root.bytes() <= most_carried_bytes;
    l.kind = carried ? Local::Kind::carried : Local::Kind::tensor;
  }
}

// What dies after each instruction: memory by root, grouped by the last use.
void Placer::sort_deaths() {
  auto dies = [](const Local& l) {
    return l.kind != Local::Kind::unknown && l.kind != Local::Kind::constant &&
           l.kind != Local::Kind::inside && l.root == l.reg && l.last_use != Local::never;
  };
  // What calls that end with the segment read and write dies after all instructions.
  first_death_.assign(d.bound.size() + 2, 0);
  for (const Local& l : d.locals)
    if (dies(l)) ++first_death_[l.last_use + 1];
  for (size_t i = 0; i <= d.bound.size(); ++i) first_death_[i + 1] += first_death_[i];
  deaths_.resize(first_death_.back());
  std::vector<uint32_t> next(first_death_.begin(), first_death_.end() - 1);
  for (const Local& l : d.locals)
    if (dies(l)) deaths_[next[l.last_use]++] = l.reg;
}

void Placer::lay_out(uint32_t index) {
  const Instruction& i = d.instruction(index);
  lay_out_waits(index);
  lay_out_copies(index);
  Step step;
  step.instruction = d.segment.first + index;
  step.first_event = static_cast<uint32_t>(d.plan->events.size());
  if (const uint32_t g = d.bound[index].group; g != Local::never) {
    if (d.bound[index].run)
      for (Register y : d.plan->groups[g].stored) place_result(y, index);
  } else if (i.kind == Instruction::Kind::kernel && !d.bound[index].checks) {
    for (Register y : d.results_of(index))
      if (y != no_register) place_result(y, index);
  }
  step.before = static_cast<uint32_t>(d.plan->events.size()) - step.first_event;
  if (d.bound[index].run) {
    lay_out_kernel(d.bound[index], step, index);
    step.group = d.bound[index].group;
    step.host = d.bound[index].host;
  } else if (step.before) {
    note_peak(index, 0);
  }
  release_copies(index);
  for (uint32_t d = first_death_[index]; d < first_death_[index + 1]; ++d) die(deaths_[d]);
  step.after = static_cast<uint32_t>(d.plan->events.size()) - step.first_event - step.before;
  if (step.run || step.before || step.after) d.plan->steps.push_back(step);
}

void Placer::lay_out_kernel(const Bound& bound, Step& step, uint32_t index) {
  SmallVector<int64_t, 2> temporary;
  int64_t scratch = 0;
  auto allocate = [&](int64_t bytes) {
    temporary.push_back(slots_.allocate(bytes));
    scratch += bytes;
    return temporary.back();
  };
  const bool there = !d.choice.traits().host_memory && !bound.host;
  step.work = bound.work.get();
  step.run = bound.run;
  step.parameters = bound.parameters;
  if (bound.scratch_bytes) step.scratch = allocate(static_cast<int64_t>(bound.scratch_bytes));
  step.args = static_cast<uint32_t>(d.plan->args.size());
  for (uint32_t a = bound.first_arg; a < bound.first_arg + bound.args; ++a) {
    const BoundArg& from = d.args[a];
    Arg arg;
    switch (from.kind) {
      case BoundArg::Kind::null:
        break;
      case BoundArg::Kind::fixed:
        arg.kind = Arg::Kind::fixed;
        arg.fixed = there ? sent_number(from.fixed) : from.fixed;
        break;
      case BoundArg::Kind::value:
        arg = arg_of(from.reg);
        if (there && arg.kind == Arg::Kind::fixed) arg.fixed = sent_constant(from.reg, arg.fixed);
        break;
      case BoundArg::Kind::dropped:
        arg.kind = Arg::Kind::slot;
        arg.offset = allocate(from.bytes);
        break;
      case BoundArg::Kind::faults:
        arg.kind = Arg::Kind::slot;
        arg.offset =
            d.plan->faults_at + static_cast<int64_t>(from.packing) * SegmentPlan::fault_bytes;
        break;
      case BoundArg::Kind::packed:
        arg.kind = Arg::Kind::slot;
        arg.offset = d.copies[from.packing].slot;
        break;
      case BoundArg::Kind::ticket: {
        Exchange& e = d.exchanges[from.packing];
        e.ticket = slots_.allocate(Exchange::ticket_bytes);
        arg.kind = Arg::Kind::slot;
        arg.offset = e.ticket;
        break;
      }
    }
    d.plan->args.push_back(arg);
  }
  note_peak(index, scratch);
  for (int64_t address : temporary) slots_.release(address);
}

// Where the backend reads what the host reads at `at`, of so many bytes that are sent to it once.
const std::byte* Placer::sent(const std::byte* begin, size_t bytes, const std::byte* at) {
  auto [there, first] = sent_.try_emplace({begin, bytes});
  if (first) {
    const auto& memory =
        d.plan->sent.emplace_back(devices::device_storage(d.choice.backend, bytes));
    if (bytes) d.choice.backend->to_device(memory->data(), begin, bytes);
    there->second = memory->data();
  }
  return there->second + (at - begin);
}

const std::byte* Placer::sent_number(const std::byte* number) {
  const auto block = std::ranges::find_if(d.plan->numbers, [&](const auto& b) {
    return number >= b.data() && number < b.data() + b.size();
  });
  GRADUS_CHECK(block != d.plan->numbers.end());
  return sent(block->data(), block->size(), number);
}

const std::byte* Placer::sent_constant(Register r, const std::byte* at) {
  const Tensor& constant = d.code.constant(d.local(r).root);
  const auto elements = static_cast<size_t>(constant.layout().extent());
  return sent(constant.data(), elements * size_of(constant.dtype()), at);
}

void Placer::place_result(Register y, uint32_t index) {
  Local& l = d.local(y);
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
    d.plan->events.push_back({Event::Kind::allocate, y, no_register, 0, l.layout, 0, 0, l.result});
  }
}

// Of an instruction whose result may lie in an operand's place: that, if it is free then.
Local* Placer::dying_operand(uint32_t index) {
  const Register r = d.bound[index].in_place;
  if (r == no_register) return nullptr;
  Local& l = d.local(r);
  return l.kind == Local::Kind::slot && l.last_use == index ? &l : nullptr;
}

// Of a view that outlives the segment. One of a block that this segment leaves needs nothing.
void Placer::place_view(Register y) {
  const Local& l = d.local(y);
  Local& root = d.local(l.root);
  if (l.kind != Local::Kind::carried) {
    int64_t elements = l.offset / static_cast<int64_t>(size_of(l.layout.dtype));
    d.plan->events.push_back({Event::Kind::view, y, l.root, elements, l.layout});
  } else if (d.code.is_seen(y)) {
    GRADUS_CHECK(root.before);
    d.plan->events.push_back({Event::Kind::take, y, l.root, root.slot + l.offset, l.layout});
  } else if (root.before && !root.brought) {
    root.brought = carry(root.extent);
    d.plan->events.push_back(
        {Event::Kind::bring, y, l.root, root.slot, {}, root.extent, *root.brought});
  }
}

// A place in the block that this segment leaves.
int64_t Placer::carry(int64_t bytes) {
  int64_t at = d.plan->block_bytes;
  d.plan->block_bytes += std::max(SlotAllocator::rounded(bytes), SlotAllocator::alignment);
  return at;
}

Arg Placer::arg_of(Register r) {
  const Local& l = d.local(r);
  const Local& root = d.local(l.root);
  Arg arg;
  if (l.kind == Local::Kind::constant) {
    arg.kind = Arg::Kind::fixed;
    arg.fixed = d.code.constant(l.root).data() + l.offset;
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

void Placer::die(Register r) {
  Local& l = d.local(r);
  if (l.kind == Local::Kind::slot && !l.handed_on) slots_.release(l.slot);
  if (l.kind != Local::Kind::tensor) return;
  if (d.code.last_segment(r) > d.number || l.returned) return;
  if (!l.before) tensor_bytes_ -= l.bytes();
  d.plan->events.push_back({Event::Kind::release, r, no_register, 0, {}});
}

// From slots' addresses to where they lie in the buffer.
void Placer::settle_slots() {
  slots_.settle();
  for (Arg& a : d.plan->args)
    if (a.kind == Arg::Kind::slot) a.offset = slots_.offset(a.offset);
  for (Step& s : d.plan->steps) s.scratch = slots_.offset(s.scratch);
  d.plan->faults_at = slots_.offset(d.plan->faults_at);
  for (Local& l : d.locals)
    if (l.kind == Local::Kind::slot && l.root == l.reg && l.born != Local::never)
      l.slot = slots_.offset(l.slot);
  for (SharedPacking& c : d.copies) c.slot = slots_.offset(c.slot);
  for (Exchange& e : d.exchanges) e.ticket = slots_.offset(e.ticket);
}

// Called when all that an instruction needs has its place, and nothing was given back yet.
void Placer::note_peak(uint32_t index, int64_t scratch) {
  const int64_t bytes = slots_.live() + tensor_bytes_ + d.plan->block_bytes;
  if (peak_index_ != Local::never && bytes <= d.plan->peak.bytes) return;
  peak_index_ = index;
  d.plan->peak.bytes = bytes;
  d.plan->peak.scratch = scratch;
}

void Placer::record_peak() {
  SegmentPlan::Peak& peak = d.plan->peak;
  if (peak_index_ == Local::never) return;
  peak.instruction = d.segment.first + peak_index_;
  for (const Local& l : d.locals) {
    if (l.born == Local::never || l.born > peak_index_) continue;
    // What leaves is there when the segment ends.
    const bool stays =
        l.kind == Local::Kind::carried ||
        (l.kind == Local::Kind::tensor && (d.code.last_segment(l.reg) > d.number || l.returned));
    // What was handed on at the peak is its reader's.
    if (!stays && (l.last_use < peak_index_ || (l.handed_on && l.last_use == peak_index_)))
      continue;
    peak.living.push_back({l.reg, l.bytes(), d.segment.first + l.born,
                           stays ? Local::never : d.segment.first + l.last_use});
  }
  for (const SharedPacking& p : d.copies)
    if (p.readers.front() <= peak_index_ && peak_index_ <= p.readers.back())
      peak.living.push_back({p.reg, p.bytes(), d.segment.first + p.readers.front(),
                             d.segment.first + p.readers.back()});
}

// Groups the pointers that follow from each external tensor, then those into each block.
void Placer::finish_patches() {
  std::vector<uint32_t> external_of(d.code.registers(), Local::never);
  std::vector<uint32_t> counts;
  auto external = [&](Register r) {
    uint32_t& e = external_of[index_of(r)];
    if (e == Local::never) {
      e = static_cast<uint32_t>(d.plan->externals.size());
      d.plan->externals.push_back(r);
      d.plan->external_before.push_back(d.local(r).before);
      counts.push_back(0);
    }
    return e;
  };
  for (const Event& e : d.plan->events)
    if (e.kind == Event::Kind::view && d.local(e.base).kind != Local::Kind::constant)
      external(e.base);
  std::map<uint32_t, std::vector<SegmentPlan::Patch>> by_block;
  for (uint32_t a = 0; a < d.plan->args.size(); ++a) {
    const Arg& arg = d.plan->args[a];
    if (arg.kind == Arg::Kind::tensor) ++counts[external(arg.base)];
    if (arg.kind == Arg::Kind::carried)
      by_block[d.code.made_in(arg.base)].push_back({a, arg.offset});
  }
  for (Register r : d.returns())
    if (r != no_register && d.local(r).kind == Local::Kind::tensor && d.local(r).before)
      external(r);
  d.plan->patch_begin.assign(1, 0);
  for (uint32_t n : counts) d.plan->patch_begin.push_back(d.plan->patch_begin.back() + n);
  d.plan->patches.resize(d.plan->patch_begin.back());
  std::vector<uint32_t> at(d.plan->patch_begin.begin(), d.plan->patch_begin.end() - 1);
  for (uint32_t a = 0; a < d.plan->args.size(); ++a) {
    const Arg& arg = d.plan->args[a];
    if (arg.kind == Arg::Kind::tensor)
      d.plan->patches[at[external_of[index_of(arg.base)]]++] = {a, arg.offset};
  }
  for (const auto& [segment, patches] : by_block) {
    d.plan->blocks.push_back({segment, static_cast<uint32_t>(d.plan->patches.size()),
                              static_cast<uint32_t>(patches.size())});
    d.plan->patches.insert(d.plan->patches.end(), patches.begin(), patches.end());
  }
  d.plan->external_of_event.reserve(d.plan->events.size());
  for (const Event& e : d.plan->events)
    d.plan->external_of_event.push_back(external_of[index_of(e.reg)]);
}

void Placer::record_held() {
  d.plan->held_inputs.assign(d.inputs.size(), false);
  for (Register r : d.input_registers) hold(r);
  for (uint32_t n = 0; n < d.bound.size(); ++n)
    for (uint32_t k = 0; k < d.instruction(n).results; ++k)
      hold(d.stage.results[d.instruction(n).first_result + k]);
  std::sort(d.plan->held.begin(), d.plan->held.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < d.inputs.size(); ++i)
    if (Register r = d.input_registers[i]; r != no_register)
      d.plan->held_inputs[i] = d.local(r).held;
}

void Placer::hold(Register r) {
  if (r == no_register || d.code.last_segment(r) <= d.number || d.code.constant(r).defined())
    return;
  const Local& l = d.local(r);
  Held held{l.kind == Local::Kind::absent, l.layout, r};
  if (l.kind == Local::Kind::constant || (l.kind == Local::Kind::carried && d.code.is_seen(r))) {
    // A view of a constant, or of a block, is copied when it leaves.
    held.layout = Layout(l.layout.dtype, l.layout.shape);
  } else if (l.kind == Local::Kind::carried) {
    const Local& root = d.local(l.root);
    held.carried = {root.brought.value_or(root.slot), root.extent, l.offset};
  } else if (!held.absent) {
    Local& root = d.local(l.root);
    root.held = true;
    uint32_t from = d.code.made_in(l.root);
    held.owner =
        from == d.number ? l.root : d.plan->previous->of_segment(from).find_held(l.root).owner;
  }
  d.plan->held.emplace_back(r, std::move(held));
}
// A step of its own, before that of the first reader.
void Placer::lay_out_copies(uint32_t index) {
  for (; next_copy_ < d.copies.size(); ++next_copy_) {
    SharedPacking& p = d.copies[next_copy_];
    if (p.readers.front() != index) return;
    p.slot = slots_.allocate(p.bytes());
    Step step;
    step.work = p.copy.get();
    step.run = p.kernel.run;
    step.parameters = p.kernel.parameters.get();
    step.args = static_cast<uint32_t>(d.plan->args.size());
    step.instruction = d.segment.first + index;
    step.first_event = static_cast<uint32_t>(d.plan->events.size());
    d.plan->args.push_back(arg_of(p.reg));
    Arg copy;
    copy.kind = Arg::Kind::slot;
    copy.offset = p.slot;
    d.plan->args.push_back(copy);
    d.plan->steps.push_back(step);
  }
}

void Placer::release_copies(uint32_t index) {
  for (; ended_copies_ < copy_ends_.size(); ++ended_copies_) {
    const auto [last, p] = copy_ends_[ended_copies_];
    if (last != index) return;
    slots_.release(d.copies[p].slot);
  }
}

// Steps of their own, of the instructions that begin the calls. What dies with the segment's end is
// let go after the last of them.
void Placer::lay_out_waits(uint32_t index) {
  for (; next_wait_ < d.exchanges.size() && d.exchanges[next_wait_].ends == index; ++next_wait_) {
    const Exchange& e = d.exchanges[next_wait_];
    Step step;
    step.work = e.end.get();
    step.run = e.kernel.run;
    step.parameters = e.kernel.parameters.get();
    step.args = static_cast<uint32_t>(d.plan->args.size());
    step.instruction = d.segment.first + e.begins;
    step.first_event = static_cast<uint32_t>(d.plan->events.size());
    Arg ticket;
    ticket.kind = Arg::Kind::slot;
    ticket.offset = e.ticket;
    d.plan->args.push_back(ticket);
    d.plan->steps.push_back(step);
    slots_.release(e.ticket);
  }
  if (index < d.bound.size() || first_death_[index] == first_death_[index + 1]) return;
  Step& last = d.plan->steps.back();
  for (uint32_t i = first_death_[index]; i < first_death_[index + 1]; ++i) die(deaths_[i]);
  last.after = static_cast<uint32_t>(d.plan->events.size()) - last.first_event;
}

}  // namespace

void place(Draft& d) { Placer(d).run(); }

}  // namespace gradus::interpreter
