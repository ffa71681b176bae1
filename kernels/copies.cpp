#include "kernels/copies.h"

#include <algorithm>
#include <cstdlib>

#include "gradus/convert.h"
#include "gradus/error.h"
#include "kernels/tiles.h"

namespace gradus::kernels {

namespace {

constexpr int64_t chunk_elements = 1 << 16;  // what one worker takes at a time
constexpr int64_t block = 32;                // edge of a transposed block
constexpr int64_t tile = 512;                // elements converted at a time

// Calls f with an unsigned type of as many bytes as an element. What f's loops read beside elements
// is to be f's own: as far as the compiler knows, a store of an element may change all else.
template <class F>
decltype(auto) visit_size(size_t size, F f) {
  switch (size) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    default:
      return f(uint64_t());
  }
}

int64_t bytes(int64_t elements, DType d) { return elements * static_cast<int64_t>(size_of(d)); }

}  // namespace

void copy_row(size_t size, const std::byte* source, int64_t source_stride, std::byte* target,
              int64_t target_stride, int64_t n) {
  if (source_stride == 1 && target_stride == 1 && n * static_cast<int64_t>(size) >= 32) {
    std::memcpy(target, source, static_cast<size_t>(n) * size);
    return;
  }
  visit_size(size, [&](auto zero) {
    using T = decltype(zero);
    const T* s = reinterpret_cast<const T*>(source);
    T* t = reinterpret_cast<T*>(target);
    const int64_t from = source_stride, to = target_stride, count = n;
    if (to == 1 && from == 0)
      std::fill(t, t + count, *s);
    else if (to == 1)
      for (int64_t i = 0; i < count; ++i) t[i] = s[i * from];
    else
      for (int64_t i = 0; i < count; ++i) t[i * to] = s[i * from];
  });
}

void convert_row(DType source_dtype, const std::byte* source, int64_t source_stride,
                 DType target_dtype, std::byte* target, int64_t target_stride, int64_t n) {
  DType tile_dtype =
      source_dtype == DType::boolean ? DType::boolean : dtype_of(compute_of(source_dtype));
  alignas(64) std::byte values[tile * 8], converted[tile * 8];
  for (int64_t done = 0; done < n; done += tile) {
    int64_t m = std::min(tile, n - done);
    load_tile(source_dtype, tile_dtype, source + bytes(done * source_stride, source_dtype),
              source_stride, m, values);
    std::byte* t = target + bytes(done * target_stride, target_dtype);
    if (target_stride == 1) {
      store_tile(tile_dtype, target_dtype, values, m, t);
    } else {
      store_tile(tile_dtype, target_dtype, values, m, converted);
      copy_row(size_of(target_dtype), converted, 1, t, target_stride, m);
    }
  }
}

void fill_row(size_t size, const Pattern& pattern, std::byte* target, int64_t stride, int64_t n) {
  copy_row(size, pattern.data(), 0, target, stride, n);
}

namespace {

// The dimension that makes the copy a transposition of blocks: it then comes before the row.
int find_across(Copy& c) {
  Sizes &shape = c.shape, &from = c.source.strides, &to = c.target.strides;
  const bool turned = !c.fills && std::abs(from.back()) > 1 && to.back() == 1 &&
                      c.source.dtype == c.target.dtype && shape.back() >= 4;
  int across = -1;
  for (size_t d = 0; turned && d + 1 < shape.size(); ++d)
    if (from[d] == 1 && shape[d] >= 4) across = static_cast<int>(d);
  if (across < 0) return across;
  for (Sizes* v : {&shape, &from, &to}) {
    const int64_t x = (*v)[static_cast<size_t>(across)];
    v->erase(v->data() + across);
    v->insert(v->data() + v->size() - 1, x);
  }
  return across;
}

// Whether both fill a column of the same matrix, and neither reads what the other writes.
bool fill_same_rows(const Copy& a, const Copy& b) {
  auto is_column = [](const Copy& c) {
    return c.shape.size() == 1 && std::abs(c.target.strides[0]) > 1 && !c.fills &&
           c.source.argument != c.target.argument;
  };
  return is_column(a) && is_column(b) && a.shape == b.shape &&
         a.target.argument == b.target.argument && a.target.strides == b.target.strides;
}

}  // namespace

