// The work of every operator, and of its derivatives, done by kernels and by the evaluator: a kind
// of work that nothing covers is found here.
// SPEC F6
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "gradus/bind.h"
#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/value.h"
#include "tests/property/samples.h"
#include "tests/work/trial.h"

namespace gradus::work::test {
namespace {

using ops::Value;

struct Payload final : RefCounted {
  explicit Payload(Tensor t) : tensor(std::move(t)) {}
  Tensor tensor;
};

// What a pass takes away before anything runs.
struct Structural {};

// A world in which an operator's work is done in both ways. Compositions are taken apart.
class CheckingWorld final : public ops::World {
 public:
  CheckingWorld(Random& random, std::set<size_t>& kinds) : random_(random), kinds_(kinds) {}

  Value value(Tensor tensor) {
    Value v;
    v.world = this;
    ir::Dims dims;
    for (int64_t n : tensor.shape()) dims.push_back(n);
    v.type = ir::Type(tensor.dtype(), std::move(dims), tensor.device());
    v.payload = make_ref<Payload>(std::move(tensor));
    return v;
  }

  SmallVector<Value, 2> emit(const ir::Operator& op, ir::Attributes attributes,
                             std::span<const Value> operands) override {
    SmallVector<ir::OperandType, 4> types;
    SmallVector<const Tensor*, 4> tensors;
    for (const Value& v : operands) {
      types.push_back(v.operand_type());
      tensors.push_back(v.is_tensor() ? &tensor_of(v) : nullptr);
    }
    // A program has a name for a size that data decides.
    if (op.data_sized && op.data_sized(types))
      attributes = ops::with_count(op, attributes, op.count(tensors));
    const auto results = ops::infer(op, types, attributes, nullptr);
    if (op.runs_composed(attributes)) {
      ops::ComposeCall call{op, *this, operands, attributes, {}};
      op.compose(call);
      return call.results;
    }
    if (!op.bind) throw Structural();
    return run(op, attributes, operands, results);
  }

 private:
  static const Tensor& tensor_of(const Value& v) {
    return static_cast<const Payload&>(*v.payload).tensor;
  }

  SmallVector<Value, 2> run(const ir::Operator& op, const ir::Attributes& attributes,
                            std::span<const Value> operands, std::span<const ir::Type> types) {
    struct NoSizes final : ir::DimEnvironment {
      std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
    } sizes;
    SmallVector<Layout, 2> in(operands.size());
    SmallVector<bool, 4> present(operands.size()), number(operands.size());
    Trial trial(random_);
    for (size_t i = 0; i < operands.size(); ++i) {
      present[i] = operands[i].defined();
      number[i] = operands[i].is_number();
      if (operands[i].is_tensor()) {
        in[i] = tensor_of(operands[i]).layout();
        trial.operand(in[i], tensor_of(operands[i]).data());
      } else if (number[i]) {
        const ir::Number n = number_of(operands[i]);
        std::byte element[8]{};
        in[i] = ops::number_layout(n);
        ops::store_number(n, element);
        trial.operand(in[i], element);
      } else {
        trial.operand(DType::u8, 0);
      }
    }
    ops::BindCall call{op, in, present, number, attributes, sizes, {}, {}, {}};
    for (const ir::Type& t : types) call.out.emplace_back(t.dtype, call.evaluate(t.dims));
    call.views.resize(call.out.size());
    op.bind(call);
    SmallVector<int, 2> arguments;
    for (const Layout& l : call.out) arguments.push_back(trial.result(l.dtype, l.numel()));
    if (call.work) {
      kinds_.insert(call.work->index());
      trial.work = *call.work;
      // Of these no order is specified.
      if (const auto* f = std::get_if<Factor>(call.work.get());
          f && f->function != MatrixFunction::cholesky)
        trial.slack = [e = epsilon_of(f->x.dtype)](int, int64_t, double y) {
          return 1e-12 + 2 * e * std::fabs(y);
        };
      if (const auto* f = std::get_if<Fourier>(call.work.get()))
        trial.slack = [e = epsilon_of(f->x.dtype)](int, int64_t, double y) {
          return 1e-12 + 2 * e * std::fabs(y);
        };
      const std::string fault = trial.check();
      EXPECT_EQ(fault, "") << op.name << ": " << print(*call.work);
    }
    SmallVector<Value, 2> values;
    for (size_t i = 0; i < call.out.size(); ++i) {
      const auto& [operand, offset] = call.views[i];
      if (operand >= 0) {
        const Tensor& base = tensor_of(operands[static_cast<size_t>(operand)]);
        values.push_back(value(base.view(call.out[i], base.offset() + offset)));
        continue;
      }
      Tensor y = Tensor::empty(call.out[i].dtype, call.out[i].shape);
      if (y.numel() > 0)
        std::memcpy(y.mutable_data(), trial.evaluated(arguments[i]),
                    static_cast<size_t>(y.numel()) * size_of(y.dtype()));
      values.push_back(value(std::move(y)));
    }
    return values;
  }

  static ir::Number number_of(const Value& v) {
    if (const auto* n = std::get_if<ir::Number>(&v.operand)) return *n;
    return ir::Number::of(std::get<ir::Dim>(v.operand).value());
  }

