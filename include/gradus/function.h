// Opaque functions, which programs call with `cpp_op` and `python_op`: the part that compilation
// needs. gradus/opaque_function.h adds the call.
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

// The arguments of a call besides its tensors. `values` are numbers and bools. `convention` has one
// letter for each argument: "tst" is tensor, scalar, tensor.
struct CallScalars {
  std::string convention;
  std::vector<ir::Literal> values;
};

// The operators that call functions.
inline constexpr std::string_view cpp_caller = "cpp_op", python_caller = "python_op";

// A function that the user registers. All programs and threads share it: it is const, and must be
// thread-safe.
class OpaqueFunction {
 public:
  static constexpr int any_order = INT_MAX;
  virtual ~OpaqueFunction() = default;
  // The name in programs.
  virtual std::string name() const = 0;
  // The operator that calls it.
  virtual std::string_view caller() const { return cpp_caller; }
  // The scalars of its calls. None: tensors only.
  virtual CallScalars scalars() const { return {}; }
  // Returns the function for calls with these scalars. An empty convention means the function's
  // own. Throws Error, with the scalars that it takes, for other scalars; the default
  // implementation throws for any.
  virtual std::shared_ptr<const OpaqueFunction> with_scalars(const CallScalars& given) const;
  // How many times it can be differentiated.
  virtual int order() const { return any_order; }
  // Whether a call with the same operands has the same results, also in another process. A state
  // that holds a handle of such a function can be saved, and State::resume repeats the call.
  virtual bool replayable() const { return false; }
  // Returns the types of the results for operands of these types, which are all tensors. Sizes of
  // results are expressions of the operands' sizes. Throws Error, with the operands that the
  // function takes, for other operands; the caller adds the name of the function.
  virtual std::vector<ir::Type> infer(std::span<const ir::Type> operands) const = 0;
};

// Registers a function for the process. Registered names are never removed or changed. Thread-safe.
// Throws Error for an empty name and for a name that is in use.
void register_function(std::shared_ptr<const OpaqueFunction> function);
// Returns the function of that name, or null. Thread-safe.
std::shared_ptr<const OpaqueFunction> find_function(std::string_view name);
// All names, sorted.
std::vector<std::string> function_names();
// Returns the message for an unknown name: "no C++ function named 'sqare' is registered; did you
// mean 'square'? Otherwise register it …". `caller` is the operator of the call.
std::string no_function(std::string_view name, std::string_view caller = cpp_caller);

}  // namespace gradus::ops

#pragma GCC visibility pop
