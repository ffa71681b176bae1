#include "tests/pt2/fixture.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "gradus/passes.h"
#include "gradus/state.h"

namespace gradus::test {

namespace {

constexpr size_t none = SIZE_MAX;
const std::filesystem::path folder = std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/pt2/data";

// How far apart results may be, as a part of the greatest element of their kind.
double tolerance_of(const ir::Graph& program) {
  const bool single = std::ranges::any_of(
      program.values, [](const ir::Value& v) { return v.type.dtype == DType::f32; });
  return single ? 1e-4 : 1e-10;
}

std::vector<double> minus(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> c(a);
  for (size_t i = 0; i < a.size(); ++i) c[i] -= b[i];
  return c;
}

}  // namespace

std::vector<std::string> archive_names() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".pt2") names.push_back(file.path().stem().string());
  std::ranges::sort(names);
  return names;
}

std::string archive_path(const std::string& name) { return (folder / (name + ".pt2")).string(); }

ArchiveFixture::ArchiveFixture(std::string name)
    : name_(std::move(name)),
      reference_(read_npz((folder / (name_ + ".npz")).string())),
      imported_(import_program(archive_path(name_))) {
  size_t floating = 0;
  for (const ir::Result& r : program().stages[0].results)
    outputs_.push_back(is_floating(program()[r.value].type.dtype) ? floating++ : none);
}

const Tensor& ArchiveFixture::at(const std::string& key) const {
  auto it = reference_.find(key);
  if (it == reference_.end()) throw Error("{}: the reference has no '{}'", name_, key);
  return it->second;
}

int ArchiveFixture::order() const {
  auto any = [&](const char* group) {
    return std::ranges::any_of(reference_,
                               [&](const auto& r) { return r.first.starts_with(group); });
  };
  return any("g2.") || any("gl.") ? 2 : any("g1.") ? 1 : 0;
}

std::string ArchiveFixture::key_of(const std::string& group, const std::string& input) const {
  const bool parameter = imported_.weights.contains(input);
  return fmt::format("{}.{}.{}", group, parameter ? "param" : "in", input);
}

Tensor ArchiveFixture::value_of(const std::string& input, const std::string& prefix) const {
  auto weight = imported_.weights.find(input);
  return weight != imported_.weights.end() ? weight->second : at(prefix + "in." + input);
}

// dP / dg1 of the sum of squares P is 2 g1; of the loss over forces -d1 it is
// -2 (forces - fref) / n.
Tensor ArchiveFixture::second_cotangent(const std::string& input, const std::string& prefix,
                                        bool along_v) const {
  if (!is_energy()) {
    const std::string key = prefix + key_of("g1", input);
    if (!has(key)) return {};
    std::vector<double> g = at(key).to_doubles();
    for (double& e : g) e *= 2;
    return Tensor::from(at(key).dtype(), at(key).shape(), g);
  }
  if (input != "pos") return {};
  if (along_v) return at(prefix + "v");
  const Tensor& forces = at(prefix + "forces");
  std::vector<double> g = minus(forces.to_doubles(), at(prefix + "fref").to_doubles());
  for (double& e : g) e *= -2.0 / static_cast<double>(g.size());
  return Tensor::from(forces.dtype(), forces.shape(), g);
}

std::vector<Tensor> ArchiveFixture::inputs(const corpus::Subject& s, size_t stage,
                                           const std::string& prefix, bool along_v) const {
  std::vector<Tensor> values;
  for (size_t i = 0; i < s.code->inputs(stage); ++i) {
    const std::string& input = s.code->input_name(stage, i);
    if (stage == 0) {
      values.push_back(value_of(input, prefix));
    } else if (stage == 1) {
      // ct1_RESULT: those of what the call writes are zero.
      const auto& results = s.code->results(0);
      const size_t r = static_cast<size_t>(
          std::ranges::find(results, input.substr(4), &ir::Result::name) - results.begin());
      const size_t n = outputs_.at(r);
      if (is_energy()) {
        const Tensor& energy = at(prefix + "out.0");
        values.push_back(
            n != 0 ? Tensor()
                   : Tensor::from(energy.dtype(), energy.shape(),
                                  std::vector<double>(static_cast<size_t>(energy.numel()), 1.0)));
      } else {
        const std::string key = fmt::format("{}ct.{}", prefix, n);
        values.push_back(has(key) ? at(key) : Tensor());
      }
    } else {
      values.push_back(second_cotangent(input.substr(7), prefix, along_v));  // ct2_d1_X
    }
  }
  return values;
}

