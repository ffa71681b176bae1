// Calls of ranks go on while the program does what it can without them.
// SPEC C4
#include <gtest/gtest.h>

#include "gradus/kernels.h"
#include "gradus/text.h"
#include "tests/ranks/joint.h"
#include "tests/ranks/late.h"

namespace gradus::test {
namespace {

using Log = std::vector<std::string>;

// What a program of one rank does, in order: calls, waits, and instructions by their operators.
class Recorded : public testing::Test, public InstructionObserver {
 public:
  Recorded() : ranks(std::make_shared<Late>(single_rank())) {
    rank_groups(*context).bind("g", ranks);
  }
  void before(size_t, size_t instruction) override {
    const ir::Node& node = code->graph().stages[0].nodes[instruction];
    ranks->log.emplace_back(node.op->name);
  }
  void after(size_t, size_t) override {}

  Tensor run(const std::string& body, bool observed = true) {
    code = Code::compile(ir::parse("gradus 1\ngraph f {\n" + body + "}\n", "f.ir").program());
    State state(code, context, {.fusion = FusionMode::off});
    RunOptions options;
    if (observed) options.observer = this;
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < code->inputs(0); ++i)
      inputs.push_back(Tensor::from(DType::f64, Sizes{2}, std::vector{1.0 + double(i), 3.0}));
    return state.run(inputs, options)[0];
  }

  std::shared_ptr<Context> context = std::make_shared<Context>();
  std::shared_ptr<Late> ranks;
  std::shared_ptr<const Code> code;
};

const char* const beside =
    "  stage 0 (%x: f64[2] varying(g), %y: f64[2]) {\n"
    "    %s = all_reduce(%x) {group = \"g\"}\n"
    "    %a = square(%y)\n"
    "    %b = square(%a)\n"
    "    %c = add(%b, %s)\n"
    "    return %c\n"
    "  }\n";

TEST_F(Recorded, WaitsBeforeTheFirstReader) {
  EXPECT_EQ(run(beside).to_doubles(), (std::vector<double>{17, 84}));
  EXPECT_EQ(ranks->log, (Log{"all_reduce", "begin 0", "square", "square", "wait 0", "add"}));
}

TEST_F(Recorded, WaitsAtTheEndForWhatIsReturned) {
  run("  stage 0 (%x: f64[2] varying(g), %y: f64[2]) {\n"
      "    %s = all_reduce(%x) {group = \"g\"}\n"
      "    %t = shift(%x) {group = \"g\", by = 1}\n"
      "    %a = square(%y)\n"
      "    return %s, %t, %a\n"
      "  }\n");
  EXPECT_EQ(ranks->log,
            (Log{"all_reduce", "begin 0", "shift", "begin 1", "square", "wait 0", "wait 1"}));
}

TEST_F(Recorded, WaitsAtOnceWhereNothingElseIsToDo) {
  run("  stage 0 (%x: f64[2] varying(g)) {\n"
      "    %s = all_reduce(%x) {group = \"g\"}\n"
      "    %a = square(%s)\n"
      "    return %a\n"
      "  }\n");
  EXPECT_EQ(ranks->log, (Log{"all_reduce", "begin 0", "wait 0", "square"}));
}

// A view is no reader, and who reads it is one.
TEST_F(Recorded, WaitsForReadersOfViews) {
  run("  stage 0 (%x: f64[2] varying(g), %y: f64[2]) {\n"
      "    %s = all_reduce(%x) {group = \"g\"}\n"
      "    %v = reshape(%s) {shape = [2, 1]}\n"
      "    %a = square(%y)\n"
      "    %b = square(%v)\n"
      "    return %a, %b\n"
      "  }\n");
  EXPECT_EQ(ranks->log, (Log{"all_reduce", "begin 0", "reshape", "square", "wait 0", "square"}));
}

TEST_F(Recorded, PlacesErrorsOfWaitsAtTheCall) {
  for (const bool observed : {false, true}) {
    ranks->failure = "rank 1 has given up: no more";
    ranks->kept.clear();
    try {
      run(beside, observed);
      FAIL();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("f.ir:4"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("rank 1 has given up"), std::string::npos) << e.what();
    }
    EXPECT_FALSE(ranks->kept.empty());
  }
}

// What fails between a call and its end leaves the call its memory.
TEST_F(Recorded, KeepsMemoryOfCallsThatNobodyWaitsFor) {
  EXPECT_THROW(run("  stage 0 (%x: f64[2] varying(g), %y: f64[2]) {\n"
                   "    %s = all_reduce(%x) {group = \"g\"}\n"
                   "    %i = cast(%y) {dtype = i64}\n"
                   "    %a = index_select(%y, %i) {dim = 0}\n"
                   "    %c = add(%a, %s)\n"
                   "    return %c\n"
                   "  }\n"),
               Error);
  EXPECT_EQ(ranks->log.back(), "index_select");
  EXPECT_FALSE(ranks->kept.empty());
  ranks->do_forgotten();
}

// The step's own memory too, where the body's instructions have sizes of data: a write to what was
// freed is one that the address sanitizer sees.
TEST_F(Recorded, KeepsMemoryOfCallsOfAFailedStep) {
  code =
      Code::compile(ir::parse("gradus 1\n"
                              "graph step {\n"
                              "  stage 0 (%c: f64[2] varying(g), %i: i64[1]) {\n"
                              "    %s = all_reduce(%c) {group = \"g\"}\n"
                              "    %k = nonzero(%c)\n"
                              "    %j = select(%k) {dim = 1, index = 0}\n"
                              "    %w = index_select(%j, %i) {dim = 0}\n"
                              "    %f = cast(%w) {dtype = f64}\n"
                              "    %n = mul(%s, %f)\n"
                              "    %o = mul(%n, %c)\n"
                              "    return %o\n"
                              "  }\n"
                              "}\n"
                              "graph f {\n"
                              "  stage 0 (%x: f64[2] varying(g), %i: i64[1]) {\n"
                              "    %o = scan(%x, %i) {body = \"step\", carries = 1, length = 3}\n"
                              "    return %o\n"
                              "  }\n"
                              "}\n",
                              "f.ir")
                        .program());
  {
    State state(code, context, {.fusion = FusionMode::off});
    const std::vector inputs{Tensor::from(DType::f64, Sizes{2}, std::vector{1.0, 3.0}),
                             Tensor::from(DType::i64, Sizes{1}, std::vector{7.0})};
    EXPECT_THROW(state.run(inputs), Error);
  }
  ranks->do_forgotten();
}

}  // namespace
}  // namespace gradus::test
