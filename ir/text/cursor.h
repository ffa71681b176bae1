// Where the parser stands: tokens, expectations, and what types, numbers and literals are made of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ir/text/lexer.h"

namespace gradus::ir {

// Names of dimensions whose sizes are known at a place of a program.
using DimensionNames = std::unordered_set<std::string>;

// A type as written: `?` stands for any size.
struct WrittenType {
  Type type;                // sizes written `?` are 0
  std::vector<size_t> any;  // their indices, ascending
};

// Reads from a token on. Cheap to copy: a copy looks ahead, or comes back later. Every function
// throws Error at the place of the first token that does not fit.
class Cursor {
 public:
  explicit Cursor(const Source& source) : lexer_(source), token_(lexer_.next()) {}

  const Source& source() const { return lexer_.source(); }
  const Token& peek() const { return token_; }
  Token peek_second() const { return Lexer(lexer_).next(); }
  SourceLocation where() const { return token_.where; }
  Token take() {
    Token t = token_;
    token_ = lexer_.next();
    return t;
  }
  bool at(TokenKind kind) const { return token_.kind == kind; }
  bool at(std::string_view keyword) const { return token_.is(keyword); }
  bool accept(TokenKind kind) {
    if (token_.kind != kind) return false;
    token_ = lexer_.next();
    return true;
  }
  bool accept(std::string_view keyword) {
    if (!token_.is(keyword)) return false;
    token_ = lexer_.next();
    return true;
  }
  // `purpose` says what the token is for: "after the input '%x'".
  Token expect(TokenKind kind, std::string_view purpose = {});
  void expect(std::string_view keyword, std::string_view purpose = {});
  // At a '{': moves behind the block's '}', or false if the text ends before.
  bool skip_block();

  template <class... Args>
  [[noreturn]] void fail(SourceLocation where, fmt::format_string<Args...> format,
                         Args&&... args) const {
    fail_at(source(), where, fmt::format(format, std::forward<Args>(args)...));
  }
  // "expected {what}, found {token}"
  [[noreturn]] void fail_expected(std::string_view what) const;

  // Names of sizes in expressions must be among these; null: any may be written. Borrowed.
  void restrict_dimensions(const DimensionNames* known) { known_dimensions_ = known; }

  // A plain name, or a string with any name. `what` names it in messages: "a graph's name".
  std::string name(std::string_view what);
  // 0 … `most`
  uint64_t count(uint64_t most, std::string_view what);
  // The value of an integer's token.
  int64_t integer(const Token& token, bool negative) const;
  // Its digits alone; an error above `most`. `negative` says what stands before them.
  uint64_t magnitude(const Token& token, bool negative, uint64_t most) const;
  Dim dim();
  DType dtype();
  WrittenType type();
  // At what begins a floating literal (a number with a point, inf, nan, with or without a minus)?
  bool at_floating() const;
  Literal literal();

 private:
  class Depth;  // counts nested brackets
  Dim product();
  Dim factor();
  Dim extremum();
  Dim dimension_name();

  Lexer lexer_;
  Token token_;
  const DimensionNames* known_dimensions_ = nullptr;
  int depth_ = 0;
};

// What begins a floating literal, see Cursor::at_floating.
double read_floating(Cursor& c);
// An integer or floating number with a sign, inf, or nan. `what` names it in messages.
double read_real(Cursor& c, std::string_view what);
// A tensor literal: f32[2] [1, 2].
Tensor read_tensor(Cursor& c);

// True for names that mean something else where a size can stand: true, none, inf, f32, max, …
bool is_reserved(std::string_view name);

}  // namespace gradus::ir
