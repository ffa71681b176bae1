// Opaque functions: what programs name in `cpp_op` and `python_op`. Here is what compiling needs of
// them; running one needs variables and is autograd/'s business.
#pragma once

#include <climits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/operator.h"
#include "gradus/type.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// What a call passes beside its tensors: `values` are numbers and bools, and `convention` says
// where they stand among the arguments, a letter each: "tst" is tensor, scalar, tensor.
struct CallScalars {
  std::string convention;
  std::vector<ir::Literal> values;
};

// The operators that call functions, by name.
inline constexpr std::string_view cpp_caller = "cpp_op", python_caller = "python_op";

// Shared by all programs and threads: const, and thread-safe.
class OpaqueFunction {
 public:
  static constexpr int any_order = INT_MAX;
  virtual ~OpaqueFunction() = default;
  // As programs write it.
  virtual std::string name() const = 0;
  // The operator that calls it.
  virtual std::string_view caller() const { return cpp_caller; }
  // The scalars that it is called with; none: tensors alone.
  virtual CallScalars scalars() const { return {}; }
  // The same function for calls with these scalars; an empty convention is the function's own.
  // Throws Error, saying what it takes, for others than it takes: here for any.
  virtual std::shared_ptr<const OpaqueFunction> with_scalars(const CallScalars& given) const;
  // How many times it can be differentiated.
  virtual int order() const { return any_order; }
  // Whether a call with the same operands gives the same again, also in another process: then a
  // state that holds its handle can be saved, and calls it anew when it is resumed.
  virtual bool replayable() const { return false; }
  // The results' types for operands of these types, tensors all. Throws Error for what it does not
  // take, saying what it takes; the caller adds the function's name. Its results' sizes are named
  // by the operands' sizes.
  virtual std::vector<ir::Type> infer(std::span<const ir::Type> operands) const = 0;
};

// The process' functions, by name. Thread-safe. Names are only ever added, and never change their
// meaning, so that no result depends on when one was.
// Throws Error for an empty name and for one that is there.
void register_function(std::shared_ptr<const OpaqueFunction> function);
// Null if there is none of that name.
std::shared_ptr<const OpaqueFunction> find_function(std::string_view name);
// All names, sorted.
std::vector<std::string> function_names();
// For a message about a name that is not there: "no C++ function named 'sqare' is registered; did
// you mean 'square'? Otherwise register it …". `caller`: the operator that was to call it.
std::string no_function(std::string_view name, std::string_view caller = cpp_caller);

}  // namespace gradus::ops

#pragma GCC visibility pop
