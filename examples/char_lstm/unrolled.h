// The LSTM over a whole text, as a program.
#pragma once

#include <string>

#include "gradus/error.h"

// The program of a training step, for texts of `length` characters and what comes after each:
// `next` called for each character, and the loss of what it expects.
inline std::string unrolled(int64_t length) {
  const std::string weights = "%table, %wx, %wh, %b, %wo, %bo";
  std::string out = fmt::format(
      "graph train {{ stage 0 (%text: i64[{}, B], %table: f64[V, E], %wx: f64[4*H, E],"
      " %wh: f64[4*H, H], %b: f64[4*H], %wo: f64[V, H], %bo: f64[V]) {{\n"
      "%h0 = full() {{shape = [B, H], value = 0.0, dtype = f64}}\n"
      "%c0 = full() {{shape = [B, H], value = 0.0, dtype = f64}}\n",
      length + 1);
  std::string scores;
  for (int64_t t = 0; t < length; ++t) {
    out += fmt::format("%x{0} = select(%text) {{dim = 0, index = {0}}}\n", t);
    out +=
        fmt::format("%s{0}, %h{1}, %c{1} = call(%x{0}, %h{0}, %c{0}, {2}) {{graph = \"next\"}}\n",
                    t, t + 1, weights);
    scores += fmt::format("{}%s{}", t == 0 ? "" : ", ", t);
  }
  return out + fmt::format(
                   "%scores = cat({}) {{dim = 0}}\n"
                   "%after = slice(%text) {{dim = 0, start = 1, end = {}, step = 1}}\n"
                   "%target = reshape(%after) {{shape = [{} * B]}}\n"
                   "%loss = cross_entropy(%scores, %target)\nreturn %loss }} }}\n",
                   scores, length + 1, length);
}
