// Graph -> Code: registers, instructions, last uses.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/code.h"
#include "gradus/opaque_function.h"
#include "gradus/registry.h"
#include "gradus/text.h"
#include "interpreter/plan.h"
#include "ops/collectives.h"
#include "ops/control_flow.h"
#include "ops/opaque.h"
#include "ops/structural.h"

namespace gradus {

class Compiler {
 public:
  // See Code::compile. `messages`: of a graph of a loop, whether its program sends or receives.
  static std::shared_ptr<const Code> compile(const ir::Graph& graph, const CompileOptions& options,
                                             bool messages);

  // `original` is what was given to compile, before lowering.
  Compiler(Code& code, const ir::Graph& original, bool fast_functions, bool messages)
      : code_(code),
        graph_(code.graph_),
        original_(original),
        fast_functions_(fast_functions),
        messages_(messages) {}

  void run() {
    mark_used();
    for (size_t s = 0; s < graph_.stages.size(); ++s) compile_stage(s);
    collect_equalities();
    collect_dimensions();
    cut();
    mark_wanted();
    mark_last_uses();
    mark_seen();
    find_settled();
    for (size_t s = 0; s < graph_.stages.size(); ++s) collect_outer(s);
  }

 private:
  void mark_used() {
    registers_.assign(graph_.values.size(), no_register);
    std::vector<bool> used(graph_.values.size(), false);
    for (const ir::Stage& stage : graph_.stages) {
      for (const ir::Node& node : stage.nodes)
        for (const ir::Operand& o : node.operands)
          if (ir::ValueId v = value_in(o); v != ir::no_value) used[index_of(v)] = true;
      for (const ir::Result& r : stage.results)
        if (r.value != ir::no_value) used[index_of(r.value)] = true;
    }
    for (size_t v = 0; v < used.size(); ++v)
      if (used[v]) {
        registers_[v] = static_cast<Register>(code_.register_values_.size());
        code_.register_values_.push_back(static_cast<ir::ValueId>(v));
      }
    code_.constants_.resize(code_.register_values_.size());
    for (ir::ValueId v : code_.register_values_) code_.has_handles_ |= !graph_[v].type.is_tensor();
  }

  Register register_of(ir::ValueId v) const {
    return v == ir::no_value ? no_register : registers_[index_of(v)];
  }

  void compile_stage(size_t s) {
    const ir::Stage& stage = graph_.stages[s];
    StageCode code;
    for (ir::ValueId v : stage.inputs) code.inputs.push_back(register_of(v));
    for (size_t n = 0; n < stage.nodes.size(); ++n)
      add_instruction(code, stage.nodes[n], static_cast<uint32_t>(n));
    for (const ir::Result& r : stage.results) code.returns.push_back(register_of(r.value));
    code.return_frees.assign(code.returns.size(), false);
    code_.stages_.push_back(std::move(code));
  }

  void add_instruction(StageCode& code, const ir::Node& node, uint32_t index) {
    Instruction i;
    i.op = node.op;
    i.attributes = node.attributes;
    i.node = index;
    i.where = node.where;
    i.first_operand = static_cast<uint32_t>(code.operands.size());
    i.operands = static_cast<uint32_t>(node.operands.size());
    i.first_result = static_cast<uint32_t>(code.results.size());
    i.results = static_cast<uint32_t>(node.results.size());
    for (const ir::Operand& o : node.operands) {
      Register r = register_of(value_in(o));
      code.operands.push_back({r, static_cast<uint32_t>(code.constants.size())});
      if (r == no_register) code.constants.push_back(o);
    }
    for (ir::ValueId v : node.results) code.results.push_back(register_of(v));
    if (const Tensor* value = ops::constant_in(node)) {
      i.kind = Instruction::Kind::constant;
      Register r = code.results.back();
      if (r != no_register) code_.constants_[index_of(r)] = value->contiguous();
    } else if (ops::is_undefined(node)) {
      i.kind = Instruction::Kind::undefined;
    } else if (node.op->traits.opaque) {
      add_opaque(code, node, i);
    } else if (node.op->traits.loop) {
      for (const ops::GraphName* named : ops::graphs_in(node))
        i.bodies.push_back(compile(*named->graph, {.fast_functions = fast_functions_}, messages_));
    } else if (!node.op->bind) {
      throw graph_.error_at(node.where, fmt::format("operator '{}' cannot be run", node.op->name));
    }
    code_.calls_functions_ |= i.is_opaque() || i.op->traits.collective ||
                              std::ranges::any_of(i.bodies, &Code::calls_functions);
    code.instructions.push_back(std::move(i));
  }

