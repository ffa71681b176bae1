#include "kernels/tiles.h"

#include <algorithm>
#include <cstring>

#include "gradus/convert.h"
#include "gradus/error.h"
#include "gradus/isa.h"

namespace gradus::kernels {

namespace {

template <class From, class To>
[[gnu::always_inline]] inline void load(const std::byte* source, int64_t stride, int64_t n,
                                        void* tile) {
  const From* s = reinterpret_cast<const From*>(source);
  To* t = static_cast<To*>(tile);
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) t[i] = convert<To>(s[i]);
  } else if (stride == 0) {
    std::fill(t, t + n, convert<To>(s[0]));
  } else {
    for (int64_t i = 0; i < n; ++i) t[i] = convert<To>(s[i * stride]);
  }
}

// Elements between neighbours of a row.
enum class Step : uint8_t { none, one, any };

template <class From, class To, Step step>
[[gnu::always_inline]] inline void gather_rows(const From* s, std::span<const int64_t> shape,
                                               std::span<const int64_t> strides,
                                               std::span<int64_t> index, int64_t n, To* t) {
  const size_t last = shape.size() - 1;
  const int64_t row = shape[last], stride = strides[last];
  int64_t at = 0;
  for (size_t d = 0; d <= last; ++d) at += index[d] * strides[d];
  const auto write = [&](int64_t count) {
    if constexpr (step == Step::none) {
      const To value = convert<To>(s[at]);
      for (int64_t i = 0; i < count; i += tile_slack) std::fill_n(t + i, tile_slack, value);
    } else if constexpr (step == Step::one) {
      for (int64_t i = 0; i < count; ++i) t[i] = convert<To>(s[at + i]);
    } else {
      for (int64_t i = 0; i < count; ++i) t[i] = convert<To>(s[at + i * stride]);
    }
    t += count;
    n -= count;
  };
  const auto carry = [&](size_t from) {
    for (size_t d = from; d > 0 && index[d] == shape[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
      at += strides[d - 1] - shape[d] * strides[d];
    }
  };
  while (n > 0) {
    if (last > 0 && index[last] == 0 && n >= row) {  // whole rows
      const int64_t rows = std::min(n / row, shape[last - 1] - index[last - 1]);
      for (int64_t i = 0; i < rows; ++i, at += strides[last - 1]) write(row);
      index[last - 1] += rows;
      carry(last - 1);
    } else {
      const int64_t count = std::min(n, row - index[last]);
      write(count);
      at += count * stride;
      index[last] += count;
      carry(last);
    }
  }
}

// Moves on by n elements.
void move_on(std::span<const int64_t> shape, std::span<int64_t> index, int64_t n) {
  for (size_t d = shape.size(); d-- > 0 && n > 0;) {
    n += index[d];
    index[d] = d == 0 ? n : n % shape[d];
    n /= shape[d];
  }
}

// Rows that are all the same one: written once, and copied from what is written.
template <class From, class To>
void repeat_row(const From* s, std::span<const int64_t> shape, int64_t stride,
                std::span<int64_t> index, int64_t n, To* t) {
  const int64_t row = shape.back(), begin = index.back(), end = std::min(n, row);
  for (int64_t i = 0; i < end; ++i)
    t[i] = convert<To>(s[(begin + i < row ? begin + i : begin + i - row) * stride]);
  for (int64_t done = end; done < n;) {
    const int64_t count = std::min(done, n - done);
    std::memcpy(t + done, t, static_cast<size_t>(count) * sizeof(To));
    done += count;
  }
  move_on(shape, index, n);
}

template <class From, class To>
void gather(const std::byte* source, std::span<const int64_t> shape,
            std::span<const int64_t> strides, std::span<int64_t> index, int64_t n, void* tile) {
  const From* s = reinterpret_cast<const From*>(source);
  To* t = static_cast<To*>(tile);
  if (std::ranges::all_of(strides.first(strides.size() - 1), [](int64_t n) { return n == 0; }))
    return repeat_row(s, shape, strides.back(), index, n, t);
  switch (strides.back()) {
    case 0:
      return gather_rows<From, To, Step::none>(s, shape, strides, index, n, t);
    case 1:
      return gather_rows<From, To, Step::one>(s, shape, strides, index, n, t);
    default:
      return gather_rows<From, To, Step::any>(s, shape, strides, index, n, t);
  }
}

// What tiles are made of, of these two kinds of source or target. Between integers the sign of a
// 64-bit tile has no say.
template <class F>
void visit_tile(DType d, DType other, F f) {
  switch (d == DType::u64 && !is_floating(other) ? DType::i64 : d) {
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::i64:
      return f(TypeTag<int64_t>{});
    case DType::u64:
      return f(TypeTag<uint64_t>{});
    case DType::boolean:
      return f(TypeTag<bool>{});
    default:
      GRADUS_CHECK(false && "a tile dtype");
  }
}

// Whether there are conversions: a u64 tile has them from and to floats alone.
template <class Tile, class Other>
constexpr bool converted = !std::is_same_v<Tile, uint64_t> || !std::is_integral_v<Other>;

}  // namespace

void load_tile(DType source_dtype, DType tile_dtype, const std::byte* source, int64_t stride,
               int64_t n, void* tile) {
  visit_dtype(source_dtype, [&](auto from) {
    visit_tile(tile_dtype, source_dtype, [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      if constexpr (converted<To, From>) Levels<load<From, To>>::run(source, stride, n, tile);
    });
  });
}

void load_tile(DType source_dtype, DType tile_dtype, const std::byte* source,
               std::span<const int64_t> shape, std::span<const int64_t> strides,
               std::span<int64_t> index, int64_t n, void* tile) {
  visit_dtype(source_dtype, [&](auto from) {
    visit_tile(tile_dtype, source_dtype, [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      if constexpr (converted<To, From>) gather<From, To>(source, shape, strides, index, n, tile);
    });
  });
}

void store_tile(DType tile_dtype, DType target_dtype, const void* tile, int64_t n,
                std::byte* target) {
  visit_tile(tile_dtype, target_dtype, [&](auto from) {
    using From = typename decltype(from)::type;
    auto store = [&](auto to) {
      using To = typename decltype(to)::type;
      if constexpr (converted<From, To>)
        Levels<load<From, To>>::run(static_cast<const std::byte*>(tile), 1, n, target);
    };
    // What an integer wraps to has the same bits for both signs.
    if constexpr (std::is_integral_v<From>)
      visit_signed(target_dtype, store);
    else
      visit_dtype(target_dtype, store);
  });
}

}  // namespace gradus::kernels
