#include "fusion/cuda/writer.h"

#include <algorithm>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/prelude.h"
#include "fusion/rules.h"
#include "gradus/convert.h"
#include "gradus/pointwise.h"
#include "ops/powers.h"

namespace gradus::fusion::cuda {

namespace {

constexpr size_t longest_rule_inside = 60;  // characters of a rule that needs no function
constexpr size_t most_bytes = 4096;         // of a kernel's parameters

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TextType text_type(Compute c) { return held_type(dtype_of(c)); }

}  // namespace

Writer::Writer(const Nest& nest, std::span<const std::string> lines) : nest_(nest), lines_(lines) {
  const std::vector<std::string> printed = lines_of(print(nest));
  for (size_t v = 0; v < nest.values(); ++v)
    comments_.push_back(printed[v + 1].substr(printed[v + 1].find('%')));
  instructions_.resize(nest.steps.size());
}

std::string Writer::value(ValueNumber v) const {
  if (nest_.number(v)) return value_as(v, nest_.dtype_of(v));
  return fmt::format("v{}", v);
}

std::string_view Writer::type(ValueNumber v) const { return name_of(held_type(nest_.dtype_of(v))); }

std::string Writer::value_as(ValueNumber v, DType dtype) const {
  const ir::Number* n = nest_.number(v);
  if (!n) return convert(nest_.dtype_of(v), dtype, fmt::format("v{}", v));
  // Converted here and now.
  return visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T x = n->category == Category::floating   ? gradus::convert<T>(n->floating)
                : n->category == Category::integral ? gradus::convert<T>(n->integer)
                                                    : gradus::convert<T>(n->integer != 0);
    std::string s;
    if constexpr (std::is_same_v<T, bool>)
      s = literal(x);
    else if constexpr (std::is_integral_v<T>)
      s = literal(held_type(dtype), static_cast<int64_t>(x));
    else
      s = literal(held_type(dtype), gradus::convert<double>(x));
    return s[0] == '-' ? '(' + s + ')' : s;
  });
}

void Writer::line(std::string_view text) {
  // What the preprocessor reads stands at the margin.
  if (!text.empty() && text[0] != '#') body_ += indent_;
  body_ += text;
  body_ += '\n';
}

std::string Writer::comment(ValueNumber v) const {
  std::string s = "// " + comments_[v];
  if (v >= nest_.first_step() && v - nest_.first_step() < lines_.size() &&
      !lines_[v - nest_.first_step()].empty())
    s += "  # " + lines_[v - nest_.first_step()];
  // One at a line's end would take the next one into the comment.
  std::replace(s.begin(), s.end(), '\\', '/');
  return s;
}

void Writer::define(ValueNumber v, std::string_view expression) {
  line(fmt::format("const {} v{} = {};  {}", type(v), v, expression, comment(v)));
}

// The rule over names, as a function; or, where it is short, over the operands.
std::string Writer::function_for(const Step& step, std::string_view result, size_t& instructions,
                                 const std::vector<std::string>& operands, bool& inside) {
  constexpr const char* names[] = {"x", "y", "z", "u", "w"};
  const ops::PointwiseInfo& info = step.call.op->pointwise();
  const int half = ops::half_power_of(nest_, step);
  const Rule rule =
      half ? half_power_rule(half, step.compute) : rule_of(*step.call.op, step.compute);
  if (!rule) throw Error("CUDA kernels have no rule for the operator '{}'", step.call.op->name);
  auto type_at = [&](size_t k) {
    return info.roles[k] == ops::Role::condition ? TextType::truth : text_type(step.compute);
  };
  auto write = [&](bool by_name) {
    RuleText text;
    SmallVector<Emitted*, 5> given;
    for (size_t k = 0; k < operands.size(); ++k)
      given.push_back(text.operand(type_at(k), by_name ? names[k] : operands[k]));
    return text.write(rule(text, given.data(), step.call.attributes.get()));
  };
  RuleText::Written written = write(false);
  instructions = written.instructions;
  inside = written.lines.empty() && written.result.size() <= longest_rule_inside;
  if (inside) return written.result;
  written = write(true);
  std::string text = "(";
  for (size_t k = 0; k < operands.size(); ++k)
    text += fmt::format("{}{} {}", k ? ", " : "", name_of(type_at(k)), names[k]);
  text += ") {\n";
  for (const std::string& l : written.lines) text += "  " + l + '\n';
  text += fmt::format("  return {};\n}}\n", written.result);
  auto [found, fresh] = functions_.try_emplace(fmt::format("{} {}", result, text));
  if (fresh) {
    std::string name = fmt::format("{}_{}", half ? "half_power" : step.call.op->name,
                                   gradus::name_of(dtype_of(step.compute)));
    if (const int n = named_[name]++) name += fmt::format("_{}", n + 1);
    found->second = name;
    definitions_ += fmt::format("\n// {}: {}\n__device__ __forceinline__ {} {}{}",
                                step.call.op->name, step.call.op->traits.doc, result, name, text);
  }
  std::string call = found->second + '(';
  for (size_t k = 0; k < operands.size(); ++k) call += (k ? ", " : "") + operands[k];
  return call + ')';
}

std::string Writer::step_text(size_t i) {
  const Step& step = nest_.steps[i];
  if (!step.call.op) return value_as(step.operands[0], step.dtype);
  const ops::PointwiseInfo& info = step.call.op->pointwise();
  std::vector<std::string> operands;
  for (size_t k = 0; k < step.operands.size(); ++k)
    operands.push_back(value_as(step.operands[k], info.roles[k] == ops::Role::condition
                                                      ? DType::boolean
                                                      : dtype_of(step.compute)));
  const DType computed =
      info.result == ops::Result::boolean ? DType::boolean : dtype_of(step.compute);
  bool inside = false;
  const std::string text =
      function_for(step, name_of(held_type(computed)), instructions_[i], operands, inside);
  return convert(computed, step.dtype, text);
}

