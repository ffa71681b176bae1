// Makes plans: operands that several small products would each rearrange are copied once.
#include <algorithm>
#include <map>

#include "interpreter/planner.h"

namespace gradus::interpreter {

// Given    all instructions are bound
// Execute  what at least two of them read in another order than it lies in gets a place in the
//          buffer where it lies so, and they are bound to that
// Result   the same bits: which order an operand lies in decides none
void Planner::share_packings() {
  find_packings();
  std::erase_if(packings_, [](const SharedPacking& p) { return p.readers.size() < 2; });
  for (size_t p = 0; p < packings_.size(); ++p)
    packing_ends_.emplace_back(packings_[p].readers.back(), p);
  std::ranges::sort(packing_ends_);
  for (size_t p = 0; p < packings_.size(); ++p) {
    SharedPacking& shared = packings_[p];
    shared.kernel = ops::bind_packing(shared.from, shared.packing);
    plan_->kernels.push_back(shared.kernel.parameters);
    for (uint32_t index : shared.readers) read_packed(p, index);
  }
}

void Planner::find_packings() {
  std::map<std::pair<Register, int64_t>, size_t> found;  // by memory and offset
  for (uint32_t index = 0; index < bound_.size(); ++index) {
    const Instruction& i = instruction(index);
    if (i.kind != Instruction::Kind::kernel || i.operands != 2 || !bound_[index].run) continue;
    auto packing = ops::packing_of(*i.op, i.attributes, operand_layouts(index));
    if (!packing) continue;
    const Register r = stage_code_.operands[i.first_operand + packing->operand].reg;
    if (r == no_register || local(r).kind == Local::Kind::absent) continue;
    const Local& l = local(r);
    auto [place, first] = found.try_emplace({l.root, l.offset}, packings_.size());
    if (first) packings_.push_back({r, l.layout, *packing, {}, {}, 0});
    SharedPacking& shared = packings_[place->second];
    if (shared.from == l.layout && shared.packing.layout == packing->layout)
      shared.readers.push_back(index);
  }
}

SmallVector<Layout, 4> Planner::operand_layouts(uint32_t index) {
  const Instruction& i = instruction(index);
  SmallVector<Layout, 4> layouts;
  for (uint32_t k = 0; k < i.operands; ++k) {
    const Register r = stage_code_.operands[i.first_operand + k].reg;
    layouts.push_back(r == no_register ? Layout() : local(r).layout);
  }
  return layouts;
}

// Binds the instruction once more, to the copy.
void Planner::read_packed(size_t packing, uint32_t index) {
  const Instruction& i = instruction(index);
  Bound& bound = bound_[index];
  const ops::Packing& p = packings_[packing].packing;
  SmallVector<Layout, 4> in = operand_layouts(index);
  in[p.operand] = p.layout;
  SmallVector<bool, 4> present(i.operands), number(i.operands);
  for (uint32_t k = 0; k < i.operands; ++k) present[k] = true;
  ir::BindCall call{*i.op, in, present, number, i.attributes, sizes_, {}, {}, {}};
  const ir::Type& type = result_type(i, 0);
  call.out.emplace_back(type.dtype, sizes_of(type));
  call.views.resize(1);
  auto [memo, fresh] = kernels_.bind(call);
  if (fresh && memo.kernel.parameters) plan_->kernels.push_back(memo.kernel.parameters);
  bound.run = memo.kernel.run;
  bound.parameters = memo.kernel.parameters.get();
  bound.scratch_bytes = memo.kernel.scratch_bytes;
  BoundArg& arg = args_[bound.first_arg + p.operand];
  arg = {};
  arg.kind = BoundArg::Kind::packed;
  arg.packing = packing;
}

// A step of its own, before that of the first reader.
void Planner::lay_out_packings(uint32_t index) {
  for (; next_packing_ < packings_.size(); ++next_packing_) {
    SharedPacking& p = packings_[next_packing_];
    if (p.readers.front() != index) return;
    p.slot = slots_.allocate(p.bytes());
    Step step;
    step.run = p.kernel.run;
    step.parameters = p.kernel.parameters.get();
    step.args = static_cast<uint32_t>(plan_->args.size());
    step.instruction = segment_.first + index;
    step.first_event = static_cast<uint32_t>(plan_->events.size());
    plan_->args.push_back(arg_of(p.reg));
    Arg copy;
    copy.kind = Arg::Kind::slot;
    copy.offset = p.slot;
    plan_->args.push_back(copy);
    plan_->steps.push_back(step);
  }
}

void Planner::release_packings(uint32_t index) {
  for (; ended_packings_ < packing_ends_.size(); ++ended_packings_) {
    const auto [last, p] = packing_ends_[ended_packings_];
    if (last != index) return;
    slots_.release(packings_[p].slot);
  }
}

}  // namespace gradus::interpreter