  void add_opaque(StageCode& code, const ir::Node& node, Instruction& i) {
    i.kind = node.op->traits.acts ? Instruction::Kind::function : Instruction::Kind::eval;
    i.opaque = static_cast<uint32_t>(code.opaque.size());
    OpaqueInstruction o;
    o.what = ops::describe_opaque(graph_, node);
    if (i.kind == Instruction::Kind::function) {
      o.function = std::dynamic_pointer_cast<const autograd::CppFunction>(
          ops::called_function(*node.op, node.attributes));
      if (!o.function)
        throw graph_.error_at(node.where,
                              fmt::format("{}: what is registered cannot be run", o.what));
      for (size_t k = 0; k < node.operands.size(); ++k)
        o.requires_grad.push_back(
            ops::requires_grad(node.attributes, k, graph_[value_in(node.operands[k])].type));
    }
    o.tensors = i.results;
    if (i.results && !graph_[node.results.back()].type.is_tensor()) {
      --o.tensors;
      o.handle = code.results.back();
    }
    code.opaque.push_back(std::move(o));
  }

  // From the nodes as written: what is dead is still to be right. Those that `grad` and `call`
  // stand for are in the lowered program only.
  void collect_equalities() {
    bool inlined = false;
    for (const ir::Stage& stage : original_.stages)
      for (const ir::Node& node : stage.nodes)
        inlined |= ops::is_gradient(node) || ops::is_call(node);
    for (size_t s = 0; s < code_.stages_.size(); ++s) {
      add_equalities(original_, s);
      if (inlined) add_equalities(graph_, s);
    }
  }

  void add_equalities(const ir::Graph& graph, size_t s) {
    StageCode& code = code_.stages_[s];
    std::vector<ir::DimEquality> found;
    for (const ir::Node& node : graph.stages[s].nodes) {
      ops::infer(graph, node, &found);
      for (ir::DimEquality& e : found) {
        std::string pair = e.a.to_string() + " == " + e.b.to_string();
        if (!known_equalities_.insert(std::move(pair)).second) continue;
        code.equalities.push_back(std::move(e));
        code.equality_places.push_back(node.where);
      }
      found.clear();
    }
  }

  // The dimension that the instruction's data settles, if nothing before it does.
  std::optional<uint32_t> settles(const Instruction& i) {
    auto count = ops::count_in(*i.op, i.attributes);
    if (!count || count->symbol_name().empty()) return std::nullopt;
    std::string name(count->symbol_name());
    if (!settled_names_.insert(name).second) return std::nullopt;
    return dimension(name);
  }
  uint32_t dimension(const std::string& name) {
    auto [it, added] = code_.dimension_index_.emplace(name, code_.dimensions_.size());
    if (added) code_.dimensions_.push_back(name);
    return static_cast<uint32_t>(it->second);
  }

  // Cuts the stages into segments at their opaque instructions, and where data settles a size.
  void cut() {
    code_.made_in_.assign(code_.register_values_.size(), 0);
    auto make = [&](Register r) {
      if (r != no_register)
        code_.made_in_[index_of(r)] = static_cast<uint32_t>(code_.segments_.size() - 1);
    };
    for (size_t s = 0; s < code_.stages_.size(); ++s) {
      StageCode& stage = code_.stages_[s];
      stage.first_segment = static_cast<uint32_t>(code_.segments_.size());
      auto count = static_cast<uint32_t>(stage.instructions.size());
      code_.segments_.push_back({static_cast<uint32_t>(s), 0, count, {}, {}, true, true});
      for (Register r : stage.inputs) make(r);
      for (ir::ValueId v : graph_.stages[s].inputs)
        for (const ir::Dim& d : graph_[v].type.dims)
          d.for_each_symbol([&](std::string_view name) { settled_names_.emplace(name); });
      for (uint32_t n = 0; n < count; ++n) {
        const Instruction& i = stage.instructions[n];
        if (i.is_opaque()) {
          code_.segments_.back().end = n;
          code_.segments_.back().ends_stage = false;
          code_.segments_.push_back({static_cast<uint32_t>(s), n + 1, count, n, {}, false, true});
        } else if (auto dimension = settles(i)) {
          code_.segments_.back().end = n;
          code_.segments_.back().ends_stage = false;
          code_.segments_.push_back(
              {static_cast<uint32_t>(s), n, count, {}, dimension, false, true});
        }
        for (uint32_t k = 0; k < i.results; ++k) make(stage.results[i.first_result + k]);
      }
      stage.segments = static_cast<uint32_t>(code_.segments_.size()) - stage.first_segment;
    }
  }

