#include "work/work.h"

#include <atomic>

namespace gradus::work {

std::string Call::text() const { return std::string(op->name) + attributes_text(); }

std::string Call::attributes_text() const {
  std::string out;
  const char* separator = " {";
  for (const ir::NamedLiteral& a : op->write(attributes)) {
    out += fmt::format("{}{} = {}", separator, a.name, to_string(a.value));
    separator = ", ";
  }
  return *separator == ',' ? out + "}" : out;
}

std::string text_of(const ir::Number& n) {
  if (n.category == Category::floating) return ir::float_text(n.floating);
  if (n.category == Category::integral) return fmt::format("{}", n.integer);
  return n.integer ? "true" : "false";
}

std::string_view name_of(ScanStep step) {
  constexpr std::string_view names[] = {"sum", "prod", "recurrence", "log_sum_exp",
                                        "cut_recurrence"};
  return names[static_cast<size_t>(step)];
}

std::string_view name_of(MatrixFunction function) {
  constexpr std::string_view names[] = {"cholesky", "inverse", "det", "cofactor", "lu",
                                        "qr",       "eigh",    "svd", "exp"};
  return names[static_cast<size_t>(function)];
}

Foreign foreign(Kernel kernel) {
  static std::atomic<uint64_t> next{1};
  return {std::move(kernel), next.fetch_add(1, std::memory_order_relaxed)};
}

Work::Work(const Work&) = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(const Work&) = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

WorkRef share(Work&& work) { return std::make_shared<const Work>(std::move(work)); }

std::string_view name_of(const Work& work) {
  return std::visit([](const auto& w) { return w.name; }, work);
}

std::string key_of(const Work& work) {
  std::string key;
  KeyWriter writer(key);
  writer.add(work.index());
  std::visit([&](const auto& w) { writer.add(w); }, work);
  return key;
}

size_t hash_of(const Work& work) { return std::hash<std::string>()(key_of(work)); }

std::string print(const Work& work) {
  std::string text(name_of(work));
  text += " ";
  std::visit([&](const auto& w) { TextWriter(text).add(w); }, work);
  return text;
}

std::string describe(const Work& work) {
  const auto* loops = std::get_if<Loops>(&work);
  if (!loops) return print(work);
  std::string text = print(loops->nest) + "at ";
  TextWriter(text).add(loops->frame);
  return text;
}

}  // namespace gradus::work
