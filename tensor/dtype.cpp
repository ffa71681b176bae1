#include "gradus/dtype.h"

#include <algorithm>

#include "gradus/error.h"

namespace gradus {

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < dtype_count; ++i)
    if (dtype_names[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) || is_floating(b)) {
    if (!is_floating(a)) return b;
    if (!is_floating(b)) return a;
    bool halves = size_of(a) == 2 && size_of(b) == 2;
    return halves ? DType::f32 : std::min(a, b);
  }
  auto refused = [](DType d) { return d == DType::u16 || d == DType::u32 || d == DType::u64; };
  if (refused(a) || refused(b))
    throw Error("{} and {} have no common dtype; cast one of them", name_of(a), name_of(b));
  if (a == DType::boolean) return b;
  if (b == DType::boolean) return a;
  // i64 > i32 > i16 > (i8, u8); i8 with u8 has no common 8-bit type: i16 in ATen, i32 here, as it
  // was before there was an i16.
  if (size_of(a) == 1 && size_of(b) == 1) return DType::i32;
  return size_of(a) > size_of(b) ? a : b;
}

}  // namespace gradus