corpus::Subject ArchiveFixture::subject(const std::string& prefix, bool along_v) const {
  corpus::Subject s;
  s.options = {.order = order(), .cotangents = false};
  s.graph = ir::differentiate(program(), s.options);
  s.code = Code::compile(s.graph);
  for (size_t k = 0; k < s.code->stages(); ++k) s.inputs.push_back(inputs(s, k, prefix, along_v));
  return s;
}

// Empty: the reference has nothing for it.
std::string ArchiveFixture::expected_key(const corpus::Subject& s, size_t stage, size_t i,
                                         const std::string& prefix, bool along_v) const {
  const std::string& result = s.code->results(stage)[i].name;
  if (stage == 0) {
    if (has(prefix + "buffer_after." + result)) return prefix + "buffer_after." + result;
    if (has(prefix + "input_after." + result)) return prefix + "input_after." + result;
    return fmt::format("{}out.{}", prefix, i);
  }
  const std::string input = result.substr(3);  // d1_X, d2_X
  if (stage == 1 && is_energy() && input == "pos") return prefix + "forces";
  if (stage == 1) return prefix + key_of("g1", input);
  if (along_v) return input == "pos" ? prefix + "hvp" : "";
  if (is_energy()) return prefix + (input == "pos" ? "gl.in.pos" : key_of("gl", input));
  return prefix + key_of("g2", input);
}

// Of all references of its kind: gradients of a kind have one scale.
double ArchiveFixture::greatest(const std::string& key) const {
  const size_t dot = key.find('.', key.starts_with("alt.") ? 4 : 0);
  const bool group =
      key.find("g1.") != key.npos || key.find("g2.") != key.npos || key.find("gl.") != key.npos;
  double most = 0;
  for (const auto& [name, tensor] : reference_)
    if (group ? name.starts_with(key.substr(0, dot)) : name == key)
      for (double e : tensor.to_doubles())
        if (std::isfinite(e)) most = std::max(most, std::abs(e));
  return most;
}

std::vector<std::string> ArchiveFixture::differences(const corpus::Subject& s,
                                                     const corpus::Results& results,
                                                     const std::string& prefix,
                                                     bool along_v) const {
  std::vector<std::string> found;
  for (size_t k = along_v ? 2 : 0; k < results.size(); ++k)
    for (size_t i = 0; i < results[k].size(); ++i) {
      const std::string key = expected_key(s, k, i, prefix, along_v);
      if (key.empty()) continue;
      if (!has(key)) {
        // The reference's derivative is none: so is ours, or zero. Of energies it has few.
        if (k == 0) found.push_back(key + " is missing");
        const Tensor& r = results[k][i];
        if (k > 0 && r.defined() && !is_energy() &&
            !imported_.weights.contains(s.code->results(k)[i].name.substr(3)))
          for (double e : r.to_doubles())
            if (e != 0) {
              found.push_back(fmt::format("{} is {}, and none in the reference", key, e));
              break;
            }
        continue;
      }
      const Tensor& expected = at(key);
      std::vector<double> wanted = expected.to_doubles();
      std::vector<double> actual =
          results[k][i].defined() ? results[k][i].to_doubles() : std::vector<double>(wanted.size());
      if (key.ends_with("forces"))
        for (double& e : actual) e = -e;
      const double allowed = tolerance_of(program()) * std::max(greatest(key), 1e-300);
      if (actual.size() != wanted.size()) {
        found.push_back(
            fmt::format("{} has {} elements, not {}", key, actual.size(), wanted.size()));
        continue;
      }
      for (size_t e = 0; e < wanted.size(); ++e) {
        const bool same = actual[e] == wanted[e] ||
                          (std::isnan(actual[e]) && std::isnan(wanted[e])) ||
                          std::abs(actual[e] - wanted[e]) <= allowed;
        if (same) continue;
        found.push_back(fmt::format("{}[{}] is {}, not {} (at most {} apart)", key, e, actual[e],
                                    wanted[e], allowed));
        break;
      }
    }
  return found;
}

}  // namespace gradus::test
