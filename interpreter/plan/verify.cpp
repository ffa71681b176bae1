// What holds of a draft after each step of planning: see plan/steps.h.
#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "gradus/error.h"
#include "interpreter/plan/steps.h"

namespace gradus::interpreter {

namespace {

template <class... Args>
[[noreturn]] void broken(std::string_view invariant, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw InternalError(fmt::format("a plan breaks {}: {}", invariant,
                                  fmt::format(format, std::forward<Args>(args)...)));
}

const Local& local(const Draft& d, Register r) { return d.locals[d.local_number(r)]; }

bool is_known(const Draft& d, Register r) {
  return d.code.constant(r).defined() || (d.is_met(r) && local(d, r).kind != Local::Kind::unknown);
}

// By local: the instruction that makes it; Local::never for what is there before.
std::vector<uint32_t> makers(const Draft& d) {
  std::vector<uint32_t> made(d.locals.size(), Local::never);
  for (uint32_t n = 0; n < d.bound.size(); ++n)
    for (Register r : d.results_of(n))
      if (d.is_met(r)) made[d.local_number(r)] = n;
  return made;
}

std::span<const BoundArg> args_of(const Draft& d, const Bound& b) {
  if (b.first_arg > d.args.size() || b.args > d.args.size() - b.first_arg)
    broken("P2", "a slice of {} pointers from {} on, of {}", b.args, b.first_arg, d.args.size());
  return std::span(d.args).subspan(b.first_arg, b.args);
}

void verify_group(const Draft& d, const SegmentPlan::Group& group, std::span<const uint32_t> made) {
  std::set<uint32_t> members;
  for (uint32_t n : group.instructions) members.insert(n - d.segment.first);
  for (Register y : group.stored)
    if (!members.contains(made[d.local_number(y)]))
      broken("P3", "a group stores register {}, which no member makes", index_of(y));
  const uint32_t place = group.place - d.segment.first;
  for (const BoundArg& a : args_of(d, d.bound[place])) {
    if (a.kind != BoundArg::Kind::value || std::ranges::count(group.stored, a.reg)) continue;
    const uint32_t maker = made[d.local_number(a.reg)];
    if (maker == Local::never) continue;
    const bool seen_through = local(d, a.reg).root != a.reg;  // a view of what stands outside
    if (maker >= place || (members.contains(maker) && !seen_through))
      broken("P3", "the group of instruction {} reads register {}, made by instruction {}", place,
             index_of(a.reg), maker);
  }
}

struct Living {
  int64_t first, last;  // bytes of the buffer
  uint32_t born, dies;
  bool handed_on;
};

std::vector<Living> slots_of(const Draft& d) {
  std::vector<Living> living;
  for (const Local& l : d.locals)
    if (l.kind == Local::Kind::slot && l.root == l.reg && l.born != Local::never && l.bytes() > 0)
      living.push_back({l.slot, l.slot + l.bytes(), l.born, l.last_use, l.handed_on});
  for (const SharedPacking& c : d.copies)
    living.push_back({c.slot, c.slot + c.bytes(), c.readers.front(), c.readers.back(), false});
  for (const Exchange& e : d.exchanges)
    living.push_back({e.ticket, e.ticket + Exchange::ticket_bytes, e.begins, e.ends, true});
  std::ranges::sort(living, {}, &Living::born);
  return living;
}

// Those alive do not overlap, so that only the neighbours of one that is born have to be looked at.
void verify_slots(const Draft& d) {
  std::map<int64_t, Living> alive;  // by their first byte
  using End = std::pair<uint64_t, int64_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>>
      ends;  // and first bytes, soonest first
  for (const Living& slot : slots_of(d)) {
    // What is handed on goes before the instruction of its last use, the others after it.
    for (; !ends.empty() && ends.top().first <= 2 * uint64_t{slot.born}; ends.pop())
      alive.erase(ends.top().second);
    auto next = alive.lower_bound(slot.last);
    if (next != alive.begin() && std::prev(next)->second.last > slot.first) {
      const Living& other = std::prev(next)->second;
      broken("P5", "bytes [{}, {}) and [{}, {}) are both in use at instruction {}", slot.first,
             slot.last, other.first, other.last, slot.born);
    }
    if (slot.last > d.plan->buffer_bytes)
      broken("P6", "bytes [{}, {}) of a buffer of {}", slot.first, slot.last, d.plan->buffer_bytes);
    alive.emplace_hint(next, slot.first, slot);
    ends.emplace(2 * uint64_t{slot.dies} + (slot.handed_on ? 0 : 1), slot.first);
  }
}

void verify_tensors(const Draft& d) {
  std::set<Register> here;
  for (const Event& e : d.plan->events) {
    if (e.kind == Event::Kind::allocate && !here.insert(e.reg).second)
      broken("P7", "register {} is made twice", index_of(e.reg));
    if (e.kind != Event::Kind::release) continue;
    if (!here.erase(e.reg) && !local(d, e.reg).before)
      broken("P7", "register {} is let go, and was not made", index_of(e.reg));
  }
  for (Register r : here)
    if (d.code.last_segment(r) <= d.number && !local(d, r).returned && !local(d, r).leaves)
      broken("P7", "register {} is never let go", index_of(r));
}

}  // namespace

void verify_bound(const Draft& d) {
  const std::vector<uint32_t> made = makers(d);
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    if (d.instruction(n).kind != Instruction::Kind::kernel) continue;
    for (uint32_t k = 0; k < d.instruction(n).operands; ++k) {
      const Register r = d.operand(n, k);
      if (r == no_register) continue;
      if (!is_known(d, r)) broken("P1", "instruction {} reads register {}", n, index_of(r));
      if (d.is_met(r) && made[d.local_number(r)] != Local::never && made[d.local_number(r)] >= n)
        broken("P1", "instruction {} reads register {} of a later one", n, index_of(r));
    }
    for (const BoundArg& a : args_of(d, d.bound[n]))
      if (a.kind == BoundArg::Kind::value && !is_known(d, a.reg))
        broken("P2", "instruction {} points to register {}", n, index_of(a.reg));
  }
}

