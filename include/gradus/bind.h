// The binding of operators: for operands of known layouts, an operator's `bind` gives views and
// work.
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

// A call of an operator's `bind`.
struct BindCall {
  const ir::Operator& op;
  std::span<const Layout> in;  // by operand; if absent, `present[i]` is false; numbers are 0-d
  std::span<const bool> present;
  // The operand is written as a number, which does not take part in promotion within its category.
  std::span<const bool> number;
  const ir::Attributes& attributes;
  const ir::DimEnvironment& sizes;
  // The layouts of the results, as the type rule gives them, contiguous. A rule may make a result a
  // view of an operand. Such a result has no memory of its own. If all results are views, there is
  // no work.
  SmallVector<Layout, 2> out;
  struct View {
    int operand = -1;    // -1: the result is no view
    int64_t offset = 0;  // in elements, from the first element of the operand
  };
  SmallVector<View, 2> views;              // one per result
  std::shared_ptr<const work::Work> work;  // null: none

  void set_view(size_t result, int operand, Layout layout, int64_t offset) {
    out[result] = std::move(layout);
    views[result] = {operand, offset};
  }
  void set_work(work::Work w);
  // Sets a kernel of the caller, which the CPU runs.
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
  // Throws Error with the operator's name: "add: message".
  [[noreturn]] void fail_with(const std::string& message) const;
};

// The layout of a number as an operand of work, and a function that stores its element.
Layout number_layout(const ir::Number& n);
void store_number(const ir::Number& n, std::byte* target);

}  // namespace gradus::ops

#pragma GCC visibility pop
