#include "tests/ptx/lexer.h"

#include <bit>
#include <charconv>
#include <limits>

#include "gradus/error.h"

namespace gradus::ptx {

namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    for (skip(); at_ < text_.size(); skip()) tokens.push_back(next());
    tokens.push_back({TokenKind::end, {}, line_});
    return tokens;
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  [[noreturn]] void fail(std::string_view what) const { throw Error("ptx:{}: {}", line_, what); }

  // White space and comments.
  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_, ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\0') {
        ++at_;  // NVRTC's text ends with a zero
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        const size_t close = text_.find("*/", at_ + 2);
        if (close == std::string_view::npos) fail("a comment is not closed");
        for (; at_ < close + 2; ++at_) line_ += text_[at_] == '\n';
      } else {
        return;
      }
    }
  }

  Token next() {
    const char c = text_[at_];
    if (is_letter(c)) return word(TokenKind::word, at_);
    if (is_digit(c)) return number();
    // A modifier may begin with a digit (tex.2d); it stands right behind a word.
    const bool modifier = at_ > 0 && (is_letter(text_[at_ - 1]) || is_digit(text_[at_ - 1]));
    if (c == '.' && is_digit(peek(1)) && !modifier) return number();
    if (c == '.' && (is_letter(peek(1)) || is_digit(peek(1)))) {
      ++at_;
      return word(TokenKind::directive, at_);
    }
    if (c == '"') {
      const size_t close = text_.find('"', at_ + 1);
      if (close == std::string_view::npos) fail("a string is not closed");
      Token t{TokenKind::text, text_.substr(at_ + 1, close - at_ - 1), line_};
      at_ = close + 1;
      return t;
    }
    if (std::string_view("{}()[]<>,;:=+-!@|*/&~^?").find(c) == std::string_view::npos)
      fail(fmt::format("character {:#04x} has no meaning here", static_cast<unsigned char>(c)));
    return {TokenKind::punct, text_.substr(at_++, 1), line_};
  }

  // Directives and modifiers may have parts ("L1::no_allocate").
  Token word(TokenKind kind, size_t begin) {
    for (;;) {
      while (is_letter(peek()) || is_digit(peek())) ++at_;
      if (kind != TokenKind::directive || peek() != ':' || peek(1) != ':') break;
      at_ += 2;
    }
    return {kind, text_.substr(begin, at_ - begin), line_};
  }

  Token number() {
    const size_t begin = at_;
    const bool hexadecimal = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    const bool bits =
        peek() == '0' && (peek(1) == 'f' || peek(1) == 'F' || peek(1) == 'd' || peek(1) == 'D');
    if (hexadecimal || bits) {
      at_ += 2;
      while (is_letter(peek()) || is_digit(peek())) ++at_;
    } else {
      while (is_digit(peek()) || is_letter(peek()) || peek() == '.' ||
             ((peek() == '+' || peek() == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))
        ++at_;
    }
    return {TokenKind::number, text_.substr(begin, at_ - begin), line_};
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view ptx) { return Lexer(ptx).run(); }

Number parse_number(const Token& token) {
  std::string_view s = token.text;
  const auto fail = [&] { throw Error("ptx:{}: {} is no number", token.line, token.text); };
  const auto digits = [&](std::string_view d, int base) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(d.data(), d.data() + d.size(), value, base);
    if (d.empty() || error != std::errc() || end != d.data() + d.size()) fail();
    return value;
  };
  if (s.size() > 2 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F')) {
    if (s.size() != 10) fail();
    return {Number::single, digits(s.substr(2), 16)};
  }
  if (s.size() > 2 && s[0] == '0' && (s[1] == 'd' || s[1] == 'D')) {
    if (s.size() != 18) fail();
    return {Number::binary64, digits(s.substr(2), 16)};
  }
  if (s.find_first_of(".eE") != std::string_view::npos && !(s.size() > 1 && (s[1] | 32) == 'x')) {
    double value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (error == std::errc::invalid_argument || end != s.data() + s.size()) fail();
    return {Number::binary64, std::bit_cast<uint64_t>(value)};
  }
  if (s.back() == 'U' || s.back() == 'u') s.remove_suffix(1);
  if (s.size() > 2 && s[0] == '0' && (s[1] | 32) == 'x')
    return {Number::integer, digits(s.substr(2), 16)};
  if (s.size() > 2 && s[0] == '0' && (s[1] | 32) == 'b')
    return {Number::integer, digits(s.substr(2), 2)};
  if (s.size() > 1 && s[0] == '0') return {Number::integer, digits(s.substr(1), 8)};
  return {Number::integer, digits(s, 10)};
}

}  // namespace gradus::ptx
