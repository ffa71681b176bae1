#include "io/pt2/guards.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "gradus/messages.h"
#include "io/pt2/fraction.h"

namespace gradus::pt2 {

namespace {

using ir::Dim;

constexpr int deepest_guard = 64;
constexpr int64_t greatest_exponent = 8;

// A condition of an integer: from `least` to `most`.
struct Bounded {
  Dim value;
  int64_t least = 0;
  std::optional<int64_t> most;
};
// All of which have to hold.
using Conditions = std::vector<Bounded>;

struct Term {
  Fraction number;
  std::optional<Conditions> truth;  // where it is one
};

// 1 where it holds, 0 elsewhere.
Dim indicator(const Bounded& b) {
  const Dim least = max(0, min(1, b.value - b.least + 1));
  return b.most ? least * max(0, min(1, Dim(*b.most) - b.value + 1)) : least;
}
Dim indicator(const Conditions& all) {
  Dim one = 1;
  for (const Bounded& b : all) one = one * indicator(b);
  return one;
}
Conditions holds(const Dim& indicator) { return {{indicator, 1, 1}}; }

Conditions compare(std::string_view op, const Fraction& x, const Fraction& y) {
  const Dim more = x.over * y.under - y.over * x.under;
  if (op == "==") return {{more, 0, 0}};
  if (op == "!=") return {{magnitude(more), 1, {}}};
  if (op == ">=") return {{more, 0, {}}};
  if (op == ">") return {{more - 1, 0, {}}};
  if (op == "<=") return {{negative(more), 0, {}}};
  return {{negative(more) - 1, 0, {}}};
}

class GuardReader {
 public:
  GuardReader(std::string_view text, const GuardedSizes& sizes) : text_(text), sizes_(sizes) {}

  Conditions read() {
    Conditions all = truth(any());
    if (skip_space(); at_ != text_.size()) fail("something follows it");
    return all;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> why, Args&&... args) const {
    throw Error("{} at {}", fmt::format(why, std::forward<Args>(args)...), at_);
  }

  // Tokens

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  static bool in_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  std::string_view rest() {
    skip_space();
    return text_.substr(at_);
  }
  // A sign, which no longer sign begins with, or a word.
  bool take(std::string_view token) {
    const std::string_view left = rest();
    if (!left.starts_with(token)) return false;
    const char next = left.size() > token.size() ? left[token.size()] : ' ';
    if (in_word(token.back()) && in_word(next)) return false;
    if ((token == "*" && next == '*') || (token == "/" && next == '/')) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail("'{}' is wanted", token);
  }
  std::string word() {
    const std::string_view left = rest();
    const size_t end = std::ranges::find_if_not(left, in_word) - left.begin();
    if (end == 0) fail("a name is wanted");
    at_ += end;
    return std::string(left.substr(0, end));
  }
  std::string quoted(char quote) {
    std::string content;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      content += text_[at_];
    }
    if (at_ == text_.size()) fail("a text does not end");
    ++at_;
    return content;
  }
  int64_t index() {
    const int64_t n = literal_integer();
    expect("]");
    return n;
  }
  int64_t literal_integer() {
    const Fraction n = literal();
    if (!is_integer(n)) fail("an integer is wanted");
    return n.over.value();
  }

  // Terms, from those that bind least

  class Depth {
   public:
    explicit Depth(GuardReader& r) : r_(r) {
      if (++r_.depth_ > deepest_guard) r_.fail("it is nested too deeply");
    }
    ~Depth() { --r_.depth_; }

   private:
    GuardReader& r_;
  };

  Term any() {
    Depth depth(*this);
    Term x = alternatives();
    if (!take("if")) return x;
    const Dim chosen = indicator(truth(alternatives()));
    expect("else");
    const Dim a = integer(x), b = integer(any());
    return {{chosen * a + (Dim(1) - chosen) * b}, {}};
  }
  Term alternatives() {
    Term x = all();
    while (take("or")) {
      const Dim a = indicator(truth(x)), b = indicator(truth(all()));
      x = {{}, holds(max(a, b))};
    }
    return x;
  }
  Term all() {
    Term x = negation();
    while (take("and")) {
      Conditions both = truth(x);
      for (Bounded& b : truth(negation())) both.push_back(std::move(b));
      x = {{}, std::move(both)};
    }
    return x;
  }
  Term negation() {
    Depth depth(*this);
    if (take("not")) return {{}, holds(Dim(1) - indicator(truth(negation())))};
    return comparison();
  }
  std::optional<std::string_view> comparison_sign() {
    for (std::string_view op : {"==", "!=", ">=", "<=", ">", "<"})
      if (take(op)) return op;
    return std::nullopt;
  }
  Term comparison() {
    Term x = sum();
    std::optional<Conditions> found;
    while (auto op = comparison_sign()) {
      Term y = sum();
      if (!found) found.emplace();
      for (Bounded& b : compare(*op, number(x), number(y))) found->push_back(std::move(b));
      x = y;
    }
    return found ? Term{{}, std::move(found)} : x;
  }
  Term sum() {
    Term x = product();
    for (;;) {
      if (take("+"))
        x = {sum_of(number(x), number(product())), {}};
      else if (take("-"))
        x = {sum_of(number(x), negative(number(product()))), {}};
      else
        return x;
    }
  }
  Term product() {
    Term x = factor();
    for (;;) {
      if (take("*")) {
        x = {product_of(number(x), number(factor())), {}};
      } else if (take("//")) {
        x = {{floor_div(integer(x), integer(factor()))}, {}};
      } else if (take("/")) {
        x = {quotient_of(number(x), number(factor())), {}};
      } else if (take("%")) {
        const Dim a = integer(x), b = integer(factor());
        x = {{a - b * floor_div(a, b)}, {}};
      } else {
        return x;
      }
    }
  }
  Term factor() {
    Depth depth(*this);
    if (take("-")) {
      return {negative(number(factor())), {}};
    }
    if (take("+")) return factor();
    const Term x = atom();
    if (!take("**")) return x;
    const Fraction n = number(factor());
    if (!is_integer(n) || !n.over.is_constant() || n.over.value() < 0 ||
        n.over.value() > greatest_exponent)
      fail("a power has to be a small integer");
    Fraction y{1};
    for (int64_t i = 0; i < n.over.value(); ++i) y = product_of(y, number(x));
    return {y, {}};
  }

