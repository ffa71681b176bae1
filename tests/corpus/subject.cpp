#include "tests/corpus/subject.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "gradus/text.h"
#include "tests/start.h"

namespace gradus::corpus {

namespace {

// Inputs and expectations that nothing looks at would test nothing.
void check_names(const ir::Case& c, const Code& code) {
  for (const ir::CaseInput& in : c.inputs) {
    bool known = false;
    for (size_t s = 0; s < code.stages(); ++s)
      for (size_t i = 0; i < code.inputs(s); ++i) known |= code.input_name(s, i) == in.name;
    if (!known) throw Error("case {}: the program has no input '{}'", c.name, in.name);
  }
  for (const ir::CaseExpectation& e : c.expectations) {
    int found = 0;
    for (size_t s = 0; s < code.stages(); ++s)
      for (const ir::Result& r : code.results(s))
        found += r.name == e.name && (!e.stage || *e.stage == s);
    if (found != 1) throw Error("case {}: the program has {} results '{}'", c.name, found, e.name);
  }
}

}  // namespace

InputSources sources_of(const ir::Case& c) {
  InputSources sources;
  sources.find = [&c](std::string_view name) -> std::optional<FoundTensor> {
    for (const ir::CaseInput& in : c.inputs)
      if (const auto* t = std::get_if<Tensor>(&in.value); t && in.name == name)
        return FoundTensor{*t, "case " + c.name};
    return std::nullopt;
  };
  sources.fill = [&c](std::string_view name, DType dtype, std::span<const int64_t> shape) {
    Context& context = *Context::default_context();
    for (const ir::CaseInput& in : c.inputs)
      if (const auto* r = std::get_if<ir::RandomInput>(&in.value); r && in.name == name)
        return uniform_tensor(dtype, shape, r->low, r->high, name, r->seed, context);
    return random_tensor(dtype, shape, name, 1, context);
  };
  for (const auto& [name, size] : c.sizes) sources.sizes.emplace(name, size);
  return sources;
}

Subject make_subject(const ir::Fixture& fixture, const ir::Case& c) {
  Subject s;
  s.graph = *fixture.module.graphs[c.graph];
  int last = static_cast<int>(s.graph.stages.size()) - 1;
  ir::DifferentiateOptions options;
  options.order = last;
  if (c.gradcheck) {
    options.order = std::max(last, c.gradcheck->order);
    options.wrt = c.gradcheck->wrt;
  }
  if (c.differentiate) {
    options.order = c.differentiate->order;
    options.wrt = c.differentiate->wrt;
    options.total = c.differentiate->total;
  }
  if (c.differentiate || c.gradcheck) s.graph = ir::differentiate(s.graph, options);
  s.code = Code::compile(s.graph);
  check_names(c, *s.code);
  InputSources sources = sources_of(c);
  State state(s.code);
  while (!state.finished()) {
    s.inputs.push_back(find_inputs(state, sources));
    state.run(s.inputs.back());
  }
  s.options = options;
  return s;
}

Subject derived(const Subject& subject, const ir::Graph& graph) {
  Subject s;
  s.options = subject.options;
  s.graph = ir::differentiate(graph, s.options);
  s.code = Code::compile(s.graph);
  s.inputs = subject.inputs;
  return s;
}

namespace {

// Empty if it is as expected.
std::string mismatch(const ir::CaseExpectation& e, const ir::Result& result, const Tensor& got) {
  if (e.kind == ir::CaseExpectation::Kind::none)
    return result.value == ir::no_value ? "" : "expected the structural zero, got a value";
  if (e.kind == ir::CaseExpectation::Kind::undefined)
    return !got.defined() && result.value != ir::no_value
               ? ""
               : "expected undefined, got " + describe(got);
  if (!got.defined()) return "expected a tensor, got none";
  if (describe(got) != describe(e.value))
    return fmt::format("expected {}, got {}", describe(e.value), describe(got));
  if (e.tolerance == 0) return bitwise_equal(got, e.value) ? "" : "other bits than expected";
  std::vector<double> a = got.to_doubles(), b = e.value.to_doubles();
  for (size_t i = 0; i < a.size(); ++i) {
    bool same = a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]) ||
                std::fabs(a[i] - b[i]) <= e.tolerance * std::max(1.0, std::fabs(b[i]));
    if (!same) return fmt::format("element {} is {}, expected {}", i, a[i], b[i]);
  }
  return "";
}

}  // namespace

std::vector<std::string> unexpected(const ir::Case& c, const Subject& subject,
                                    const Results& results) {
  std::vector<std::string> list;
  for (const ir::CaseExpectation& e : c.expectations)
    for (size_t s = 0; s < results.size(); ++s)
      for (size_t r = 0; r < results[s].size(); ++r) {
        const ir::Result& result = subject.code->results(s)[r];
        if (result.name != e.name || (e.stage && *e.stage != s)) continue;
        std::string what = mismatch(e, result, results[s][r]);
        if (!what.empty())
          list.push_back(fmt::format("line {}: {}: {}", e.where.line, e.name, what));
      }
  return list;
}

std::vector<Subject> subjects(const ir::Fixture& fixture) {
  std::vector<Subject> list;
  for (const ir::Case& c : fixture.cases)
    if (!c.error) list.push_back(make_subject(fixture, c));
  return list;
}

Results run_all(State& state, const Subject& subject, const RunOptions& options) {
  Results results;
  while (!state.finished())
    results.push_back(state.run(subject.inputs[state.next_stage()], options));
  return results;
}

Results run_all(const Subject& subject) {
  State state(subject.code);
  return run_all(state, subject);
}

std::string difference(const Subject& subject, const Results& expected, const Results& actual) {
  if (expected.size() != actual.size())
    return fmt::format("{} stages ran, expected {}", actual.size(), expected.size());
  for (size_t s = 0; s < expected.size(); ++s)
    for (size_t r = 0; r < expected[s].size(); ++r) {
      const Tensor &a = expected[s][r], &b = actual[s][r];
      const std::string& name = subject.code->results(s)[r].name;
      if (a.defined() != b.defined())
        return fmt::format("{} of stage {}: expected {}, got {}", name, s, describe(a),
                           describe(b));
      if (a.defined() && !bitwise_equal(a, b))
        return fmt::format("{} of stage {} differs in its bits ({}, {})", name, s, describe(a),
                           describe(b));
    }
  return {};
}

std::vector<std::string> fixture_files() {
  namespace fs = std::filesystem;
  fs::path root = fs::path(test::source_folder()) / "tests" / "text";
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".ir")
      files.push_back(entry.path().lexically_relative(root).generic_string());
  // Of the examples, those that have cases.
  for (const auto& entry : fs::directory_iterator(test::source_folder() + "/examples")) {
    std::string name = "examples/" + entry.path().filename().string();
    if (entry.path().extension() == ".ir" && !load(name).cases.empty()) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

ir::Fixture load(const std::string& file) {
  bool example = file.starts_with("examples/");
  return ir::parse_file(test::source_folder() + (example ? "/" : "/tests/text/") + file);
}

}  // namespace gradus::corpus
