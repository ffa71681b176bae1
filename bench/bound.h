// One operator bound as a plan binds it: memory laid out, then a call of a kernel.
#pragma once

#include <memory>
#include <vector>

#include "gradus/registry.h"
#include "kernels/evaluate.h"
#include "kernels/make.h"

namespace gradus::bench {

class Bound {
 public:
  Bound(std::string_view name, std::vector<Tensor> operands, const ir::LiteralList& attributes,
        int workers)
      : context_({.workers = workers}), operands_(std::move(operands)) {
    struct None final : ir::DimEnvironment {
      std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
    } none;
    const ir::Operator& op = *ops::find(name);
    ir::Attributes read = op.read(attributes);
    // The shape is the operator's own: it is run once to learn it.
    std::vector<ops::EagerOperand> eager(operands_.begin(), operands_.end());
    result_ = ops::evaluate(op, read, eager, context_)[0];
    std::vector<Layout> in;
    for (const Tensor& t : operands_) in.push_back(t.layout());
    bool yes[]{true, true}, no[]{false, false};
    ops::BindCall call{op, in, yes, no, read, none, {}, {}, {}};
    call.out.push_back(result_.layout());
    call.views.resize(1);
    op.bind(call);
    kernel_ = kernels::make(*call.work);
    scratch_ = Tensor::zeros(DType::u8, Sizes{static_cast<int64_t>(kernel_.scratch_bytes)});
    for (const Tensor& t : operands_) args_.push_back(const_cast<std::byte*>(t.data()));
    args_.push_back(result_.mutable_data());
    scratch_data_ = scratch_.mutable_data();
  }

  void operator()() {
    work::KernelScope scope{context_.workers(), scratch_data_};
    kernel_.run(kernel_.parameters.get(), args_.data(), scope);
  }

 private:
  Context context_;
  std::vector<Tensor> operands_;
  Tensor result_, scratch_;
  work::Kernel kernel_;
  std::vector<std::byte*> args_;
  std::byte* scratch_data_ = nullptr;
};

}  // namespace gradus::bench
