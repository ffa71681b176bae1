#include "autograd/opaque_values.h"

#include "gradus/engine.h"
#include "gradus/opaque_function.h"
#include "gradus/thread_state.h"
#include "ops/opaque.h"

namespace gradus::autograd {

namespace {

// What was given and what came of it, while the graph between them is there.
struct Recorded final : RefCounted {
  Variables inputs;   // by gradient of an `eval`
  Variables results;  // by cotangent
};

// A variable that gradients are asked for, and that leads on to `v` where that is recorded.
Variable input_of(const Variable& v, bool recorded) {
  if (recorded && v.requires_grad()) return clone(v);
  Variable leaf = v.detach();
  leaf.set_requires_grad(true);
  return leaf;
}

Variable zeros_like(const Variable& v) {
  return Variable(Tensor::zeros(v.dtype(), v.data().layout().shape));
}

class Emission {
 public:
  Emission(VariableWorld& world, size_t results) : world_(world), results_(results) {}

  SmallVector<ops::Value, 2> call(const ir::Operator& op, const ir::Attributes& attributes,
                                  std::span<const ops::Value> operands) {
    const auto function =
        std::dynamic_pointer_cast<const CppFunction>(ops::called_function(op, attributes));
    if (!function) throw Error("{}: what is registered cannot be run", op.name);
    auto made = make_ref<Recorded>();
    Variables given;
    std::vector<ir::Type> types;
    for (size_t i = 0; i < operands.size(); ++i) {
      Variable v = variable_of(operands[i]);
      types.push_back(operands[i].type);
      if (ops::requires_grad(attributes, i, operands[i].type))
        made->inputs.push_back(v = input_of(v, recorded_));
      given.push_back(std::move(v));
    }
    const bool leaves_handle = results_ > function->infer(types).size();
    const Variables found = function->call(given);
    for (const Variable& v : found)
      if (is_floating(v.dtype())) made->results.push_back(v);
    return values(found, leaves_handle, std::move(made));
  }

  SmallVector<ops::Value, 2> evaluate(std::span<const ops::Value> operands) {
    const auto& of = static_cast<const Recorded&>(*operands.back().payload);
    const bool leaves_handle = results_ > of.inputs.size();
    auto made = make_ref<Recorded>();
    Variables outputs, cotangents;
    for (size_t i = 0; i < of.results.size(); ++i) {
      Variable ct = variable_of(operands[i]);
      // Who differentiates an `eval` may ask for the gradient of a cotangent that is absent.
      if (!ct.defined() && leaves_handle) ct = zeros_like(of.results[i]);
      if (leaves_handle) made->inputs.push_back(ct = input_of(ct, recorded_));
      if (!ct.defined()) continue;
      outputs.push_back(of.results[i]);
      cotangents.push_back(std::move(ct));
    }
    Variables found(of.inputs.size());
    if (!outputs.empty())
      found = grad(outputs, of.inputs, cotangents,
                   {.keep_graph = true, .create_graph = leaves_handle || recorded_});
    made->inputs.append(of.inputs.begin(), of.inputs.end());
    made->results = found;
    for (size_t i = 0; i < found.size(); ++i)
      if (!found[i].defined()) found[i] = zeros_like(of.inputs[i]);
    return values(found, leaves_handle, std::move(made));
  }

 private:
  static Variable variable_of(const ops::Value& v) {
    return v.defined() ? VariableWorld::variable(v) : Variable();
  }

  SmallVector<ops::Value, 2> values(const Variables& found, bool leaves_handle,
                                    Ref<Recorded> made) {
    SmallVector<ops::Value, 2> out;
    for (const Variable& v : found) out.push_back(world_.value(recorded_ ? v : v.detach()));
    if (!leaves_handle) return out;
    ops::Value handle;
    handle.world = &world_;
    handle.type = ir::Type::handle();
    handle.payload = std::move(made);
    out.push_back(std::move(handle));
    return out;
  }

  VariableWorld& world_;
  const size_t results_;
  const bool recorded_ = recording();         // of what is around
  GradModeGuard records_{GradMode::enabled};  // a handle wants the function's graph in any case
};

}  // namespace

SmallVector<ops::Value, 2> emit_opaque(VariableWorld& world, const ir::Operator& op,
                                       const ir::Attributes& attributes,
                                       std::span<const ops::Value> operands, size_t results) {
  Emission emission(world, results);
  return op.traits.acts ? emission.call(op, attributes, operands) : emission.evaluate(operands);
}

}  // namespace gradus::autograd
