// Tensors of a PyTorch program as values. There a view shares memory with what it was taken of, and
// an operator may write to it; here a write makes a new value, which everyone who shares the memory
// reads from then on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/rules.h"

namespace gradus::pt2 {

using ops::Value;

// The parts of a complex value. As one value, they lie along a last dimension of 2.
struct Pair {
  Value re, im;
};

// How a view lies in what it was taken of.
struct View {
  std::function<Value(const Value& whole)> part;
  // The whole with another part. Empty: writing through this view is refused.
  std::function<Value(const Value& whole, const Value& part)> with_part;
};

// Memory that tensors share.
struct Memory {
  Value value;
  int writes = 0;
  bool is_input = false;  // of the program: a parameter, a buffer, a user's input
  // What it holds has no derivatives where none pass (no_grad): it was made there, and is detached
  // where the region ends; or it is a buffer that holds what it began with or what has none.
  bool without_derivatives = false;
};

// A tensor. Names of the graph that mean one tensor share it: operators that write return their
// operand.
class TensorValue {
 public:
  explicit TensorValue(Value value) : memory_(std::make_shared<Memory>()) {
    memory_->value = std::move(value);
  }
  // A view of another tensor.
  TensorValue(const TensorValue& of, View view);

  // What it holds now.
  const Value& read();
  // Everyone who shares its memory sees the new value, which has this tensor's type. Throws Error
  // where a view on the way cannot be written through.
  void write(const Value& value);
  // Lies otherwise in the same memory from now on, as transpose_ does it.
  void view_again(View view);

  Memory& memory() { return *memory_; }

 private:
  std::shared_ptr<Memory> memory_;
  std::vector<View> path_;  // from the memory's value to this one
  Value seen_;              // what it held when `seen_writes_` writes had been done
  int seen_writes_ = -1;
};
using TensorPtr = std::shared_ptr<TensorValue>;

}  // namespace gradus::pt2
