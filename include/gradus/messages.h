// Text of users and files in messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace gradus {

// Returns the text for display. Control characters and bytes that are not valid UTF-8 become '?'. A
// text of more than `limit` bytes is cut and ends in "...".
std::string printable(std::string_view text, size_t limit = 100);

// Returns the text without spaces, tabs and carriage returns at its ends.
std::string_view trimmed(std::string_view text);

// Returns the number of bytes of the character at `at`: 1 to 4, or 0 if it is not valid UTF-8.
size_t utf8_length(std::string_view text, size_t at);

// Returns the names that are similar to a misspelt name, the most similar first, at most `most`: ";
// did you mean '{prefix}{name}'?", or an empty string.
std::string did_you_mean(std::string_view misspelt, std::span<const std::string_view> names,
                         std::string_view prefix = {}, size_t most = 1);

}  // namespace gradus

#pragma GCC visibility pop
