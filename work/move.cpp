#include "work/move.h"

#include "tensor/convert.h"

namespace gradus::work {

namespace {

// Drops dimensions of size 1 and joins neighbours that both sides walk in one stride.
void join(Copy& c) {
  Sizes shape, from, to;
  for (size_t d = 0; d < c.shape.size(); ++d) {
    int64_t n = c.shape[d], s = c.source.strides[d], t = c.target.strides[d];
    if (n == 1) continue;
    if (!shape.empty() && from.back() == s * n && to.back() == t * n) {
      shape.back() *= n;
      from.back() = s;
      to.back() = t;
    } else {
      shape.push_back(n);
      from.push_back(s);
      to.push_back(t);
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    from.push_back(1);
    to.push_back(1);
  }
  c.shape = std::move(shape);
  c.source.strides = std::move(from);
  c.target.strides = std::move(to);
}

void add(std::vector<Copy>& copies, Copy c) {
  if (c.count() == 0) return;
  join(c);
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
