// gradus ops
#include <algorithm>

#include "gradus/function.h"
#include "gradus/registry.h"
#include "tools/cli.h"
#include "tools/json.h"
#include "tools/output.h"

namespace gradus::cli {

namespace {

std::string_view differentiable(const ir::Operator& op) {
  if (op.traits.zero_gradient) return "zero";
  return op.traits.differentiable ? "yes" : "no";
}

std::string table() {
  size_t widest = 0;
  for (const ir::Operator* op : ops::all()) widest = std::max(widest, signature(*op).size());
  widest = std::min<size_t>(widest, 64);
  auto line = [&](std::string_view op, std::string_view derivative, std::string_view meaning) {
    return fmt::format("{:{}}  {:10}  {}\n", op, widest, derivative, meaning);
  };
  std::string text = line("operator", "derivative", "meaning");
  for (const ir::Operator* op : ops::all())
    text += line(signature(*op), differentiable(*op), op->traits.doc);
  return text;
}

// What `cpp_op` can name, and how often each has a derivative.
std::string function_table() {
  std::string text = "\nfunctions for cpp_op, and the order of their derivatives:\n";
  for (const std::string& name : ops::function_names()) {
    int order = ops::find_function(name)->order();
    text += fmt::format("{}  {}\n", name,
                        order == ops::OpaqueFunction::any_order ? "any" : std::to_string(order));
  }
  return text;
}

// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string s;
  for (char c : text) {
    if (c == '|') s += '\\';
    s += c;
  }
  return s;
}

std::string markdown() {
  std::string text = "| operator | derivative | meaning |\n| --- | --- | --- |\n";
  for (const ir::Operator* op : ops::all())
    text += fmt::format("| `{}` | {} | {} |\n", cell(signature(*op)), differentiable(*op),
                        cell(op->traits.doc));
  return text;
}

}  // namespace

void list_operators(TableFormat format) {
  put(format == TableFormat::markdown ? markdown()
      : format == TableFormat::json   ? operators_json()
                                      : table() + function_table());
}

}  // namespace gradus::cli
