// Lines that count: "nine, ten, eleven." Whoever reads one knows what has to come; so what a
// network writes can be judged.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "examples/training.h"

namespace counting {

constexpr std::string_view alphabet = "\n ,-.abcdefghijklmnopqrstuvwxyz";
constexpr int first = 1, last = 99, terms = 3;

inline double code(char c) { return static_cast<double>(alphabet.find(c)); }

// `n` from 1 to 99 in words.
inline std::string word(int n) {
  constexpr std::array small{"one",     "two",       "three",    "four",     "five",
                             "six",     "seven",     "eight",    "nine",     "ten",
                             "eleven",  "twelve",    "thirteen", "fourteen", "fifteen",
                             "sixteen", "seventeen", "eighteen", "nineteen"};
  constexpr std::array tens{"twenty", "thirty",  "forty",  "fifty",
                            "sixty",  "seventy", "eighty", "ninety"};
  if (n < 20) return small[static_cast<size_t>(n - 1)];
  const std::string ten = tens[static_cast<size_t>(n / 10 - 2)];
  return n % 10 == 0 ? ten : ten + "-" + small[static_cast<size_t>(n % 10 - 1)];
}

inline std::string line(Random& random) {
  const int start = first + static_cast<int>(random.below(last - terms + 1));
  std::string out;
  for (int k = 0; k < terms; ++k) out += (k == 0 ? "" : ", ") + word(start + k);
  return out + ".\n";
}

// The numbers that a line's words are; 0 for what is none.
inline std::vector<int> read(const std::string& line) {
  std::vector<int> out;
  size_t at = 0;
  while (at < line.size()) {
    const size_t end = std::min(line.find_first_of(" ,.\n", at), line.size());
    const std::string text = line.substr(at, end - at);
    at = end + 1;
    if (text.empty()) continue;
    out.push_back(0);
    for (int n = first; n <= last; ++n)
      if (word(n) == text) out.back() = n;
  }
  return out;
}

// The share of a line's words that are numbers.
inline double spelt(const std::string& line) {
  const std::vector<int> numbers = read(line);
  double known = 0;
  for (int n : numbers) known += n > 0;
  return numbers.empty() ? 0 : known / static_cast<double>(numbers.size());
}

// Whether it is a line as `line` makes them.
inline bool counts(const std::string& line) {
  const std::vector<int> numbers = read(line);
  if (numbers.size() != terms || numbers[0] < first || numbers[0] > last - terms + 1) return false;
  std::string expected;
  for (int k = 0; k < terms; ++k) expected += (k == 0 ? "" : ", ") + word(numbers[0] + k);
  return line == expected + ".\n";
}

}  // namespace counting
