#include "tests/ptx/type.h"

#include <iterator>

namespace gradus::ptx {

namespace {

struct Row {
  std::string_view name;
  unsigned width;
};

// In the order of the enumeration.
constexpr Row rows[] = {
    {"pred", 0},  {"b8", 1},   {"b16", 2},    {"b32", 4}, {"b64", 8}, {"u8", 1},    {"u16", 2},
    {"u32", 4},   {"u64", 8},  {"s8", 1},     {"s16", 2}, {"s32", 4}, {"s64", 8},   {"f16", 2},
    {"f16x2", 4}, {"bf16", 2}, {"bf16x2", 4}, {"f32", 4}, {"f64", 8}, {"u16x2", 4}, {"s16x2", 4}};

}  // namespace

std::optional<Type> find_type(std::string_view name) {
  for (size_t i = 0; i < std::size(rows); ++i)
    if (rows[i].name == name) return static_cast<Type>(i);
  return std::nullopt;
}

std::string_view name_of(Type t) { return rows[static_cast<size_t>(t)].name; }
unsigned width_of(Type t) { return rows[static_cast<size_t>(t)].width; }

bool is_signed(Type t) { return t >= Type::s8 && t <= Type::s64; }
bool is_floating(Type t) { return t >= Type::f16 && t <= Type::f64; }
bool is_bits(Type t) { return t >= Type::b8 && t <= Type::b64; }

}  // namespace gradus::ptx
