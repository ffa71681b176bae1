#include "autograd/operator_call.h"

#include "autograd/device_streams.h"
#include "autograd/rule_tape.h"
#include "base/per_thread.h"
#include "ops/evaluate.h"
#include "ops/registry.h"

namespace gradus::autograd {

namespace {

// Puts what was made in an empty place; if another thread was there first, takes its.
template <class T>
const T* settle(std::atomic<const T*>& place, std::unique_ptr<const T> made) {
  const T* expected = nullptr;
  if (place.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
    return made.release();
  return expected;
}

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
  for (const ir::Type& type : results_) {
    InputMetadata& m = metadata_.emplace_back();
    if (!type.is_floating()) continue;
    m = metadata_of(type);
    elements_ += numel(m.shape);
  }
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
  delete reads_.load(std::memory_order_acquire);
  for (const RuleTape* t = tapes_.load(std::memory_order_acquire); t;)
    delete std::exchange(t, t->next());
}

bool OperatorCall::matches(const ir::Operator& op, const ir::Attributes& attributes,
                           std::span<const VariableOperand> operands) const {
  if (&op_ != &op || attributes_.get() != attributes.get() || operands_.size() != operands.size())
    return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& mine = operands_[i];
    if (const auto* v = std::get_if<Variable>(&operands[i])) {
      const Tensor& t = v->data();
      if (!mine.is_tensor || mine.type.dtype != t.dtype() || !(mine.type.device == t.device()) ||
          !(mine.layout.shape == t.layout().shape))
        return false;
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
      typed[i].type = ir::Type(layout.dtype, ir::Dims(layout.shape.begin(), layout.shape.end()),
                               v->data().device());
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
    shared =
        settle(bound_, std::make_unique<const Shared>(ops::bound_call(op_, attributes_, operands)));
  }
  return shared->get();
}

SmallVector<Tensor, 2> OperatorCall::run(std::span<const Tensor* const> operands) const {
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

const OperatorCall::Reads& OperatorCall::reads() const {
  if (const Reads* known = reads_.load(std::memory_order_acquire)) return *known;
  auto reads =
      std::make_unique<Reads>(Reads{SlotMask(operands_.size()), SlotMask(results_.size())});
  SlotMask wanted(operands_.size()), all(results_.size());
  for (size_t i = 0; i < operands_.size(); ++i)
    if (operands_[i].is_tensor && operands_[i].type.is_floating()) wanted.set(i);
  for (size_t i = 0; i < results_.size(); ++i)
    if (results_[i].is_floating()) all.set(i);
  auto note = [&](const SlotMask& cotangents) {
    const RuleTape& tape = this->tape(wanted, cotangents);
    for (size_t i = 0; i < operands_.size(); ++i)
      if (tape.reads(i)) reads->operands.set(i);
    for (size_t i = 0; i < results_.size(); ++i)
      if (tape.reads(operands_.size() + i)) reads->results.set(i);
  };
  // With all cotangents, and with each alone: rules look at which there are.
  if (all.any()) note(all);
  for (size_t i = 0; i < results_.size() && results_.size() > 1; ++i) {
    if (!all[i]) continue;
    SlotMask alone(results_.size());
    alone.set(i);
    note(alone);
  }
  return *settle<Reads>(reads_, std::move(reads));
}

const RuleTape& OperatorCall::tape(const SlotMask& wanted, const SlotMask& cotangents) const {
  const RuleTape* first = tapes_.load(std::memory_order_acquire);
  for (const RuleTape* t = first; t; t = t->next())
    if (t->is_for(wanted, cotangents)) return *t;
  // Two threads may both record it: either is right, and both stay.
  auto tape = std::make_unique<RuleTape>(*this, wanted, cotangents);
  tape->set_next(first);
  while (!tapes_.compare_exchange_weak(first, tape.get(), std::memory_order_acq_rel))
    tape->set_next(first);
  return *tape.release();
}

}  // namespace gradus::autograd
