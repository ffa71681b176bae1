#include "base/text.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/core.h>

namespace gradus {

size_t utf8_length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Longer than needed, surrogates, past the last character.
  bool wrong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
               (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f);
  return wrong ? 0 : length;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string printable(std::string_view text, size_t limit) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    size_t length = utf8_length(text, at);
    bool control = length == 0 ||
                   (length == 1 && (static_cast<uint8_t>(text[at]) < 0x20 || text[at] == 0x7f)) ||
                   (length == 2 && text[at] == '\xc2' && static_cast<uint8_t>(text[at + 1]) < 0xa0);
    size_t step = length == 0 ? 1 : length;
    if (shown.size() + (control ? 1 : step) > limit) return shown + "...";
    if (control)
      shown += '?';
    else
      shown += text.substr(at, step);
    at += step;
  }
  return shown;
}

std::string_view nearest(std::string_view misspelt, std::span<const std::string_view> names) {
  std::string_view best;
  if (misspelt.size() > 64) return best;
  size_t least = 1 + misspelt.size() / 4;
  if (misspelt.size() < 3) least = 1;
  std::array<size_t, 80> row;
  for (std::string_view name : names) {
    size_t difference =
        std::max(name.size(), misspelt.size()) - std::min(name.size(), misspelt.size());
    if (name.empty() || difference > least) continue;
    for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= misspelt.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= name.size(); ++j) {
        size_t above = row[j];
        row[j] =
            std::min({row[j] + 1, row[j - 1] + 1, diagonal + (misspelt[i - 1] != name[j - 1])});
        diagonal = above;
      }
    }
    size_t distance = row[name.size()];
    if (distance < least || (distance == least && best.empty())) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view misspelt, std::span<const std::string_view> names,
                         std::string_view prefix) {
  std::string_view name = nearest(misspelt, names);
  return name.empty() ? "" : fmt::format("; did you mean '{}{}'?", prefix, printable(name));
}

}  // namespace gradus
