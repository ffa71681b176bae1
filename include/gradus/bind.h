// What an operator does for operands of known layouts: views of them, and work.
#pragma once

#include <memory>
#include <span>

#include "gradus/operator.h"
#include "gradus/tensor.h"
#include "gradus/work_kernel.h"

namespace gradus::work {
struct Work;
}

#pragma GCC visibility push(default)

namespace gradus::ops {

struct BindCall {
  const ir::Operator& op;
  std::span<const Layout> in;  // absent operands have `present[i] == false`; numbers are 0-d
  std::span<const bool> present;
  std::span<const bool> number;  // written as a number: no say in the dtype of its own rank
  const ir::Attributes& attributes;
  const ir::DimEnvironment& sizes;
  // Results as the type rule says, contiguous. A rule may make a result a view of an operand
  // instead: then no memory is planned for it and, if all are views, there is no work.
  SmallVector<Layout, 2> out;
  struct View {
    int operand = -1;    // -1: the result has memory of its own
    int64_t offset = 0;  // elements from the operand's first one
  };
  SmallVector<View, 2> views;              // one per result
  std::shared_ptr<const work::Work> work;  // null: none

  void set_view(size_t result, int operand, Layout layout, int64_t offset) {
    out[result] = std::move(layout);
    views[result] = {operand, offset};
  }
  void set_work(work::Work w);
  // A kernel of the caller's own, which the CPU runs.
  template <class P>
  void set_kernel(work::KernelFunction run, P parameters, size_t scratch_bytes = 0) {
    set_kernel(work::Kernel::of(run, std::move(parameters), scratch_bytes));
  }
  void set_kernel(work::Kernel kernel);
  int64_t size(const ir::Dim& d) const { return d.evaluate(sizes); }
  Sizes evaluate(std::span<const ir::Dim> dims) const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }
  // Throws Error "add: message".
  [[noreturn]] void fail_with(const std::string& message) const;
};

// The layout that a number takes as an operand of work, and its element.
Layout number_layout(const ir::Number& n);
void store_number(const ir::Number& n, std::byte* target);

}  // namespace gradus::ops

#pragma GCC visibility pop
