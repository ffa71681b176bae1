// A reference case as program text, and its numbers.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gradus/files.h"

namespace gradus::golden {

using Json = nlohmann::json;

// All cases of tests/golden/data/index.json.
const std::vector<Json>& all_cases();

struct Input {
  std::string name;
  Tensor value;  // in the layout that the case asks for
  bool differentiate;
};

// One case with its floating dtype chosen.
class Case {
 public:
  Case(const Json& json, DType floating);

  const std::string& id() const { return id_; }
  int order() const { return json_["order"]; }
  // Operators that this build does not have.
  std::set<std::string> missing_operators() const;
  bool has_reference() const;  // of this dtype: the conventions at edges are recorded in f64 alone

  const std::vector<Input>& inputs() const { return inputs_; }
  size_t outputs() const { return json_["outputs"].size(); }
  bool output_differentiable(size_t i) const { return json_["outputs"][i]["diff"]; }
  bool output_floating(size_t i) const { return json_["outputs"][i]["dtype"] == "float"; }
  std::vector<std::string> differentiated() const;

  // Stage 0 alone, with results o0, o1, ….
  std::string forward_text() const;
  // One stage with everything up to `order` by nested `grad`: results o<i>, g_<x>, gg_<x>,
  // ggct_<i>.
  std::string grad_text() const;

  // Numbers by key ("ct.0", "v.x0"), inputs in the run's dtype.
  bool has(const std::string& key) const;
  Tensor operand(const std::string& key) const;
  // Empty if `got` agrees with the reference; an undefined one stands for zeros.
  std::string compare(const std::string& key, const Tensor& got) const;

 private:
  std::string node_text(const Json& node) const;
  std::string attribute_text(const Json& value, const std::string& name) const;
  double tolerance(const std::string& key) const;
  std::string body() const;
  std::string input_list() const;

  const Json& json_;
  std::string id_;
  DType floating_;
  std::string prefix_;
  std::vector<Input> inputs_;
};

}  // namespace gradus::golden
