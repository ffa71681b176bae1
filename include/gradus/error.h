// The three kinds of fault. Everything Gradus throws derives from `Exception`.
//   Error          the user's: a program, an input or an argument is wrong; says what to do
//   InternalError  ours: an invariant of Gradus does not hold
//   ResourceError  the machine's: memory, files, devices
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#pragma GCC visibility push(default)

namespace gradus {

// A place in a source text. Lines and columns count from 1; line 0 means "no place known".
struct SourceLocation {
  uint32_t line = 0;
  uint32_t column = 0;
  bool known() const { return line != 0; }
  friend bool operator==(const SourceLocation&, const SourceLocation&) = default;
};

class Exception : public std::exception {
 public:
  explicit Exception(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

// What the user can mend. `what()` is the whole text as it is to be shown:
// `file:line:col: error: message` followed by the source line and a caret where the place is
// known, and the bare message where it is not.
class Error : public Exception {
 public:
  explicit Error(std::string message) : Exception(message), bare_(std::move(message)) {}
  template <class... Args>
  requires(sizeof...(Args) > 0) explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : Error(fmt::format(format, std::forward<Args>(args)...)) {}

  // An error at a place of a named text; `excerpt` is the source line (may be empty).
  static Error at(std::string_view file, SourceLocation where, std::string_view bare,
                  std::string_view excerpt = {});

  // The message without file, line and excerpt.
  const std::string& bare() const { return bare_; }
  SourceLocation where() const { return where_; }

 private:
  Error(std::string whole, std::string bare, SourceLocation where)
      : Exception(std::move(whole)), bare_(std::move(bare)), where_(where) {}
  std::string bare_;
  SourceLocation where_;
};

class InternalError : public Exception {
 public:
  using Exception::Exception;
};

class ResourceError : public Exception {
 public:
  explicit ResourceError(std::string message) : Exception(std::move(message)) {}
  template <class... Args>
  requires(sizeof...(Args) > 0) explicit ResourceError(fmt::format_string<Args...> format,
                                                       Args&&... args)
      : Exception(fmt::format(format, std::forward<Args>(args)...)) {}
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace gradus

#pragma GCC visibility pop

// An invariant of ours. User input never reaches one: it is refused by an Error before.
#define GRADUS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::gradus::check_failed(#condition, __FILE__, __LINE__))
