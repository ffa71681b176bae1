// Each operator that archives of the tests call, alone in a model, with one thing wrong: a program
// that holds, or an Error.
#include <filesystem>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradus/pt2.h"
#include "gradus/text.h"
#include "io/pt2/archive.h"
#include "tests/pt2/archive_bytes.h"

namespace gradus::test {
namespace {

using Json = nlohmann::json;

Json tensor(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }

void collect_tensors(const Json& argument, std::set<std::string>& names) {
  if (argument.is_object() && argument.contains("as_tensor"))
    names.insert(argument["as_tensor"]["name"].get<std::string>());
  if (!argument.is_object() || !argument.contains("as_tensors")) return;
  for (const Json& t : argument["as_tensors"]) names.insert(t["name"].get<std::string>());
}

// The node alone: what it reads are inputs, what it gives are outputs.
Json alone(const Json& graph, const Json& node) {
  std::set<std::string> in, out;
  for (const Json& i : node["inputs"]) collect_tensors(i["arg"], in);
  for (const Json& o : node["outputs"]) collect_tensors(o, out);
  Json metas = Json::object(), given = Json::array(), taken = Json::array();
  Json gives = Json::array(), takes = Json::array();
  for (const auto& names : {in, out})
    for (const std::string& name : names)
      if (graph["tensor_values"].contains(name)) metas[name] = graph["tensor_values"][name];
  for (const std::string& name : in) {
    given.push_back(tensor(name));
    takes.push_back({{"user_input", {{"arg", tensor(name)}}}});
  }
  for (const std::string& name : out) {
    taken.push_back(tensor(name));
    gives.push_back({{"user_output", {{"arg", tensor(name)}}}});
  }
  Json whole{{"inputs", given},
             {"outputs", taken},
             {"nodes", {node}},
             {"tensor_values", metas},
             {"sym_int_values", graph["sym_int_values"]}};
  return {{"schema_version", {{"major", 8}, {"minor", 0}}},
          {"verifiers", {"TRAINING"}},
          {"range_constraints", Json::object()},
          {"graph_module",
           {{"graph", whole}, {"signature", {{"input_specs", takes}, {"output_specs", gives}}}}}};
}

// By target; the first call of each.
std::map<std::string, Json> models() {
  std::map<std::string, Json> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(GRADUS_SOURCE_DIR "/tests/pt2/data")) {
    if (entry.path().extension() != ".pt2") continue;
    const Json model = Json::parse(pt2::Archive(entry.path()).model_json());
    const Json& graph = model["graph_module"]["graph"];
    for (const Json& node : graph["nodes"]) {
      const auto target = node["target"].get<std::string>();
      if (target.starts_with("torch.ops.aten.")) found.try_emplace(target, alone(graph, node));
    }
  }
  return found;
}

Json& node_of(Json& model) { return model["graph_module"]["graph"]["nodes"][0]; }

const Json* const strange[] = {
    new Json{{"as_none", true}},
    new Json{{"as_int", 0}},
    new Json{{"as_int", -1}},
    new Json{{"as_int", 1000}},
    new Json{{"as_int", INT64_MAX}},
    new Json{{"as_int", INT64_MIN}},
    new Json{{"as_float", 1.5}},
    new Json{{"as_float", 1e300}},
    new Json{{"as_bool", true}},
    new Json{{"as_ints", Json::array()}},
    new Json{{"as_ints", {0, 0}}},
    new Json{{"as_ints", {1}}},
    new Json{{"as_ints", {INT64_MAX, 1, 1}}},
    new Json{{"as_ints", {-1, INT64_MIN}}},
    new Json{{"as_floats", Json::array()}},
    new Json{{"as_string", "other"}},
    new Json{{"as_tensors", Json::array()}},
    new Json{{"as_optional_tensors", {{{"as_none", true}}, {{"as_none", true}}}}}};

// The k-th change of an argument; false where there is none left.
bool change_argument(Json& model, size_t k) {
  Json& inputs = node_of(model)["inputs"];
  const size_t ways = std::size(strange) + 2;
  if (k / ways >= inputs.size()) return false;
  const size_t way = k % ways;
  if (way < std::size(strange)) {
    inputs[k / ways]["arg"] = *strange[way];
  } else if (way == std::size(strange)) {
    inputs.erase(k / ways);
  } else if (inputs[k / ways]["arg"].contains("as_tensor")) {
    Json name = inputs[k / ways]["arg"]["as_tensor"];
    inputs[k / ways]["arg"] = {{"as_tensors", {name, name}}};
  }
  return true;
}

// Of the tensors that are read and given.
bool change_tensor(Json& model, size_t k) {
  constexpr size_t ways = 7;
  Json& metas = model["graph_module"]["graph"]["tensor_values"];
  if (k / ways >= metas.size()) return false;
  Json& meta = *std::next(metas.begin(), static_cast<ptrdiff_t>(k / ways));
  Json& sizes = meta["sizes"];
  const size_t way = k % ways;
  if (way == 0) sizes = Json::array();
  if (way == 1 && !sizes.empty()) sizes.erase(sizes.size() - 1);
  if (way == 2) sizes.push_back({{"as_int", 2}});
  if (way == 3 && !sizes.empty()) sizes[0] = {{"as_int", 0}};
  if (way == 4 && !sizes.empty()) sizes[sizes.size() - 1] = {{"as_int", 7}};
  if (way == 5) sizes = {{{"as_int", 3}}};
  if (way == 6) meta["dtype"] = meta["dtype"] == 8 ? 5 : 8;
  return true;
}

bool change_all_tensors(Json& model, size_t k) {
  if (k >= 3) return false;
  for (Json& meta : model["graph_module"]["graph"]["tensor_values"]) {
    Json& sizes = meta["sizes"];
    if (k == 0) sizes = Json::array();
    if (k == 1 && !sizes.empty()) sizes.erase(sizes.size() - 1);
    if (k == 2)
      for (Json& size : sizes) size = {{"as_int", 0}};
  }
  return true;
}

bool change_node(Json& model, size_t k) {
  Json& node = node_of(model);
  auto target = node["target"].get<std::string>();
  const size_t dot = target.find('.', std::string_view("torch.ops.aten.").size());
  switch (k) {
    case 0:
      node["outputs"].clear();
      return true;
    case 1:
      for (int i = 0; i < 4; ++i) node["outputs"].push_back(node["outputs"][0]);
      return true;
    case 2:  // the operator that writes
      if (dot != target.npos) node["target"] = target.insert(dot, "_");
      return true;
    case 3:
      if (dot != target.npos) node["target"] = target.insert(dot, "_");
      node["outputs"].clear();
      return true;
    case 4:
      node["inputs"].clear();
      return true;
    case 5:
      std::reverse(node["inputs"].begin(), node["inputs"].end());
      return true;
    case 6:
      for (Json& i : node["inputs"])
        if (i["arg"].contains("as_tensor")) i["arg"] = {{"as_float", 2.0}};
      return true;
    default:
      return false;
  }
}

void expect_sound_or_refused(const std::string& model) {
  ImportedProgram import;
  try {
    import = pt2::import_bytes(bytes_of(archive_of(model)), "damaged.pt2");
  } catch (const Error&) {
    return;
  } catch (const ResourceError&) {
    return;
  }
  for (const auto& graph : import.module.graphs) ir::verify(*graph);
  ir::parse(ir::print(import.module), "printed.ir");
}

void damage_all(bool (*damage)(Json&, size_t)) {
  const auto all = models();
  EXPECT_GT(all.size(), 300u);
  for (const auto& [target, whole] : all)
    for (size_t k = 0;; ++k) {
      SCOPED_TRACE(fmt::format("{}, change {}", target, k));
      Json model = whole;
      if (!damage(model, k)) break;
      ASSERT_NO_THROW(expect_sound_or_refused(model.dump()));
    }
}

TEST(Pt2Damaged, Arguments) { damage_all(change_argument); }
TEST(Pt2Damaged, Tensors) { damage_all(change_tensor); }
TEST(Pt2Damaged, AllTensors) { damage_all(change_all_tensors); }
TEST(Pt2Damaged, Nodes) { damage_all(change_node); }

}  // namespace
}  // namespace gradus::test
