#include "ops/copies.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "ops/device_form.h"
#include "ops/tiles.h"
#include "tensor/convert.h"

namespace gradus::ops {

namespace {

constexpr int64_t chunk_elements = 1 << 16;  // what one worker takes at a time
constexpr int64_t block = 32;                // edge of a transposed block
constexpr int64_t tile = 512;                // elements converted at a time

// Calls f with an unsigned type of as many bytes as an element.
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

void run_copies(const void* parameters, std::byte* const* args, KernelScope& scope) {
  static_cast<const Copies*>(parameters)->run(args, scope);
}

}  // namespace

Pattern pattern_of(const ir::Number& value, DType dtype) {
  Pattern p;
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T t = value.category == Category::floating ? convert<T>(value.floating)
                                               : convert<T>(value.integer);
    std::memcpy(p.bytes, &t, sizeof t);
  });
  return p;
}

ir::Number number_of(const ir::Literal& literal, const ir::DimEnvironment* sizes,
                     std::string_view op, std::string_view attribute) {
  if (const bool* b = std::get_if<bool>(&literal.value)) return ir::Number::of(*b);
  if (const Dim* d = std::get_if<Dim>(&literal.value))
    return ir::Number::of(d->is_constant() ? d->value() : sizes ? d->evaluate(*sizes) : 0);
  double f = 0;
  std::string what;
  if (read_literal(literal, f, what)) return ir::Number::of(f);
  throw Error("{}: attribute '{}' must be a number, not {}", op, attribute, to_string(literal));
}

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
    if (target_stride == 1 && source_stride == 0)
      std::fill(t, t + n, *s);
    else if (target_stride == 1)
      for (int64_t i = 0; i < n; ++i) t[i] = s[i * source_stride];
    else
      for (int64_t i = 0; i < n; ++i) t[i * target_stride] = s[i * source_stride];
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
  copy_row(size, pattern.bytes, 0, target, stride, n);
}

void Copies::copy(std::span<const int64_t> shape, Window source, Window target) {
  Job j;
  j.shape.append(shape.begin(), shape.end());
  j.source = std::move(source);
  j.target = std::move(target);
  add(std::move(j));
}

void Copies::fill(std::span<const int64_t> shape, const Pattern& pattern, Window target) {
  Job j;
  j.shape.append(shape.begin(), shape.end());
  j.fills = true;
  j.pattern = pattern;
  j.target = std::move(target);
  j.source = {0, j.target.dtype, Sizes(shape.size(), 0), 0};
  add(std::move(j));
}

// Drops dimensions of size 1 and joins neighbours that both sides walk in one stride.
void Copies::add(Job j) {
  j.count = numel(j.shape);
  if (j.count == 0) return;
  Sizes shape, from, to;
  for (size_t d = 0; d < j.shape.size(); ++d) {
    int64_t n = j.shape[d], s = j.source.strides[d], t = j.target.strides[d];
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
  bool turned = !j.fills && std::abs(from.back()) > 1 && to.back() == 1 &&
                j.source.dtype == j.target.dtype && shape.back() >= 4;
  for (size_t d = 0; turned && d + 1 < shape.size(); ++d)
    if (from[d] == 1 && shape[d] >= 4) j.across = static_cast<int>(d);
  if (j.across >= 0) {  // the two dimensions of the blocks last
    auto last = [&](Sizes& v) {
      int64_t x = v[j.across];
      v.erase(v.data() + j.across);
      v.insert(v.data() + v.size() - 1, x);
    };
    last(shape);
    last(from);
    last(to);
  }
  j.shape = std::move(shape);
  j.source.strides = std::move(from);
  j.target.strides = std::move(to);
  jobs_.push_back(std::move(j));
}

// Elements [first, last) in row-major order of the job's shape.
void Copies::run_rows(const Job& j, const std::byte* source, std::byte* target, int64_t first,
                      int64_t last) {
  const size_t size = size_of(j.target.dtype);
  const bool converts = j.source.dtype != j.target.dtype;
  const int64_t row = j.shape.back();
  const int64_t from = j.source.strides.back(), to = j.target.strides.back();
  const size_t outer = j.shape.size() - 1;
  auto leading = [&](const Sizes& v) { return std::span<const int64_t>(v.data(), outer); };
  Walk<2> walk(leading(j.shape), {leading(j.source.strides), leading(j.target.strides)},
               first / row);
  int64_t column = first % row;
  for (int64_t done = first; done < last;) {
    int64_t n = std::min(row - column, last - done);
    const std::byte* s = source + bytes(walk.offset(0) + column * from, j.source.dtype);
    std::byte* t = target + bytes(walk.offset(1) + column * to, j.target.dtype);
    if (j.fills)
      fill_row(size, j.pattern, t, to, n);
    else if (converts)
      convert_row(j.source.dtype, s, from, j.target.dtype, t, to, n);
    else
      copy_row(size, s, from, t, to, n);
    done += n;
    column = 0;
    walk.next();
  }
}

// Transposes by blocks, so that neither side is walked across cache lines all the way. A unit is
// `block` rows of one outer index; units [first, last).
void Copies::run_blocks(const Job& j, const std::byte* source, std::byte* target, int64_t first,
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
        for (int64_t r = r0; r < r1; ++r)
          for (int64_t c = c0; c < c1; ++c) t[r * to + c] = s[r + c * from];
      }
    }
  });
}

