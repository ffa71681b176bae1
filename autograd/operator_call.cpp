#include "autograd/operator_call.h"

#include <algorithm>

#include "autograd/made_once.h"
#include "autograd/rule_tape.h"
#include "gradus/device_streams.h"
#include "gradus/per_thread.h"
#include "gradus/registry.h"
#include "kernels/evaluate.h"
#include "ops/roles.h"

namespace gradus::autograd {

namespace {

constexpr size_t most_loop_operands = 4;

}  // namespace

OperatorCall::OperatorCall(const ir::Operator& op, ir::Attributes attributes,
                           SmallVector<Operand, 2> operands)
    : op_(op), attributes_(std::move(attributes)), operands_(std::move(operands)) {
  SmallVector<ir::OperandType, 4> types;
  for (const Operand& o : operands_) {
    ir::OperandType& t = types.emplace_back();
    if (o.is_tensor) {
      t.kind = ir::OperandType::Kind::tensor;
      t.type = &o.type;
      if (o.type.device.kind != DeviceKind::cpu) device_ = o.type.device;
    } else if (o.number) {
      t.kind = ir::OperandType::Kind::number;
      t.category = o.number->category;
    }
  }
  auto results = ops::infer(op_, types, attributes_, nullptr);
  results_.append(results.begin(), results.end());
}

namespace {

// Whether it is the pointwise operators' own; known by those of one that has no others.
bool only_calls_loop(const work::Kernel& kernel) {
  static const std::array<work::KernelFunction, 2> known = [] {
    const ir::Operator& add = ops::sum_operator();
    const Layout layout(DType::f64, Sizes{2});
    const ir::Number one = ir::Number::of(1.0);
    const ops::CallOperand tensor{&layout, {}, nullptr}, number{nullptr, {}, &one};
    const ir::Attributes attributes = add.read({});
    return std::array{ops::bound_call(add, attributes, std::array{tensor, tensor})->kernel.run,
                      ops::bound_call(add, attributes, std::array{tensor, number})->kernel.run};
  }();
  return kernel.run && std::ranges::count(known, kernel.run) != 0;
}

}  // namespace

ops::PointwiseLoop plain_loop(const ir::Operator& op, const work::Kernel& kernel, DType result,
                              size_t operands) {
  if (!op.pointwise || !only_calls_loop(kernel)) return nullptr;
  if (result != DType::f32 && result != DType::f64) return nullptr;
  const ops::PointwiseInfo& info = op.pointwise();
  if (info.result == ops::Result::boolean || operands != info.roles.size()) return nullptr;
  for (size_t i = 0; i < operands; ++i)
    if (info.roles[i] != ops::Role::value) return nullptr;
  return info.loops[result == DType::f64 ? 0 : 1];
}

void OperatorCall::look_for_loop(const ops::BoundCall& bound) const {
  constexpr int64_t most_elements = 1 << 15;  // of more, workers take parts
  if (results_.size() != 1 || operands_.size() > most_loop_operands) return;
  const ir::Type& type = results_[0];
  const ops::PointwiseLoop loop = plain_loop(op_, bound.kernel, type.dtype, operands_.size());
  if (!loop || type.device.kind != DeviceKind::cpu) return;
  for (const Operand& o : operands_)
    if (!o.is_tensor || !(o.type == type)) return;
  const int64_t elements = operands_[0].layout.numel();
  if (elements > most_elements) return;
  settle(loop_, std::make_unique<const Loop>(
                    Loop{loop, elements, static_cast<size_t>(elements) * size_of(type.dtype)}));
}

bool OperatorCall::run_loop(std::span<const Tensor* const> operands,
                            SmallVector<Tensor, 2>& results) const {
  const Loop* loop = loop_.load(std::memory_order_acquire);
  if (!loop) return false;
  std::array<const void*, most_loop_operands> in;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Tensor& t = *operands[i];
    if (!t.plain() && !(t.layout().strides == operands_[i].layout.strides)) return false;
    in[i] = t.data();
  }
  Tensor& out =
      results.emplace_back(Tensor::of_layout(operands_[0].layout, loop->bytes, *current_context()));
  loop->run(loop->elements, in.data(), const_cast<std::byte*>(out.data()), attributes_.get());
  return true;
}

InputMetadata metadata_of(const ir::Type& type) {
  InputMetadata m;
  m.kind = InputMetadata::Kind::known;
  m.dtype = type.dtype;
  m.device = type.device;
  for (const ir::Dim& d : type.dims) m.shape.push_back(d.value());
  return m;
}