namespace {

// A copy of short rows with gaps between the elements that it writes: as copies along its longest
// dimension, one for each index of the others, if they are few.
SmallVector<Copy, 4> long_rows(const Copy& c) {
  constexpr int64_t short_row = 16, most = 32;
  const Sizes &shape = c.shape, &to = c.target.strides;
  const size_t last = shape.size() - 1;
  if (shape.size() < 2 || c.fills || shape[last] >= short_row || std::abs(to[last]) <= 1)
    return {c};
  const auto longest = static_cast<size_t>(std::ranges::max_element(shape) - shape.begin());
  const int64_t count = c.count();
  if (shape[longest] < 2 * short_row || count / shape[longest] > most || std::abs(to[longest]) <= 1)
    return {c};
  Sizes others = shape;
  others[longest] = 1;
  SmallVector<Copy, 4> parts;
  Walk<2> walk(others, {c.source.strides, to}, 0);
  for (int64_t i = 0; i < count / shape[longest]; ++i, walk.next()) {
    Copy& part = parts.emplace_back(c);
    part.shape = {shape[longest]};
    part.source.strides = {c.source.strides[longest]};
    part.target.strides = {to[longest]};
    part.source.offset += walk.offset(0);
    part.target.offset += walk.offset(1);
  }
  return parts;
}

}  // namespace

Copies::Copies(std::span<const Copy> copies) {
  for (const Copy& whole : copies)
    for (const Copy& c : long_rows(whole)) {
      Job& j = jobs_.emplace_back();
      j.copy = c;
      j.across = find_across(j.copy);
      j.count = c.count();
    }
  for (size_t i = 0; i < jobs_.size(); i += jobs_[i].columns)
    while (i + jobs_[i].columns < jobs_.size() &&
           fill_same_rows(jobs_[i].copy, jobs_[i + jobs_[i].columns].copy))
      ++jobs_[i].columns;
}

namespace {

// n elements of a row, from some places on.
void run_row(const Copy& c, const std::byte* source, std::byte* target, int64_t n) {
  const int64_t from = c.source.strides.back(), to = c.target.strides.back();
  if (c.fills)
    fill_row(size_of(c.target.dtype), c.pattern, target, to, n);
  else if (c.source.dtype != c.target.dtype)
    convert_row(c.source.dtype, source, from, c.target.dtype, target, to, n);
  else
    copy_row(size_of(c.target.dtype), source, from, target, to, n);
}

}  // namespace

// Elements [first, last) in row-major order of the copy's shape.
void Copies::run_rows(const Copy& j, const std::byte* source, std::byte* target, int64_t first,
                      int64_t last) {
  const int64_t row = j.shape.back();
  const int64_t from = j.source.strides.back(), to = j.target.strides.back();
  const size_t outer = j.shape.size() - 1;
  if (outer == 0)
    return run_row(j, source + bytes(first * from, j.source.dtype),
                   target + bytes(first * to, j.target.dtype), last - first);
  auto leading = [&](const Sizes& v) { return std::span<const int64_t>(v.data(), outer); };
  Walk<2> walk(leading(j.shape), {leading(j.source.strides), leading(j.target.strides)},
               first / row);
  int64_t column = first % row;
  for (int64_t done = first; done < last;) {
    int64_t n = std::min(row - column, last - done);
    run_row(j, source + bytes(walk.offset(0) + column * from, j.source.dtype),
            target + bytes(walk.offset(1) + column * to, j.target.dtype), n);
    done += n;
    column = 0;
    walk.next();
  }
}

