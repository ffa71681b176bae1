// Guards of torch.export: which conditions of sizes they are, that a run checks them, and that none
// is dropped in silence.
#include <algorithm>
#include <array>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradus/pt2.h"
#include "gradus/state.h"
#include "tests/pt2/archive_bytes.h"

namespace gradus::test {
namespace {

using GuardJson = nlohmann::json;

GuardJson guarded_tensor(const char* name) { return {{"as_tensor", {{"name", name}}}}; }
GuardJson size_named(const std::string& name) {
  return {{"as_expr", {{"expr_str", "Symbol('" + name + "', positive=True, integer=True)"}}}};
}

// y = x.sin(), of x: f64[a, b] at data["x Y"] and z: f64[c, 5].
GuardJson guarded_model(const std::vector<std::string>& guards) {
  const GuardJson x{{"dtype", 8},
                    {"sizes", {size_named("a"), size_named("b")}},
                    {"strides", {size_named("b"), {{"as_int", 1}}}}};
  const GuardJson z{{"dtype", 8}, {"sizes", {size_named("c"), {{"as_int", 5}}}}};
  GuardJson sine{{"target", "torch.ops.aten.sin.default"},
                 {"name", "y"},
                 {"inputs", {{{"name", "self"}, {"arg", guarded_tensor("data_x_y")}, {"kind", 1}}}},
                 {"outputs", {guarded_tensor("y")}},
                 {"metadata", GuardJson::object()}};
  GuardJson graph{{"inputs", {guarded_tensor("data_x_y"), guarded_tensor("z_1")}},
                  {"outputs", {guarded_tensor("y")}},
                  {"nodes", GuardJson::array({sine})},
                  {"tensor_values", {{"data_x_y", x}, {"z_1", z}, {"y", x}}},
                  {"sym_int_values", GuardJson::object()}};
  GuardJson signature{{"input_specs",
                       {{{"user_input", {{"arg", guarded_tensor("data_x_y")}}}},
                        {{"user_input", {{"arg", guarded_tensor("z_1")}}}}}},
                      {"output_specs", {{{"user_output", {{"arg", guarded_tensor("y")}}}}}}};
  const std::string leaf = R"({"type": null, "context": null, "children_spec": []})";
  const std::string arguments =
      R"([1, {"type": "builtins.tuple", "context": "null", "children_spec": [)"
      R"({"type": "builtins.tuple", "context": "null", "children_spec": [)"
      R"({"type": "builtins.dict", "context": "[\"x Y\"]", "children_spec": [)" +
      leaf + "]}, " + leaf +
      R"(]}, {"type": "builtins.dict", "context": "[]", "children_spec": []}]}])";
  GuardJson call{{"fqn", ""},
                 {"signature", {{"in_spec", arguments}, {"forward_arg_names", {"data", "z"}}}}};
  return {{"schema_version", {{"major", 8}, {"minor", 20}}},
          {"verifiers", {"TRAINING"}},
          {"range_constraints", GuardJson::object()},
          {"guards_code", guards},
          {"graph_module",
           {{"graph", graph},
            {"signature", signature},
            {"module_call_graph", GuardJson::array({call})}}}};
}

ImportedProgram import_guarded(const std::vector<std::string>& guards,
                               pt2::OtherGuards other = pt2::OtherGuards::rejected) {
  const std::string bytes = archive_of(guarded_model(guards).dump());
  return pt2::import_bytes(bytes_of(bytes), "m.pt2", other);
}

constexpr const char* a = "L['data']['x Y'].size()[0]";
constexpr const char* b = "L['data']['x Y'].size()[1]";
constexpr const char* c = "L['z'].size()[0]";

std::string with_names(std::string guard) {
  for (const auto& [name, text] : {std::pair("$a", a), std::pair("$b", b), std::pair("$c", c)})
    for (size_t at = guard.find(name); at != guard.npos; at = guard.find(name, at))
      guard.replace(at, 2, text);
  return guard;
}

// Whether the conditions of a guard hold.
class GuardSizesOf final : public ir::DimEnvironment {
 public:
  GuardSizesOf(int64_t a, int64_t b, int64_t c) : a_(a), b_(b), c_(c) {}
  std::optional<int64_t> find(std::string_view name) const override {
    return name == "a" ? a_ : name == "b" ? b_ : c_;
  }

 private:
  int64_t a_, b_, c_;
};
bool holds_for(const std::string& guard, int64_t x, int64_t y, int64_t z) {
  const GuardSizesOf sizes(x, y, z);
  bool all = true;
  const ImportedProgram p = import_guarded({with_names(guard)});
  for (const ir::SizeCondition& s : p.module.program().conditions) {
    const int64_t value = s.value.evaluate(sizes);
    all = all && value >= s.least && value <= s.most.value_or(value);
  }
  return all;
}

struct GuardCase {
  const char* guard;
  bool (*holds)(int64_t, int64_t, int64_t);
};

TEST(Pt2Guards, HoldWhereTheyDoInPython) {
  using I = int64_t;
  const GuardCase cases[] = {
      {"($a % 2) == 0", [](I a, I, I) { return a % 2 == 0; }},
      {"$a*$b > 20", [](I a, I b, I) { return a * b > 20; }},
      {"$a > $b", [](I a, I b, I) { return a > b; }},
      {"$a <= $c", [](I a, I, I c) { return a <= c; }},
      {"$a < $c", [](I a, I, I c) { return a < c; }},
      {"$a != 7", [](I a, I, I) { return a != 7; }},
      {"$a != $b", [](I a, I b, I) { return a != b; }},
      {"$a == $b", [](I a, I b, I) { return a == b; }},
      {"2 <= $a <= 5", [](I a, I, I) { return 2 <= a && a <= 5; }},
      {"$a - 3*$b + $c >= -4", [](I a, I b, I c) { return a - 3 * b + c >= -4; }},
      {"math.trunc(0.5*torch.sym_float($a)) == 3", [](I a, I, I) { return a / 2 == 3; }},
      {"math.trunc(0.5*torch.sym_float($a - 9)) == -1",
       [](I a, I, I) { return (a - 9) / 2 == -1; }},
      {"math.ceil($a / 3) > $b // 2", [](I a, I b, I) { return (a + 2) / 3 > b / 2; }},
      {"math.floor(1.25*torch.sym_float($a)) < $b", [](I a, I b, I) { return a * 5 / 4 < b; }},
      {"($a / $b) > 0.75", [](I a, I b, I) { return 4 * a > 3 * b; }},
      {"(3*torch.sym_max($a, $b)) == 18", [](I a, I b, I) { return std::max(a, b) == 6; }},
      {"min($a, $b, $c) == 4",
       [](I a, I b, I c) {
         return std::min({a, b, c}) == 4;
       }},
      {"$a**2 - $b > 10", [](I a, I b, I) { return a * a - b > 10; }},
      {"($a == 3 or $b != 4) and not $c > 5",
       [](I a, I b, I c) { return (a == 3 || b != 4) && !(c > 5); }},
      {"(($a) if ($a > $b) else ($b + 1)) == 6",
       [](I a, I b, I) { return (a > b ? a : b + 1) == 6; }},
      {"abs($a - $b) >= 2", [](I a, I b, I) { return a - b >= 2 || b - a >= 2; }},
      {"L['data']['x Y'].stride()[0] > 4", [](I, I b, I) { return b > 4; }},
      {"L['flat_args'][1].size()[0] > 4", [](I, I, I c) { return c > 4; }},
  };
  for (const GuardCase& g : cases)
    for (int64_t i = 1; i < 9; ++i)
      for (int64_t k = 1; k < 9; ++k)
        for (int64_t n : {2, 4, 6, 7})
          ASSERT_EQ(holds_for(g.guard, i, k, n), g.holds(i, k, n))
              << g.guard << " of " << i << ", " << k << ", " << n;
}

TEST(Pt2Guards, WhatHoldsAlwaysIsNoCondition) {
  for (const char* guard : {"L['z'].size()[1] == 5", "$a >= 0", "$a == $a", "$a // 1 == $a",
                            "L['z']._base.size()[0] == 2", "True"})
    EXPECT_TRUE(import_guarded({with_names(guard)}).module.program().conditions.empty()) << guard;
}

TEST(Pt2Guards, NoneIsDroppedInSilence) {
  for (const auto& [guard, why] : {
           std::pair("L['z'].size()[1] == 6", "it holds for no inputs of the program"),
           std::pair("0.7*torch.sym_float($a) > 2.0", "0.7 is rounded in Python"),
           std::pair("2*($a / 3) > 1", "a quotient is rounded in Python"),
           std::pair("torch._sym_sqrt($a) > 2", "'torch._sym_sqrt' is not supported"),
           std::pair("L['w'].size()[0] == 2", "it is of 'w', which is no tensor among the inputs"),
           std::pair("L['z'].storage_offset()[0] == 2", "'storage_offset' of a tensor is not"),
           std::pair("L['z'].size()[2] == 2", "the archive does not say its size 2"),
           std::pair("L['z'].stride()[0] == 2", "the archive does not say its stride 0"),
           std::pair("L['n'] == 2", "it is of an argument that is a number"),
           std::pair("L['z']._base.size()[0] == $a", "the tensor that an input is a view of"),
           std::pair("$a / ($a - $b) > 1", "a divisor that is 0 or may be negative"),
           std::pair("$a > 2 2", "something follows it"),
           std::pair("$a > ", "a name is wanted"),
           std::pair("$a ** $b > 2", "a power has to be a small integer"),
           std::pair("", "a name is wanted"),
       }) {
    const std::string text = with_names(guard);
    try {
      import_guarded({text});
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find("m.pt2: the guard '" + text + "'"), std::string::npos) << message;
      EXPECT_NE(message.find(why), std::string::npos) << message;
      EXPECT_NE(message.find("export the model with"), std::string::npos) << message;
    }
    EXPECT_TRUE(import_guarded({text}, pt2::OtherGuards::left).module.program().conditions.empty());
  }
}

TEST(Pt2Guards, ARunOfOtherSizesFails) {
  const ImportedProgram p = import_guarded({with_names("($a % 2) == 0")});
  State state(Code::compile(p.module.program()), Context::default_context());
  auto run = [&](int64_t n) {
    state.restart();
    return state.run(
        std::array{Tensor::zeros(DType::f64, Sizes{n, 3}), Tensor::zeros(DType::f64, Sizes{1, 5})});
  };
  EXPECT_EQ(run(6).size(), 1u);
  try {
    run(7);
    FAIL() << "it runs";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the program requires (L['data']['x Y'].size()[0] % 2) == "
                                         "0, which does not hold for a = 7"),
              std::string::npos)
        << e.what();
  }
}

// The tree of the arguments may have a name where a number stands otherwise. Then inputs are found
// by their own names.
TEST(Pt2Guards, ATreeOfArgumentsMaySayNothing) {
  GuardJson model = guarded_model({with_names("($a % 2) == 0")});
  const std::string leaf = R"({"type": null, "context": null, "children_spec": []})";
  for (const char* name : {"abc", "99999999999999999999", "7"}) {
    model["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] =
        fmt::format(R"([1, {{"type": "builtins.tuple", "context": "null", "children_spec": [)"
                    R"({{"type": "builtins.dict", "context": "[\"{}\", \"z\"]", )"
                    R"("children_spec": [{}, {}]}}]}}])",
                    name, leaf, leaf);
    const std::string bytes = archive_of(model.dump());
    const ImportedProgram p = pt2::import_bytes(bytes_of(bytes), "m.pt2");
    EXPECT_EQ(p.module.program().conditions.size(), 1u) << name;
  }
}

TEST(Pt2Guards, NestedDeepIsRefused) {
  const std::string deep(100'000, '(');
  EXPECT_THROW(import_guarded({deep}), Error);
  EXPECT_THROW(import_guarded({std::string(100'000, '-')}), Error);
}

}  // namespace
}  // namespace gradus::test
