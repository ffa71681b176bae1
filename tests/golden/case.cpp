#include "tests/golden/case.h"

#include <cmath>
#include <fstream>
#include <map>

#include "gradus/operator.h"
#include "gradus/registry.h"
#include "tests/start.h"

namespace gradus::golden {

namespace {

std::string folder() { return test::source_folder() + "/tests/golden/data/"; }

const NpzFile& file_of(const Json& json) {
  static std::map<std::string, NpzFile> files;
  std::string path = folder() + std::string(json["file"]);
  return files.try_emplace(path, path).first->second;
}

// Spellings for what program text writes as a number in an operand's place.
struct ScalarSpelling {
  const char *op, *attribute;
  bool number_first;
};
const std::map<std::string, ScalarSpelling> scalar_spellings = {
    {"add_scalar", {"add", "value", false}},    {"rsub_scalar", {"sub", "value", true}},
    {"mul_scalar", {"mul", "value", false}},    {"div_scalar", {"div", "value", false}},
    {"pow_scalar", {"pow", "exponent", false}}, {"scalar_pow", {"pow", "base", true}},
};

std::string number_text(const Json& v) {
  if (v.is_number_integer()) return std::to_string(v.get<int64_t>());
  if (v.is_string()) return v.get<std::string>();
  return ir::float_text(v.get<double>());
}

// The logical values laid out with these strides and offset.
Tensor lay_out(const Tensor& values, const Json& input) {
  if (!input.contains("strides")) return values;
  Sizes strides;
  for (int64_t s : input["strides"]) strides.push_back(s);
  int64_t offset = input.value("offset", 0);
  Layout layout(values.dtype(), Sizes(values.shape()), strides);
  Tensor memory = Tensor::zeros(values.dtype(), Sizes{layout.extent() + offset});
  Tensor view = memory.view(layout, offset);
  copy_elements(values.layout(), values.data(), layout, const_cast<std::byte*>(view.data()));
  return view;
}

}  // namespace

const std::vector<Json>& all_cases() {
  static const std::vector<Json> cases = [] {
    std::ifstream in(folder() + "index.json");
    return Json::parse(in)["cases"].get<std::vector<Json>>();
  }();
  return cases;
}

Case::Case(const Json& json, DType floating)
    : json_(json), id_(json["id"]), floating_(floating), prefix_(json["prefix"]) {
  for (const Json& input : json["inputs"]) {
    Tensor values = file_of(json).read(prefix_ + "/in." + std::string(input["name"]));
    if (input["dtype"] == "float") values = values.to(floating_);
    inputs_.push_back({input["name"], lay_out(values, input), input["grad"]});
  }
}

std::set<std::string> Case::missing_operators() const {
  std::set<std::string> missing;
  for (const Json& node : json_["program"]["nodes"]) {
    std::string op = node["op"];
    auto scalar = scalar_spellings.find(op);
    if (scalar != scalar_spellings.end()) op = scalar->second.op;
    if (!ops::find(op)) missing.insert(op);
  }
  return missing;
}

bool Case::has_reference() const {
  return floating_ == DType::f64 || !json_["f32_torch_relerr"].is_null();
}

std::vector<std::string> Case::differentiated() const {
  std::vector<std::string> names;
  for (const Input& i : inputs_)
    if (i.differentiate) names.push_back(i.name);
  return names;
}

std::string Case::attribute_text(const Json& v, const std::string& name) const {
  if (v.is_null()) return "none";
  if (v.is_boolean()) return v.get<bool>() ? "true" : "false";
  if (v.is_array()) {
    std::string s = "[";
    for (const Json& item : v) s += (s.size() > 1 ? ", " : "") + attribute_text(item, name);
    return s + "]";
  }
  if (v.is_string()) {
    std::string s = v;
    if (name == "dtype") return s == "FLOAT" ? std::string(name_of(floating_)) : s;
    if (s == "inf" || s == "-inf" || s == "nan") return s;
    return ir::quoted(s);
  }
  return number_text(v);
}

std::string Case::node_text(const Json& node) const {
  std::string op = node["op"], results, operands, attributes;
  for (const Json& r : node["out"])
    results += (results.empty() ? "%" : ", %") + r.get<std::string>();
  for (const Json& o : node["in"])
    operands +=
        (operands.empty() ? "" : ", ") + (o.is_null() ? "none" : "%" + o.get<std::string>());
  auto scalar = scalar_spellings.find(op);
  for (auto& [name, value] : node["attrs"].items()) {
    if (scalar != scalar_spellings.end() && name == scalar->second.attribute) {
      std::string n = number_text(value);
      operands = scalar->second.number_first ? n + ", " + operands : operands + ", " + n;
      continue;
    }
    attributes += (attributes.empty() ? "" : ", ") + name + " = " + attribute_text(value, name);
  }
  if (scalar != scalar_spellings.end()) op = scalar->second.op;
  return "    " + results + " = " + op + "(" + operands + ")" +
         (attributes.empty() ? "" : " {" + attributes + "}") + "\n";
}

std::string Case::body() const {
  std::string s;
  for (const Json& node : json_["program"]["nodes"]) s += node_text(node);
  return s;
}

namespace {
std::string type_text(const Tensor& t) {
  return std::string(name_of(t.dtype())) + to_string(t.shape());
}
}  // namespace

std::string Case::input_list() const {
  std::string s;
  for (const Input& i : inputs_)
    s += (s.empty() ? "%" : ", %") + i.name + ": " + type_text(i.value);
  return s;
}

std::string Case::forward_text() const {
  std::string s = "graph golden {\n  stage 0 (" + input_list() + ") {\n" + body() + "    return ";
  for (size_t i = 0; i < outputs(); ++i)
    s += fmt::format("{}o{} = %{}", i ? ", " : "", i,
                     json_["program"]["outputs"][i].get<std::string>());
  return s + "\n  }\n}\n";
}

std::string Case::grad_text() const {
  std::string inputs = input_list(), nodes = body(), results;
  auto add_input = [&](const std::string& name, const std::string& key) {
    inputs += fmt::format("{}%{}: {}", inputs.empty() ? "" : ", ", name, type_text(operand(key)));
  };
  auto add_result = [&](const std::string& name, const std::string& value) {
    results += fmt::format("{}{} = %{}", results.empty() ? "" : ", ", name, value);
  };
  // <a, b> added up over `terms`, as a 0-d value.
  int fresh = 0;
  auto inner_product = [&](const std::vector<std::pair<std::string, std::string>>& terms) {
    std::string total;
    for (const auto& [a, b] : terms) {
      std::string p = fmt::format("ip{}", fresh++);
      nodes += fmt::format("    %{0}.m = mul(%{1}, %{2})\n    %{0}.s = sum(%{0}.m)\n", p, a, b);
      if (total.empty()) {
        total = p + ".s";
      } else {
        nodes += fmt::format("    %{0}.t = add(%{1}, %{0}.s)\n", p, total);
        total = p + ".t";
      }
    }
    return total;
  };
  std::vector<std::pair<std::string, std::string>> seeds, second;
  std::string wrt, grads, gg, ct_wrt;
  for (size_t i = 0; i < outputs(); ++i) {
    std::string out = json_["program"]["outputs"][i];
    add_result(fmt::format("o{}", i), out);
    if (!has(fmt::format("ct.{}", i))) continue;
    add_input(fmt::format("ct.{}", i), fmt::format("ct.{}", i));
    seeds.emplace_back(fmt::format("ct.{}", i), out);
    ct_wrt += fmt::format(", %ct.{}", i);
    gg += fmt::format(", %ggct.{}", i);
  }
  auto names = differentiated();
  if (order() >= 1 && !seeds.empty() && !names.empty()) {
    for (const auto& x : names) {
      wrt += ", %" + x;
      grads += (grads.empty() ? "%g." : ", %g.") + x;
      add_result("g_" + x, "g." + x);
    }
    std::string s = inner_product(seeds);
    nodes += fmt::format("    {} = grad(%{}{})\n", grads, s, wrt);
    if (order() >= 2) {
      for (const auto& x : names) {
        if (!has("v." + x)) continue;
        add_input("v." + x, "v." + x);
        second.emplace_back("v." + x, "g." + x);
      }
      std::string left;
      for (const auto& x : names) {
        left += (left.empty() ? "%gg." : ", %gg.") + x;
        add_result("gg_" + x, "gg." + x);
      }
      std::string t = inner_product(second);
      for (size_t i = 0; i < outputs(); ++i)
        if (has(fmt::format("ct.{}", i)))
          add_result(fmt::format("ggct_{}", i), fmt::format("ggct.{}", i));
      nodes += fmt::format("    {}{} = grad(%{}{}{})\n", left, gg, t, wrt, ct_wrt);
    }
  }
  return "graph golden {\n  stage 0 (" + inputs + ") {\n" + nodes + "    return " + results +
         "\n  }\n}\n";
}

bool Case::has(const std::string& key) const {
  return file_of(json_).contains(prefix_ + "/" + key);
}

Tensor Case::operand(const std::string& key) const {
  return file_of(json_).read(prefix_ + "/" + key).to(floating_);
}

double Case::tolerance(const std::string& key) const {
  if (floating_ == DType::f64) return 1e-10;
  const Json& errors = json_["f32_torch_relerr"];
  std::string kind = key.substr(0, key.find('.'));
  double error = errors.contains(kind) && errors[kind].is_number() ? errors[kind].get<double>() : 0;
  return std::max(1e-5, 10 * error);
}

std::string Case::compare(const std::string& key, const Tensor& got) const {
  if (!has(key)) return "";
  Tensor reference = file_of(json_).read(prefix_ + "/" + key);
  std::vector<double> want = reference.to_doubles();
  std::vector<double> values =
      got.defined() ? got.to_doubles() : std::vector<double>(want.size(), 0);
  if (got.defined() && got.layout().shape != reference.layout().shape)
    return fmt::format("{}: shape {} instead of {}", key, to_string(got.shape()),
                       to_string(reference.shape()));
  double scale = 1;
  for (double w : want)
    if (std::isfinite(w)) scale = std::max(scale, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    double a = values[i], b = want[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || std::abs(a - b) <= tolerance(key) * scale) continue;
    return fmt::format("{}[{}]: {} instead of {} (tolerance {} of {})", key, i, a, b,
                       tolerance(key), scale);
  }
  return "";
}

}  // namespace gradus::golden
