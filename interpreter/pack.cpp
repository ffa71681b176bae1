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
    const work::Gemm& g = shared.from;
    work::Move copy;
    copy.copy(Sizes{g.k, g.n}, {0, g.dtype, {g.b_row, g.b_column}, 0}, {1, g.dtype, {g.n, 1}, 0});
    shared.copy = std::make_shared<const work::Work>(std::move(copy));
    for (uint32_t index : shared.readers) read_packed(p, index);
  }
}

void Planner::find_packings() {
  std::map<std::pair<Register, int64_t>, size_t> found;  // by memory and offset
  for (uint32_t index = 0; index < bound_.size(); ++index) {
    const Bound& bound = bound_[index];
    const auto* product = bound.work ? std::get_if<work::Product>(bound.work.get()) : nullptr;
    if (!product || !work::packed(product->gemm)) continue;
    const BoundArg& b = args_[bound.first_arg + 1];
    if (b.kind != BoundArg::Kind::value) continue;
    const Local& l = local(b.reg);
    auto [place, first] = found.try_emplace({l.root, l.offset}, packings_.size());
    if (first) packings_.push_back({b.reg, product->gemm});
    SharedPacking& shared = packings_[place->second];
    const work::Gemm &g = product->gemm, &other = shared.from;
    if (other.dtype == g.dtype && other.k == g.k && other.n == g.n && other.b_column == g.b_column)
      shared.readers.push_back(index);
  }
}

// The instruction reads the copy.
void Planner::read_packed(size_t packing, uint32_t index) {
  Bound& bound = bound_[index];
  work::Product product = std::get<work::Product>(*bound.work);
  product.gemm = *work::packed(product.gemm);
  bound.work = std::make_shared<const work::Work>(std::move(product));
  BoundArg& arg = args_[bound.first_arg + 1];
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
    step.work = p.copy.get();
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
