// Moving elements: strided copies and fills, one after the other. Most operators that only
// rearrange elements are such a list.
#pragma once

#include <span>
#include <vector>

#include "work/fields.h"

namespace gradus::work {

// Where elements lie: an argument of the kernel, and how to walk it.
struct Window {
  int argument = 0;  // index into the kernel's arguments (operands, then results)
  DType dtype = DType::f32;
  Sizes strides;                      // elements; a source's may be zero or negative
  int64_t offset = 0;                 // elements from the argument's first one to the window's
  static constexpr int scratch = -1;  // as `argument`: the kernel's scratch memory
  static constexpr auto fields() {
    return std::tuple(field("argument", &Window::argument), field("dtype", &Window::dtype),
                      field("strides", &Window::strides), field("offset", &Window::offset));
  }
  friend bool operator==(const Window&, const Window&) = default;
};

// The element that a fill writes, in its dtype's bytes; the others are zero.
struct Pattern {
  alignas(8) std::array<uint8_t, 8> bytes{};
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(bytes.data()); }
  static constexpr auto fields() { return std::tuple(field("bytes", &Pattern::bytes)); }
  friend bool operator==(const Pattern&, const Pattern&) = default;
};
Pattern pattern_of(const ir::Number& value, DType dtype);

// target[i] = source[i] for every i of `shape`, dtypes converted as `cast` does; or
// target[i] = pattern, which is of the target's dtype, and the source has no say. No element of the
// target is written twice.
struct Copy {
  Sizes shape;  // dimensions that both sides walk in one stride are joined; never empty
  Window source, target;
  bool fills = false;
  Pattern pattern;
  int64_t count() const { return numel(shape); }
  static constexpr auto fields() {
    return std::tuple(field("shape", &Copy::shape), field("source", &Copy::source),
                      field("target", &Copy::target), field("fills", &Copy::fills),
                      field("pattern", &Copy::pattern));
  }
  friend bool operator==(const Copy&, const Copy&) = default;
};

// Copies in order; later ones may read what earlier ones wrote.
struct Move {
  static constexpr std::string_view name = "move";
  std::vector<Copy> copies;
  int64_t scratch_bytes = 0;  // of windows that lie there
  static constexpr auto fields() {
    return std::tuple(field("copies", &Move::copies), field("scratch_bytes", &Move::scratch_bytes));
  }
  friend bool operator==(const Move&, const Move&) = default;

  // Appends one, with its dimensions joined; nothing where there are no elements.
  void copy(std::span<const int64_t> shape, Window source, Window target);
  void fill(std::span<const int64_t> shape, const Pattern& pattern, Window target);
};

}  // namespace gradus::work
