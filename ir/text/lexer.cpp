#include "ir/text/lexer.h"

#include <array>
#include <cstring>

#include "gradus/messages.h"

namespace gradus::ir {

namespace {

constexpr size_t longest_token = 1 << 16;

enum CharClass : uint8_t { other = 0, blank = 1, letter = 2, digit = 4 };

constexpr std::array<uint8_t, 256> char_classes = [] {
  std::array<uint8_t, 256> c{};
  for (char b : {' ', '\t', '\r', '\n'}) c[static_cast<uint8_t>(b)] = blank;
  for (int i = 'a'; i <= 'z'; ++i) c[static_cast<size_t>(i)] = letter;
  for (int i = 'A'; i <= 'Z'; ++i) c[static_cast<size_t>(i)] = letter;
  for (char l : {'_', '.'}) c[static_cast<uint8_t>(l)] = letter;
  for (int i = '0'; i <= '9'; ++i) c[static_cast<size_t>(i)] = digit;
  return c;
}();

bool is(char c, int classes) { return char_classes[static_cast<uint8_t>(c)] & classes; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

const char* skip_name(const char* p) {
  while (is(*p, letter | digit)) ++p;
  return p;
}
const char* skip_digits(const char* p) {
  while (is(*p, digit)) ++p;
  return p;
}

// The place of a byte, counted from the start: only for errors.
SourceLocation place_of(std::string_view text, size_t at) {
  SourceLocation where{1, 1};
  for (size_t i = 0; i < at; ++i) {
    if (text[i] == '\n') {
      ++where.line;
      where.column = 1;
    } else {
      ++where.column;
    }
  }
  return where;
}

}  // namespace

void fail_at(const Source& source, SourceLocation where, std::string_view message) {
  throw Error::at(source.file, where, message, source.line(where));
}

bool is_name_character(char c) { return is(c, letter | digit); }

bool is_plain_name(std::string_view text) {
  if (text.empty() || is(text[0], digit)) return false;
  for (char c : text)
    if (!is(c, letter | digit)) return false;
  return true;
}

void check_text(const Source& source) {
  std::string_view text = source.text;
  if (text.size() >= UINT32_MAX)
    throw Error::at(source.file, {}, "the text is too long: 4 GiB are the limit");
  for (size_t at = 0; at < text.size();) {
    uint64_t eight;
    if (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      // All of them 1 … 127: no byte has its top bit set, neither now nor after subtracting one.
      if (((eight | (eight - 0x0101010101010101u)) & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    if (text[at] == '\0')
      fail_at(source, place_of(text, at), "a NUL byte: this is not a program text");
    size_t length = utf8_length(text, at);
    if (length == 0)
      fail_at(source, place_of(text, at),
              fmt::format("the byte 0x{:02x} is not valid UTF-8; in a quoted name or string write "
                          "\\x{:02x}",
                          static_cast<uint8_t>(text[at]), static_cast<uint8_t>(text[at])));
    at += length;
  }
}

std::string Token::content() const {
  if (!escaped) return std::string(text);
  std::string s;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      s += text[i];
      continue;
    }
    char c = text[++i];
    switch (c) {
      case 'n':
        s += '\n';
        break;
      case 't':
        s += '\t';
        break;
      case 'r':
        s += '\r';
        break;
      case 'x':
        s += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
        i += 2;
        break;
      default:
        s += c;
    }
  }
  return s;
}

std::string_view describe(TokenKind kind) {
  switch (kind) {
    case TokenKind::end:
      return "the end of the text";
    case TokenKind::name:
      return "a name";
    case TokenKind::value:
      return "a value (%name)";
    case TokenKind::integer:
      return "an integer";
    case TokenKind::floating:
      return "a number";
    case TokenKind::bits:
      return "bits (0x…)";
    case TokenKind::string:
      return "a string in double quotes";
    case TokenKind::left_brace:
      return "'{'";
    case TokenKind::right_brace:
      return "'}'";
    case TokenKind::left_parenthesis:
      return "'('";
    case TokenKind::right_parenthesis:
      return "')'";
    case TokenKind::left_bracket:
      return "'['";
    case TokenKind::right_bracket:
      return "']'";
    case TokenKind::comma:
      return "','";
    case TokenKind::equals:
      return "'='";
    case TokenKind::colon:
      return "':'";
    case TokenKind::plus:
      return "'+'";
    case TokenKind::minus:
      return "'-'";
    case TokenKind::star:
      return "'*'";
    case TokenKind::floor_divide:
      return "'//'";
    case TokenKind::question:
      return "'?'";
    case TokenKind::at:
      break;
  }
  return "'@'";
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::name:
    case TokenKind::integer:
    case TokenKind::floating:
    case TokenKind::bits:
      return "'" + printable(token.text) + "'";
    case TokenKind::value:
      return "'%" + printable(token.text) + "'";
    case TokenKind::string:
      return "the string \"" + printable(token.text) + "\"";
    default:
      return std::string(describe(token.kind));
  }
}

Lexer::Lexer(const Source& source)
    : source_(&source),
      p_(source.text.data()),
      end_(source.text.data() + source.text.size()),
      line_(p_) {
  if (source.text.starts_with("\xef\xbb\xbf")) p_ += 3;  // a byte order mark
}

SourceLocation Lexer::place(const char* p) const {
  return {line_number_, static_cast<uint32_t>(p - line_) + 1};
}

void Lexer::fail(const char* p, std::string_view message) const {
  fail_at(*source_, place(p), message);
}

Token Lexer::make(TokenKind kind, const char* first, const char* text, const char* end) const {
  if (static_cast<size_t>(end - text) > longest_token)
    fail(first, fmt::format("{} is longer than {} bytes", describe(kind), longest_token));
  return {kind, false, place(first), {text, static_cast<size_t>(end - text)}};
}

void Lexer::skip_blanks() {
  for (;;) {
    if (*p_ == '\n') {
      line_ = ++p_;
      ++line_number_;
    } else if (is(*p_, blank)) {
      ++p_;
    } else if (*p_ == '#') {
      p_ = static_cast<const char*>(std::memchr(p_, '\n', static_cast<size_t>(end_ - p_)));
      if (!p_) p_ = end_;
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skip_blanks();
  const char* first = p_;
  if (is(*p_, letter)) {
    p_ = skip_name(p_);
    return make(TokenKind::name, first, first, p_);
  }
  if (*p_ == '%') {
    if (p_[1] == '"') {
      p_ += 2;
      return quoted(TokenKind::value, first);
    }
    p_ = skip_name(p_ + 1);
    if (p_ == first + 1) fail(first, "expected a name after '%', such as %x or %\"any name\"");
    if (is(first[1], digit))
      fail(first, fmt::format("a name does not start with a digit unless it is quoted: %\"{}\"",
                              printable({first + 1, static_cast<size_t>(p_ - first - 1)})));
    return make(TokenKind::value, first, first + 1, p_);
  }
  if (is(*p_, digit)) return number();
  if (*p_ == '"') {
    ++p_;
    return quoted(TokenKind::string, first);
  }
  return punctuation();
}

Token Lexer::number() {
  const char* first = p_;
  TokenKind kind = TokenKind::integer;
  if (p_[0] == '0' && p_[1] == 'x') {
    kind = TokenKind::bits;
    for (p_ += 2; hex_digit(*p_) >= 0;) ++p_;
    if (p_ == first + 2) fail(first, "expected hexadecimal digits after '0x'");
  } else {
    p_ = skip_digits(p_);
    if (*p_ == '.') {
      kind = TokenKind::floating;
      p_ = skip_digits(p_ + 1);
    }
    if (*p_ == 'e' || *p_ == 'E') {
      const char* exponent = p_ + (p_[1] == '+' || p_[1] == '-' ? 2 : 1);
      if (is(*exponent, digit)) {
        kind = TokenKind::floating;
        p_ = skip_digits(exponent);
      }
    }
  }
  if (is(*p_, letter | digit)) {
    const char* end = skip_name(p_);
    fail(first, fmt::format("'{}' is neither a number nor a name",
                            printable({first, static_cast<size_t>(end - first)})));
  }
  return make(kind, first, first, p_);
}

Token Lexer::quoted(TokenKind kind, const char* first) {
  const char* text = p_;
  bool escaped = false;
  for (;; ++p_) {
    if (*p_ == '"') break;
    if (p_ == end_ || *p_ == '\n') fail(first, "the quotes are not closed in this line");
    if (*p_ != '\\') continue;
    escaped = true;
    ++p_;
    if (*p_ == 'x' && hex_digit(p_[1]) >= 0 && hex_digit(p_[2]) >= 0)
      p_ += 2;
    else if (*p_ == '\0' || !std::strchr("\"\\ntr", *p_))
      fail(p_ - 1,
           "unknown escape: there are \\\" \\\\ \\n \\t \\r and \\x with two hexadecimal "
           "digits");
  }
  Token t = make(kind, first, text, p_);
  t.escaped = escaped;
  ++p_;
  return t;
}

Token Lexer::punctuation() {
  auto kind = [&] {
    switch (*p_) {
      case '{':
        return TokenKind::left_brace;
      case '}':
        return TokenKind::right_brace;
      case '(':
        return TokenKind::left_parenthesis;
      case ')':
        return TokenKind::right_parenthesis;
      case '[':
        return TokenKind::left_bracket;
      case ']':
        return TokenKind::right_bracket;
      case ',':
        return TokenKind::comma;
      case '=':
        return TokenKind::equals;
      case ':':
        return TokenKind::colon;
      case '+':
        return TokenKind::plus;
      case '-':
        return TokenKind::minus;
      case '*':
        return TokenKind::star;
      case '?':
        return TokenKind::question;
      case '@':
        return TokenKind::at;
      case '/':
        if (p_[1] == '/') return TokenKind::floor_divide;
        fail(p_, "unexpected '/'; sizes are divided with '//', which rounds down");
      default:
        return TokenKind::end;
    }
  }();
  if (kind == TokenKind::end) {
    if (p_ == end_) return make(kind, p_, p_, p_);
    std::string_view rest(p_, static_cast<size_t>(end_ - p_));
    size_t length = std::max<size_t>(utf8_length(rest, 0), 1);
    fail(p_, fmt::format("unexpected '{}'; a name with other characters than letters, digits, '_' "
                         "and '.' is quoted: %\"…\"",
                         printable(rest.substr(0, length))));
  }
  const char* first = p_;
  p_ += kind == TokenKind::floor_divide ? 2 : 1;
  return make(kind, first, first, p_);
}

bool Lexer::skip_block() {
  for (size_t depth = 1; depth;) {
    skip_blanks();
    if (p_ == end_) return false;
    char c = *p_++;
    depth += c == '{';
    depth -= c == '}';
    if (c != '"') continue;
    while (*p_ != '"' && *p_ != '\n' && p_ != end_)
      p_ += *p_ == '\\' && p_[1] != '\n' && p_ + 1 != end_ ? 2 : 1;
    if (*p_ == '"') ++p_;
  }
  return true;
}

}  // namespace gradus::ir
