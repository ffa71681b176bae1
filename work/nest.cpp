#include "work/nest.h"

#include <algorithm>

namespace gradus::work {

std::string_view name_of(Walk walk) {
  constexpr std::string_view names[] = {"contiguous", "strided", "broadcast"};
  return names[static_cast<size_t>(walk)];
}

bool Nest::reduces() const { return std::ranges::any_of(steps, &Step::reduces_row); }

bool Nest::has_edges() const {
  return std::ranges::any_of(loads, [](const Load& l) { return l.operands != 1 || l.index; });
}

size_t Nest::operands() const {
  size_t n = 0;
  for (const Load& l : loads) n += l.operands;
  return n;
}

const ir::Number* Nest::number(ValueNumber v) const {
  return v >= first_number() && v < first_step() ? &numbers[v - first_number()] : nullptr;
}

DType Nest::dtype_of(ValueNumber v) const {
  if (v < first_number()) return loads[v].dtype;
  if (v >= first_step()) return steps[v - first_step()].dtype;
  const Category c = numbers[v - first_number()].category;
  return c == Category::floating   ? DType::f64
         : c == Category::integral ? DType::i64
                                   : DType::boolean;
}

size_t Frame::part_at(size_t load, const Sizes& element) const {
  for (size_t p = 0; p + 1 < parts[load].size(); ++p) {
    const Part& part = parts[load][p];
    bool inside = true;
    for (size_t d = 0; d < element.size(); ++d)
      inside &= element[d] >= part.first[d] && element[d] < part.first[d] + part.sizes[d];
    if (inside) return p;
  }
  return parts[load].size() - 1;
}

namespace {

std::string step_text(const Nest& nest, const Step& step) {
  std::string s = step.call.op   ? std::string(step.call.op->name)
                  : step.reducer ? fmt::format("reduce{} {}", step.columns ? "_columns" : "",
                                               name_of(*step.reducer))
                                 : "convert";
  s += '(';
  for (size_t k = 0; k < step.operands.size(); ++k)
    s += fmt::format("{}%v{}", k ? ", " : "", step.operands[k]);
  s += ')';
  if (step.call.op) s += step.call.attributes_text();
  s += fmt::format(" : {}", name_of(step.dtype));
  if (step.computes()) s += fmt::format(" in {}", name_of(dtype_of(step.compute)));
  if (!nest.program.empty() && step.where.known())
    s += fmt::format("  # {}:{}", step.where.line, step.where.column);
  return s;
}

}  // namespace

std::string print(const Nest& nest) {
  std::string s = fmt::format("nest {}", nest.rank);
  if (nest.registers) s += fmt::format(" in {}", nest.registers);
  s += " {";
  if (!nest.program.empty()) {
    s += "  # of ";
    // A name is one line, whatever is in it.
    for (char c : nest.program) s += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  s += '\n';
  size_t v = 0;
  for (const Load& load : nest.loads) {
    s += fmt::format("  %v{} = load {} [", v++, name_of(load.dtype));
    for (size_t d = 0; d < load.walks.size(); ++d)
      s += fmt::format("{}{}", d ? ", " : "", name_of(load.walks[d]));
    s += ']';
    if (load.operands != 1) s += fmt::format(" of {}", load.operands);
    if (load.index) s += fmt::format(" at %v{}", *load.index);
    s += '\n';
  }
  for (const ir::Number& n : nest.numbers)
    s += fmt::format("  %v{} = number {}\n", v++, text_of(n));
  for (const Step& step : nest.steps) s += fmt::format("  %v{} = {}\n", v++, step_text(nest, step));
  auto list = [&](const char* what, const std::vector<ValueNumber>& stores) {
    for (size_t i = 0; i < stores.size(); ++i)
      s += fmt::format("{}%v{}", i ? ", " : what, stores[i]);
    if (!stores.empty()) s += '\n';
  };
  list("  store ", nest.stores);
  list("  store_row ", nest.row_stores);
  list("  store_column ", nest.column_stores);
  return s + "}\n";
}

}  // namespace gradus::work
