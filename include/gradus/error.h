// The exceptions of Gradus. Every exception that Gradus throws derives from `Exception`:
//   Error          an error of the user: a program, an input or an argument is wrong
//   InternalError  an error of Gradus: one of its invariants does not hold
//   ResourceError  an error of the machine: memory, files or devices
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#pragma GCC visibility push(default)

namespace gradus {

// A position in a source text. Lines and columns count from 1. Columns count bytes. Line 0 means
// that the position is unknown.
struct SourceLocation {
  uint32_t line = 0;
  uint32_t column = 0;
  bool known() const { return line != 0; }
  friend bool operator==(const SourceLocation&, const SourceLocation&) = default;
};

// The base of the exceptions below.
class Exception : public std::exception {
 public:
  explicit Exception(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

// An error that the user can correct. The message says how. `what()` is the complete text: if the
// source location is known, `file:line:col: error: message`, followed by the source line and a
// caret; otherwise the message alone.
class Error : public Exception {
 public:
  explicit Error(std::string message) : Exception(message), bare_(std::move(message)) {}
  template <class... Args>
  requires(sizeof...(Args) > 0) explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : Error(fmt::format(format, std::forward<Args>(args)...)) {}

  // Makes an error at a location of a named text. `excerpt` is the source line, or empty.
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

// A defect of Gradus. The message names the source line and the invariant that does not hold.
class InternalError : public Exception {
 public:
  using Exception::Exception;
};

// The machine lacks a resource: memory, a file, a device or a library.
class ResourceError : public Exception {
 public:
  explicit ResourceError(std::string message) : Exception(std::move(message)) {}
  template <class... Args>
  requires(sizeof...(Args) > 0) explicit ResourceError(fmt::format_string<Args...> format,
                                                       Args&&... args)
      : Exception(fmt::format(format, std::forward<Args>(args)...)) {}
};

// Throws InternalError. GRADUS_CHECK calls it.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace gradus

#pragma GCC visibility pop

// Checks an invariant of Gradus, and throws InternalError if the invariant does not hold. Errors in
// user input are reported as Error before such a check.
#define GRADUS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::gradus::check_failed(#condition, __FILE__, __LINE__))
