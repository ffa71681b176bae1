#include "base/error.h"

namespace gradus {

Error Error::at(std::string_view file, SourceLocation where, std::string_view bare,
                std::string_view excerpt) {
  if (!where.known()) {
    std::string whole =
        file.empty() ? std::string(bare) : fmt::format("{}: error: {}", file, bare);
    return Error(std::move(whole), std::string(bare), where);
  }
  std::string whole = fmt::format("{}:{}:{}: error: {}", file.empty() ? "<text>" : file,
                                  where.line, where.column, bare);
  if (!excerpt.empty()) {
    // A program's line may be megabytes long: show a window around the place.
    constexpr size_t window = 120;
    size_t column = where.column - 1;
    size_t first = column > window / 2 && excerpt.size() > window ? column - window / 2 : 0;
    std::string shown(excerpt.substr(std::min(first, excerpt.size()), window));
    std::string caret;
    for (size_t i = 0; i < column - first; ++i)
      caret += i < shown.size() && shown[i] == '\t' ? '\t' : ' ';
    for (char& c : shown)
      if (static_cast<unsigned char>(c) < 0x20 && c != '\t') c = '?';
    whole += fmt::format("\n  {}\n  {}^", shown, caret);
  }
  return Error(std::move(whole), std::string(bare), where);
}

void check_failed(const char* condition, const char* file, int line) {
  throw InternalError(fmt::format("internal error at {}:{}: {} does not hold", file, line, condition));
}

}  // namespace gradus
