#include "work/nest.h"

#include <algorithm>
#include <concepts>

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

// Every group's text is its kernel's key, so that this runs whenever a program is planned.
class Writer {
 public:
  explicit Writer(size_t lines) { text_.reserve(48 * lines); }

  template <class... Parts>
  void add(const Parts&... parts) {
    (add_part(parts), ...);
  }
  std::string take() { return std::move(text_); }

 private:
  void add_part(std::string_view text) { text_ += text; }
  void add_part(char c) { text_ += c; }
  template <std::integral T>
  void add_part(T number) {
    const fmt::format_int digits(number);
    text_.append(digits.data(), digits.size());
  }

  std::string text_;
};

void add_step(Writer& out, const Nest& nest, const Step& step) {
  if (step.call.op)
    out.add(step.call.op->name);
  else if (step.reducer)
    out.add("reduce", step.columns ? "_columns " : " ", name_of(*step.reducer));
  else
    out.add("convert");
  for (size_t k = 0; k < step.operands.size(); ++k) out.add(k ? ", %v" : "(%v", step.operands[k]);
  out.add(step.operands.empty() ? "()" : ")");
  if (step.call.op) out.add(step.call.attributes_text());
  out.add(" : ", name_of(step.dtype));
  if (step.computes()) out.add(" in ", name_of(dtype_of(step.compute)));
  if (!nest.program.empty() && step.where.known())
    out.add("  # ", step.where.line, ':', step.where.column);
}

void add_stores(Writer& out, std::string_view what, const std::vector<ValueNumber>& stores) {
  for (size_t i = 0; i < stores.size(); ++i) out.add(i ? ", %v" : what, stores[i]);
  if (!stores.empty()) out.add('\n');
}

}  // namespace

std::string print(const Nest& nest) {
  Writer out(nest.values() + 4);
  out.add("nest ", nest.rank);
  if (nest.registers) out.add(" in ", nest.registers);
  if (nest.row_size) out.add(" rows ", nest.row_size);
  out.add(" {");
  if (!nest.program.empty()) {
    out.add("  # of ");
    // A name is one line, whatever is in it.
    for (char c : nest.program) out.add(static_cast<unsigned char>(c) < ' ' ? '?' : c);
  }
  out.add('\n');
  size_t v = 0;
  for (const Load& load : nest.loads) {
    out.add("  %v", v++, " = load ", name_of(load.dtype), " [");
    for (size_t d = 0; d < load.walks.size(); ++d) out.add(d ? ", " : "", name_of(load.walks[d]));
    out.add(']');
    if (load.operands != 1) out.add(" of ", load.operands);
    if (load.index) out.add(" at %v", *load.index);
    out.add('\n');
  }
  for (const ir::Number& n : nest.numbers) out.add("  %v", v++, " = number ", text_of(n), '\n');
  for (const Step& step : nest.steps) {
    out.add("  %v", v++, " = ");
    add_step(out, nest, step);
    out.add('\n');
  }
  add_stores(out, "  store %v", nest.stores);
  add_stores(out, "  store_row %v", nest.row_stores);
  add_stores(out, "  store_column %v", nest.column_stores);
  out.add("}\n");
  return out.take();
}

}  // namespace gradus::work