  // A gradient is asked for if it is used, or if a cotangent for it is given to an eval of the
  // handle that is left with it.
  void mark_wanted() {
    std::unordered_map<Register, OpaqueInstruction*> makers;
    for (StageCode& stage : code_.stages_)
      for (const Instruction& i : stage.instructions) {
        if (!i.is_opaque()) continue;
        OpaqueInstruction& o = stage.opaque[i.opaque];
        if (o.handle != no_register) makers.emplace(o.handle, &o);
        for (uint32_t k = 0; k < o.tensors; ++k)
          o.wanted.push_back(stage.results[i.first_result + k] != no_register);
        if (i.kind != Instruction::Kind::eval) continue;
        std::span operands = std::span(stage.operands).subspan(i.first_operand, i.operands);
        OpaqueInstruction& maker = *makers.at(operands.back().reg);
        if (maker.function) continue;
        for (size_t k = 0; k + 1 < operands.size(); ++k)
          if (operands[k].reg != no_register) maker.wanted[k] = true;
      }
  }

  void collect_outer(size_t s) {
    StageCode& stage = code_.stages_[s];
    if (stage.opaque.empty()) return;
    for (const CodeOperand& o : stage.operands)
      if (o.reg != no_register && graph_[code_.value_of(o.reg)].stage < s &&
          !code_.is_handle(o.reg) && !code_.constant(o.reg).defined())
        stage.outer.push_back(o.reg);
    for (Register r : stage.returns)
      if (r != no_register && graph_[code_.value_of(r)].stage < s && !code_.constant(r).defined())
        stage.outer.push_back(r);
    std::sort(stage.outer.begin(), stage.outer.end());
    stage.outer.erase(std::unique(stage.outer.begin(), stage.outer.end()), stage.outer.end());
  }

  // Backwards over all stages; a stage's returns come after its instructions.
  void mark_last_uses() {
    std::vector<bool> seen(code_.register_values_.size(), false);
    code_.last_segment_.assign(code_.register_values_.size(), 0);
    auto segment = static_cast<uint32_t>(code_.segments_.size());
    // A stage's segments are counted down as their first instructions are passed.
    auto last = [&](Register r) {
      if (r == no_register || seen[index_of(r)]) return false;
      seen[index_of(r)] = true;
      code_.last_segment_[index_of(r)] = segment;
      return true;
    };
    for (size_t s = code_.stages_.size(); s-- > 0;) {
      StageCode& stage = code_.stages_[s];
      --segment;
      stage.frees.assign(stage.operands.size(), false);
      for (size_t i = stage.returns.size(); i-- > 0;)
        stage.return_frees[i] = last(stage.returns[i]);
      for (size_t n = stage.instructions.size(); n-- > 0;) {
        const Instruction& i = stage.instructions[n];
        for (uint32_t k = i.operands; k-- > 0;)
          stage.frees[i.first_operand + k] = last(stage.operands[i.first_operand + k].reg);
        const Segment& now = code_.segments_[segment];
        if (!now.begins_stage && n == (now.opaque ? *now.opaque : now.first)) --segment;
      }
    }
  }

  void mark_seen() {
    code_.seen_.assign(code_.register_values_.size(), false);
    auto see = [&](Register r) {
      if (r != no_register) code_.seen_[index_of(r)] = true;
    };
    for (const StageCode& stage : code_.stages_) {
      for (Register r : stage.returns) see(r);
      for (const Instruction& i : stage.instructions)
        for (uint32_t k = 0; i.is_opaque() && k < i.operands; ++k)
          see(stage.operands[i.first_operand + k].reg);
    }
    for (const Segment& segment : code_.segments_)
      if (segment.counts) {
        const StageCode& stage = code_.stages_[segment.stage];
        see(stage.operands[stage.instructions[segment.first].first_operand].reg);
      }
  }

