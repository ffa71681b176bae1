// Planning: operands that several small products would each rearrange are copied once.
#include <algorithm>
#include <map>

#include "interpreter/plan/steps.h"

namespace gradus::interpreter {

namespace {

std::vector<SharedPacking> find_copies(const Draft& d) {
  std::vector<SharedPacking> copies;
  std::map<std::pair<Register, int64_t>, size_t> found;  // by memory and offset
  for (uint32_t index = 0; index < d.bound.size(); ++index) {
    const Bound& bound = d.bound[index];
    const auto* product = std::get_if<work::Product>(bound.work.get());
    if (!product || !work::packed(product->gemm)) continue;
    const BoundArg& b = d.args[bound.first_arg + 1];
    if (b.kind != BoundArg::Kind::value) continue;
    const Local& l = d.locals[d.local_number(b.reg)];
    auto [place, first] = found.try_emplace({l.root, l.offset}, copies.size());
    if (first) copies.push_back({b.reg, product->gemm});
    SharedPacking& shared = copies[place->second];
    const work::Gemm &g = product->gemm, &other = shared.from;
    if (other.dtype == g.dtype && other.k == g.k && other.n == g.n && other.b_column == g.b_column)
      shared.readers.push_back(index);
  }
  std::erase_if(copies, [](const SharedPacking& p) { return p.readers.size() < 2; });
  return copies;
}

work::WorkRef copy_of(const work::Gemm& g) {
  work::Move copy;
  copy.copy(Sizes{g.k, g.n}, {0, g.dtype, {g.b_row, g.b_column}, 0}, {1, g.dtype, {g.n, 1}, 0});
  return work::share(std::move(copy));
}

void read_copy(Draft& d, size_t copy, uint32_t index) {
  Bound& bound = d.bound[index];
  work::Product product = std::get<work::Product>(*bound.work);
  product.gemm = *work::packed(product.gemm);
  bound.work = work::share(std::move(product));
  BoundArg& arg = d.args[bound.first_arg + 1];
  arg = {};
  arg.kind = BoundArg::Kind::packed;
  arg.packing = copy;
}

}  // namespace

void share_copies(Draft& d) {
  if (!d.choice.traits().shares_copies) return;
  d.copies = find_copies(d);
  for (size_t c = 0; c < d.copies.size(); ++c) {
    d.copies[c].copy = copy_of(d.copies[c].from);
    for (uint32_t index : d.copies[c].readers) read_copy(d, c, index);
  }
}

}  // namespace gradus::interpreter
