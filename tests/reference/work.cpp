#include "tests/reference/work.h"

#include <new>

#include "gradus/error.h"
#include "ops/philox.h"
#include "tests/reference/parts.h"

namespace gradus::reference {

void evaluate(const Work& work, Args args) {
  std::visit([&](const auto& w) { evaluate(w, args); }, work);
}

void run_copies(std::span<const Copy> copies, Args args, std::byte* scratch) {
  auto array = [&](const Window& w) {
    return Array{w.dtype, w.argument == Window::scratch ? scratch : args[w.argument]};
  };
  for (const Copy& c : copies)
    for (int64_t i = 0; i < c.count(); ++i) {
      const int64_t to = c.target.offset + offset_of(i, c.shape, c.target.strides);
      const auto size = static_cast<int64_t>(size_of(c.target.dtype));
      if (c.fills)
        std::memcpy(array(c.target).first + to * size, c.pattern.data(), size_of(c.target.dtype));
      else
        array(c.target).set(to, array(c.source),
                            c.source.offset + offset_of(i, c.shape, c.source.strides));
    }
}

void evaluate(const Move& w, Args args) {
  std::vector<std::byte> scratch(static_cast<size_t>(w.scratch_bytes));
  run_copies(w.copies, args, scratch.data());
}

void evaluate(const Triangle& w, Args args) {
  const Array x{w.x.dtype, args[0]}, y{w.x.dtype, args[1]};
  for (int64_t i = 0; i < w.x.numel(); ++i) {
    const int64_t columns = w.x.shape.back(), rows = w.x.shape[w.x.shape.size() - 2];
    const int64_t above = i % columns - i / columns % rows;  // the main diagonal
    if (w.lower ? above <= w.diagonal : above >= w.diagonal)
      y.set(i, x, offset_of(i, w.x));
    else
      y.set(i, false);
  }
}

void evaluate(const Range& w, Args args) {
  const Array y{w.dtype, args[0]};
  for (int64_t i = 0; i < w.count; ++i)
    if (w.integral)
      y.set(i, add(w.start, multiply(i, w.step)));
    else
      y.set(i, w.first + static_cast<double>(i) * w.by);
}

namespace {

template <class C>
void space(const Spacing& w, const Array& y) {
  const C start = static_cast<C>(w.start), end = static_cast<C>(w.end);
  const C step = w.count > 1 ? (end - start) / static_cast<C>(w.count - 1) : 0;
  for (int64_t i = 0; i < w.count; ++i) {
    const bool from_start = i < w.count / 2 || w.count == 1;
    const C steps = static_cast<C>(from_start ? i : w.count - 1 - i);
    y.set(i, from_start ? start + step * steps : end - step * steps);
  }
}

}  // namespace

void evaluate(const Spacing& w, Args args) {
  const Array y{w.dtype, args[0]};
  if (is_floating(w.dtype) && w.dtype != DType::f64)
    space<float>(w, y);
  else
    space<double>(w, y);
}

void evaluate(const OneHot& w, Args args) {
  const Array x{w.index.dtype, args[0]}, y{DType::i64, args[1]};
  for (int64_t i = 0; i < w.index.numel(); ++i) {
    const auto one = x.get<int64_t>(offset_of(i, w.index));
    if (one < 0 || one >= w.classes)
      throw Error("one_hot: operand 'x' holds the class {}, outside of 0 .. {}", one,
                  w.classes - 1);
    for (int64_t c = 0; c < w.classes; ++c) y.set(i * w.classes + c, c == one);
  }
}

void evaluate(const Nonzero& w, Args args) {
  const Array x{w.x.dtype, args[0]}, y{DType::i64, args[1]};
  std::vector<int64_t> found;
  for (int64_t i = 0; i < w.x.numel(); ++i)
    if (x.get<bool>(offset_of(i, w.x))) found.push_back(i);
  const auto count = static_cast<int64_t>(found.size());
  if (count != w.count)
    throw Error("nonzero: {} elements are not zero, and `count` is {}", count, w.count);
  const auto rank = static_cast<int64_t>(w.x.shape.size());
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = found[static_cast<size_t>(n)];
    for (int64_t d = rank; d-- > 0; rest /= w.x.shape[d]) y.set(n * rank + d, rest % w.x.shape[d]);
  }
}

void evaluate(const RandomBits& w, Args args) {
  const Array given{DType::i64, args[0]}, y{DType::i64, args[1]};
  auto halves = [](uint64_t n) {
    return std::array{static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32)};
  };
  for (int64_t k = 0; k < w.keys; ++k) {
    const int64_t at = k * w.keys_stride;
    const auto key = halves(static_cast<uint64_t>(given.get<int64_t>(at)));
    const auto second = static_cast<uint64_t>(given.get<int64_t>(at + w.key_stride));
    const auto stream = halves(w.by_block ? 0 : second);
    for (int64_t i = 0; i < w.count; ++i) {
      const auto block = halves((w.by_block ? second : 0) + static_cast<uint64_t>(i / 4));
      const auto four = ops::philox({block[0], block[1], stream[0], stream[1]}, key);
      y.set(k * w.count + i, static_cast<int64_t>(four[static_cast<size_t>(i % 4)]));
    }
  }
}

// Of a group of one rank.
void evaluate(const Collective& w, Args args) {
  const Array x{w.x.dtype, args[0]}, y{w.x.dtype, args[1]};
  for (int64_t i = 0; i < w.x.numel(); ++i) y.set(i, x, offset_of(i, w.x));
  if (w.begins) Array{DType::i64, args[2]}.set(0, int64_t{0});
}
void evaluate(const CollectiveEnd&, Args) {}
void evaluate(const OwnRank&, Args args) { Array{DType::i64, args[0]}.set(0, int64_t{0}); }
void evaluate(const OwnBlock& w, Args args) {
  const Array x{w.x.dtype, args[0]}, y{w.x.dtype, args[1]};
  for (int64_t i = 0; i < w.x.numel(); ++i) y.set(i, x, offset_of(i, w.x));
}

void evaluate(const Foreign& w, Args args) {
  if (!w.kernel.run) return;
  constexpr std::align_val_t alignment{64};
  auto free = [](void* p) { ::operator delete(p, alignment); };
  std::unique_ptr<void, decltype(free)> scratch(::operator new(w.kernel.scratch_bytes, alignment),
                                                free);
  WorkerPool alone(1);
  KernelScope scope{alone, static_cast<std::byte*>(scratch.get())};
  w.kernel.run(w.kernel.parameters.get(), args, scope);
}

}  // namespace gradus::reference
