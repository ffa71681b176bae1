// Program text -> tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradus/graph.h"

namespace gradus::ir {

enum class TokenKind : uint8_t {
  end,
  name,      // letters, digits, '_' and '.', not starting with a digit
  value,     // %name or %"any name"
  integer,   // digits
  floating,  // digits with a point or an exponent
  bits,      // 0x and hexadecimal digits: the bits of a NaN
  string,    // "…"
  left_brace,
  right_brace,
  left_parenthesis,
  right_parenthesis,
  left_bracket,
  right_bracket,
  comma,
  equals,
  colon,
  plus,
  minus,
  star,
  floor_divide,
  question,
  at,
};

struct Token {
  TokenKind kind = TokenKind::end;
  bool escaped = false;   // `text` has escapes: see content()
  SourceLocation where;   // columns count bytes from 1
  std::string_view text;  // a part of the source; names, values and strings without % and quotes

  // A name's or string's characters, escapes replaced.
  std::string content() const;
  bool is(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

// For messages: "'f64'", "'%x'", "the end of the text".
std::string describe(const Token& token);
// For messages: "'('", "a name".
std::string_view describe(TokenKind kind);

// Letters, digits, '_' and '.'.
bool is_name_character(char c);
// True for what can stand in a program as a name without quotes.
bool is_plain_name(std::string_view text);

// Throws Error for a text that is not UTF-8, holds a NUL byte, or has 4 GiB and more. Lexers want a
// text that passed.
void check_text(const Source& source);

// An Error at a place of the source, with its line and a caret.
[[noreturn]] void fail_at(const Source& source, SourceLocation where, std::string_view message);

// Reads one token at a time. Cheap to copy: a copy looks ahead.
class Lexer {
 public:
  // `source` is borrowed, must have passed check_text, and outlives the lexer's tokens.
  explicit Lexer(const Source& source);

  // The next token; `end` again and again at the end. Throws Error at the place of what is no
  // token.
  Token next();
  // After a '{': moves behind the '}' that ends the block, which need not be a valid one. False if
  // the text ends before.
  bool skip_block();

  const Source& source() const { return *source_; }

 private:
  SourceLocation place(const char* p) const;
  [[noreturn]] void fail(const char* p, std::string_view message) const;
  void skip_blanks();
  Token number();
  Token quoted(TokenKind kind, const char* first);
  Token punctuation();
  Token make(TokenKind kind, const char* first, const char* text, const char* end) const;

  const Source* source_;
  const char* p_;
  const char* end_;   // a NUL
  const char* line_;  // where the line begins
  uint32_t line_number_ = 1;
};

}  // namespace gradus::ir
