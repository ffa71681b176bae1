#include "gradus/error.h"

#include <gtest/gtest.h>

#include "gradus/messages.h"

using namespace gradus;

namespace {

std::string shown(std::string_view line, uint32_t column) {
  return Error::at("f.ir", {3, column}, "wrong", line).what();
}

TEST(Error, ShowsThePlace) {
  Error e = Error::at("f.ir", {3, 5}, "no such operator", "y = soft(x)");
  EXPECT_STREQ(e.what(),
               "f.ir:3:5: error: no such operator\n"
               "  y = soft(x)\n"
               "      ^");
  EXPECT_EQ(e.bare(), "no such operator");
  EXPECT_EQ(e.where(), (SourceLocation{3, 5}));
}

TEST(Error, DoesWithoutAPlace) {
  EXPECT_STREQ(Error("plain {} text").what(), "plain {} text");
  EXPECT_STREQ(Error("{} of {}", 1, 2).what(), "1 of 2");
  EXPECT_STREQ(Error::at("f.ir", {}, "wrong").what(), "f.ir: error: wrong");
  EXPECT_STREQ(Error::at("", {}, "wrong").what(), "wrong");
  EXPECT_STREQ(Error::at("", {2, 1}, "wrong").what(), "<text>:2:1: error: wrong");
}

TEST(Error, PlacesTheCaretUnderTabsAndOtherAlphabets) {
  EXPECT_EQ(shown("\tx = y", 4), "f.ir:3:4: error: wrong\n  \tx = y\n  \t  ^");
  // Columns count bytes, carets stand under characters: two bytes each before the x.
  EXPECT_EQ(shown("\u00e4\u00f6 x", 6), "f.ir:3:6: error: wrong\n  \u00e4\u00f6 x\n     ^");
}

TEST(Error, ShowsNoControlCharacters) {
  std::string text = shown(std::string_view("a\x1b[31m\0b\x7f\xff\xc2\x9b", 12), 1);
  EXPECT_EQ(text, "f.ir:3:1: error: wrong\n  a?[31m?b???\n  ^");
  EXPECT_EQ(shown("x = 1\r\n", 1), "f.ir:3:1: error: wrong\n  x = 1\n  ^");
}

TEST(Error, ShowsAWindowOfALongLine) {
  std::string line(100000, 'a');
  line[50000] = 'X';
  std::string text = shown(line, 50001);
  EXPECT_LT(text.size(), 400u);
  size_t second = text.find("\n  ") + 3, third = text.find("\n  ", second) + 3;
  size_t caret = text.find('^') - third;
  EXPECT_EQ(text[second + caret], 'X');
  // A window may begin within a character.
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "\u20ac";
  for (uint32_t column = 1; column < 3000; column += 7) {
    std::string seen = shown(wide, column);
    EXPECT_EQ(seen.find('?'), std::string::npos) << column;
    EXPECT_LT(seen.size(), 700u);
  }
}

TEST(Error, StandsImpossiblePlaces) {
  EXPECT_EQ(shown("abc", 0), "f.ir:3:0: error: wrong\n  abc\n  ^");
  EXPECT_EQ(shown("abc", 4), "f.ir:3:4: error: wrong\n  abc\n     ^");
  EXPECT_EQ(shown("abc", 4000000000u), "f.ir:3:4000000000: error: wrong\n  abc\n     ^");
  EXPECT_LT(shown(std::string(5000, 'a'), 4000000000u).size(), 400u);
}

TEST(Error, AChecksFailureIsOurs) {
  try {
    GRADUS_CHECK(1 + 1 == 3);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(e.message().find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(e.message().find("error.cpp"), std::string::npos);
  }
  GRADUS_CHECK(1 + 1 == 2);
}

TEST(Text, PrintableKeepsTextAndDropsTheRest) {
  EXPECT_EQ(printable("in.x0 \u00e4\u20ac\U0001F600"), "in.x0 \u00e4\u20ac\U0001F600");
  EXPECT_EQ(printable("a\nb\tc\x1b"), "a?b?c?");
  EXPECT_EQ(printable("\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82"), "?? ??? ???? ??");
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(100, 'x') + "...");
  EXPECT_EQ(printable("ab\u20ac", 4), "ab...");  // not half a character
  EXPECT_EQ(printable(""), "");
}

}  // namespace
