#include "tools/view/picture.h"

#include <set>

#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tools/view/overlay.h"
#include "tools/view/scene.h"

namespace gradus::view {

namespace {

constexpr const char* swing = R"(
graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = tanh(%h)
    %y = sum(%s)
    return %y
  }
})";

struct Drawn {
  std::shared_ptr<const Code> code;
  Overlay overlay;
  Picture picture;
};

Drawn draw(const std::string& text, int order, const DimSizes& sizes = {}) {
  Drawn d;
  ir::Module module = ir::parse(text, "drawn.ir");
  d.code = Code::compile(ir::differentiate(module.program(), {.order = order}));
  d.overlay = overlay_of(*d.code, sizes);
  d.picture = picture_of(d.code->graph(), d.overlay);
  arrange(d.picture);
  return d;
}

const Item* find_held(const Picture& p, uint32_t column, std::string_view title) {
  for (const Item& i : p.items)
    if (i.kind == Item::Kind::held && i.column == column && i.title == title) return &i;
  return nullptr;
}

// SPEC F8
// The groups of the drawing are those of a run: instructions of each, in every stage.
TEST(Picture, GroupsAreThoseThatRun) {
  constexpr int64_t n = 256;
  Drawn d = draw(swing, 2, {{"N", n}});
  State state(d.code, Context::default_context(), {.fusion = FusionMode::first});
  Tensor vector = Tensor::from(DType::f64, Sizes{n}, std::vector<double>(n, 0.5));
  state.run(std::array{vector, vector});
  state.run(std::array{Tensor::scalar(DType::f64, 1)});
  state.run(std::array{vector, vector});
  std::vector<std::set<std::set<uint32_t>>> ran(3), drawn(3);
  std::multiset<std::string> nests_ran, nests_drawn;
  for (const FusedGroup& g : state.groups()) {
    std::set<uint32_t> nodes;
    for (uint32_t i : g.instructions) nodes.insert(d.code->stage(g.stage).instructions[i].node);
    ran[g.stage].insert(nodes);
    nests_ran.insert(g.nest);
  }
  for (size_t s = 0; s < 3; ++s)
    for (const Kernel& k : d.overlay.kernels[s]) drawn[s].emplace(k.nodes.begin(), k.nodes.end());
  EXPECT_EQ(drawn, ran);
  for (const Group& g : d.picture.groups) nests_drawn.insert(g.nest);
  EXPECT_EQ(nests_drawn, nests_ran);
  EXPECT_GE(ran[2].size(), 1u);
  EXPECT_EQ(d.picture.groups.size(), ran[0].size() + ran[1].size() + ran[2].size());
}

TEST(Picture, HeldValuesSayWhatTheyCost) {
  Drawn d = draw(swing, 2);
  ASSERT_EQ(d.picture.columns.size(), 5u);
  EXPECT_EQ(d.picture.columns[1].subtitle, "3 values, 24*N B");
  // After stage 1 the cotangent's memory is held by a view of it, and counted once.
  EXPECT_EQ(d.picture.columns[3].subtitle, "6 values, 40*N + 8 B");
  const Item* s = find_held(d.picture, 1, "%s");
  ASSERT_TRUE(s);
  EXPECT_EQ(s->subtitle, "8*N B");
  EXPECT_FALSE(find_held(d.picture, 1, "%h"));  // nobody reads it later
  bool view = false;
  for (const Item& i : d.picture.items) view |= i.subtitle == "view of %ct1_y";
  EXPECT_TRUE(view);
}

TEST(Picture, LinksFollowTheProgram) {
  Drawn d = draw(swing, 1);
  const Picture& p = d.picture;
  std::set<std::string> links;
  for (const Link& l : p.links)
    if (p.items[l.from].column == 0)
      links.insert(p.items[l.from].title + ">" + p.items[l.to].title);
  EXPECT_EQ(links, (std::set<std::string>{"%x>mul", "%w>mul", "mul>tanh", "tanh>sum", "sum>y",
                                          "%x>%x", "%w>%w", "tanh>%s"}));
}

