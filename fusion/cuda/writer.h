// How a nest becomes a source: what both forms of kernels share.
#pragma once

#include <map>
#include <vector>

#include "fusion/cuda/source.h"

namespace gradus::fusion::cuda {

class Writer {
 public:
  Writer(const Nest& nest, std::span<const std::string> lines);

 protected:
  // v3: the variable that holds a value; a number stands as itself.
  std::string value(ValueNumber v) const;
  std::string_view type(ValueNumber v) const;  // of that variable
  // A value as another dtype holds it: a name, a number or a call.
  std::string value_as(ValueNumber v, DType dtype) const;

  // A line of the kernel, or a blank one.
  void line(std::string_view text);
  // `const float v3 = v0 * v1;  // %v3 = mul(%v0, %v1) : f32 in f32`
  void define(ValueNumber v, std::string_view expression);
  void compute(size_t step) {
    define(static_cast<ValueNumber>(nest_.first_step() + step), step_text(step));
  }
  // An operator's step, as an expression over its operands' variables; what is long becomes a
  // function before the kernel.
  std::string step_text(size_t step);
  std::string comment(ValueNumber v) const;
  // `shape.n2`, as the kernel writes a field.
  std::string field(const Field& f) const;

  // The place of load k, from a place of the loops: `x0 + i64(i0) * shape.x0_by_0`, without the
  // innermost dimension.
  std::string place(size_t load) const;
  // Variables i0, i1, .. out of `row`, for those that a load walks.
  void find_coordinates();
  // The kernel's head: attributes and parameters. `restricted`: no store lies where a load does.
  std::string head(bool restricted) const;
  // Struct Shape, the prelude and the functions before the kernel.
  std::string finish(const KernelShape& shape, bool restricted);

  bool moves(size_t load) const;  // whether it walks any dimension
  DType stored(size_t i) const;   // of store i, then of row stores

  const Nest& nest_;
  std::vector<size_t> instructions_;  // of each step, as far as it is written
  std::string indent_ = "  ";
  std::string body_, definitions_;

 private:
  std::string function_for(const Step& step, std::string_view result, size_t& instructions,
                           const std::vector<std::string>& operands, bool& inside);
  const std::span<const std::string> lines_;
  std::vector<std::string> comments_;             // by value
  std::map<std::string, std::string> functions_;  // by text without the name
  std::map<std::string, int> named_;
};

// A kernel of elements, each on its own, and one of rows.
Source write_elements(const Nest& nest, std::span<const std::string> lines);
Source write_rows(const Nest& nest, std::span<const std::string> lines);

}  // namespace gradus::fusion::cuda
