// Makes plans for a device: where its library for products adds a row to a product's rows as it
// writes them, a sum that follows a product needs no kernel that reads all of it again.
#include "interpreter/planner.h"

namespace gradus::interpreter {

// Given    all instructions are bound, and uses are counted
// Execute  finds sums of a large product, which nobody else reads, and a row, where no kernel reads
//          the sum: such a kernel would read the product as well
// Result   where the device has code for both, it runs where the sum stands, as a group of the two
void Planner::join_products() {
  std::vector<uint32_t> products(locals_.size(), Local::never);  // by result
  for (uint32_t n = 0; n < bound_.size(); ++n) {
    if (!bound_[n].work || instruction(n).kind != Instruction::Kind::kernel) continue;
    if (join_sum(n, products)) continue;
    const auto* product = std::get_if<work::Product>(bound_[n].work.get());
    if (!product || !work::is_large(product->gemm) || instruction(n).results != 1) continue;
    const Register y = results_of(n)[0];
    if (is_met(y)) products[local_numbers_[index_of(y)]] = n;
  }
}

bool Planner::join_sum(uint32_t index, std::span<const uint32_t> products) {
  const Instruction& i = instruction(index);
  if (!i.op->traits.accumulates || i.operands != 2 || i.results != 1 ||
      !i.op->write(i.attributes).empty())
    return false;
  const Register z = results_of(index)[0];
  if (!is_met(z)) return false;
  const Local& sum = local(z);
  if (sum.kind != Local::Kind::slot || sum.root != z) return false;
  for (uint32_t k : {0u, 1u}) {
    const Register y = stage_code_.operands[i.first_operand + k].reg;
    const Register row = stage_code_.operands[i.first_operand + 1 - k].reg;
    if (!is_met(y) || !is_met(row)) continue;
    const uint32_t product = products[local_numbers_[index_of(y)]];
    Local& of = local(y);
    if (product == Local::never || uses_[local_numbers_[index_of(y)]] != 1 ||
        of.kind != Local::Kind::slot || of.root != y || of.layout != sum.layout ||
        !has_row(local(row), sum.layout) || meets_kernels(index))
      continue;
    work::Product joined = std::get<work::Product>(*bound_[product].work);
    if (joined.gemm.n != sum.layout.shape.back()) continue;
    joined.adds_row = true;
    fusion::DeviceCode code = choice_.device->make(joined, 4, true);
    if (!code.kernel.run) continue;
    const auto first = static_cast<uint32_t>(args_.size());
    for (const uint32_t from : {bound_[product].first_arg, bound_[product].first_arg + 1,
                                bound_[index].first_arg + 1 - k, bound_[index].first_arg + 2})
      args_.push_back(BoundArg(args_[from]));
    // The product's operands are read later than they were to be.
    for (uint32_t a = first; a < first + 2; ++a) {
      if (args_[a].kind != BoundArg::Kind::value) continue;
      Local& root = local(local(args_[a].reg).root);
      root.last_use = std::max(root.last_use, index);
    }
    for (uint32_t n : {product, index}) {
      bound_[n] = {};
      bound_[n].group = static_cast<uint32_t>(plan_->groups.size());
    }
    Bound& bound = bound_[index];
    bound.set_code(code.kernel);
    bound.first_arg = first;
    bound.args = 4;
    plan_->kernels.push_back(std::move(code.kernel.parameters));
    of.kind = Local::Kind::inside;
    SegmentPlan::Group& placed = plan_->groups.emplace_back();
    placed.instructions = {segment_.first + product, segment_.first + index};
    placed.stored = {z};
    return true;
  }
  return false;
}

// Whether it lies as a row that every row of the sum is given.
bool Planner::has_row(const Local& row, const Layout& sum) const {
  const Layout& l = row.layout;
  if (row.kind == Local::Kind::absent || l.dtype != sum.dtype || l.rank() < 1 ||
      l.rank() > sum.rank() || l.shape.back() != sum.shape.back() ||
      (l.strides.back() != 1 && l.shape.back() > 1))
    return false;
  for (int d = 0; d + 1 < l.rank(); ++d)
    if (l.shape[d] != 1 && l.strides[d] != 0) return false;
  return true;
}

// Whether a kernel of a group will read its result.
bool Planner::meets_kernels(uint32_t index) {
  const Register z = results_of(index)[0];
  uint32_t left = uses_[local_numbers_[index_of(z)]];
  for (uint32_t n = index + 1; n < bound_.size() && left > 0; ++n) {
    const Instruction& i = instruction(n);
    for (uint32_t k = 0; k < i.operands; ++k) {
      if (stage_code_.operands[i.first_operand + k].reg != z) continue;
      if (can_fuse(n)) return true;
      --left;
    }
  }
  return false;
}

}  // namespace gradus::interpreter
