#include "work/move.h"

#include "gradus/convert.h"

namespace gradus::work {

namespace {

void add(std::vector<Copy>& copies, Copy c) {
  if (c.count() == 0) return;
  join_dimensions(c.shape, std::array{&c.source.strides, &c.target.strides});
  copies.push_back(std::move(c));
}

}  // namespace

Pattern pattern_of(const ir::Number& value, DType dtype) {
  Pattern p;
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T t = value.category == Category::floating ? convert<T>(value.floating)
                                               : convert<T>(value.integer);
    std::memcpy(p.bytes.data(), &t, sizeof t);
  });
  return p;
}

void Move::copy(std::span<const int64_t> shape, Window source, Window target) {
  add(copies, {Sizes(shape), std::move(source), std::move(target)});
}

void Move::fill(std::span<const int64_t> shape, const Pattern& pattern, Window target) {
  Window source{0, target.dtype, Sizes(shape.size(), 0), 0};
  add(copies, {Sizes(shape), std::move(source), std::move(target), true, pattern});
}

}  // namespace gradus::work
