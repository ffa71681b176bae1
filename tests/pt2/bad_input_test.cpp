// Archives that are damaged, hostile or contradict themselves: an Error that says where, no more.
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradus/pt2.h"
#include "tests/pt2/archive_bytes.h"

namespace gradus::test {
namespace {

using Json = nlohmann::json;

Json tensor(const char* name) { return {{"as_tensor", {{"name", name}}}}; }
Json sizes(std::initializer_list<Json> list) { return Json(list); }
Json number(int64_t n) { return {{"as_int", n}}; }
Json expression(const std::string& text) { return {{"as_expr", {{"expr_str", text}}}}; }
Json f64(Json dims) { return {{"dtype", 8}, {"sizes", std::move(dims)}}; }

// y = (x w).sin(), of x: f64[s7, 2]
Json model() {
  const std::string s = "Symbol('s7', positive=True, integer=True)";
  Json names = Json::object();
  for (const char* name : {"x", "h", "y"}) names[name] = f64(sizes({expression(s), number(2)}));
  names["p_w"] = f64(sizes({number(2), number(2)}));
  Json product{
      {"target", "torch.ops.aten.matmul.default"},
      {"name", "h"},
      {"inputs",
       {{{"name", "self"}, {"arg", tensor("x")}, {"kind", 1}},
        {{"name", "other"}, {"arg", tensor("p_w")}, {"kind", 1}}}},
      {"outputs", {tensor("h")}},
      {"metadata",
       {{"stack_trace", "  File \"model.py\", line 12, in forward\n    h = x @ self.w\n"}}}};
  Json sine{{"target", "torch.ops.aten.sin.default"},
            {"name", "y"},
            {"inputs", {{{"name", "self"}, {"arg", tensor("h")}, {"kind", 1}}}},
            {"outputs", {tensor("y")}},
            {"metadata", Json::object()}};
  Json graph{{"inputs", {tensor("p_w"), tensor("x")}},
             {"outputs", {tensor("y")}},
             {"nodes", {product, sine}},
             {"tensor_values", names},
             {"sym_int_values", Json::object()}};
  Json parameter{{"parameter", {{"arg", {{"name", "p_w"}}}, {"parameter_name", "w"}}}};
  Json input{{"user_input", {{"arg", tensor("x")}}}};
  Json output{{"user_output", {{"arg", tensor("y")}}}};
  return {{"schema_version", {{"major", 8}, {"minor", 99}}},
          {"verifiers", {"TRAINING"}},
          {"range_constraints", {{"s7", {{"min_val", 2}, {"max_val", nullptr}}}}},
          {"field_of_a_later_version", 1},
          {"graph_module",
           {{"graph", graph},
            {"signature", {{"input_specs", {parameter, input}}, {"output_specs", {output}}}}}}};
}

ImportedProgram import(const std::string& bytes) {
  return pt2::import_bytes(bytes_of(bytes), "m.pt2");
}
ImportedProgram import(const Json& model) { return import(archive_of(model.dump())); }

std::string message(const std::string& bytes) {
  try {
    import(bytes);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}
void expect_refused(const std::string& bytes, const std::string& part) {
  const std::string text = message(bytes);
  EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NE(text.find("m.pt2"), std::string::npos) << part;
}
void expect_refused(const Json& model, const std::string& part) {
  expect_refused(archive_of(model.dump()), part);
}
Json& graph_of(Json& m) { return m["graph_module"]["graph"]; }

// Whatever bytes are given: a program, or an exception of ours.
void import_anything(const std::string& bytes) {
  try {
    import(bytes);
  } catch (const Error&) {
  } catch (const ResourceError&) {
  }
}

TEST(Pt2BadInput, TheModelItselfIsFine) {
  const ImportedProgram p = import(model());
  EXPECT_EQ(p.weights.size(), 1u);
  EXPECT_EQ(p.module.program().stages[0].inputs.size(), 2u);
  ASSERT_EQ(p.module.program().ranges.size(), 1u);
  EXPECT_EQ(p.module.program().ranges[0].least, 2);
}

TEST(Pt2BadInput, CutShortAnywhere) {
  const std::string bytes = archive_of(model().dump());
  for (size_t n = 0; n < bytes.size(); n += 7) import_anything(bytes.substr(0, n));
  expect_refused(bytes.substr(0, bytes.size() / 2), "is no archive of torch.export");
  expect_refused(std::string(), "is no archive of torch.export");
}

TEST(Pt2BadInput, CutShortNamesTheMember) {
  const std::string bytes = archive_of(model().dump());
  const size_t weights = bytes.find("m/data/weights/weight_0");
  const size_t next = bytes.find("m/models/model.json");
  ASSERT_LT(weights, next);
  expect_refused(bytes.substr(0, weights + 40),
                 fmt::format("or is cut short: it ends after {} bytes, in or behind its member "
                             "'m/data/weights/weight_0'; write it with torch.export.save",
                             weights + 40));
  expect_refused(bytes.substr(0, next + 30), "'m/models/model.json'");
  expect_refused(std::string("PK\3"), "is no archive of torch.export, or is cut short; write");
}

TEST(Pt2BadInput, AnyByteOfTheModelChanged) {
  const std::string text = model().dump();
  std::mt19937 random(3);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(random());
    import_anything(archive_of(changed));
    changed.erase(at, 1 + random() % 5);
    import_anything(archive_of(changed));
  }
}

// Every value of the document replaced by each of these.
void replace_each(const Json& at, Json::json_pointer place, const Json& whole) {
  for (const Json& other : {Json(), Json(7), Json(-1), Json("x"), Json::array(), Json::object(),
                            Json(1e300), Json(true)}) {
    Json changed = whole;
    changed[place] = other;
    import_anything(archive_of(changed.dump()));
  }
  if (at.is_object())
    for (const auto& [key, value] : at.items()) replace_each(value, place / key, whole);
  if (at.is_array())
    for (size_t i = 0; i < at.size(); ++i) replace_each(at[i], place / i, whole);
}
TEST(Pt2BadInput, AnyValueReplaced) {
  const Json whole = model();
  for (const auto& [key, value] : whole.items())
    replace_each(value, Json::json_pointer() / key, whole);
}

TEST(Pt2BadInput, OtherVersionsSayHowToExport) {
  Json m = model();
  m["schema_version"]["major"] = 7;
  expect_refused(m, "torch.export.save(torch.export.export(module, args), path)");
  m = model();
  m["verifiers"] = {"ATEN"};
  expect_refused(m, "run_decompositions");
  expect_refused(zip_of({{"m/serialized_exported_program.json", "{}"}}), "export it anew");
  expect_refused(zip_of({{"m/models/a.json", "{}"}, {"m/models/b.json", "{}"}}), "2 models");
}

TEST(Pt2BadInput, TheModelsSourceIsNamed) {
  Json m = model();
  graph_of(m)["nodes"][0]["target"] = "torch.ops.mylib.thing.default";
  expect_refused(m,
                 "node 'h' (mylib.thing.default), model.py:12: h = x @ self.w: the operator is "
                 "not supported");
}

TEST(Pt2BadInput, GraphsThatContradictThemselves) {
  Json m = model();
  std::swap(graph_of(m)["nodes"][0], graph_of(m)["nodes"][1]);
  expect_refused(m, "no earlier node gives the tensor 'h'");
  m = model();
  graph_of(m)["nodes"][1]["inputs"][0]["arg"] = tensor("y");
  expect_refused(m, "no earlier node gives the tensor 'y'");
  m = model();
  graph_of(m)["tensor_values"]["y"]["sizes"][1] = number(3);
  expect_refused(m, "'y' is f64[s7, 3] in the archive, and f64[s7, 2] here");
  m = model();
  graph_of(m)["tensor_values"].erase("y");
  expect_refused(m, "the archive does not say what 'y' is");
  m = model();
  graph_of(m)["tensor_values"]["x"]["dtype"] = 10;
  expect_refused(m, "complex64");
  m = model();
  m["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("z");
  expect_refused(m, "no node gives the output 'z'");
}

TEST(Pt2BadInput, RegionsThatLackAnInput) {
  Json m = model();
  Json& graph = graph_of(m);
  Json region{{"inputs", {tensor("h")}},
              {"outputs", {tensor("y")}},
              {"nodes", {graph["nodes"][1]}},
              {"tensor_values", graph["tensor_values"]},
              {"sym_int_values", Json::object()}};
  const Json on{{"name", "enabled"}, {"arg", {{"as_bool", true}}}, {"kind", 1}};
  const Json body{{"name", "body"},
                  {"arg", {{"as_graph", {{"name", "inner"}, {"graph", region}}}}},
                  {"kind", 1}};
  const Json given{{"name", "h"}, {"arg", tensor("h")}, {"kind", 1}};
  const Json none{{"name", "h"}, {"arg", {{"as_none", true}}}, {"kind", 1}};
  graph["nodes"][1]["target"] = "torch.ops.higher_order.wrap_with_set_grad_enabled";
  graph["nodes"][1]["inputs"] = {on, body, given};
  EXPECT_EQ(message(archive_of(m.dump())), "");
  graph["nodes"][1]["inputs"] = {on, body, none};
  expect_refused(m, "no earlier node gives the tensor 'h'");
  graph["nodes"][1]["inputs"] = {on, body};
  expect_refused(m, "the region takes 1 inputs, 0 are given");
  region["nodes"] = Json::array();
  region["outputs"] = {tensor("h")};
  graph["nodes"][1]["inputs"] = {on, body, none};
  graph["nodes"][1]["inputs"][1]["arg"]["as_graph"]["graph"] = region;
  expect_refused(m, "the region does not give its outputs as tensors");
}

TEST(Pt2BadInput, Sizes) {
  Json m = model();
  auto with = [&](const std::string& text) {
    graph_of(m)["tensor_values"]["x"]["sizes"][0] = expression(text);
    return m;
  };
  expect_refused(with("Symbol('s7'"), "')' is wanted at 11");
  expect_refused(with("Sin(Symbol('s7'))"), "'Sin' of 1 is not supported");
  expect_refused(with("Integer(99999999999999999999)"), "an integer is wanted");
  expect_refused(with("Pow(Symbol('s7'), Integer(1000))"), "a power has to be a small number");
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "Add(";
  expect_refused(with(deep), "nested too deeply");
  m = model();
  graph_of(m)["tensor_values"]["x"]["sizes"][0] = number(-4);
  expect_refused(m, "negative size");
  graph_of(m)["tensor_values"]["x"]["sizes"][0] = number(int64_t{1} << 62);
  expect_refused(m, "more elements than can be counted");
}

TEST(Pt2BadInput, DeepJson) {
  const std::string refusal =
      "nested more than 512 deep; copy the archive again, or export it anew";
  expect_refused(archive_of(std::string(512, '[')), "no JSON");
  expect_refused(archive_of(std::string(1'000'000, '[')), refusal);
  std::string nested;
  for (int i = 0; i < 200'000; ++i) nested += "{\"a\":";
  expect_refused(archive_of(nested), refusal);
}

// The configuration of the weight w.
std::string stored(const char* field, const Json& value) {
  Json w{{"path_name", "weight_0"},
         {"is_param", true},
         {"use_pickle", false},
         {"tensor_meta",
          {{"dtype", 8},
           {"sizes", sizes({number(2), number(2)})},
           {"requires_grad", true},
           {"strides", sizes({number(2), number(1)})},
           {"storage_offset", number(0)}}}};
  (w.contains(field) ? w : w["tensor_meta"])[field] = value;
  return archive_of(model().dump(), Json{{"config", {{"w", w}}}}.dump());
}

TEST(Pt2BadInput, WeightsOutsideOfTheirStorage) {
  expect_refused(stored("storage_offset", number(1)), "do not lie in its storage of 32 bytes");
  expect_refused(stored("storage_offset", number(-1)), "do not lie in its storage");
  expect_refused(stored("storage_offset", number(INT64_MAX)), "do not lie in its storage");
  expect_refused(stored("strides", sizes({number(3), number(1)})), "do not lie in its storage");
  expect_refused(stored("strides", sizes({number(-2), number(1)})), "do not lie in its storage");
  expect_refused(stored("strides", sizes({number(1)})), "2 sizes and 1 strides");
  expect_refused(stored("sizes", sizes({number(int64_t{1} << 40), number(int64_t{1} << 40)})),
                 "do not lie in its storage");
  expect_refused(stored("path_name", "../../etc/passwd"), "has no member");
  expect_refused(stored("use_pickle", true), "pickle");
  expect_refused(stored("dtype", 11), "complex128");
  expect_refused(stored("dtype", 99), "99 is the number of no dtype");
}

// The place, the reason, and what to do.
TEST(Pt2BadInput, MembersAreNamedWithWhatToDo) {
  const std::string again = "copy the archive again, or export it anew";
  expect_refused(archive_of("{"), "m.pt2: models/model.json: it is no JSON (");
  expect_refused(archive_of("{"), again);
  expect_refused(stored("storage_offset", number(1)),
                 "storage of 32 bytes ('data/weights/weight_0'); " + again);
  expect_refused(stored("path_name", "weight_9"),
                 "tensor 'w': the archive has no member 'data/weights/weight_9'; " + again);
  expect_refused(stored("path_name", "w.pickle"), "make it a plain tensor");
  expect_refused(archive_of(model().dump(), R"({"config": {}})"),
                 "the archive has no values of 'w'; export it anew, with its weights");
}

// A rule of real tensors would take the parts for elements.
TEST(Pt2BadInput, ComplexTensorsGoToRulesForThemAlone) {
  Json m = model();
  for (const char* name : {"x", "h", "y"}) graph_of(m)["tensor_values"][name]["dtype"] = 11;
  graph_of(m)["nodes"][1]["target"] = "torch.ops.aten.sigmoid.default";
  expect_refused(m,
                 "node 'y' (aten.sigmoid.default): the operator is not supported with 'h', which "
                 "is complex128, among its operands and results");
  for (const char* name : {"x", "h"}) graph_of(m)["tensor_values"][name]["dtype"] = 8;
  expect_refused(m, "'y', which is complex128");
  m = model();
  graph_of(m)["nodes"][1]["inputs"][0]["arg"] = {{"as_complex", {{"real", 1.0}, {"imag", 2.0}}}};
  expect_refused(m, "an operand is complex, and the result is real");
}

// Sizes of 2^29 by strides of 0 are one element that is there: 2^61 bytes are not asked for. What
// refuses the weight is the product, whose shapes do not fit.
TEST(Pt2BadInput, AWeightOfAnySizeTakesNoMemory) {
  const Json large = number(int64_t{1} << 29), step = number(0);
  Json config = Json::parse(R"({"path_name": "weight_0", "is_param": true, "use_pickle": false})");
  config["tensor_meta"] = {{"dtype", 8},
                           {"sizes", sizes({large, large})},
                           {"requires_grad", true},
                           {"strides", sizes({step, step})},
                           {"storage_offset", number(0)}};
  const Json weights{{"config", {{"w", config}}}};
  expect_refused(archive_of(model().dump(), weights.dump()), "node 'h'");
}

}  // namespace
}  // namespace gradus::test
