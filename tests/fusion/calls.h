// Nests of one operator's call, as text.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "gradus/pointwise.h"
#include "gradus/registry.h"

namespace gradus::fusion::test {

// Attributes beside the defaults, or in place of those that an operator has not.
inline const std::multimap<std::string_view, std::string_view>& attribute_samples() {
  static const std::multimap<std::string_view, std::string_view> samples{
      {"add", "alpha = 3"},
      {"sub", "alpha = -2"},
      {"addcmul", "value = 2"},
      {"addcdiv", "value = 0.5"},
      {"celu", "alpha = 0.7"},
      {"clamp", "min = -1, max = 2"},
      {"clamp", "max = 1"},
      {"clamp", "min = 0"},
      {"elu", "alpha = 0.3"},
      {"gelu", "approximate = \"tanh\""},
      {"hardshrink", "lambd = 0.2"},
      {"softshrink", "lambd = 0.2"},
      {"hardtanh", "min = -2, max = 3"},
      {"leaky_relu", "slope = 0.2"},
      {"masked_fill", "value = -3"},
      {"polygamma", "n = 0"},
      {"polygamma", "n = 1"},
      {"polygamma", "n = 4"},
      {"sinc_derivative", "n = 0"},
      {"sinc_derivative", "n = 3"},
      {"softplus", "beta = 2, threshold = 3"},
      {"threshold", "threshold = 1, value = -7"},
  };
  return samples;
}

// "{…}" of each way to call an operator.
inline std::vector<std::string> attributes_of(const ir::Operator& op) {
  std::vector<std::string> list;
  bool defaults = op.name != "clamp";
  for (const ir::NamedLiteral& a : op.describe()) defaults = defaults && a.where.known();
  if (defaults) list.emplace_back();
  auto [first, last] = attribute_samples().equal_range(op.name);
  for (; first != last; ++first) list.push_back(fmt::format("{{{}}}", first->second));
  return list;
}

// A call of `op` on loads of a dtype, as text. Conditions are bool, or u8 for those of that dtype.
inline std::string call_text(const ir::Operator& op, DType dtype, const std::string& attributes,
                             int rank, std::span<const std::string_view> walks) {
  const ops::PointwiseInfo& info = op.pointwise();
  Compute compute = compute_of(dtype);
  if (info.computes_floating && !is_floating(dtype)) compute = Compute::f32;
  DType result = compute_of(dtype) == compute ? dtype : DType::f32;
  if (info.result == ops::Result::boolean) result = DType::boolean;
  std::string s = fmt::format("nest {} {{\n", rank), operands;
  for (size_t k = 0; k < info.roles.size(); ++k) {
    const bool condition = info.roles[k] == ops::Role::condition && dtype != DType::u8;
    s += fmt::format("  %v{} = load {} [{}]\n", k, name_of(condition ? DType::boolean : dtype),
                     walks[k % walks.size()]);
    operands += fmt::format("{}%v{}", k ? ", " : "", k);
  }
  const size_t n = info.roles.size();
  return s + fmt::format("  %v{} = {}({}) {} : {} in {}\n  store %v{}\n}}\n", n, op.name, operands,
                         attributes, name_of(result), name_of(dtype_of(compute)), n);
}

}  // namespace gradus::fusion::test