void Copies::run_job(const Job& j, std::byte* const* args, KernelScope& scope) {
  auto pointer = [&](const Window& w) {
    std::byte* base = w.argument == Window::scratch ? scope.scratch : args[w.argument];
    return base + bytes(w.offset, w.dtype);
  };
  const std::byte* source = j.fills ? nullptr : pointer(j.source);
  std::byte* target = pointer(j.target);
  int64_t units = j.count, per_chunk = chunk_elements;
  void (*run)(const Job&, const std::byte*, std::byte*, int64_t, int64_t) = run_rows;
  if (j.across >= 0) {
    size_t outer = j.shape.size() - 2;
    int64_t per_unit = block * j.shape[outer + 1];
    int64_t per_outer = (j.shape[outer] + block - 1) / block;
    units = j.count / (j.shape[outer] * j.shape[outer + 1]) * per_outer;
    per_chunk = std::max<int64_t>(1, chunk_elements / per_unit);
    run = run_blocks;
  }
  int64_t chunks = (units + per_chunk - 1) / per_chunk;
  if (chunks <= 1) return run(j, source, target, 0, units);
  scope.workers.parallel_for(chunks, [&](int64_t c) {
    run(j, source, target, c * per_chunk, std::min(units, (c + 1) * per_chunk));
  });
}

void Copies::run(std::byte* const* args, KernelScope& scope) const {
  for (const Job& j : jobs_) run_job(j, args, scope);
}

void Copies::bind(BindCall& call, Copies copies, size_t scratch_bytes) {
  call.kernel = kernel(std::move(copies), scratch_bytes);
}

ir::Kernel Copies::kernel(Copies copies, size_t scratch_bytes) {
  return {run_copies, std::make_shared<const Copies>(std::move(copies)), scratch_bytes};
}

std::vector<DeviceMove> device_moves(const Copies& copies) {
  std::vector<DeviceMove> moves;
  for (const Copies::Job& j : copies.jobs())
    moves.push_back({j.shape, j.source, j.target, j.fills, j.pattern});
  return moves;
}

std::optional<DeviceForm> form_of_copies(ir::KernelFunction run, const void* parameters) {
  if (run != run_copies) return std::nullopt;
  return DeviceForm{DeviceMoves{device_moves(*static_cast<const Copies*>(parameters))}};
}

Window operand_window(const BindCall& call, size_t i) {
  return {static_cast<int>(i), call.in[i].dtype, call.in[i].strides, 0};
}

Window result_window(const BindCall& call, size_t i) {
  return {static_cast<int>(call.in.size() + i), call.out[i].dtype,
          contiguous_strides(call.out[i].shape), 0};
}

void bind_copy(BindCall& call) {
  Copies c;
  Window target = result_window(call);
  target.strides = contiguous_strides(call.in[0].shape);
  c.copy(call.in[0].shape, operand_window(call, 0), std::move(target));
  Copies::bind(call, std::move(c));
}

}  // namespace gradus::ops
