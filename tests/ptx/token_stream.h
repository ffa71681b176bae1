// Tokens, one after the other, and what is expected of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradus/error.h"
#include "tests/ptx/lexer.h"

namespace gradus::ptx {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool at_end() const { return peek().kind == TokenKind::end; }
  const Token& next() {
    const Token& t = peek();
    if (!at_end()) ++at_;
    return t;
  }
  bool take(char c) {
    if (!peek().is(c)) return false;
    ++at_;
    return true;
  }
  bool take_directive(std::string_view name) {
    if (peek().kind != TokenKind::directive || peek().text != name) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("expected '{}'", c));
  }
  const Token& expect(TokenKind kind, std::string_view what) {
    if (peek().kind != kind) fail(fmt::format("expected {}", what));
    return next();
  }
  // An integer that is not negative.
  uint64_t expect_integer(uint64_t most) {
    const Token& t = expect(TokenKind::number, "a number");
    const Number n = parse_number(t);
    if (n.kind != Number::integer || n.bits > most)
      throw Error("ptx:{}: {} is no integer up to {}", t.line, t.text, most);
    return n.bits;
  }
  // Goes behind the next semicolon, or the end of the line.
  void skip_statement() {
    while (!at_end() && !take(';')) ++at_;
  }
  void skip_line(uint32_t line) {
    while (!at_end() && peek().line == line) ++at_;
  }
  // Given an opening brace: goes behind the one that closes it.
  void skip_braces() {
    expect('{');
    for (int depth = 1; depth > 0; ++at_) {
      if (at_end()) fail("a brace is not closed");
      depth += peek().is('{') - peek().is('}');
    }
  }

  uint32_t line() const { return peek().line; }
  [[noreturn]] void fail(const std::string& what) const {
    const Token& t = peek();
    if (t.kind == TokenKind::end) throw Error("ptx:{}: {}, and the text ends", t.line, what);
    throw Error("ptx:{}: {}, not {}{}", t.line, what, t.kind == TokenKind::directive ? "." : "",
                t.text);
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace gradus::ptx
