#include "ir/text/lexer.h"

#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

std::vector<Token> tokens(const Source& source) {
  check_text(source);
  std::vector<Token> list;
  for (Lexer lexer(source);;) {
    list.push_back(lexer.next());
    if (list.back().kind == TokenKind::end) return list;
  }
}

std::string error_in(const std::string& text) {
  Source source{"t.ir", text};
  try {
    tokens(source);
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Lexer, TellsTokensApart) {
  Source source{"", "%x graph_1.a 12 1.5 1e5 2.e-3 0xff \"s\" %\"a b\" {}()[],=:+-*//?@"};
  std::vector<Token> list = tokens(source);
  using K = TokenKind;
  std::vector<K> kinds{K::value,
                       K::name,
                       K::integer,
                       K::floating,
                       K::floating,
                       K::floating,
                       K::bits,
                       K::string,
                       K::value,
                       K::left_brace,
                       K::right_brace,
                       K::left_parenthesis,
                       K::right_parenthesis,
                       K::left_bracket,
                       K::right_bracket,
                       K::comma,
                       K::equals,
                       K::colon,
                       K::plus,
                       K::minus,
                       K::star,
                       K::floor_divide,
                       K::question,
                       K::at,
                       K::end};
  ASSERT_EQ(list.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(list[i].kind, kinds[i]) << i;
  EXPECT_EQ(list[0].text, "x");
  EXPECT_EQ(list[1].text, "graph_1.a");
  EXPECT_EQ(list[5].text, "2.e-3");
  EXPECT_EQ(list[8].content(), "a b");
}

TEST(Lexer, CountsLinesAndBytes) {
  Source source{"", "a\r\n\tb # c\n  \"\xc3\xa9\" d"};
  std::vector<Token> list = tokens(source);
  EXPECT_EQ(list[0].where, (SourceLocation{1, 1}));
  EXPECT_EQ(list[1].where, (SourceLocation{2, 2}));
  EXPECT_EQ(list[2].where, (SourceLocation{3, 3}));
  EXPECT_EQ(list[3].where, (SourceLocation{3, 8}));
}

TEST(Lexer, SkipsAByteOrderMark) {
  Source source{"", "\xef\xbb\xbfgraph"};
  EXPECT_EQ(tokens(source)[0].text, "graph");
}

TEST(Lexer, ReplacesEscapes) {
  Source source{"", R"(%"q\" b\\ n\n t\t r\r x\x41\xff")"};
  EXPECT_EQ(tokens(source)[0].content(), "q\" b\\ n\n t\t r\r xA\xff");
}

TEST(Lexer, RefusesWhatIsNoToken) {
  EXPECT_NE(error_in("a\n  $").find("t.ir:2:3: error: unexpected '$'"), std::string::npos);
  EXPECT_NE(error_in("a / b").find("'//'"), std::string::npos);
  EXPECT_NE(error_in("%").find("expected a name after '%'"), std::string::npos);
  EXPECT_NE(error_in("%1x").find("quoted: %\"1x\""), std::string::npos);
  EXPECT_NE(error_in("12ab").find("'12ab' is neither a number nor a name"), std::string::npos);
  EXPECT_NE(error_in("1.2.3").find("neither"), std::string::npos);
  EXPECT_NE(error_in("0x").find("hexadecimal"), std::string::npos);
  EXPECT_NE(error_in("\"abc").find("not closed"), std::string::npos);
  EXPECT_NE(error_in("\"abc\nd\"").find("t.ir:1:1"), std::string::npos);
  EXPECT_NE(error_in("\"a\\q\"").find("t.ir:1:3: error: unknown escape"), std::string::npos);
  EXPECT_NE(error_in("\"\\x4\"").find("unknown escape"), std::string::npos);
  EXPECT_NE(error_in("\"a\\").find("unknown escape"), std::string::npos);
  EXPECT_NE(error_in("\xc3\xa9").find("unexpected '\xc3\xa9'"), std::string::npos);
}

TEST(Lexer, RefusesWhatIsNoText) {
  EXPECT_NE(error_in(std::string("a\nb\0c", 5)).find("t.ir:2:2: error: a NUL byte"),
            std::string::npos);
  EXPECT_NE(error_in("# 0123456789\xff").find("t.ir:1:13: error: the byte 0xff is not valid UTF-8"),
            std::string::npos);
  EXPECT_NE(error_in("\xc3").find("not valid UTF-8"), std::string::npos);
}

TEST(Lexer, RefusesEndlessTokens) {
  std::string most(1 << 16, 'a');
  Source fine{"", most};
  EXPECT_EQ(tokens(fine)[0].text.size(), most.size());
  EXPECT_NE(error_in(most + "a").find("longer than 65536 bytes"), std::string::npos);
  EXPECT_NE(error_in("\"" + most + "a\"").find("longer"), std::string::npos);
  EXPECT_NE(error_in(std::string(100'000, '9')).find("longer"), std::string::npos);
}

TEST(Lexer, SkipsBlocksAsTheParserWould) {
  Source source{"", "{ { # }\n \"}\\\"}\" %\"}\" } \"open\n } x"};
  Lexer lexer(source);
  lexer.next();
  ASSERT_TRUE(lexer.skip_block());
  EXPECT_EQ(lexer.next().text, "x");
  Source open{"", "{ { }"};
  Lexer unclosed(open);
  unclosed.next();
  EXPECT_FALSE(unclosed.skip_block());
}

}  // namespace
}  // namespace gradus::ir
