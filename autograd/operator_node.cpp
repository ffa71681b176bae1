#include "autograd/operator_node.h"

#include "ops/registry.h"

namespace gradus::autograd {

namespace {

// Says which operand (or, from `results` on, which result) a value is.
struct ProbeMark final : RefCounted {
  explicit ProbeMark(size_t n) : number(n) {}
  size_t number;
};

// A world of types that notes which marked values are read.
class ProbeWorld final : public ops::World {
 public:
  static constexpr size_t first_result = size_t{1} << 32;

  void read(const ops::Value& v) {
    if (!v.payload) return;
    size_t n = static_cast<const ProbeMark&>(*v.payload).number;
    uint64_t& bits = n >= first_result ? reads.results : reads.operands;
    n %= first_result;
    if (n < 64) bits |= uint64_t{1} << n;
  }
  ops::Value value(ir::Type type, Ref<const RefCounted> mark = {}) {
    ops::Value v;
    v.world = this;
    v.type = std::move(type);
    v.payload = std::move(mark);
    return v;
  }
  SmallVector<ops::Value, 2> emit(const ir::Operator& op, ir::Attributes attributes,
                                  std::span<const ops::Value> operands) override {
    SmallVector<ir::OperandType, 4> types;
    for (const ops::Value& v : operands) {
      read(v);
      types.push_back(v.operand_type());
    }
    SmallVector<ops::Value, 2> out;
    for (ir::Type& t : ops::infer(op, types, attributes, nullptr))
      out.push_back(value(std::move(t)));
    return out;
  }

  RuleReads reads;
};

bool any_defined(std::span<const ops::Value> values) {
  for (const ops::Value& v : values)
    if (v.defined()) return true;
  return false;
}

}  // namespace

RuleReads probe_rule(const ir::Operator& op, const ir::Attributes& attributes,
                     std::span<const ops::Value> operands, std::span<const ir::Type> results) {
  ProbeWorld world;
  SmallVector<ops::Value, 4> x;
  SmallVector<ops::Value, 2> y;
  SmallVector<bool, 4> wanted;
  for (size_t i = 0; i < operands.size(); ++i) {
    bool tensor = operands[i].is_tensor();
    x.push_back(tensor ? world.value(operands[i].type, make_ref<ProbeMark>(i)) : operands[i]);
    wanted.push_back(tensor && operands[i].type.is_floating());
  }
  for (size_t i = 0; i < results.size(); ++i)
    y.push_back(world.value(results[i], make_ref<ProbeMark>(ProbeWorld::first_result + i)));
  // With all cotangents, and with each alone: rules look at which there are.
  size_t rounds = results.size() > 1 ? results.size() + 1 : 1;
  for (size_t round = 0; round < rounds; ++round) {
    SmallVector<ops::Value, 2> dy;
    for (size_t i = 0; i < results.size(); ++i) {
      bool there =
          results[i].is_floating() && (round == results.size() || rounds == 1 || i == round);
      dy.push_back(there ? world.value(results[i]) : ops::Value());
    }
    if (!any_defined(dy)) continue;
    ops::VjpCall call{op, world, x, y, dy, attributes, wanted, {}};
    call.gradients.resize(x.size());
    op.vjp(call);
    for (const ops::Value& g : call.gradients) world.read(g);
  }
  if (operands.size() > 64) world.reads.operands = ~uint64_t{0};
  return world.reads;
}

OperatorNode::OperatorNode(const ir::Operator& op, ir::Attributes attributes,
                           std::span<const VariableOperand> operands,
                           SmallVector<ir::Type, 2> operand_types,
                           SmallVector<ir::Type, 1> result_types, SmallVector<Edge, 2> edges,
                           const RuleReads& reads)
    : Node(std::move(edges)),
      op_(op),
      attributes_(std::move(attributes)),
      operand_types_(std::move(operand_types)),
      result_types_(std::move(result_types)),
      operands_(operands.size()) {
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& o = operands_[i];
    if (const auto* n = std::get_if<ir::Number>(&operands[i])) {
      o.number = *n;
    } else if (const auto* v = std::get_if<Variable>(&operands[i])) {
      o.is_variable = true;
      if (i >= 64 || reads.operands >> i & 1) o.saved = SavedVariable::input(*v);
    }
  }
}

void OperatorNode::keep_results(std::span<const Tensor> results, const RuleReads& reads) {
  results_.resize(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    if (i >= 64 || reads.results >> i & 1)
      results_[i] = SavedVariable::output(results[i], static_cast<uint32_t>(i));
}

std::string OperatorNode::what(const char* kind, size_t i) const {
  std::string name = kind == std::string_view("operand")
                         ? std::string(op_.operand(i).name)
                         : std::string(op_.results[std::min(i, op_.results.size() - 1)]);
  return fmt::format("{} '{}' of '{}'", kind, name, op_.name);
}

void OperatorNode::unpack(ops::World& world, FunctionRef<ops::Value(const Variable&)> value,
                          SmallVector<ops::Value, 2>& x, SmallVector<ops::Value, 2>& y) const {
  x.resize(operands_.size());
  y.resize(result_types_.size());
  auto by_type = [&](const ir::Type& type) {
    ops::Value v;
    v.world = &world;
    v.type = type;
    return v;
  };
  Lock lock(*this);
  Ref<Node> self(const_cast<OperatorNode*>(this));
  for (size_t i = 0; i < x.size(); ++i) {
    const Operand& o = operands_[i];
    x[i].operand = o.number;
    if (!o.is_variable) continue;
    Variable v = o.saved.unpack(self, [&] { return what("operand", i); });
    x[i] = v.defined() ? value(v) : by_type(operand_types_[i]);
  }
  for (size_t i = 0; i < y.size(); ++i) {
    Variable v = results_[i].unpack(self, [&] { return what("result", i); });
    y[i] = v.defined() ? value(v) : by_type(result_types_[i]);
  }
}

Variables OperatorNode::apply(Variables&& cotangents) {
  Variables gradients(outputs());
  VariableWorld world;
  SmallVector<ops::Value, 2> x, y, dy(result_types_.size());
  SmallVector<bool, 4> wanted(operands_.size(), false);
  bool reached = false;
  for (size_t i = 0; i < dy.size(); ++i)
    if (cotangents[i].defined()) {
      dy[i] = world.value(cotangents[i]);
      reached = true;
    }
  if (!reached) return gradients;
  unpack(
      world, [&](const Variable& v) { return world.value(v); }, x, y);
  for (size_t i = 0; i < x.size(); ++i)
    wanted[i] = operands_[i].is_variable && task_should_compute_output(i);
  ops::VjpCall call{op_, world, x, y, dy, attributes_, wanted, {}};
  call.gradients.resize(x.size());
  op_.vjp(call);
  for (size_t i = 0; i < x.size(); ++i)
    if (wanted[i]) gradients[i] = VariableWorld::variable(call.gradients[i]);
  return gradients;
}

void OperatorNode::release_variables() {
  // What was kept dies after the lock is let go.
  SmallVector<SavedVariable, 4> gone;
  Lock lock(*this);
  for (Operand& o : operands_) gone.push_back(o.saved.release());
  for (SavedVariable& r : results_) gone.push_back(r.release());
}

}  // namespace gradus::autograd
