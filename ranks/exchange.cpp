#include "ranks/exchange.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gradus/convert.h"
#include "ranks/extreme.h"

namespace gradus::ranks {

namespace {

template <CollectiveReducer reducer, class T>
T combined(T a, T b) {
  if constexpr (reducer == CollectiveReducer::max) {
    return extreme<true>(a, b);
  } else if constexpr (reducer == CollectiveReducer::min) {
    return extreme<false>(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
}

// A block at a time, so that the sums so far stay in the cache.
constexpr int64_t block = 1024;

template <class T, CollectiveReducer reducer>
void reduce_as(std::span<const std::byte* const> in, std::byte* out, int64_t n) {
  constexpr bool half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
  using Sum = std::conditional_t<half, float, T>;
  Sum sums[block];
  for (int64_t first = 0; first < n; first += block) {
    const int64_t count = std::min(block, n - first);
    for (size_t r = 0; r < in.size(); ++r) {
      const T* x = reinterpret_cast<const T*>(in[r]) + first;
      if (r == 0) {
        for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(x[i]);
      } else {
        for (int64_t i = 0; i < count; ++i)
          sums[i] = combined<reducer>(sums[i], static_cast<Sum>(x[i]));
      }
    }
    T* y = reinterpret_cast<T*>(out) + first;
    for (int64_t i = 0; i < count; ++i) y[i] = convert<T>(sums[i]);
  }
}

template <class T>
void reduce_by(CollectiveReducer reducer, std::span<const std::byte* const> in, std::byte* out,
               int64_t n) {
  if (reducer == CollectiveReducer::max)
    reduce_as<T, CollectiveReducer::max>(in, out, n);
  else if (reducer == CollectiveReducer::min)
    reduce_as<T, CollectiveReducer::min>(in, out, n);
  else
    reduce_as<T, CollectiveReducer::sum>(in, out, n);
}

}  // namespace

void check_call(const CollectiveCall& call, int size) {
  using enum CollectiveKind;
  const int64_t most = std::numeric_limits<int64_t>::max() / 8 / size;
  if (call.count < 0 || call.count > most)
    throw Error("{}: a group of {} ranks exchanges 0 to {} elements", to_string(call), size, most);
  const bool of_a_rank = call.kind == broadcast || is_message(call.kind);
  if (of_a_rank && (call.peer < 0 || call.peer >= size))
    throw Error("{}: the ranks of this group are 0 to {}", to_string(call), size - 1);
  if (is_reduction(call.kind) && call.dtype == DType::boolean &&
      call.reducer == CollectiveReducer::sum)
    throw Error("{}: bool has no sum; use max for \"any\", or convert to an integer type",
                to_string(call));
}

bool same_call(const CollectiveCall& a, const CollectiveCall& b) {
  const bool reads_peer = !is_reduction(a.kind) && a.kind != CollectiveKind::all_gather &&
                          a.kind != CollectiveKind::all_to_all;
  return a.kind == b.kind && a.dtype == b.dtype && a.count == b.count &&
         (!is_reduction(a.kind) || a.reducer == b.reducer) && (!reads_peer || a.peer == b.peer);
}

void reduce(DType dtype, CollectiveReducer reducer, std::span<const std::byte* const> in,
            std::byte* out, int64_t n) {
  // A bool is a byte of 0 or 1.
  visit_dtype(dtype == DType::boolean ? DType::u8 : dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) reduce_by<T>(reducer, in, out, n);
  });
}

std::string names_of_ranks(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

void copy_bytes(std::byte* out, const std::byte* in, int64_t bytes) {
  if (bytes > 0) std::memcpy(out, in, static_cast<size_t>(bytes));
}

}  // namespace gradus::ranks