std::string Writer::field(const Field& f) const {
  switch (f.kind) {
    case Field::size:
      return fmt::format("n{}", f.dim);
    case Field::rows:
      return "rows";
    case Field::groups:
      return "groups";
    case Field::items:
      return "items";
    case Field::whole:
      return "whole";
    case Field::stride:
      break;
  }
  return fmt::format("x{}_by_{}", f.load, f.dim);
}

bool Writer::moves(size_t load) const {
  const auto& walks = nest_.loads[load].walks;
  return std::any_of(walks.begin(), walks.end(), [](Walk w) { return w != Walk::broadcast; });
}

DType Writer::stored(size_t i) const {
  const size_t n = nest_.stores.size();
  return nest_.dtype_of(i < n ? nest_.stores[i] : nest_.row_stores[i - n]);
}

std::string Writer::place(size_t load) const {
  std::string s = fmt::format("x{}", load);
  for (int d = 0; d + 1 < nest_.rank; ++d)
    if (nest_.loads[load].walks[static_cast<size_t>(d)] == Walk::strided)
      s += fmt::format(" + i64(i{0}) * shape.x{1}_by_{0}", d, load);
  return s;
}

void Writer::find_coordinates() {
  auto walked = [&](int d) {
    return std::any_of(nest_.loads.begin(), nest_.loads.end(), [&](const Load& l) {
      return l.walks[static_cast<size_t>(d)] == Walk::strided;
    });
  };
  int lowest = 0;
  while (lowest + 1 < nest_.rank && !walked(lowest)) ++lowest;
  std::string rest = "row";
  for (int d = nest_.rank - 2; d >= lowest; --d) {
    if (walked(d))
      line(d == 0 ? fmt::format("const u32 i0 = {};", rest)
                  : fmt::format("const u32 i{0} = {1} % shape.n{0};", d, rest));
    if (d == lowest) break;
    line(fmt::format("const u32 above{0} = {1} / shape.n{0};", d, rest));
    rest = fmt::format("above{}", d);
  }
}

// Two blocks at a time are asked of a multiprocessor, that is 128 registers a thread at most: told
// nothing, ptxas spills some to fit in more blocks.
std::string Writer::head(bool restricted) const {
  const char* how = restricted ? "* __restrict__ " : "* ";
  std::string s = fmt::format("extern \"C\" __global__ void __launch_bounds__({}, 2) {}(",
                              block_threads, entry_name);
  const std::string gap(s.size(), ' ');
  const std::string between = ",\n" + std::string(4, ' ');
  s += "\n    ";
  for (size_t k = 0; k < nest_.loads.size(); ++k)
    s += fmt::format("const {}{}x{}{}", memory_type(nest_.loads[k].dtype), how, k, between);
  for (size_t i = 0; i < nest_.stores.size(); ++i)
    s += fmt::format("{}{}y{}{}", memory_type(stored(i)), how, i, between);
  for (size_t i = 0; i < nest_.row_stores.size(); ++i)
    s += fmt::format("{}{}r{}{}", memory_type(stored(nest_.stores.size() + i)), how, i, between);
  return s + "const Shape shape) {\n";
}

std::string Writer::finish(const KernelShape& shape, bool restricted) {
  std::string s = "// A kernel of the loop nest\n//\n";
  for (const std::string& l : lines_of(print(nest_))) s += "//   " + l + '\n';
  std::string structure =
      "\n// Sizes of the loops, and strides of what is read, in elements.\nstruct Shape {\n";
  size_t bytes = 8 * (nest_.loads.size() + nest_.stores.size() + nest_.row_stores.size());
  for (const Field& f : fields_of(nest_, shape)) {
    structure += fmt::format("  {} {};\n", f.wide() ? "i64" : "u32", field(f));
    bytes += f.wide() ? 8 : 4;
  }
  if (bytes + 4 > most_bytes)
    throw Error(
        "CUDA kernels take {} bytes of parameters, this nest wants {}: it has too many "
        "operands in too many dimensions",
        most_bytes, bytes);
  structure += "};\n";
  const std::string rest = definitions_ + structure + '\n' + head(restricted) + body_ + "}\n";
  return s + '\n' + prelude_for(rest) + rest;
}

std::vector<Field> fields_of(const Nest& nest, const KernelShape& shape) {
  std::vector<Field> fields;
  const auto rank = static_cast<size_t>(nest.rank);
  for (size_t d = 0; d < rank; ++d) fields.push_back({Field::size, 0, d});
  if (shape.by_rows) fields.push_back({Field::rows});
  fields.push_back({Field::groups});
  if (!shape.by_rows) {
    fields.push_back({Field::items});
    fields.push_back({Field::whole});
  }
  for (size_t k = 0; k < nest.loads.size(); ++k)
    for (size_t d = 0; d < rank; ++d)
      if (nest.loads[k].walks[d] == Walk::strided) fields.push_back({Field::stride, k, d});
  return fields;
}

Source write_source(const Nest& nest, std::span<const std::string> lines) {
  for (const Load& l : nest.loads) {
    if (l.operands != 1)
      throw Error("CUDA kernels do not read several operands in a load's place ('of {}')",
                  l.operands);
    if (l.index) throw Error("CUDA kernels do not read at an index ('at %v{}')", *l.index);
  }
  const bool by_rows = nest.reduces() || !nest.row_stores.empty();
  return by_rows ? write_rows(nest, lines) : write_elements(nest, lines);
}

}  // namespace gradus::fusion::cuda
