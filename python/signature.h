// What a call from Python is of: which tensors, in which trees, beside which other values.
#pragma once

#include "python/convert.h"

namespace gradus::python {

// Of two calls with the same one, a program that was recorded for the one does for the other.
//
// It is read off the arguments without running anything of theirs. Numbers, strings, bytes, ranges
// and frozen dataclasses of those are compared by value, all other objects by identity (and kept
// alive by who keeps the signature). Whether an object could change is for others to say.
struct Signature {
  SmallVector<uint64_t, 48> words;
  SmallVector<nb::object, 4> objects;
  Variables tensors;  // in order: by place, then by keyword; within a tree in its own order

  // `floats`: the arguments by place (negative: from the end) in whose trees a float is a tensor.
  static Signature of(nb::handle args, nb::handle kwargs, bool recording,
                      std::span<const int64_t> floats);
  uint64_t hash() const;
  // Of the same words and objects.
  bool same_as(const Signature& o) const;
};

// A result's structure: what `build` puts tensors into.
class Structure {
 public:
  Structure() = default;
  // `place` is the type of those that stand for tensors; their `index` says for which.
  Structure(nb::handle tree, nb::handle place);
  nb::object build(std::span<const Variable> tensors) const;
  int traverse(visitproc visit, void* arg) const;

 private:
  enum class Kind : uint8_t { tensor, value, list, tuple, dict, other_tuple };
  Kind kind_ = Kind::value;
  size_t index_ = 0;
  nb::object value_;              // a value; the type of another tuple
  std::vector<nb::object> keys_;  // of a dict
  std::vector<Structure> items_;
};

}  // namespace gradus::python
