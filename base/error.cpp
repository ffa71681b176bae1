#include "gradus/error.h"

#include <algorithm>

#include "gradus/messages.h"

namespace gradus {

namespace {

// The line and a caret under its `column`, which counts bytes from 1.
std::string caret_lines(std::string_view line, uint32_t column) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  // A program's line may be megabytes long: show a window around the place.
  constexpr size_t window = 120;
  size_t place = std::min<size_t>(column > 0 ? column - 1 : 0, line.size());
  size_t first = place > window / 2 && line.size() > window ? place - window / 2 : 0;
  size_t last = std::min(line.size(), first + window);
  // Not from within a character, nor into one.
  auto inside = [&](size_t i) { return i < line.size() && (line[i] & '\xc0') == '\x80'; };
  for (int i = 0; i < 3 && inside(first) && first < place; ++i) ++first;
  for (int i = 0; i < 3 && inside(last); ++i) ++last;
  std::string shown, caret;
  for (size_t at = first; at < last;) {
    size_t length = std::max<size_t>(utf8_length(line, at), 1);
    std::string_view character = line.substr(at, length);
    bool tab = character == "\t";
    shown += tab ? "\t" : printable(character);
    if (at + length <= place) caret += tab ? '\t' : ' ';
    at += length;
  }
  return fmt::format("\n  {}\n  {}^", shown, caret);
}

}  // namespace

Error Error::at(std::string_view file, SourceLocation where, std::string_view bare,
                std::string_view excerpt) {
  if (!where.known()) {
    std::string whole = file.empty() ? std::string(bare) : fmt::format("{}: error: {}", file, bare);
    return Error(std::move(whole), std::string(bare), where);
  }
  std::string whole = fmt::format("{}:{}:{}: error: {}", file.empty() ? "<text>" : file, where.line,
                                  where.column, bare);
  if (!excerpt.empty()) {
    whole += caret_lines(excerpt, where.column);
  }
  return Error(std::move(whole), std::string(bare), where);
}

void check_failed(const char* condition, const char* file, int line) {
  throw InternalError(
      fmt::format("internal error at {}:{}: {} does not hold", file, line, condition));
}

}  // namespace gradus
