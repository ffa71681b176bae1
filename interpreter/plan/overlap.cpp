// Planning: calls of ranks go on while instructions run that do without them.
#include <algorithm>

#include "interpreter/plan/steps.h"

namespace gradus::interpreter {

namespace {

// Goes through a segment from its end, so that it is known what reads a value first.
class Overlapper {
 public:
  explicit Overlapper(Draft& draft)
      : d(draft), first_use_(d.locals.size(), end()), acts_(d.bound.size() + 1, 0) {}
  void run();

 private:
  uint32_t end() const { return static_cast<uint32_t>(d.bound.size()); }
  bool can_begin(const Bound& bound) const;
  uint32_t& first_use(Register r) { return first_use_[d.local_number(d.local(r).root)]; }
  void begin(uint32_t index, uint32_t ends);
  void note_uses(uint32_t index);

  Draft& d;
  std::vector<uint32_t> first_use_;  // by local, of a root: the first instruction of those seen
  std::vector<uint32_t> acts_;       // by instruction: how many before it have a kernel
};

// The memory of a call stays where it is, and somebody wants what the call gives.
bool Overlapper::can_begin(const Bound& bound) const {
  const auto* call = std::get_if<work::Collective>(bound.work.get());
  if (!call || call->kind == CollectiveKind::send) return false;  // that one ends at once
  const bool reads = call->kind != CollectiveKind::receive;
  if (reads && !call->x.contiguous()) return false;
  return d.args[bound.first_arg + 1].kind == BoundArg::Kind::value;
}

void Overlapper::run() {
  for (uint32_t n = 0; n < end(); ++n) acts_[n + 1] = acts_[n] + (d.bound[n].acts() ? 1 : 0);
  for (uint32_t n = end(); n-- > 0;) {
    if (d.bound[n].work && can_begin(d.bound[n])) {
      const uint32_t ends = first_use(d.args[d.bound[n].first_arg + 1].reg);
      if (acts_[ends] > acts_[n + 1]) begin(n, ends);
    }
    note_uses(n);
  }
  std::ranges::sort(d.exchanges, {}, [](const Exchange& e) { return std::pair(e.ends, e.begins); });
  for (size_t e = 0; e < d.exchanges.size(); ++e) {
    const Bound& bound = d.bound[d.exchanges[e].begins];
    d.args[bound.first_arg + bound.args - 1].packing = e;
  }
}

// The pointers once more, and one to the ticket. What the call reads and writes stays until its
// end.
void Overlapper::begin(uint32_t index, uint32_t ends) {
  Bound& bound = d.bound[index];
  work::Collective call = std::get<work::Collective>(*bound.work);
  d.exchanges.push_back({index, ends, work::share(work::CollectiveEnd{call.group}), {}});
  call.begins = true;
  bound.work = work::share(std::move(call));
  const auto first = static_cast<uint32_t>(d.args.size());
  for (uint32_t a = 0; a < bound.args; ++a) {
    const BoundArg arg = d.args[bound.first_arg + a];
    if (arg.kind == BoundArg::Kind::value) d.read_until(arg.reg, ends);
    d.args.push_back(arg);
  }
  d.args.emplace_back().kind = BoundArg::Kind::ticket;
  bound.first_arg = first;
  ++bound.args;
}

void Overlapper::note_uses(uint32_t index) {
  const Bound& bound = d.bound[index];
  if (bound.acts())
    for (const BoundArg& a : std::span(d.args).subspan(bound.first_arg, bound.args))
      if (a.kind == BoundArg::Kind::value) first_use(a.reg) = index;
  for (const SharedPacking& copy : d.copies)
    if (copy.readers.front() == index) first_use(copy.reg) = index;
}

}  // namespace

void overlap(Draft& d) {
  if (!d.choice.traits().host_memory || !d.code.rank_program()) return;
  Overlapper(d).run();
}

}  // namespace gradus::interpreter