  Random& random_;
  std::set<size_t>& kinds_;
};

// Runs a program's stages in the world, as far as it has sizes and nodes that run.
void run_stages(const ir::Graph& program, std::span<const Tensor> inputs, CheckingWorld& world,
                Random& random) {
  std::vector<Value> values(program.values.size());
  for (size_t k = 0; k < program.stages.size(); ++k) {
    const ir::Stage& stage = program.stages[k];
    for (size_t i = 0; i < stage.inputs.size(); ++i) {
      Value& v = values[ir::index_of(stage.inputs[i])];
      if (k == 0) {
        v = world.value(inputs[i]);
        continue;
      }
      const ir::Type& type = program[stage.inputs[i]].type;
      Sizes shape;
      for (const ir::Dim& d : type.dims) shape.push_back(d.value());
      std::vector<double> cotangent(static_cast<size_t>(numel(shape)));
      for (double& x : cotangent) x = random.real(-1, 1);
      v = world.value(Tensor::from(type.dtype, shape, cotangent));
    }
    for (const ir::Node& node : stage.nodes) {
      SmallVector<Value, 4> operands;
      for (const ir::Operand& o : node.operands) {
        const ir::ValueId id = ir::value_in(o);
        if (id != ir::no_value)
          operands.push_back(values[ir::index_of(id)]);
        else if (const auto* d = std::get_if<ir::Dim>(&o))
          operands.push_back(Value::number(*d));
        else
          operands.push_back(Value{nullptr, o, {}, {}});
      }
      const auto results = world.emit(*node.op, node.attributes, operands);
      ASSERT_EQ(results.size(), node.results.size());
      for (size_t i = 0; i < results.size(); ++i)
        values[ir::index_of(node.results[i])] = results[i];
    }
  }
}

// The program, and two derivatives where it has them and types know all sizes.
ir::Graph with_derivatives(const property::Sample& s, const ir::Graph& program, DType dtype) {
  if (!s.op->traits.differentiable || !is_floating(dtype)) return program;
  ir::Graph derived = ir::differentiate(program, {.order = 2});
  return property::data_decides_a_size(derived) ? program : derived;
}

class Operators : public testing::TestWithParam<DType> {};

TEST_P(Operators, DoTheirWork) {
  Random random(static_cast<uint64_t>(GetParam()));
  std::set<size_t> kinds;
  CheckingWorld world(random, kinds);
  int ran = 0, structural = 0;
  for (const property::Sample& s : property::all_samples()) {
    const auto program = s.program(GetParam());
    if (!program) continue;
    SCOPED_TRACE(s.text(GetParam()));
    const ir::Graph stages = with_derivatives(s, *program, GetParam());
    for (auto lie : {property::Lie::contiguous, property::Lie::transposed, property::Lie::sliced}) {
      std::vector<Tensor> inputs;
      for (const Tensor& t : s.inputs(GetParam(), 1)) inputs.push_back(property::lay(t, lie));
      try {
        run_stages(stages, inputs, world, random);
        ++ran;
      } catch (const Structural&) {
        ++structural;
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
  EXPECT_GT(ran, 300);
  EXPECT_LT(structural * 20, ran);
  if (GetParam() != DType::f64) return;
  std::set<std::string_view> missing;
  const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    [&]<size_t... I>(std::index_sequence<I...>) {
      (list.push_back(std::variant_alternative_t<I, Kinds>::name), ...);
    }
    (std::make_index_sequence<std::variant_size_v<Kinds>>());
    return list;
  }();
  for (size_t k = 0; k < names.size(); ++k)
    if (!kinds.contains(k)) missing.insert(names[k]);
  // Those are made by the planner, or are of operators that speak to other ranks. Foreign work is
  // that of `range` and of users' own operators.
  EXPECT_EQ(missing, (std::set<std::string_view>{"collective", "collective_end", "index_check",
                                                 "nest", "own_block", "own_rank"}));
}

// Every size of every sample made 0 in its turn.
TEST(EmptyOperands, DoTheirWork) {
  Random random(0);
  std::set<size_t> kinds;
  CheckingWorld world(random, kinds);
  int ran = 0;
  for (const property::Sample& s : property::all_samples()) {
    std::set<int64_t> sizes;
    for (const property::Slot& slot : s.slots) sizes.insert(slot.shape.begin(), slot.shape.end());
    for (int64_t size : sizes) {
      property::Sample empty = s;
      for (property::Slot& slot : empty.slots)
        std::replace(slot.shape.begin(), slot.shape.end(), size, int64_t{0});
      const auto program = empty.program(DType::f32);
      if (!program) continue;
      SCOPED_TRACE(empty.text(DType::f32));
      try {
        run_stages(with_derivatives(empty, *program, DType::f32), empty.inputs(DType::f32, 1),
                   world, random);
        ++ran;
      } catch (const Structural&) {
      } catch (const Error&) {  // the operator has no such thing to do
      }
    }
  }
  EXPECT_GT(ran, 200);
}

INSTANTIATE_TEST_SUITE_P(Work, Operators,
                         testing::Values(DType::f64, DType::f32, DType::f16, DType::bf16,
                                         DType::i64, DType::i32, DType::i8, DType::u8,
                                         DType::boolean, DType::i16, DType::u16, DType::u32,
                                         DType::u64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace gradus::work::test