OperatorCall::~OperatorCall() {
  delete bound_.load(std::memory_order_acquire);
  delete loop_.load(std::memory_order_acquire);
  delete plan_.load(std::memory_order_acquire);
}

namespace {
bool same_type(const OperatorCall::Operand& o, const Tensor& t) {
  return o.is_tensor && o.type.dtype == t.dtype() && o.type.device == t.device() &&
         o.layout.shape == t.layout().shape;
}
}  // namespace

bool OperatorCall::is_for(std::span<const Variable* const> operands) const {
  if (operands.size() != operands_.size()) return false;
  for (size_t i = 0; i < operands.size(); ++i)
    if (!same_type(operands_[i], operands[i]->data())) return false;
  return true;
}

bool OperatorCall::matches(const ir::Operator& op, const ir::Attributes& attributes,
                           std::span<const VariableOperand> operands) const {
  if (&op_ != &op || attributes_.get() != attributes.get() || operands_.size() != operands.size())
    return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& mine = operands_[i];
    if (const auto* v = std::get_if<Variable>(&operands[i])) {
      if (!same_type(mine, v->data())) return false;
    } else if (const auto* n = std::get_if<ir::Number>(&operands[i])) {
      if (!mine.number || !(*mine.number == *n)) return false;
    } else if (mine.is_tensor || mine.number) {
      return false;
    }
  }
  return true;
}

namespace {
constexpr size_t places = 512;
struct Memory {
  std::vector<Ref<const OperatorCall>> calls = std::vector<Ref<const OperatorCall>>(places);
};
}  // namespace

Ref<const OperatorCall> OperatorCall::find(const ir::Operator& op, const ir::Attributes& attributes,
                                           std::span<const VariableOperand> operands) {
  auto& memory = PerThread<Memory>::get().calls;
  auto mix = [h = reinterpret_cast<size_t>(&op)](size_t value) mutable {
    return h = (h ^ value) * 0x9e3779b97f4a7c15;
  };
  size_t hash = mix(reinterpret_cast<size_t>(attributes.get()));
  for (const VariableOperand& o : operands) {
    if (const auto* v = std::get_if<Variable>(&o)) {
      hash = mix(static_cast<size_t>(v->data().dtype()) + 2);
      for (int64_t n : v->data().shape()) hash = mix(static_cast<size_t>(n));
    } else if (const auto* n = std::get_if<ir::Number>(&o)) {
      hash = mix(n->bits());
    } else {
      hash = mix(1);
    }
  }
  Ref<const OperatorCall>& place = memory[(hash >> 40) % places];
  if (place && place->matches(op, attributes, operands)) return place;
  SmallVector<Operand, 2> typed(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (const auto* v = std::get_if<Variable>(&operands[i])) {
      const Layout& layout = v->data().layout();
      typed[i].is_tensor = true;
      typed[i].layout = Layout(layout.dtype, layout.shape);
      typed[i].type = type_of(v->data());
    } else if (const auto* n = std::get_if<ir::Number>(&operands[i])) {
      typed[i].number = *n;
    }
  }
  auto call = make_ref<const OperatorCall>(op, attributes, std::move(typed));
  place = call;
  return call;
}

const ops::BoundCall* OperatorCall::bound() const {
  using Shared = std::shared_ptr<const ops::BoundCall>;
  const Shared* shared = bound_.load(std::memory_order_acquire);
  if (!shared) {
    SmallVector<ops::CallOperand, 4> operands(operands_.size());
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].is_tensor)
        operands[i] = {&operands_[i].layout, operands_[i].type.device, nullptr};
      else if (operands_[i].number)
        operands[i].number = &*operands_[i].number;
    }
    shared = &settle(bound_,
                     std::make_unique<const Shared>(ops::bound_call(op_, attributes_, operands)));
    if (*shared) look_for_loop(**shared);
  }
  return shared->get();
}

bool OperatorCall::run_in_place(const Tensor& first, const Tensor& second) const {
  constexpr size_t most_bytes = 256;
  if (!bound_.load(std::memory_order_acquire)) static_cast<void>(bound());
  const Loop* loop = loop_.load(std::memory_order_acquire);
  if (!loop || loop->bytes > most_bytes || operands_.size() != 2) return false;
  if (!first.plain() || !second.plain()) return false;
  std::array<const void*, 2> in{first.data(), second.data()};
  // Loops take it that nothing is read where they write.
  alignas(64) std::byte result[most_bytes];
  loop->run(loop->elements, in.data(), result, attributes_.get());
  std::memcpy(const_cast<std::byte*>(first.data()), result, loop->bytes);
  return true;
}

