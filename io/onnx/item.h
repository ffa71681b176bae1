// What a name of a model stands for while it is imported.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/value.h"

namespace gradus::onnx {

struct Item;
struct NarrowType;
using ItemPtr = std::shared_ptr<Item>;

// A tensor, of which some of three things are there: its value, known now; its elements as sizes
// that have names; its place in the program. Or a sequence of tensors, or nothing (an optional).
struct Item {
  enum class Kind { tensor, sequence, nothing } kind = Kind::tensor;
  std::string name;               // of the first value that stood for it
  ir::Type type;                  // of a tensor
  ops::Value value;               // in the program; undefined until something wants it there
  Tensor known;                   // undefined where importing does not know it
  std::optional<ir::Dims> sizes;  // of an integer tensor of rank 0 or 1: its elements
  bool input = false;             // of the model
  bool weight = false;            // becomes an input of the program when it is wanted there
  // A weight without dimensions that is a multiple of a half, and no input of the model. PyTorch
  // writes the 2 of x**2 so: as an exponent it is a number, whose slope nobody wants.
  bool number = false;
  // Depends on weights: it is computed in the program even if its value is known, so that
  // derivatives get there.
  bool follows_weights = false;
  // ONNX's element type, where it is one that there is no dtype of: the type above is of what its
  // numbers are held in (io/onnx/narrow.h).
  const NarrowType* narrow = nullptr;
  std::vector<ItemPtr> items;  // of a sequence

  static ItemPtr of(Tensor known);
  static ItemPtr of(ops::Value value);
  // Known, if all are constant.
  static ItemPtr of_sizes(ir::Dims sizes, bool scalar);
  static ItemPtr sequence(std::vector<ItemPtr> items);
  static ItemPtr nothing();
  bool is_tensor() const { return kind == Kind::tensor; }
  // The elements as sizes, whether they have names or are known; absent for what is neither, or has
  // more than one dimension.
  std::optional<ir::Dims> as_sizes() const;
};

// The type of a tensor that is there.
ir::Type type_of(const Tensor& tensor);
// Whether it is of that type, of whatever sizes where those have names.
bool fits(const Tensor& tensor, const ir::Type& type);

}  // namespace gradus::onnx
