// Values that a node keeps from the forward run for its backward one.
#pragma once

#include "gradus/context.h"
#include "gradus/variable.h"

namespace gradus::autograd {

// A variable as it was: its values, and where its gradient goes. An output is kept without the
// latter, since the node it leads to is the one that keeps it (a cycle otherwise): the node says so
// when unpacking. Nor is the variable itself kept, whose gradient may hold this very graph.
// Detects changes in place (by version) since it was saved. Callers hold the node's lock while
// packing, unpacking and releasing.
class SavedVariable {
 public:
  SavedVariable() = default;
  // Throws Error for a variable made in inference mode.
  static SavedVariable input(const Variable& v);
  static SavedVariable output(Tensor t, uint32_t output_number);

  // The variable as it was saved; undefined if that was. `self` is the node that keeps it: outputs
  // lead there. Throws Error if it was released or changed since; `name` gives it a name then
  // ("operand 'x' of 'mul'").
  Variable unpack(const Ref<Node>& self, FunctionRef<std::string()> name) const;
  // Where its gradient goes.
  Edge edge(const Ref<Node>& self) const;
  // Only its values; throws likewise.
  const Tensor& tensor(FunctionRef<std::string()> name) const;
  // Lets go; what it held is returned so that it dies where the caller wants it to.
  SavedVariable release();

 private:
  enum class Kind : uint8_t { undefined, input, output, released };
  Tensor data_;
  Edge edge_;  // of an input; of an output only the number
  uint64_t version_ = 0;
  Kind kind_ = Kind::undefined;
};

// Only the values, and the version that they had. For nodes that know the rest.
struct KeptValue {
  Tensor data;
  uint64_t version = 0;

  KeptValue() = default;
  explicit KeptValue(const Tensor& t) : data(t), version(t.version()) {}
  bool changed() const { return data.version() != version; }  // since it was kept
};

// Errors that several kinds of nodes have.
[[noreturn]] void refuse_changed(const std::string& name, const Tensor& t, uint64_t saved);
[[noreturn]] void refuse_freed(const std::string& name);
[[noreturn]] void refuse_inference();

}  // namespace gradus::autograd
