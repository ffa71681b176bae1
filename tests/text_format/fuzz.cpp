// Whatever a text says, it is read or refused with an Error: no crash, no other exception.
#include <random>

#include "tests/functions.h"
#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

constexpr const char* seeds[] = {
    R"(gradus 1
# a comment
graph main {
  stage 0 (%x: f64[N, 2*M + 1], %m: f32[M], %u: i8[?]@cpu, %"a b": bool[max(N, 3), 4]) {
    %h: f64[N, ?] = mul(%x, -2.5)
    %k = add(%h, N*(M - 1) // 2)
    %c = constant() {value = f32[2, 2] [[1, 0.1], [-inf, nan(0x7fc00001)]]}
    %v = sum(%k) {dim = [-1, 0], keepdim = true}
    %s = sum(%k)
    %g = grad(%s, %x)
    %q: f64[N] = undefined()
    %t = call(%m) {graph = "helper"}
    %w = linear(%x, %x, none)
    return %v, again = %v, "odd \x41 name" = %k, zero = none, %g
  }
  stage 1 (%ct: f64[N]) {
    return
  }
}
graph helper { stage 0 (%a: f32[K]) { %b = square(%a) return %b } }
case small {
  set N = 3 input x = random(-1, 1, 7) input ct = undefined
  expect v = f64[1, 1] [[1e-3]] tolerance 1e-12 gradcheck order 2 wrt x
})",
    R"(graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %s, %k: handle = cpp_op(%x, %w) {name = "t.wave", requires_grad = [true, false]}
    return %s
  }
  stage 1 (%c: f64[N]) {
    %d, %j = eval(%c, %k)
    %e, %f, %l = eval(none, %j)
    return %d, %f
  }
})",
    R"(graph g {
  stage 0 (%x: f64[3], %i: i64[2]) {
    %y = index_select(%x, %i) {dim = 0}
    %z = where(%i, 1.0, %y)
    %f = full() {shape = [2, 3], value = 0.5, dtype = f16}
    %e = cat(%y, %y) {dim = -1}
    %r = reshape(%f) {shape = [3, 2]}
    return %y, %e
  }
})"};

constexpr std::string_view pieces[] = {"{",        "}",       "(",
                                       ")",        "[",       "]",
                                       ",",        "=",       ":",
                                       "%x",       "%",       "\"",
                                       "\\",       "#",       "\n",
                                       "//",       "-",       "?",
                                       "@",        "stage",   "return",
                                       "graph",    "case",    "none",
                                       "inf",      "nan",     "0x1",
                                       "1e400",    "f64[",    "9999999999999999999",
                                       "handle",   "max(",    "-9223372036854775808",
                                       "cuda:0",   "true",    "gradus 1",
                                       "\xc3\xa9", "\xff",    "[[[[[[",
                                       "((((((",   "%\"",     "f32[4294967296, 4294967296]",
                                       "random(",  "tanh(%x)"};

void read(const std::string& text) {
  try {
    Module m = parse(text, "fuzz.ir");
    for (const auto& g : m.graphs) verify(*g);
    std::string printed = print(m);
    EXPECT_EQ(print(parse(printed)), printed) << text;
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("fuzz.ir:") && e.where().known()) << e.what();
  }
}

std::string mutated(std::string text, std::mt19937_64& random) {
  for (uint64_t changes = 1 + random() % 3; changes--;) {
    size_t at = random() % (text.size() + 1), length = random() % 12;
    switch (random() % 6) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, pieces[random() % std::size(pieces)]);
        break;
      case 2:
        text.insert(at, text.substr(random() % (text.size() + 1), length * 4));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 4:
        text.resize(at);
        break;
      default: {
        // A word for another word: what is nearly a program.
        size_t other = random() % (text.size() + 1);
        text.replace(at, length, text.substr(other, length));
      }
    }
  }
  return text;
}

// SPEC P5
TEST(Fuzz, MutatedProgramsAreReadOrRefused) {
  test::register_test_functions();
  std::mt19937_64 random(20);
  for (const char* seed : seeds) {
    read(seed);
    for (int i = 0; i < 20'000; ++i) read(mutated(seed, random));
  }
}

// SPEC P5
TEST(Fuzz, EveryPrefixIsReadOrRefused) {
  test::register_test_functions();
  for (std::string text : seeds)
    for (size_t n = 0; n < text.size(); ++n) read(text.substr(0, n));
}

// SPEC P5
TEST(Fuzz, EveryWordForEveryWord) {
  std::string text = seeds[2];
  for (size_t at = 0; at < text.size(); at += 3)
    for (std::string_view piece : pieces) {
      std::string t = text;
      read(t.insert(at, piece));
    }
}

}  // namespace
}  // namespace gradus::ir