SmallVector<Tensor, 2> OperatorCall::run(std::span<const Tensor* const> operands) const {
  SmallVector<Tensor, 2> results;
  if (run_loop(operands, results)) return results;
  bool here = device_.kind == DeviceKind::cpu, contiguous = here;
  SmallVector<ops::RunOperand, 4> in(operands_.size());
  for (size_t i = 0; i < operands_.size(); ++i) {
    in[i].tensor = operands[i];
    if (operands[i])
      contiguous = contiguous && operands[i]->layout().strides == operands_[i].layout.strides;
    else if (operands_[i].number)
      in[i].number = &*operands_[i].number;
  }
  if (contiguous)
    if (const ops::BoundCall* call = bound()) return run_call(*call, in, *current_context());
  SmallVector<ops::EagerOperand, 4> eager;
  for (const ops::RunOperand& o : in) {
    if (o.tensor)
      eager.emplace_back(*o.tensor);
    else if (o.number)
      eager.emplace_back(*o.number);
    else
      eager.emplace_back();
  }
  if (here) return ops::evaluate(op_, attributes_, eager, *current_context());
  if (DeviceStreams* streams = device_streams(device_.kind))
    return streams->evaluate(op_, attributes_, eager);
  throw Error("{}: nothing is registered that runs operators on {}", op_.name, to_string(device_));
}

// A recorded rule.
struct OperatorCall::Recorded {
  using Marks = SmallVector<bool, 4>;
  Recorded(const OperatorCall& call, Marks wants, Marks arrives)
      : wanted(std::move(wants)), arrived(std::move(arrives)), tape(call, wanted, arrived) {}
  const Marks wanted, arrived;
  const RuleTape tape;
  const Recorded* next = nullptr;
};

const RuleTape& OperatorCall::tape(std::span<const bool> wanted,
                                   std::span<const bool> arrived) const {
  Recorded::Marks wants, arrives;
  for (size_t i = 0; i < operands_.size(); ++i)
    wants.push_back(i < wanted.size() && wanted[i] && operands_[i].is_tensor);
  for (size_t i = 0; i < results_.size(); ++i) arrives.push_back(i < arrived.size() && arrived[i]);
  for (const Recorded* r = tapes_.first(); r; r = r->next)
    if (r->wanted == wants && r->arrived == arrives) return r->tape;
  return tapes_.add(std::make_unique<Recorded>(*this, std::move(wants), std::move(arrives))).tape;
}

const TapePlan& OperatorCall::find_plan() const {
  const auto operands = static_cast<uint32_t>(operands_.size());
  const auto values = static_cast<uint32_t>(operands + results_.size());
  auto plan = std::make_unique<TapePlan>();
  plan->strict = true;
  Recorded::Marks floating, wanted;
  for (const Operand& o : operands_) {
    if (o.is_tensor && wanted.size() < 64) plan->leading |= uint64_t{1} << wanted.size();
    wanted.push_back(o.is_tensor && o.type.is_floating());
  }
  for (const ir::Type& type : results_) {
    floating.push_back(type.is_floating());
    plan->inputs.add(floating.back() ? metadata_of(type) : InputMetadata());
    plan->cotangents.push_back(values + static_cast<uint32_t>(plan->cotangents.size()));
  }
  std::vector<bool> read(values, false);
  auto note = [&](const Recorded::Marks& arrived) {
    const RuleTape& tape = this->tape(wanted, arrived);
    for (uint32_t i = 0; i < values; ++i) read[i] = read[i] || tape.reads(i);
  };
  // With all cotangents, and with each alone: rules look at which there are.
  if (std::ranges::count(floating, true) != 0) note(floating);
  for (size_t i = 0; i < floating.size() && floating.size() > 1; ++i) {
    if (!floating[i]) continue;
    Recorded::Marks alone(floating.size(), false);
    alone[i] = true;
    note(alone);
  }
  for (uint32_t i = 0; i < values; ++i)
    if (read[i] && (i >= operands || operands_[i].is_tensor)) plan->kept.push_back(i);
  return settle<const TapePlan>(plan_, std::move(plan));
}

}  // namespace gradus::autograd