// What a kernel reads of its own members through views, which are no members, lies within its
// frame.
TEST(Picture, ViewsBetweenMembersAreDrawnWithThem) {
  ir::Module module = ir::parse(R"(
graph rows {
  stage 0 (%x: f64[4], %w: f64[4]) {
    %s = sum(%x) {dim = [0], keepdim = true}
    %e = expand(%s) {shape = [4]}
    %r = reshape(%e) {shape = [2, 2]}
    %t = transpose(%r) {dim0 = 0, dim1 = 1}
    %q = reshape(%w) {shape = [2, 2]}
    %y = mul(%t, %q)
    %z = transpose(%y) {dim0 = 0, dim1 = 1}
    return %y, %z
  }
})",
                                "rows.ir");
  auto code = Code::compile(module.program());
  uint32_t sum = 0, mul = 0;
  const std::vector<ir::Node>& nodes = code->graph().stages[0].nodes;
  for (uint32_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].op->name == "sum") sum = n;
    if (nodes[n].op->name == "mul") mul = n;
  }
  Overlay overlay;
  overlay.kernels.resize(1);
  overlay.kernels[0].push_back({.nodes = {sum, mul}, .nest = "nest"});
  overlay.times.resize(1);
  Picture p = picture_of(code->graph(), overlay);
  arrange(p);
  std::multiset<std::string> within, beside;
  for (const Item& i : p.items)
    if (i.kind == Item::Kind::instruction) (i.group == nothing ? beside : within).insert(i.title);
  EXPECT_EQ(within.count("sum") + within.count("mul"), 2u);
  EXPECT_EQ(within.count("expand"), 1u);
  EXPECT_EQ(within.count("reshape"), 1u);
  EXPECT_EQ(within.count("transpose"), 1u);
  // What leads in or out alone stays outside.
  EXPECT_EQ(beside.count("reshape"), 1u);
  EXPECT_EQ(beside.count("transpose"), 1u);
  EXPECT_EQ(p.groups[0].title, "kernel 0: 2 instructions");
}

constexpr const char* walk = R"(
graph kick {
  stage 0 (%v: f64[], %k: f64[]) {
    %f = mul(%v, %k)
    return %f
  }
}
graph step {
  stage 0 (%x: f64[], %d: f64[], %k: f64[]) {
    %v = scan(%x, %k) {body = "kick", carries = 1, length = 2}
    %y = add(%v, %d)
    return %y, %v
  }
}
graph walk {
  stage 0 (%x: f64[], %ds: f64[5], %k: f64[]) {
    %y, %vs = scan(%x, %ds, %k) {body = "step", carries = 1, sequences = 1}
    %z, %us = scan(%y, %ds, %k) {body = "step", carries = 1, sequences = 1, reverse = true}
    return %z, %vs, %us
  }
})";

// A body is a column of its own, once for all that run it, that its loops lead to.
TEST(Picture, LoopsLeadToTheirBodies) {
  Drawn d = draw(walk, 0);
  const Picture& p = d.picture;
  std::vector<std::string> columns;
  for (const Column& c : p.columns) columns.push_back(c.title + (c.is_body ? ", a body" : ""));
  EXPECT_EQ(columns,
            (std::vector<std::string>{"stage 0", "graph step, a body", "graph kick, a body"}));
  EXPECT_EQ(p.columns[1].subtitle, "run by 2 instructions; 2 instructions");
  EXPECT_EQ(p.columns[2].subtitle, "run by scan; 1 instruction");
  std::multiset<std::string> links;
  for (const Link& l : p.links) {
    const Item &from = p.items[l.from], &to = p.items[l.to];
    if (to.column == 1)
      links.insert(std::to_string(from.column) + " " + from.title + ">" + to.title);
  }
  EXPECT_EQ(links, (std::multiset<std::string>{"0 scan>%x", "0 scan>%d", "0 scan>%k", "0 scan>%x",
                                               "0 scan>%d", "0 scan>%k", "1 %x>scan", "1 %k>scan",
                                               "1 scan>add", "1 %d>add", "1 add>y", "1 scan>v"}));
  size_t loops = 0;
  for (const Item& i : p.items)
    if (i.title == "scan") {
      EXPECT_EQ(i.bodies, (std::vector<uint32_t>{i.column == 0 ? 1u : 2u}));
      ++loops;
    } else {
      EXPECT_TRUE(i.bodies.empty()) << i.title;
    }
  EXPECT_EQ(loops, 3u);
  // Derivatives' bodies are others; nothing of them is missing.
  Drawn second = draw(walk, 2);
  size_t bodies = 0;
  for (const Column& c : second.picture.columns) bodies += c.is_body;
  EXPECT_GE(bodies, 4u);
  for (const Item& i : second.picture.items)
    for (uint32_t c : i.bodies) EXPECT_TRUE(second.picture.columns[c].is_body);
}

