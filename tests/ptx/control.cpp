// Branches, calls, ends, barriers.
#include <bit>

#include "gradus/error.h"
#include "tests/ptx/block.h"
#include "tests/ptx/lanes.h"

namespace gradus::ptx {

namespace {

unsigned first(Mask m) { return static_cast<unsigned>(std::countr_zero(m)); }

void bra(Decoder& d) {
  d.out.mode = d.take("uni");
  const Operand& o = d.next_operand();
  if (o.kind != Operand::name) d.fail("expects a label");
  d.builder().target(o.text, d.statement().line);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    if (in.mode && m != w.group())
      w.fault(first(m), "a branch that says .uni is not taken by all lanes");
    w.branch(m, static_cast<uint32_t>(in.immediate));
  };
}

// To the label of this number in a table.
void brx(Decoder& d) {
  d.take_of({"idx"});
  d.take("uni");
  d.source(Type::u32);
  const Operand& o = d.next_operand();
  d.out.immediate = d.builder().find_table(o.text, d.statement().line);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    w.need(in.r[0], m, "the number of a branch's target");
    const auto& table = w.frame().function->tables[static_cast<size_t>(in.immediate)];
    const auto a = w.get<uint32_t>(in.r[0]);
    while (m) {
      const unsigned i = first(m);
      if (a.v[i] >= table.size())
        w.fault(i, fmt::format("target {} of a table of {}", a.v[i], table.size()));
      Mask same = 0;
      for (unsigned k = i; k < warp_size; ++k)
        same |= static_cast<Mask>((m >> k & 1) && a.v[k] == a.v[i]) << k;
      m &= ~same;
      w.branch(same, table[a.v[i]]);
    }
  };
}

std::vector<uint32_t> params_of(Decoder& d, const Operand& list) {
  std::vector<uint32_t> params;
  for (const Operand& o : list.items) {
    const auto v = d.builder().find_variable(o.text);
    if (o.kind != Operand::name || !v.variable || !v.own || v.variable->space != Space::param)
      d.fail("the interpreter passes .param variables alone");
    params.push_back(v.number);
  }
  return params;
}

// call (result), function, (parameters)
void call(Decoder& d) {
  d.take("uni");
  std::vector<uint32_t> results, arguments;
  if (d.operand().kind == Operand::list) results = params_of(d, d.next_operand());
  const Operand& callee = d.next_operand();
  if (callee.kind != Operand::name) d.fail("expects a function");
  if (d.builder().find_register(callee.text))
    d.fail("the interpreter knows no calls through a register");
  if (d.has_operand()) {
    if (d.operand().kind != Operand::list) d.fail("expects parameters in parentheses");
    arguments = params_of(d, d.next_operand());
  }
  d.out.immediate =
      d.builder().call(callee.text, std::move(arguments), std::move(results), d.statement().line);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    w.call(m, static_cast<uint32_t>(in.immediate));
  };
}

void ret(Decoder& d) {
  d.take("uni");
  d.out.run = [](Warp& w, const Instruction&, Mask m) { w.ret(m); };
}

void exit(Decoder& d) {
  d.out.run = [](Warp& w, const Instruction&, Mask m) { w.exit(m); };
}

void trap(Decoder& d) {
  d.out.run = [](Warp& w, const Instruction&, Mask m) { w.fault(first(m), "the kernel traps"); };
}

// Warps run one at a time, so that every access is seen by all at once: races are found by
// other means.
void fence(Decoder& d) {
  while (d.try_of({"cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release"})) {
  }
  d.out.run = [](Warp&, const Instruction&, Mask) {};
}

void nanosleep(Decoder& d) {
  d.take_type({Type::u32});
  const Operand& o = d.next_operand();
  d.copy(d.read(o, Type::u32, false));
  d.out.run = [](Warp&, const Instruction&, Mask) {};
}

void run_barrier(Warp& w, const Instruction& in, Mask m) {
  w.need(in.r[1], m, "the number of the barrier");
  const auto id = w.get<uint32_t>(in.r[1]);
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    if (id.v[i] != id.v[first(m)] || id.v[i] > 15)
      w.fault(i, fmt::format("barrier {}: there are 16, and a warp comes to one", id.v[i]));
    if (!in.r[2]) continue;
    w.need(in.r[2], m, "the number of threads of the barrier");
    if (w.lane(in.r[2], i) != w.block().threads())
      w.fault(i, fmt::format("a barrier for {} of the block's {} threads: the interpreter knows "
                             "those for all alone",
                             w.lane(in.r[2], i), w.block().threads()));
  }
  w.hold_at_barrier(m);
}

// r: the result, the barrier, the number of threads, the predicate.
void block_barrier(Decoder& d) {
  d.take("cta");
  const size_t form = d.take_of({"sync", "red"});
  BarrierKind kind = BarrierKind::sync;
  if (form == 1) {
    static constexpr BarrierKind kinds[] = {BarrierKind::popc, BarrierKind::all, BarrierKind::any};
    kind = kinds[d.take_of({"popc", "and", "or"})];
  }
  d.take("aligned");
  if (kind == BarrierKind::sync)
    d.nothing();
  else
    d.dest(d.take_type({Type::u32, Type::pred}));
  if ((kind == BarrierKind::popc) != (d.last() && d.last().width == 4) && kind != BarrierKind::sync)
    d.fail("gives a count, or a predicate");
  d.source(Type::u32);
  const size_t left = d.statement().operands.size() - (kind == BarrierKind::sync ? 1 : 2);
  if (left == (kind == BarrierKind::sync ? 1u : 2u))
    d.source(Type::u32);
  else
    d.nothing();
  if (kind != BarrierKind::sync) {
    d.source_predicate();
    d.out.count = d.negated;
  }
  d.out.mode = static_cast<uint8_t>(kind);
  d.out.run = run_barrier;
}

void bar(Decoder& d) {
  if (d.take("warp")) return decode_warp_barrier(d);
  block_barrier(d);
}

}  // namespace

Instruction end_of_body(uint32_t line) {
  Instruction in;
  in.line = line;
  in.run = [](Warp& w, const Instruction&, Mask m) { w.ret(m); };
  return in;
}

void add_control_opcodes(Opcodes& o) {
  o["bra"] = bra;
  o["brx"] = brx;
  o["call"] = call;
  o["ret"] = ret;
  o["exit"] = exit;
  o["trap"] = trap;
  o["brkpt"] = trap;
  o["membar"] = fence;
  o["fence"] = fence;
  o["nanosleep"] = nanosleep;
  o["bar"] = bar;
  o["barrier"] = block_barrier;
}

}  // namespace gradus::ptx
