// The table of rules, put together from the families.
#include <map>

#include "io/pt2/call.h"

namespace gradus::pt2 {

namespace {

using Table = std::map<std::string_view, const RuleEntry*>;

Table table_of(std::initializer_list<Rules> families) {
  Table table;
  for (Rules family : families)
    for (const RuleEntry& r : family)
      if (!table.emplace(r.name, &r).second)
        throw InternalError(fmt::format("two rules are called '{}'", r.name));
  return table;
}

const RuleEntry* find_in(const Table& table, std::string_view op) {
  auto it = table.find(op);
  if (it == table.end()) it = table.find(op.substr(0, op.rfind('.')));
  return it == table.end() ? nullptr : it->second;
}

}  // namespace

std::string_view operator_of(std::string_view target) {
  for (std::string_view prefix : {"torch.ops.aten.", "torch.ops."})
    if (target.starts_with(prefix)) return target.substr(prefix.size());
  return target;
}

const RuleEntry* find_rule(std::string_view op) {
  static const Table table =
      table_of({pointwise_rules, activation_rules,  comparison_rules,     reduction_rules,
                view_rules,      shape_rules,       creation_rules,       indexing_rules,
                product_rules,   convolution_rules, normalization_rules,  attention_rules,
                loss_rules,      recurrent_rules,   linear_algebra_rules, sorting_rules,
                quantile_rules,  histogram_rules,   sample_rules,         window_rules,
                assertion_rules, backward_rules,    derivative_rules,     fourier_rules,
                unique_rules,    random_rules});
  return find_in(table, op);
}

const RuleEntry* find_complex_rule(std::string_view op) {
  static const Table table = table_of({complex_rules, complex_fourier_rules});
  return find_in(table, op);
}

}  // namespace gradus::pt2
