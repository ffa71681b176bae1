// Foreign text in messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace gradus {

// What can be shown of a text from outside: valid UTF-8 stays, control characters and bytes that
// are no UTF-8 become '?', and after `limit` bytes it ends in "...".
std::string printable(std::string_view text, size_t limit = 100);

// The text without the blanks (spaces, tabs, carriage returns) at its ends.
std::string_view trimmed(std::string_view text);

// Bytes of the character that begins at `at`: 1 to 4, or 0 where there is no valid UTF-8.
size_t utf8_length(std::string_view text, size_t at);

// Which of `names` were probably meant, best first, at most so many: "; did you mean
// '{prefix}{name}'?", or nothing.
std::string did_you_mean(std::string_view misspelt, std::span<const std::string_view> names,
                         std::string_view prefix = {}, size_t most = 1);

}  // namespace gradus

#pragma GCC visibility pop
