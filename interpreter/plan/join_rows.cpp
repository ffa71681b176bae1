// Planning: where a library for products adds a row to a product's rows as it writes them, a sum
// that follows a product needs no kernel that reads all of it again.
#include "interpreter/plan/join_rows.h"

namespace gradus::interpreter {

namespace {

class Joiner {
 public:
  Joiner(Draft& draft, const std::vector<uint32_t>& uses) : d(draft), uses_(uses) {}
  void run();

 private:
  bool join_sum(uint32_t index, std::span<const uint32_t> products);
  bool has_row(const Local& row, const Layout& sum) const;
  bool meets_kernels(uint32_t index);

  Draft& d;
  const std::vector<uint32_t>& uses_;
};

void Joiner::run() {
  std::vector<uint32_t> products(d.locals.size(), Local::never);  // by result
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    if (!d.bound[n].work || d.instruction(n).kind != Instruction::Kind::kernel) continue;
    if (join_sum(n, products)) continue;
    const auto* product = std::get_if<work::Product>(d.bound[n].work.get());
    if (!product || !work::is_large(product->gemm) || d.instruction(n).results != 1) continue;
    const Register y = d.results_of(n)[0];
    if (d.is_met(y)) products[d.local_number(y)] = n;
  }
}

bool Joiner::join_sum(uint32_t index, std::span<const uint32_t> products) {
  const Instruction& i = d.instruction(index);
  if (!i.op->traits.accumulates || i.operands != 2 || i.results != 1 ||
      !i.op->write(i.attributes).empty())
    return false;
  const Register z = d.results_of(index)[0];
  if (!d.is_met(z)) return false;
  const Local& sum = d.local(z);
  if (sum.kind != Local::Kind::slot || sum.root != z) return false;
  for (uint32_t k : {0u, 1u}) {
    const Register y = d.operand(index, k);
    const Register row = d.operand(index, 1 - k);
    if (!d.is_met(y) || !d.is_met(row)) continue;
    const uint32_t product = products[d.local_number(y)];
    Local& of = d.local(y);
    if (product == Local::never || uses_[d.local_number(y)] != 1 || of.kind != Local::Kind::slot ||
        of.root != y || of.layout != sum.layout || !has_row(d.local(row), sum.layout) ||
        meets_kernels(index))
      continue;
    work::Product joined = std::get<work::Product>(*d.bound[product].work);
    if (joined.gemm.n != sum.layout.shape.back()) continue;
    joined.adds_row = true;
    if (!d.choice.backend->make(joined, 4, true).kernel.run) continue;
    const auto first = static_cast<uint32_t>(d.args.size());
    for (const uint32_t from : {d.bound[product].first_arg, d.bound[product].first_arg + 1,
                                d.bound[index].first_arg + 1 - k, d.bound[index].first_arg + 2})
      d.args.push_back(BoundArg(d.args[from]));
    // The product's operands are read later than they were to be.
    for (uint32_t a = first; a < first + 2; ++a) {
      if (d.args[a].kind != BoundArg::Kind::value) continue;
      d.read_until(d.args[a].reg, index);
    }
    for (uint32_t n : {product, index}) {
      d.bound[n] = {};
      d.bound[n].group = static_cast<uint32_t>(d.plan->groups.size());
    }
    Bound& bound = d.bound[index];
    bound.work = work::share(std::move(joined));
    bound.first_arg = first;
    bound.args = 4;
    of.kind = Local::Kind::inside;
    SegmentPlan::Group& placed = d.plan->groups.emplace_back();
    placed.instructions = {d.segment.first + product, d.segment.first + index};
    placed.place = placed.instructions.back();
    placed.stored = {z};
    placed.work = bound.work;
    return true;
  }
  return false;
}

// Whether it lies as a row that every row of the sum is given.
bool Joiner::has_row(const Local& row, const Layout& sum) const {
  const Layout& l = row.layout;
  if (row.kind == Local::Kind::absent || l.dtype != sum.dtype || l.rank() < 1 ||
      l.rank() > sum.rank() || l.shape.back() != sum.shape.back() ||
      (l.strides.back() != 1 && l.shape.back() > 1))
    return false;
  for (int k = 0; k + 1 < l.rank(); ++k)
    if (l.shape[k] != 1 && l.strides[k] != 0) return false;
  return true;
}

// Whether a kernel of a group will read its result.
bool Joiner::meets_kernels(uint32_t index) {
  const Register z = d.results_of(index)[0];
  uint32_t left = uses_[d.local_number(z)];
  for (uint32_t n = index + 1; n < d.bound.size() && left > 0; ++n) {
    const Instruction& i = d.instruction(n);
    for (uint32_t k = 0; k < i.operands; ++k) {
      if (d.operand(n, k) != z) continue;
      if (can_fuse(d, n)) return true;
      --left;
    }
  }
  return false;
}

}  // namespace

void join_rows(Draft& d, const std::vector<uint32_t>& uses) {
  if (d.choice.traits().joins_rows) Joiner(d, uses).run();
}

}  // namespace gradus::interpreter
