#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradus/messages.h"

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

namespace {

constexpr size_t longest_misspelt = 64, longest_name = 96;

// Insertions, deletions, replacements and swaps of neighbours, by the table of prefixes' distances,
// of which three rows are read at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::array<std::array<size_t, longest_name + 1>, 3> rows;
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto &row = rows[i % 3], &above = rows[(i + 2) % 3], &before = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view misspelt, std::span<const std::string_view> names,
                         std::string_view prefix, size_t most) {
  if (misspelt.size() > longest_misspelt) return "";
  const size_t limit = 1 + misspelt.size() / 4;
  std::vector<std::pair<size_t, std::string_view>> near;
  for (std::string_view name : names) {
    const size_t longer = std::max(name.size(), misspelt.size());
    if (name.empty() || longer > limit + std::min(name.size(), misspelt.size())) continue;
    if (size_t d = edit_distance(misspelt, name); d <= limit) near.emplace_back(d, name);
  }
  std::ranges::stable_sort(near, {}, [](const auto& n) { return n.first; });
  std::string hint;
  for (size_t i = 0; i < near.size() && i < most; ++i)
    hint += fmt::format("{}'{}{}'", i == 0 ? "; did you mean " : " or ", prefix,
                        printable(near[i].second));
  return hint.empty() ? hint : hint + "?";
}

}  // namespace gradus
