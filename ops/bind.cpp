#include "gradus/bind.h"

#include "gradus/error.h"
#include "ops/bind_work.h"

namespace gradus::ops {

Sizes BindCall::evaluate(std::span<const ir::Dim> dims) const {
  Sizes s;
  for (const ir::Dim& d : dims) s.push_back(size(d));
  return s;
}

void BindCall::set_work(work::Work w) { work = work::share(std::move(w)); }
void BindCall::set_kernel(work::Kernel kernel) { set_work(work::foreign(std::move(kernel))); }

void BindCall::fail_with(const std::string& message) const {
  throw Error(fmt::format("{}: {}", op.name, message));
}

Layout number_layout(const ir::Number& n) {
  return Layout(n.category == Category::floating   ? DType::f64
                : n.category == Category::integral ? DType::i64
                                                   : DType::boolean,
                {});
}

void store_number(const ir::Number& n, std::byte* target) {
  if (n.category == Category::floating)
    std::memcpy(target, &n.floating, 8);
  else if (n.category == Category::integral)
    std::memcpy(target, &n.integer, 8);
  else
    *target = static_cast<std::byte>(n.integer != 0);
}

work::Window operand_window(const BindCall& call, size_t i) {
  return {static_cast<int>(i), call.in[i].dtype, call.in[i].strides, 0};
}

work::Window result_window(const BindCall& call, size_t i) {
  return {static_cast<int>(call.in.size() + i), call.out[i].dtype,
          contiguous_strides(call.out[i].shape), 0};
}

void bind_copy(BindCall& call) {
  work::Move move;
  work::Window target = result_window(call);
  target.strides = contiguous_strides(call.in[0].shape);
  move.copy(call.in[0].shape, operand_window(call, 0), std::move(target));
  call.set_work(std::move(move));
}

}  // namespace gradus::ops
