// What the tests of program texts share.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "gradus/text.h"

namespace gradus::ir {

// A graph of one stage over %x: f64[N] and %i: i64[N] with these lines.
inline std::string stage_text(const std::string& lines, const std::string& result = "return") {
  return "graph g {\n  stage 0 (%x: f64[N], %i: i64[N]) {\n" + lines + "\n" + result + "\n  }\n}\n";
}

// The whole message of the error that parsing gives; a failure of the test if there is none.
inline std::string error_of(const std::string& text) {
  try {
    parse(text, "t.ir");
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error in:\n" << text;
  return "";
}

inline void expect_error(const std::string& text, const std::string& part) {
  std::string message = error_of(text);
  EXPECT_NE(message.find(part), std::string::npos) << "expected: " << part << "\ngot: " << message;
}

// Prints, reads, prints again: the same text both times.
inline void expect_round_trip(const Graph& graph) {
  std::string text = print(graph);
  Module again = parse(text, "printed");
  EXPECT_EQ(print(again.program()), text);
}

}  // namespace gradus::ir
