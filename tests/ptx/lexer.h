// PTX text to tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gradus::ptx {

enum class TokenKind : uint8_t {
  word,       // name, %register, $label
  directive,  // .word, with "::word"s; the text is without the dot
  number,
  text,   // "...", without the quotes
  punct,  // one character
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  uint32_t line = 0;

  bool is(char c) const { return kind == TokenKind::punct && text[0] == c; }
};

// The tokens, an `end` last; they point into the text. Error for a character that PTX does not
// know, and for a comment or string that is not closed.
std::vector<Token> tokenize(std::string_view ptx);

// A literal: its bits as a 64-bit integer, and which kind it was.
struct Number {
  enum Kind : uint8_t { integer, single, binary64 } kind = integer;
  uint64_t bits = 0;
};
// Error if the token is no number of PTX.
Number parse_number(const Token&);

}  // namespace gradus::ptx
