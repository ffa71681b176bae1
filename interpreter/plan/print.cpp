// A draft as text, for people.
#include "interpreter/plan/steps.h"

namespace gradus::interpreter {

namespace {

std::string text_of_register(const Draft& d, Register r) {
  if (r == no_register) return "_";
  return "%" + d.code.graph()[d.code.value_of(r)].name;
}

std::string text_of_arg(const Draft& d, const BoundArg& a) {
  switch (a.kind) {
    case BoundArg::Kind::null:
      return "none";
    case BoundArg::Kind::fixed:
      return "number";
    case BoundArg::Kind::value:
      return text_of_register(d, a.reg);
    case BoundArg::Kind::dropped:
      return "_";
    case BoundArg::Kind::packed:
      return fmt::format("copy {}", a.packing);
    case BoundArg::Kind::faults:
      return "faults";
    case BoundArg::Kind::ticket:
      return fmt::format("ticket {}", a.packing);
  }
  return {};
}

std::string what(const Draft& d, uint32_t index) {
  const Bound& b = d.bound[index];
  std::string text;
  if (b.group != Local::never) text = fmt::format("group {}", b.group);
  if (b.work) text += (text.empty() ? "" : ": ") + work::describe(*b.work);
  if (text.empty()) return "nothing to do";
  std::string args;
  for (const BoundArg& a : std::span(d.args).subspan(b.first_arg, b.args))
    args += (args.empty() ? "" : ", ") + text_of_arg(d, a);
  if (b.acts()) text += " of (" + args + ")";
  if (b.scratch_bytes) text += fmt::format(", {} bytes of scratch memory", b.scratch_bytes);
  return text;
}

std::string places(const Draft& d) {
  std::string out;
  for (const Local& l : d.locals)
    if (l.kind == Local::Kind::slot && l.root == l.reg && l.born != Local::never)
      out +=
          fmt::format("  {} in bytes [{}, {}) from instruction {} to {}\n",
                      text_of_register(d, l.reg), l.slot, l.slot + l.bytes(), l.born, l.last_use);
  return out;
}

}  // namespace

std::string print(const Draft& d) {
  std::string out = fmt::format("segment {} of stage {}\n", d.number, d.segment.stage);
  for (uint32_t n = 0; n < d.bound.size(); ++n) {
    std::string results;
    for (Register r : d.results_of(n))
      results += (results.empty() ? "" : ", ") + text_of_register(d, r);
    out += fmt::format("  {} {} = {}: {}\n", n, results, d.node(n).op->name, what(d, n));
  }
  for (size_t e = 0; e < d.exchanges.size(); ++e)
    out += fmt::format(
        "  ticket {} of instruction {} is waited for before {}\n", e, d.exchanges[e].begins,
        d.exchanges[e].ends < d.bound.size() ? fmt::format("instruction {}", d.exchanges[e].ends)
                                             : "the end");
  return out + places(d);
}

}  // namespace gradus::interpreter
