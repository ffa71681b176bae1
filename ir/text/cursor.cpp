#include "ir/text/cursor.h"

#include <algorithm>
#include <charconv>

#include "gradus/messages.h"

namespace gradus::ir {

namespace {

constexpr int deepest = 200;

// What `sizes` gives; its fault, such as an overflow, is at the token.
template <class F>
Dim computed_at(const Cursor& cursor, const Token& token, F&& sizes) {
  try {
    return sizes();
  } catch (const Error& e) {
    cursor.fail(token.where, "{}", e.bare());
  }
}

}  // namespace

// Recursion ends here instead of at the end of the stack.
class Cursor::Depth {
 public:
  explicit Depth(Cursor& cursor) : cursor_(cursor) {
    if (++cursor_.depth_ > deepest)
      cursor_.fail(cursor_.where(), "brackets and signs are nested more than {} deep", deepest);
  }
  ~Depth() { --cursor_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Cursor& cursor_;
};

bool is_reserved(std::string_view name) {
  constexpr std::string_view words[] = {"true", "false", "none", "inf", "nan", "max", "min"};
  return std::find(std::begin(words), std::end(words), name) != std::end(words) ||
         dtype_from_name(name);
}

void Cursor::fail_expected(std::string_view what) const {
  fail(where(), "expected {}, found {}", what, describe(token_));
}

Token Cursor::expect(TokenKind kind, std::string_view purpose) {
  if (token_.kind != kind)
    fail_expected(fmt::format("{}{}{}", describe(kind), purpose.empty() ? "" : " ", purpose));
  return take();
}

void Cursor::expect(std::string_view keyword, std::string_view purpose) {
  if (!accept(keyword))
    fail_expected(fmt::format("'{}'{}{}", keyword, purpose.empty() ? "" : " ", purpose));
}

bool Cursor::skip_block() {
  if (!lexer_.skip_block()) return false;
  token_ = lexer_.next();
  return true;
}

std::string Cursor::name(std::string_view what) {
  if (!at(TokenKind::name) && !at(TokenKind::string)) fail_expected(what);
  if (token_.text.empty()) fail(where(), "{} is empty", what);
  return take().content();
}

uint64_t Cursor::count(uint64_t most, std::string_view what) {
  if (!at(TokenKind::integer)) fail_expected(what);
  uint64_t n = 0;
  const char* end = token_.text.data() + token_.text.size();
  auto [p, error] = std::from_chars(token_.text.data(), end, n);
  if (error != std::errc() || n > most)
    fail(where(), "expected {} of at most {}, found {}", what, most, describe(token_));
  take();
  return n;
}

uint64_t Cursor::magnitude(const Token& token, bool negative, uint64_t most) const {
  uint64_t magnitude = 0;
  const char* end = token.text.data() + token.text.size();
  auto [p, error] = std::from_chars(token.text.data(), end, magnitude);
  if (error != std::errc() || magnitude > most)
    fail(token.where, "the integer {}{} does not fit 64 bits", negative ? "-" : "",
         printable(token.text));
  return magnitude;
}

int64_t Cursor::integer(const Token& token, bool negative) const {
  const uint64_t magnitude =
      this->magnitude(token, negative, static_cast<uint64_t>(INT64_MAX) + negative);
  return negative ? static_cast<int64_t>(-magnitude) : static_cast<int64_t>(magnitude);
}

// sum := product {("+" | "-") product}; product := factor {("*" | "//") factor};
// factor := "-" factor | INT | name | ("max" | "min") "(" sum "," sum {"," sum} ")" | "(" sum ")"
Dim Cursor::dim() {
  Depth depth(*this);
  Dim sum = product();
  while (at(TokenKind::plus) || at(TokenKind::minus)) {
    Token sign = take();
    Dim next = product();
    sum = computed_at(*this, sign,
                      [&] { return sign.kind == TokenKind::plus ? sum + next : sum - next; });
  }
  return sum;
}

Dim Cursor::product() {
  Dim product = factor();
  while (at(TokenKind::star) || at(TokenKind::floor_divide)) {
    Token sign = take();
    Dim next = factor();
    product = computed_at(*this, sign, [&] {
      return sign.kind == TokenKind::star ? product * next : floor_div(product, next);
    });
  }
  return product;
}

Dim Cursor::factor() {
  Depth depth(*this);
  if (at(TokenKind::integer)) return integer(take(), false);
  if (at(TokenKind::name)) return dimension_name();
  Token first = token_;
  if (accept(TokenKind::minus)) {
    if (at(TokenKind::integer)) return integer(take(), true);
    Dim operand = factor();
    return computed_at(*this, first, [&] { return Dim(-1) * operand; });
  }
  if (!accept(TokenKind::left_parenthesis)) {
    if (at(TokenKind::floating) || at(TokenKind::bits))
      fail(where(), "{} is not an integer, which sizes and their expressions are made of",
           describe(token_));
    fail_expected("an integer or a dimension's name");
  }
  Dim inner = dim();
  expect(TokenKind::right_parenthesis, "after the expression");
  return inner;
}

Dim Cursor::dimension_name() {
  if (at("max") || at("min")) return extremum();
  Token token = take();
  if (token.text.size() > 1 && token.text[0] == '.' && token.text[1] >= '0' && token.text[1] <= '9')
    fail(token.where, "a number begins with a digit: 0{}", printable(token.text));
  if (is_reserved(token.text))
    fail(token.where, "expected a size; '{}' is a reserved word and cannot name a dimension",
         token.text);
  if (known_dimensions_ && !known_dimensions_->contains(std::string(token.text))) {
    std::vector<std::string_view> names(known_dimensions_->begin(), known_dimensions_->end());
    std::sort(names.begin(), names.end());
    fail(token.where, "no input of this stage or of an earlier one determines a size '{}'{} [V12]",
         printable(token.text), did_you_mean(token.text, names));
  }
  return Dim::symbol(token.text);
}

Dim Cursor::extremum() {
  Token function = take();
  bool larger = function.text == "max";
  expect(TokenKind::left_parenthesis, fmt::format("after '{}'", function.text));
  Dim best = dim();
  do {
    expect(TokenKind::comma, fmt::format("and another size for '{}'", function.text));
    Dim next = dim();
    best = computed_at(*this, function, [&] { return larger ? max(best, next) : min(best, next); });
  } while (!at(TokenKind::right_parenthesis));
  take();
  return best;
}

DType Cursor::dtype() {
  std::optional<DType> d;
  if (at(TokenKind::name)) d = dtype_from_name(token_.text);
  if (!d)
    fail_expected("a dtype (f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8 or bool)");
  take();
  return *d;
}

WrittenType Cursor::type() {
  WrittenType written;
  if (accept("handle")) {
    written.type = Type::handle();
    return written;
  }
  if (!at(TokenKind::name) || !dtype_from_name(token_.text))
    fail_expected("a type, such as f32[N, 3] or handle");
  written.type.dtype = dtype();
  expect(TokenKind::left_bracket, fmt::format("and sizes after '{}'", name_of(written.type.dtype)));
  Dims& dims = written.type.dims;
  while (!at(TokenKind::right_bracket)) {
    if (!dims.empty()) expect(TokenKind::comma, "or ']' after a size");
    SourceLocation start = where();
    if (accept(TokenKind::question)) {
      written.any.push_back(dims.size());
      dims.push_back(0);
      continue;
    }
    dims.push_back(dim());
    if (dims.back().is_constant() && dims.back().value() < 0)
      fail(start, "a size cannot be negative; this one is {} [V11]", dims.back().value());
  }
  take();
  if (accept(TokenKind::at)) {
    if (accept("cuda")) {
      expect(TokenKind::colon, "and a number, as in cuda:0");
      auto index = static_cast<uint16_t>(count(UINT16_MAX, "a device's number"));
      written.type.device = {DeviceKind::cuda, index};
    } else if (!accept("cpu")) {
      fail_expected("a device, cpu or cuda:0");
    }
  }
  for (;;) {
    const bool varying = at("varying"), partial = at("partial");
    if (!varying && !partial) return written;
    const Token word = take();
    expect(TokenKind::left_parenthesis, fmt::format("and a group's name after '{}'", word.text));
    const SourceLocation where = this->where();
    const std::string group(name("a group's name"));
    if (written.type.sharing(group) != Sharing::replicated)
      fail(where, "the type says twice how group '{}' shares the value", printable(group));
    written.type.set_sharing(group, varying ? Sharing::varying : Sharing::partial);
    expect(TokenKind::right_parenthesis, "after the group's name");
  }
}

bool Cursor::at_floating() const {
  auto begins = [](const Token& t) {
    return t.kind == TokenKind::floating || t.is("inf") || t.is("nan");
  };
  return begins(token_) || (at(TokenKind::minus) && begins(peek_second()));
}

Literal Cursor::literal() {
  Depth depth(*this);
  if (at(TokenKind::string)) return take().content();
  if (accept(TokenKind::left_bracket)) {
    std::vector<Literal> items;
    while (!at(TokenKind::right_bracket)) {
      if (!items.empty()) expect(TokenKind::comma, "or ']' after an item of the list");
      items.push_back(literal());
    }
    take();
    return items;
  }
  if (at_floating()) return read_floating(*this);
  if (at(TokenKind::name)) {
    if (accept("true")) return true;
    if (accept("false")) return false;
    if (accept("none")) return Literal();
    if (dtype_from_name(token_.text)) {
      if (peek_second().kind == TokenKind::left_bracket) return read_tensor(*this);
      return dtype();
    }
  } else if (!at(TokenKind::integer) && !at(TokenKind::minus) && !at(TokenKind::left_parenthesis)) {
    fail_expected(
        "a literal (a number, a size, true, false, none, a string, a dtype, a list or a tensor "
        "such as f32[2] [1, 2])");
  }
  return dim();
}

}  // namespace gradus::ir