void verify_grouped(const Draft& d) {
  std::vector<uint32_t> made = makers(d);
  for (const SegmentPlan::Group& group : d.plan->groups) verify_group(d, group, made);
  for (const SegmentPlan::Group& group : d.plan->groups)
    for (Register y : group.stored) made[d.local_number(y)] = group.place - d.segment.first;
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    if (!d.bound[n].acts()) continue;
    for (const BoundArg& a : args_of(d, d.bound[n]))
      if (a.kind == BoundArg::Kind::value && d.is_met(a.reg) &&
          made[d.local_number(a.reg)] != Local::never && made[d.local_number(a.reg)] > n)
        broken("P3", "instruction {} reads register {}, made by the group of instruction {}", n,
               index_of(a.reg), made[d.local_number(a.reg)]);
  }
}

void verify_overlapped(const Draft& d) {
  verify_grouped(d);
  for (const Exchange& e : d.exchanges) {
    const auto call = args_of(d, d.bound[e.begins]);
    const Register given = local(d, call[1].reg).root;
    for (const BoundArg& a : call) {
      if (a.kind != BoundArg::Kind::value || !d.is_met(a.reg)) continue;
      if (local(d, local(d, a.reg).root).last_use < e.ends)
        broken("P8", "register {} is let go before the call of instruction {} ends",
               index_of(a.reg), e.begins);
    }
    for (uint32_t n = e.begins + 1; n < e.ends; ++n) {
      if (!d.bound[n].acts()) continue;
      for (const BoundArg& a : args_of(d, d.bound[n]))
        if (a.kind == BoundArg::Kind::value && d.is_met(a.reg) && local(d, a.reg).root == given)
          broken("P8", "instruction {} reads register {} before the call of instruction {} ends", n,
                 index_of(a.reg), e.begins);
    }
  }
}

void verify_made(const Draft& d) {
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    if (d.instruction(n).kind != Instruction::Kind::kernel || d.bound[n].run) continue;
    for (Register y : d.results_of(n)) {
      if (!d.is_met(y)) continue;
      const Local& l = local(d, y);
      const bool of_group = d.bound[n].group != Local::never;  // its kernel makes it
      if (l.kind == Local::Kind::slot && l.root == y && l.layout.numel() > 0 && !of_group)
        broken("P4", "nothing makes register {} of instruction {}", index_of(y), n);
    }
  }
}

void verify_placed(const Draft& d) {
  verify_slots(d);
  for (const Arg& a : d.plan->args)
    if (a.kind == Arg::Kind::slot && (a.offset < 0 || a.offset > d.plan->buffer_bytes))
      broken("P6", "a pointer to byte {} of a buffer of {}", a.offset, d.plan->buffer_bytes);
  verify_tensors(d);
}

}  // namespace gradus::interpreter
