#include <algorithm>

#include <fmt/format.h>

#include "gradus/tensor.h"

namespace gradus {

std::optional<int64_t> checked_numel(std::span<const int64_t> shape) {
  int64_t n = 1;
  bool empty = false, overflow = false;
  for (int64_t d : shape) {
    if (d < 0) return std::nullopt;
    empty |= d == 0;
    overflow |= __builtin_mul_overflow(n, d == 0 ? 1 : d, &n);
  }
  if (overflow) return std::nullopt;  // also for empty ones: their strides would overflow
  return empty ? 0 : n;
}

int64_t numel(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Sizes contiguous_strides(std::span<const int64_t> shape) {
  Sizes strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

void join_dimensions(Sizes& shape, std::span<Sizes* const> strides) {
  size_t left = 0;
  auto joins = [&](size_t d) {
    return left > 0 && std::ranges::all_of(strides, [&](const Sizes* s) {
             return (*s)[left - 1] == (*s)[d] * shape[d];
           });
  };
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const int64_t size = joins(d) ? shape[--left] * shape[d] : shape[d];
    for (Sizes* s : strides) (*s)[left] = (*s)[d];
    shape[left++] = size;
  }
  shape.resize(left);
  for (Sizes* s : strides) s->resize(left);
  if (left > 0) return;
  shape.push_back(1);
  for (Sizes* s : strides) s->push_back(1);
}

std::string to_string(std::span<const int64_t> shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return s + "]";
}

bool Layout::contiguous() const {
  int64_t step = 1;
  bool dense = true;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != step) dense = false;
    step *= shape[i];
  }
  return dense;
}

int64_t Layout::extent() const {
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    last += (shape[i] - 1) * strides[i];
  }
  return last + 1;
}

std::optional<int64_t> Layout::checked_extent() const {
  auto count = checked_numel(shape);
  if (!count) return std::nullopt;
  int64_t extent = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    if (strides[i] < 0 ||
        __builtin_mul_overflow(std::max<int64_t>(shape[i] - 1, 0), strides[i], &reach) ||
        __builtin_add_overflow(extent, reach, &extent))
      return std::nullopt;
  }
  return *count == 0 ? 0 : extent;
}

std::optional<Sizes> view_strides(const Layout& layout, std::span<const int64_t> shape) {
  if (layout.numel() == 0 || layout.contiguous()) return contiguous_strides(shape);
  // Walk from the back: a run of old dimensions that lie one in the other holds a run of new ones.
  Sizes strides(shape.size());
  int view = static_cast<int>(shape.size()) - 1;
  int64_t base = 1, run = 1, seen = 1;
  for (int i = layout.rank() - 1; i >= 0; --i) {
    if (run == 1) base = layout.strides[i];
    if (layout.shape[i] == 1) {
      if (i != 0) continue;
    } else {
      if (run == 1) base = layout.strides[i];
      run *= layout.shape[i];
    }
    int next = i - 1;
    while (next >= 0 && layout.shape[next] == 1) --next;
    if (next < 0 || layout.strides[next] != run * base) {
      while (view >= 0 && (seen < run || shape[view] == 1)) {
        strides[view] = seen * base;
        seen *= shape[view];
        --view;
      }
      if (seen != run) return std::nullopt;
      seen = run = 1;
    }
  }
  for (; view >= 0; --view) {
    if (shape[view] != 1) return std::nullopt;
    strides[view] = 1;
  }
  return strides;
}

}  // namespace gradus
