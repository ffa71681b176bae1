// Code as text, and the groups that its instructions run in.
#include "gradus/code.h"
#include "gradus/state.h"

namespace gradus {

namespace {

std::string text_of(Register r) { return r == no_register ? "_" : fmt::format("R{}", index_of(r)); }

std::string operand_text(const StageCode& stage, const CodeOperand& o, bool frees) {
  if (o.reg != no_register) return text_of(o.reg) + (frees ? "*" : "");
  const ir::Operand& constant = stage.constants[o.constant];
  if (const auto* d = std::get_if<ir::Dim>(&constant)) return d->to_string();
  if (const auto* n = std::get_if<ir::Number>(&constant)) {
    if (n->category == Category::floating) return ir::float_text(n->floating);
    if (n->category == Category::integral) return fmt::format("{}", n->integer);
    return n->integer ? "true" : "false";
  }
  return "none";
}

std::string instruction_text(const StageCode& stage, const Instruction& i) {
  std::string s;
  for (uint32_t k = 0; k < i.results; ++k) {
    if (k) s += ", ";
    s += text_of(stage.results[i.first_result + k]);
  }
  s += fmt::format(" := {}(", i.op->name);
  for (uint32_t k = 0; k < i.operands; ++k) {
    uint32_t operand = i.first_operand + k;
    if (k) s += ", ";
    s += operand_text(stage, stage.operands[operand], stage.frees[operand]);
  }
  s += ")";
  std::string attributes;
  for (const auto& a : i.op->write(i.attributes)) {
    std::string value = to_string(a.value);
    if (value.size() > 60) value = value.substr(0, 57) + "...";
    attributes += fmt::format("{}{} = {}", attributes.empty() ? "" : ", ", a.name, value);
  }
  return attributes.empty() ? s : s + " {" + attributes + "}";
}

}  // namespace

// R7* is the last use of R7: it is released right after the instruction.
std::string disassemble(const Code& code) {
  std::string out = fmt::format("code {}: {} stage{}, {} registers\n", code.graph().name,
                                code.stages(), code.stages() == 1 ? "" : "s", code.registers());
  for (size_t s = 0; s < code.stages(); ++s) {
    const StageCode& stage = code.stage(s);
    out += fmt::format("stage {}:\n", s);
    for (size_t i = 0; i < stage.inputs.size(); ++i)
      out += fmt::format("  {} := input %{}: {}\n", text_of(stage.inputs[i]), code.input_name(s, i),
                         to_string(code.input_type(s, i)));
    for (size_t n = 0; n < stage.instructions.size(); ++n) {
      const Instruction& i = stage.instructions[n];
      std::string line = fmt::format("  {:4}  {}", n, instruction_text(stage, i));
      for (uint32_t k = 0; k < i.results; ++k) {
        Register r = stage.results[i.first_result + k];
        if (r != no_register)
          line += fmt::format("{}{}: {}", k ? ", " : "  # ", code.name_of(r),
                              to_string(code.type_of(r)));
      }
      if (i.where.known()) line += fmt::format("  @{}:{}", i.where.line, i.where.column);
      out += line + "\n";
    }
    for (size_t i = 0; i < stage.returns.size(); ++i)
      out += fmt::format("  return {} = {}{}\n", code.results(s)[i].name,
                         stage.returns[i] == no_register ? "none" : text_of(stage.returns[i]),
                         stage.return_frees[i] ? "*" : "");
    for (const ir::DimEquality& q : stage.equalities)
      out += fmt::format("  check {} == {}  # {}\n", q.a.to_string(), q.b.to_string(), q.what);
  }
  return out;
}

std::string describe_memory(std::span<const StageMemory> stages) {
  std::string out;
  for (size_t s = 0; s < stages.size(); ++s)
    out += fmt::format("stage {}: a buffer of {} bytes, {} held, {} returned\n", s,
                       stages[s].buffer, stages[s].held, stages[s].results);
  return out;
}

std::string describe_peaks(const State& state, size_t most) {
  const Code& code = *state.code();
  std::string out;
  for (const StagePeak& peak : state.peaks()) {
    auto name = [&](uint32_t n) {
      const Instruction& i = code.stage(peak.stage).instructions[n];
      std::string text = fmt::format("{} {}", n, i.op->name);
      if (i.where.known()) text += fmt::format(" @{}:{}", i.where.line, i.where.column);
      return text;
    };
    out += fmt::format("stage {} takes most at instruction {}: {} bytes\n", peak.stage,
                       name(peak.instruction), peak.bytes);
    if (peak.scratch) out += fmt::format("  {} bytes for its kernel\n", peak.scratch);
    size_t shown = 0, rest = 0;
    for (const StagePeak::Living& l : peak.living) {
      if (shown++ >= most) {
        rest += l.bytes;
        continue;
      }
      out += fmt::format("  {} bytes {}: {}, made by {}, {}\n", l.bytes, code.name_of(l.reg),
                         to_string(code.type_of(l.reg)), name(l.made),
                         l.last ? "last read by " + name(*l.last) : "outlives the stage");
    }
    if (rest) out += fmt::format("  {} bytes of {} more\n", rest, shown - most);
  }
  return out;
}

std::string describe_groups(const State& state) {
  const Code& code = *state.code();
  std::string out;
  for (const FusedGroup& g : state.groups()) {
    const StageCode& stage = code.stage(g.stage);
    out += fmt::format("stage {}, instructions", g.stage);
    for (uint32_t n : g.instructions) {
      const Instruction& i = stage.instructions[n];
      out += fmt::format("{} {} {}", n == g.instructions.front() ? "" : ",", n, i.op->name);
      if (i.where.known()) out += fmt::format(" @{}:{}", i.where.line, i.where.column);
    }
    out += "\n" + (g.nest.empty() ? "by the device's library for products\n" : g.nest);
  }
  for (const WholeStage& whole : state.whole_stages()) {
    std::map<std::string_view, size_t> called;  // instructions of no loops and no product
    size_t loops = 0, products = 0, others = 0;
    for (const WholeStage::Item& i : whole.items) {
      loops += i.kind == "nest";
      products += i.kind == "product";
      others += i.kind == "reduce" || i.kind == "move";
      if (i.kind.empty()) ++called[code.stage(whole.stage).instructions[i.instruction].op->name];
    }
    out += fmt::format(
        "stage {} is one function of loops ({}), products ({}), "
        "sums and copies ({})",
        whole.stage, loops, products, others);
    const char* before = ", calls (";
    for (const auto& [name, times] : called) {
      out += fmt::format("{}{} {}", before, times, name);
      before = ", ";
    }
    if (!called.empty()) out += ")";
    out += "\n";
  }
  return out;
}

}  // namespace gradus