  Term atom() {
    if (take("(")) {
      Term x = any();
      expect(")");
      return x;
    }
    const char c = rest().empty() ? '\0' : rest()[0];
    if ((c >= '0' && c <= '9') || c == '.') return {literal(), {}};
    if (take("True")) return {{}, Conditions()};
    if (take("False")) return {{}, holds(0)};
    if (take("L")) return {{argument()}, {}};
    return call();
  }

  Fraction literal() {
    const std::string_view left = rest();
    size_t end = 0;
    auto in_number = [&](char c) {
      return (c >= '0' && c <= '9') || c == '.' || c == 'e' ||
             ((c == '-' || c == '+') && end > 0 && left[end - 1] == 'e');
    };
    while (end < left.size() && in_number(left[end])) ++end;
    double value = 0;
    const auto [last, fault] = std::from_chars(left.data(), left.data() + end, value);
    if (fault != std::errc() || last != left.data() + end) fail("a number is wanted");
    at_ += end;
    return dyadic(value);
  }

  // ['x'][0].size()[1]
  Dim argument() {
    GuardedNumber n;
    for (;;) {
      if (take("[")) {
        const char c = rest().empty() ? '\0' : rest()[0];
        if (c == '\'' || c == '"') {
          n.path.push_back(quoted(c));
          expect("]");
        } else {
          n.path.push_back(fmt::format("{}", index()));
        }
        continue;
      }
      if (!take(".")) fail("it is of an argument that is a number, not a tensor");
      const std::string name = word();
      const bool is_call = take("(");
      if (is_call) expect(")");
      if (!is_call && name != "shape") {
        n.path.push_back("." + name);
        continue;
      }
      if (name != "size" && name != "stride" && name != "shape")
        fail("'{}' of a tensor is not supported", name);
      n.kind = name == "stride" ? GuardedNumber::Kind::stride : GuardedNumber::Kind::size;
      expect("[");
      n.dim = index();
      return sizes_(n);
    }
  }

  Term call() {
    std::string name = word();
    while (take(".")) name += "." + word();
    expect("(");
    std::vector<Term> x;
    do x.push_back(any());
    while (take(","));
    expect(")");
    if (x.size() == 1) {
      if (name == "torch.sym_float" || name == "float") return {number(x[0]), {}};
      if (name == "math.floor") return {{floor(number(x[0]))}, {}};
      if (name == "math.ceil") return {{ceil(number(x[0]))}, {}};
      if (name == "math.trunc" || name == "torch.sym_int" || name == "int")
        return {{trunc(number(x[0]))}, {}};
      if (name == "abs") return {{magnitude(integer(x[0]))}, {}};
    }
    const bool greatest = name == "max" || name == "torch.sym_max";
    if (greatest || name == "min" || name == "torch.sym_min") {
      Dim y = integer(x[0]);
      for (const Term& other : x) y = greatest ? max(y, integer(other)) : min(y, integer(other));
      return {{y}, {}};
    }
    fail("'{}' is not supported", printable(name));
  }

  // What a term is

  static Conditions truth(const Term& x) {
    if (x.truth) return *x.truth;
    return {{magnitude(x.number.over), 1, {}}};
  }
  static Fraction number(const Term& x) {
    return x.truth ? Fraction{indicator(*x.truth)} : x.number;
  }
  static Dim integer(const Term& x) { return integer_of(number(x)); }

  std::string_view text_;
  const GuardedSizes& sizes_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::vector<ir::SizeCondition> read_guard(std::string_view text, const GuardedSizes& sizes) {
  std::vector<ir::SizeCondition> conditions;
  for (const Bounded& b : GuardReader(text, sizes).read()) {
    const bool known = b.value.is_constant();
    if (known && (b.value.value() < b.least || b.value.value() > b.most.value_or(INT64_MAX)))
      throw Error("it holds for no inputs of the program");
    const bool always = known || (!b.most && (b.value - b.least).known_nonnegative());
    if (!always) conditions.push_back({b.value, b.least, b.most, printable(text, text.size())});
  }
  return conditions;
}

}  // namespace gradus::pt2