// Transposes by blocks, so that neither side is walked across cache lines all the way. A unit is
// `block` rows of one outer index; units [first, last).
void Copies::run_blocks(const Copy& j, const std::byte* source, std::byte* target, int64_t first,
                        int64_t last) {
  const size_t outer = j.shape.size() - 2;
  const int64_t rows = j.shape[outer], columns = j.shape[outer + 1];
  const int64_t from = j.source.strides[outer + 1], to = j.target.strides[outer];
  const int64_t units = (rows + block - 1) / block;
  auto leading = [&](const Sizes& v) { return std::span<const int64_t>(v.data(), outer); };
  visit_size(size_of(j.target.dtype), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t u = first; u < last; ++u) {
      Walk<2> walk(leading(j.shape), {leading(j.source.strides), leading(j.target.strides)},
                   u / units);
      int64_t r0 = u % units * block, r1 = std::min(rows, r0 + block);
      const T* s = reinterpret_cast<const T*>(source) + walk.offset(0);
      T* t = reinterpret_cast<T*>(target) + walk.offset(1);
      for (int64_t c0 = 0; c0 < columns; c0 += block) {
        int64_t c1 = std::min(columns, c0 + block);
        const int64_t across = from, down = to;
        for (int64_t r = r0; r < r1; ++r)
          for (int64_t c = c0; c < c1; ++c) t[r * down + c] = s[r + c * across];
      }
    }
  });
}

namespace {

std::byte* begin_of(const Window& w, std::byte* const* args, KernelScope& scope) {
  std::byte* base = w.argument == Window::scratch ? scope.scratch : args[w.argument];
  return base + bytes(w.offset, w.dtype);
}

}  // namespace

// Some rows at a time: all columns of theirs then lie in the nearest cache.
void Copies::run_columns(std::span<const Job> jobs, std::byte* const* args, KernelScope& scope) {
  constexpr int64_t near_bytes = 16 << 10;
  const Window& target = jobs[0].copy.target;
  const int64_t row_bytes = bytes(std::abs(target.strides[0]), target.dtype);
  const int64_t rows_at_a_time = std::clamp<int64_t>(near_bytes / row_bytes, 16, 256);
  const auto columns = static_cast<int64_t>(jobs.size());
  scope.workers.parallel_parts(jobs[0].count, std::max(rows_at_a_time, chunk_elements / columns),
                               [&](int64_t first, int64_t last) {
                                 for (; first < last; first += rows_at_a_time)
                                   for (const Job& j : jobs)
                                     run_rows(j.copy, begin_of(j.copy.source, args, scope),
                                              begin_of(j.copy.target, args, scope), first,
                                              std::min(last, first + rows_at_a_time));
                               });
}

void Copies::run_job(const Job& job, std::byte* const* args, KernelScope& scope) {
  const Copy& c = job.copy;
  const std::byte* source = c.fills ? nullptr : begin_of(c.source, args, scope);
  std::byte* target = begin_of(c.target, args, scope);
  int64_t units = job.count, per_chunk = chunk_elements;
  void (*run)(const Copy&, const std::byte*, std::byte*, int64_t, int64_t) = run_rows;
  if (job.across >= 0) {
    size_t outer = c.shape.size() - 2;
    int64_t per_unit = block * c.shape[outer + 1];
    int64_t per_outer = (c.shape[outer] + block - 1) / block;
    units = job.count / (c.shape[outer] * c.shape[outer + 1]) * per_outer;
    per_chunk = std::max<int64_t>(1, chunk_elements / per_unit);
    run = run_blocks;
  }
  scope.workers.parallel_parts(
      units, per_chunk, [&](int64_t first, int64_t last) { run(c, source, target, first, last); });
}

void Copies::run(std::byte* const* args, KernelScope& scope) const {
  for (size_t i = 0; i < jobs_.size(); i += jobs_[i].columns)
    if (jobs_[i].columns > 1)
      run_columns({&jobs_[i], jobs_[i].columns}, args, scope);
    else
      run_job(jobs_[i], args, scope);
}

Kernel make_kernel(const Move& w) {
  if (w.copies.empty()) return {};
  constexpr auto run = [](const Copies& copies, std::byte* const* args, KernelScope& scope) {
    copies.run(args, scope);
  };
  return Kernel::of<run>(Copies(w.copies), static_cast<size_t>(w.scratch_bytes));
}

}  // namespace gradus::kernels