// Boxes of a stage lie in its column and never on each other.
TEST(Picture, BoxesKeepApart) {
  Drawn d = draw(swing, 3);
  const Picture& p = d.picture;
  for (size_t a = 0; a < p.blocks.size(); ++a) {
    const Block& x = p.blocks[a];
    EXPECT_GE(x.centre - x.width / 2, -0.01);
    EXPECT_LE(x.centre + x.width / 2, p.columns[x.column].width + 0.01);
    for (size_t b = 0; b < a; ++b) {
      const Block& y = p.blocks[b];
      if (x.column != y.column) continue;
      const bool beside = std::abs(x.centre - y.centre) >= (x.width + y.width) / 2;
      const bool below = x.y >= y.y + y.height || y.y >= x.y + x.height;
      EXPECT_TRUE(beside || below) << a << " " << b;
    }
  }
}

// Sizes that fit no plan: the drawing is there, and says why it has no kernels.
TEST(Picture, WithoutAPlanItSaysSo) {
  Drawn d = draw(R"(graph g {
  stage 0 (%x: f32[N], %w: f32[M]) {
    %c = cat(%x, %w) {dim = 0}
    %y = reshape(%c) {shape = [3, 7]}
    %z = mul(%y, %y)
    return %z
  }
})",
                 1);
  ASSERT_EQ(d.overlay.notes.size(), 1u);
  EXPECT_NE(d.overlay.notes[0].find("--set"), std::string::npos) << d.overlay.notes[0];
  EXPECT_TRUE(d.picture.groups.empty());
  EXPECT_NE(to_svg(d.picture).find("reshape"), std::string::npos);
}

// A handle and what an opaque function gives, across stages; nothing is run.
TEST(Picture, OpaqueFunctions) {
  Drawn d = draw(R"(graph g {
  stage 0 (%x: f64[N]) {
    %s, %k = cpp_op(%x) {name = "swish"}
    %y = sum(%s)
    return %y
  }
})",
                 2);
  EXPECT_EQ(d.overlay.notes.size(), 1u);
  EXPECT_EQ(d.overlay.notes[0].find("not known"), std::string::npos) << d.overlay.notes[0];
  EXPECT_NE(d.picture.columns[1].subtitle.find("1 handle"), std::string::npos);
  bool opaque = false;
  for (const Item& i : d.picture.items) opaque |= i.kind == Item::Kind::opaque && i.title == "eval";
  EXPECT_TRUE(opaque);
}

// Names from elsewhere are text: in the drawing, in the page and in the script's model.
TEST(Picture, NamesAreNoMarkup) {
  Drawn d = draw(R"~(graph g {
  stage 0 (%"</script><script>alert(1)</script>": f64[N], %"a\"b'c&d<e>": f64[N]) {
    %y = mul(%"</script><script>alert(1)</script>", %"a\"b'c&d<e>")
    return "</title><img src=x onerror=alert(2)>" = %y
  }
})~",
                 0);
  const std::string svg = to_svg(d.picture), page = to_page(d.picture);
  EXPECT_NE(svg.find("&lt;/script&gt;&lt;script&gt;"), std::string::npos);
  for (const std::string& text : {svg, page}) {
    EXPECT_EQ(text.find("<script>alert"), std::string::npos);
    EXPECT_EQ(text.find("<img"), std::string::npos);
  }
  EXPECT_EQ(svg.find("c&d"), std::string::npos);
  // The scripts of the page are its own two.
  size_t scripts = 0;
  for (size_t at = 0; (at = page.find("</script", at)) != page.npos; ++at) ++scripts;
  EXPECT_EQ(scripts, 2u);
  EXPECT_EQ(escaped("\x01\xff\xef\xbf\xbf"), "???");
}

TEST(Picture, ProfilesOfOtherPrograms) {
  Drawn d = draw(swing, 1);
  auto refuses = [&](cli::TraceEvent e) {
    EXPECT_THROW(add_profile(d.overlay, *d.code, {std::move(e)}, "T.json"), Error);
  };
  refuses({.op = "add", .stage = 0, .instruction = 0});
  refuses({.op = "mul", .stage = 9, .instruction = 0});
  refuses({.op = "mul", .stage = 0, .instruction = 99});
  refuses({.op = "mul", .stage = 0, .instruction = 0, .group = {0, 77}});
  // What no run would say is refused, or left out.
  add_profile(d.overlay, *d.code,
              {{.op = "mul", .stage = 0, .instruction = 0, .duration = 3, .group = {0, 0}},
               {.op = "sum", .stage = 0, .instruction = 2, .duration = 4, .group = {0, 2}}},
              "T.json");
  Picture p = picture_of(d.code->graph(), d.overlay);
  EXPECT_THROW(arrange(p), Error);
}

}  // namespace

}  // namespace gradus::view