  void find_settled() {
    code_.settled_.resize(code_.segments_.size());
    std::vector<uint32_t> last(code_.segments_.size(), 0);
    for (size_t r = 0; r < code_.made_in_.size(); ++r)
      last[code_.made_in_[r]] = std::max(last[code_.made_in_[r]], code_.last_segment_[r]);
    for (uint32_t s = 0; s < last.size(); ++s)
      if (last[s] > s) code_.settled_[last[s]].push_back(s);
  }

  void collect_dimensions() {
    for (const ir::SizeRange& r : graph_.ranges)
      if (!r.group.empty()) dimension(r.name);
    for (const ir::Stage& stage : graph_.stages)
      for (ir::ValueId v : stage.inputs)
        for (const ir::Dim& d : graph_[v].type.dims)
          d.for_each_symbol([&](std::string_view name) { dimension(std::string(name)); });
  }

  Code& code_;
  const ir::Graph& graph_;
  const ir::Graph& original_;
  const bool fast_functions_;
  const bool messages_;
  std::vector<Register> registers_;  // by value
  std::unordered_set<std::string> known_equalities_;
  std::unordered_set<std::string> settled_names_;  // of dimensions, while stages are cut
};

Code::Code() : plans_(std::make_unique<interpreter::PlanCache>()) {}
Code::~Code() = default;

namespace {

// FNV-1a: the same on every machine.
uint64_t fingerprint_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::unique_ptr<const RankProgram> rank_program_of(const ir::Graph& graph, bool messages) {
  auto program = std::make_unique<RankProgram>();
  program->groups = ops::groups_in(graph);
  if (program->groups.empty()) return nullptr;
  program->fingerprint = fingerprint_of(ir::print(graph));
  program->messages = messages;
  return program;
}

void use_fast_functions(ir::Graph& graph) {
  for (ir::Stage& stage : graph.stages)
    for (ir::Node& node : stage.nodes)
      if (!node.op->traits.fast.empty()) node.op = ops::find(node.op->traits.fast);
}

}  // namespace

std::shared_ptr<const Code> Code::compile(const ir::Graph& graph, const CompileOptions& options) {
  return Compiler::compile(graph, options, false);
}

std::shared_ptr<const Code> Compiler::compile(const ir::Graph& graph, const CompileOptions& options,
                                              bool messages) {
  ir::verify(graph);
  std::shared_ptr<Code> code(new Code());
  ir::Graph changed;
  const ir::Graph* program = &graph;
  for (const CompilePass& pass : options.passes) {
    if (program == &graph) changed = graph;
    program = &changed;
    try {
      pass.run(changed);
      ir::verify(changed);
    } catch (const Error& e) {
      throw Error("pass '{}': {}", pass.name, e.what());
    }
    if (options.dump) options.dump(pass.name, changed);
  }
  code->graph_ = ir::lower(*program, options.dump);
  if (options.memory_budget) {
    ir::rematerialize(code->graph_, *options.memory_budget);
    if (options.dump) options.dump("rematerialize", code->graph_);
  }
  if (options.fast_functions) {
    use_fast_functions(code->graph_);
    if (options.dump) options.dump("use_fast_functions", code->graph_);
  }
  messages |= ops::has_messages(code->graph_);
  Compiler(*code, *program, options.fast_functions, messages).run();
  code->rank_program_ = rank_program_of(code->graph_, messages);
  return code;
}

const std::string& Code::input_name(size_t stage, size_t i) const {
  return graph_[graph_.stages[stage].inputs[i]].name;
}
const ir::Type& Code::input_type(size_t stage, size_t i) const {
  return graph_[graph_.stages[stage].inputs[i]].type;
}
std::string Code::name_of(Register r) const {
  const std::string& name = graph_[value_of(r)].name;
  return name.empty() ? fmt::format("%{}", index_of(value_of(r))) : "%" + name;
}

}  // namespace gradus
