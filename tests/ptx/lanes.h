// Handlers made of a function over values: `lanes<R, A, B>(f)` runs r = f(a, b) in every lane.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/ptx/decoder.h"
#include "tests/ptx/warp.h"

namespace gradus::ptx {

// The result is defined where all operands are. Lanes that do not run are computed, too, and
// dropped, so that the loop has a fixed length: f takes whatever bits there are.
template <class F, class R, class... A, size_t... I>
void run_lanes(Warp& w, const Instruction& in, Mask m, std::index_sequence<I...>) {
  const std::tuple<Lanes<A>...> a{w.get<A>(in.r[I + 1])...};
  const Mask defined = (all_lanes & ... & w.defined(in.r[I + 1]));
  Lanes<R> r;
  for (unsigned i = 0; i < warp_size; ++i) {
    if constexpr (std::is_invocable_v<F, A...>)
      r.v[i] = F{}(std::get<I>(a).v[i]...);
    else
      r.v[i] = F{}(in.mode, std::get<I>(a).v[i]...);  // with the instruction's mode first
  }
  w.put(in.r[0], m, r, defined);
}

template <class R, class... A, class F>
Run lanes(F) {
  static_assert(std::is_empty_v<F>);
  return [](Warp& w, const Instruction& in, Mask m) {
    run_lanes<F, R, A...>(w, in, m, std::index_sequence_for<A...>{});
  };
}

template <class T>
struct TypeTag {
  using type = T;
};

// f(TypeTag<C++ type of the same width and sign>) for an integer type; bits are unsigned.
template <class F>
auto with_integer(Type t, F&& f) {
  switch (t) {
    case Type::b8:
    case Type::u8:
      return f(TypeTag<uint8_t>{});
    case Type::s8:
      return f(TypeTag<int8_t>{});
    case Type::b16:
    case Type::u16:
      return f(TypeTag<uint16_t>{});
    case Type::s16:
      return f(TypeTag<int16_t>{});
    case Type::b32:
    case Type::u32:
      return f(TypeTag<uint32_t>{});
    case Type::s32:
      return f(TypeTag<int32_t>{});
    case Type::s64:
      return f(TypeTag<int64_t>{});
    default:
      return f(TypeTag<uint64_t>{});
  }
}

template <class T>
struct WiderInt;
template <>
struct WiderInt<uint8_t> : TypeTag<uint16_t> {};
template <>
struct WiderInt<int8_t> : TypeTag<int16_t> {};
template <>
struct WiderInt<uint16_t> : TypeTag<uint32_t> {};
template <>
struct WiderInt<int16_t> : TypeTag<int32_t> {};
template <>
struct WiderInt<uint32_t> : TypeTag<uint64_t> {};
template <>
struct WiderInt<int32_t> : TypeTag<int64_t> {};
__extension__ using Uint128 = unsigned __int128;
__extension__ using Int128 = __int128;
template <>
struct WiderInt<uint64_t> : TypeTag<Uint128> {};
template <>
struct WiderInt<int64_t> : TypeTag<Int128> {};
template <class T>
using Wider = typename WiderInt<T>::type;

template <class T>
struct UnsignedInt : std::make_unsigned<T> {};
template <>
struct UnsignedInt<Uint128> : TypeTag<Uint128> {};
template <>
struct UnsignedInt<Int128> : TypeTag<Uint128> {};
template <class T>
using Unsigned = typename UnsignedInt<T>::type;

}  // namespace gradus::ptx
