#include "interpreter/plan/draft.h"

namespace gradus::interpreter {

Draft::Draft(const Code& c, size_t s, std::shared_ptr<const SegmentPlan> previous,
             std::span<const Tensor> given, std::vector<int64_t> key, const KernelChoice& k)
    : code(c),
      number(s),
      segment(c.segment(s)),
      stage(c.stage(segment.stage)),
      plan(std::make_shared<SegmentPlan>()),
      inputs(given),
      input_registers(inputs_of(c, s)),
      sizes(c, plan->sizes),
      choice(k),
      local_numbers(c.registers(), Local::never) {
  plan->segment = s;
  if (previous) plan->sizes = previous->sizes;
  plan->follow(std::move(previous));
  plan->key = std::move(key);
  if (segment.counts) plan->sizes[*segment.counts] = plan->key.back();
}

Local& Draft::local(Register r) {
  uint32_t& n = local_numbers[index_of(r)];
  if (n == Local::never) {
    n = static_cast<uint32_t>(locals.size());
    locals.emplace_back().reg = r;
  }
  return locals[n];
}

void Draft::place_tensor(Local& l, bool absent, const Layout& layout) {
  l.kind = absent ? Local::Kind::absent : Local::Kind::tensor;
  l.layout = layout;
  l.root = l.reg;
  l.before = true;
}

Local& Draft::find(Register r) {
  Local& l = local(r);
  if (l.kind != Local::Kind::unknown) return l;
  if (code.constant(r).defined()) {
    l.kind = Local::Kind::constant;
    l.root = r;
    l.layout = code.constant(r).layout();
    return l;
  }
  uint32_t from = code.made_in(r);
  GRADUS_CHECK(from < number);
  const Held& held = plan->previous->of_segment(from).find_held(r);
  place_tensor(l, held.absent, held.layout);
  if (held.carried) {
    l.kind = Local::Kind::carried;
    l.slot = held.carried->memory;
    l.extent = held.carried->bytes;
    l.offset = held.carried->offset;
  }
  return l;
}

Sizes Draft::sizes_of(const ir::Type& type) const {
  Sizes s;
  for (const ir::Dim& d : type.dims) {
    int64_t n = d.evaluate(sizes);
    if (n < 0) throw Error("the size {} of a result is {}, which is negative", d.to_string(), n);
    s.push_back(n);
  }
  if (!checked_numel(s) || *checked_numel(s) > INT64_MAX / 16)
    throw Error("a result {} has more elements than can be counted", gradus::to_string(s));
  return s;
}

std::byte* Draft::number_memory() {
  if (plan->numbers.empty() || number_at_ == number_block) {
    plan->numbers.emplace_back(number_block);
    number_at_ = 0;
  }
  std::byte* p = plan->numbers.back().data() + number_at_;
  number_at_ += 8;
  return p;
}

void Draft::read_until(Register r, uint32_t index) {
  Local& root = local(local(r).root);
  root.last_use = std::max(root.last_use, index);
}

std::vector<uint32_t> count_uses(const Draft& d) {
  std::vector<uint32_t> uses(d.locals.size(), 0);
  auto use = [&](Register r) {
    if (d.is_met(r)) ++uses[d.local_number(r)];
  };
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    for (uint32_t k = 0; k < d.instruction(n).operands; ++k) use(d.operand(n, k));
    for (Register r : d.results_of(n))
      if (r != no_register && d.code.last_segment(r) > d.number) use(r);
  }
  for (Register r : d.returns()) use(r);
  return uses;
}

}  // namespace gradus::interpreter
