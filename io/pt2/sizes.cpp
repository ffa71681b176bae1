// Sizes as sympy's srepr writes them: NAME(argument, …), where an argument is such a call, an
// integer, a quoted text or KEY=VALUE. Floating numbers are exact fractions of sizes, which a size
// rounds: TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('s7')))).
#include <algorithm>
#include <charconv>

#include "gradus/messages.h"
#include "io/pt2/fraction.h"
#include "io/pt2/schema.h"

namespace gradus::pt2 {

namespace {

constexpr int deepest_size = 100;
constexpr int64_t greatest_power = 8;

class SizeReader {
 public:
  explicit SizeReader(std::string_view text) : text_(text) {}

  Dim read() {
    const Fraction x = fraction(0);
    if (at_ != text_.size()) fail("something follows it");
    return integer(x);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw Error(
        "the size '{}' is no expression that is known: {} at {}; export the model with a "
        "constant in the place of this size",
        printable(std::string(text_.substr(0, 200))), why, at_);
  }

  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("'{}' is wanted", c));
  }

  std::string_view word() {
    skip_space();
    const size_t begin = at_;
    auto in_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '.';
    };
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    if (at_ == begin) fail("a name is wanted");
    return text_.substr(begin, at_ - begin);
  }
  int64_t integer() {
    skip_space();
    int64_t value = 0;
    auto [end, fault] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (fault != std::errc()) fail("an integer is wanted");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  std::string_view quoted() {
    expect('\'');
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '\'') ++at_;
    std::string_view found = text_.substr(begin, at_ - begin);
    expect('\'');
    if (found.empty()) fail("a name is empty");
    return found;
  }

  // What is assumed of a name, or how precise a number is: positive=True.
  void assumptions() {
    while (take(',')) {
      word();
      expect('=');
      word();
    }
    expect(')');
  }
  Dim symbol() {
    std::string_view name = quoted();
    assumptions();
    return Dim::symbol(name);
  }
  Fraction floating() {
    const std::string_view text = quoted();
    assumptions();
    double value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || end != text.data() + text.size()) fail("a number is wanted");
    return exact([&] { return dyadic(value); });
  }
  // What an operation of fractions gives, with the place where it is refused.
  template <class F>
  std::invoke_result_t<F> exact(F operation) const {
    try {
      return operation();
    } catch (const Error& e) {
      fail(e.bare());
    }
  }
  Dim integer(const Fraction& x) const {
    return exact([&] { return integer_of(x); });
  }

  Fraction fraction(int depth) {
    if (depth > deepest_size) fail("it is nested too deeply");
    std::string_view kind = word();
    if (size_t dot = kind.rfind('.'); dot != std::string_view::npos) kind.remove_prefix(dot + 1);
    expect('(');
    if (kind == "Symbol") return {symbol()};
    if (kind == "Float") return floating();
    if (kind == "Integer") {
      int64_t value = integer();
      expect(')');
      return {value};
    }
    std::vector<Fraction> parts;
    do parts.push_back(fraction(depth + 1));
    while (take(','));
    expect(')');
    return apply(kind, parts);
  }

  Fraction apply(std::string_view kind, const std::vector<Fraction>& x) const {
    const bool fractions = !std::ranges::all_of(x, is_integer);
    if (fractions && (kind == "Add" || kind == "Mul"))
      return exact([&] {
        Fraction y = x[0];
        for (size_t i = 1; i < x.size(); ++i)
          y = kind == "Add" ? sum_of(y, x[i]) : product_of(y, x[i]);
        return y;
      });
    if (x.size() == 1) {
      if (kind == "ToFloat") return x[0];
      if (kind == "TruncToInt" || kind == "TruncToFloat") return {trunc(x[0])};
      if (kind == "FloorToInt" || kind == "FloorToFloat") return {floor(x[0])};
      if (kind == "CeilToInt" || kind == "CeilToFloat") return {ceil(x[0])};
    }
    if (x.size() == 2 && (kind == "IntTrueDiv" || kind == "FloatTrueDiv"))
      return exact([&] { return quotient_of(x[0], x[1]); });
    std::vector<Dim> integers;
    for (const Fraction& part : x) integers.push_back(integer(part));
    return {apply(kind, integers)};
  }

  Dim apply(std::string_view kind, const std::vector<Dim>& x) const {
    Dim y = x[0];
    auto fold = [&](auto f) {
      for (size_t i = 1; i < x.size(); ++i) y = f(y, x[i]);
      return y;
    };
    if (kind == "Add") return fold([](const Dim& a, const Dim& b) { return a + b; });
    if (kind == "Mul") return fold([](const Dim& a, const Dim& b) { return a * b; });
    if (kind == "Max") return fold([](const Dim& a, const Dim& b) { return max(a, b); });
    if (kind == "Min") return fold([](const Dim& a, const Dim& b) { return min(a, b); });
    if (x.size() == 2) {
      if (kind == "FloorDiv" || kind == "CleanDiv") return floor_div(x[0], x[1]);
      if (kind == "Mod" || kind == "PythonMod") return x[0] - x[1] * floor_div(x[0], x[1]);
      if (kind == "Pow" || kind == "PowByNatural") return power(x[0], x[1]);
    }
    fail(fmt::format("'{}' of {} is not supported", kind, x.size()));
  }

  Dim power(const Dim& x, const Dim& n) const {
    if (!n.is_constant() || n.value() < 0 || n.value() > greatest_power)
      fail("a power has to be a small number");
    Dim y = 1;
    for (int64_t i = 0; i < n.value(); ++i) y = y * x;
    return y;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Dim read_size_expression(std::string_view text) { return SizeReader(text).read(); }

}  // namespace gradus::pt2
