#include "kernels/bound_call.h"

#include "gradus/per_thread.h"
#include "gradus/registry.h"
#include "kernels/make.h"

namespace gradus::ops {

namespace {

struct NoSizes final : ir::DimEnvironment {
  std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
};

struct ThreadCalls {
  CallTable<std::shared_ptr<const BoundCall>> table{256};
};

std::shared_ptr<const BoundCall> bind(const ir::Operator& op, const ir::Attributes& attributes,
                                      std::span<const CallOperand> operands) {
  auto call = std::make_shared<BoundCall>();
  SmallVector<ir::Type, 4> types(operands.size());
  SmallVector<ir::OperandType, 4> operand_types(operands.size());
  SmallVector<bool, 4> present(operands.size()), number(operands.size());
  call->in.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    ir::OperandType& t = operand_types[i];
    if (const Layout* layout = operands[i].layout) {
      types[i] = ir::Type(layout->dtype, ir::Dims(layout->shape.begin(), layout->shape.end()),
                          operands[i].device);
      t.kind = ir::OperandType::Kind::tensor;
      t.type = &types[i];
      call->in[i] = *layout;
      present[i] = true;
    } else if (const ir::Number* n = operands[i].number) {
      t.kind = ir::OperandType::Kind::number;
      t.category = n->category;
      call->in[i] = number_layout(*n);
      present[i] = number[i] = true;
    }
  }
  auto result_types = infer(op, operand_types, attributes, nullptr);
  call->types.append(result_types.begin(), result_types.end());
  if (op.runs_composed(attributes) || op.traits.loop) return nullptr;
  if (!op.bind) throw Error("{}: cannot be run on its own", op.name);
  NoSizes sizes;
  BindCall bind{op, call->in, present, number, attributes, sizes, {}, {}, {}};
  for (const ir::Type& t : call->types) bind.out.emplace_back(t.dtype, bind.evaluate(t.dims));
  bind.views.resize(bind.out.size());
  op.bind(bind);
  call->out.append(bind.out.begin(), bind.out.end());
  call->views.append(bind.views.begin(), bind.views.end());
  if (bind.work) call->kernel = kernels::make(*bind.work);
  return call;
}

}  // namespace

std::shared_ptr<const BoundCall> bound_call(const ir::Operator& op,
                                            const ir::Attributes& attributes,
                                            std::span<const CallOperand> operands) {
  auto& known = PerThread<ThreadCalls>::get().table;
  const CallKey key{op, attributes, operands};
  if (const auto* call = known.find(key)) return *call;
  auto call = bind(op, attributes, operands);
  return call ? known.insert(key, std::move(call)) : nullptr;
}

SmallVector<Tensor, 2> run_call(const BoundCall& call, std::span<const RunOperand> operands,
                                Context& context) {
  SmallVector<std::byte*, 8> args(operands.size(), nullptr);
  SmallVector<uint64_t, 2> numbers;
  size_t at = 0;
  for (const RunOperand& o : operands) at += o.number != nullptr;
  numbers.resize(at);
  for (size_t i = operands.size(); i-- > 0;) {
    if (operands[i].tensor) {
      args[i] = const_cast<std::byte*>(operands[i].tensor->data());  // kernels only read operands
    } else if (operands[i].number) {
      args[i] = reinterpret_cast<std::byte*>(&numbers[--at]);
      store_number(*operands[i].number, args[i]);
    }
  }
  SmallVector<Tensor, 2> out;
  for (size_t i = 0; i < call.out.size(); ++i) {
    const BindCall::View& view = call.views[i];
    if (view.operand >= 0) {
      const Tensor& base = *operands[static_cast<size_t>(view.operand)].tensor;
      out.push_back(base.view(call.out[i], base.offset() + view.offset));
      args.push_back(nullptr);
    } else {
      out.push_back(Tensor::of_layout(call.out[i], context));
      args.push_back(const_cast<std::byte*>(out.back().data()));
    }
  }
  if (!call.kernel.run) return out;
  std::unique_ptr<std::byte, void (*)(std::byte*)> scratch(
      nullptr, [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); });
  if (call.kernel.scratch_bytes)
    scratch.reset(
        static_cast<std::byte*>(::operator new(call.kernel.scratch_bytes, std::align_val_t(64))));
  work::KernelScope scope{context.workers(), scratch.get(), &context};
  call.kernel.run(call.kernel.parameters.get(), args.data(), scope);
  return out;
}

}  // namespace gradus::ops
