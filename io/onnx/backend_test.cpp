// ONNX's backend tests: a model, inputs, and what must come out.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include <onnx/onnx-data_pb.h>
#include <onnx/onnx_pb.h>

#include "gradus/code.h"
#include "gradus/gradcheck.h"
#include "gradus/onnx.h"
#include "gradus/state.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

namespace pb = ::onnx;
namespace fs = std::filesystem;

namespace {

using Tensors = std::map<std::string, Tensor, std::less<>>;

// What the files of a data set bring: tensors by name, those of a sequence s as s.0, s.1, ….
struct Values {
  Tensors tensors;
  std::map<std::string, int64_t, std::less<>> lengths;  // of sequences and optionals
};

template <class Message>
Message parse(const std::string& path) {
  Message m;
  if (!m.ParseFromString(read_whole_file(path)))
    throw Error("{}: it is no {}", path, m.GetTypeName());
  return m;
}

Tensor tensor_of(pb::TensorProto t, const pb::TypeProto& declared, const std::string& path) {
  // The generator has no bfloat16: it writes the same bits as uint16.
  if (declared.tensor_type().elem_type() == pb::TensorProto::BFLOAT16 &&
      t.data_type() == pb::TensorProto::UINT16)
    t.set_data_type(pb::TensorProto::BFLOAT16);
  return read_tensor(t, {}, path);
}

void add_sequence(const pb::SequenceProto& s, const std::string& name, const std::string& path,
                  Values& out) {
  if (s.elem_type() != pb::SequenceProto::TENSOR && s.tensor_values_size() == 0 &&
      s.elem_type() != pb::SequenceProto::UNDEFINED)
    throw Unsupported(path + ": a sequence of other things than tensors", "nested sequences");
  for (int i = 0; i < s.tensor_values_size(); ++i)
    out.tensors[fmt::format("{}.{}", name, i)] = read_tensor(s.tensor_values(i), {}, path);
  out.lengths[name] = s.tensor_values_size();
}

void add_value(const pb::ValueInfoProto& value, const std::string& path, Values& out) {
  const std::string& name = value.name();
  const pb::TypeProto& type = value.type();
  if (type.has_tensor_type()) {
    out.tensors[name] = tensor_of(parse<pb::TensorProto>(path), type, path);
  } else if (type.has_sequence_type()) {
    add_sequence(parse<pb::SequenceProto>(path), name, path, out);
  } else if (type.has_optional_type()) {
    auto o = parse<pb::OptionalProto>(path);
    out.lengths[name] = 0;
    if (o.has_tensor_value()) {
      out.tensors[name] = read_tensor(o.tensor_value(), {}, path);
      out.lengths[name] = 1;
    } else if (o.has_sequence_value()) {
      add_sequence(o.sequence_value(), name, path, out);
    }
  } else {
    throw Unsupported(path + ": of no type that is known here", "values of other types");
  }
}

// The values of prefix_0.pb, prefix_1.pb, ….
Values read_values(const fs::path& folder, const char* prefix,
                   const std::vector<const pb::ValueInfoProto*>& values) {
  Values out;
  for (size_t i = 0; i < values.size(); ++i) {
    fs::path file = folder / fmt::format("{}_{}.pb", prefix, i);
    if (fs::exists(file))
      add_value(*values[i], file.string(), out);
    else
      throw Error("{}: there is no such file", file.string());
  }
  return out;
}

std::vector<const pb::ValueInfoProto*> inputs_of(const pb::GraphProto& graph) {
  std::vector<const pb::ValueInfoProto*> out;
  for (const auto& i : graph.input()) {
    auto is_it = [&](const pb::TensorProto& t) { return t.name() == i.name(); };
    if (std::ranges::none_of(graph.initializer(), is_it)) out.push_back(&i);
  }
  return out;
}

// |got - expected| <= absolute + relative * |expected|.
struct Tolerance {
  double relative = 1e-5, absolute = 1e-7;
  bool steps = false;  // expected values were rounded after every step
};

// Of several roundings to 16 bits: two units in the last place more.
Tolerance stepwise(Tolerance t, DType dtype) {
  if (dtype == DType::f16) t.relative = std::max(t.relative, 0x1p-9);
  if (dtype == DType::bf16) t.relative = std::max(t.relative, 0x1p-6);
  return t;
}

bool close(double got, double expected, const Tolerance& t) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (std::isinf(expected) || std::isinf(got)) return got == expected;
  return std::abs(got - expected) <= t.absolute + t.relative * std::abs(expected);
}

// What differs; empty if nothing does.
std::string difference(const std::string& name, const Tensor& got, const Tensor& expected,
                       const Tolerance& t) {
  if (!got.defined()) return fmt::format("output '{}' is missing", name);
  if (got.dtype() != expected.dtype() || !std::ranges::equal(got.shape(), expected.shape()))
    return fmt::format("output '{}' is {}, {} is expected", name, describe(got),
                       describe(expected));
  if (is_integral(got.dtype())) {
    if (got.to_int64s() != expected.to_int64s())
      return fmt::format("output '{}' has other integers than expected", name);
    return {};
  }
  std::vector<double> a = got.to_doubles(), b = expected.to_doubles();
  const Tolerance within = t.steps ? stepwise(t, got.dtype()) : t;
  for (size_t i = 0; i < a.size(); ++i)
    if (!close(a[i], b[i], within))
      return fmt::format("output '{}': element {} is {}, {} is expected", name, i, a[i], b[i]);
  return {};
}

std::string run_and_compare(const Import& model, const InputSources& sources,
                            const Values& expected, const Tolerance& t) {
  auto code = Code::compile(model.program);
  State state(code, Context::default_context(), {.fusion = FusionMode::off});
  std::vector<Tensor> results = state.run(find_inputs(state, sources));
  if (results.size() != expected.tensors.size())
    return fmt::format("{} tensors come out, {} are expected", results.size(),
                       expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    const Tensor* got = nullptr;
    for (size_t i = 0; i < results.size(); ++i)
      if (code->results(0)[i].name == name) got = &results[i];
    if (!got) return fmt::format("there is no output '{}'", name);
    if (std::string d = difference(name, *got, tensor, t); !d.empty()) return d;
  }
  return {};
}

// The inputs, floating ones moved a little.
InputSources moved(const InputSources& sources) {
  InputSources m = sources;
  m.find = [find = sources.find](std::string_view name) {
    auto found = find(name);
    if (!found || !is_floating(found->tensor.dtype())) return found;
    const Tensor& x = found->tensor;
    Tensor by =
        uniform_tensor(DType::f64, x.shape(), 0.01, 0.05, name, 0, *Context::default_context());
    std::vector<double> values = x.to_doubles(), noise = by.to_doubles();
    for (size_t i = 0; i < values.size(); ++i) values[i] += noise[i];
    found->tensor = Tensor::from(DType::f64, x.shape(), values).to(x.dtype());
    return found;
  };
  return m;
}

// Few elements of each input: every derivative rule is checked thoroughly elsewhere, here it is the
// programs that are. The tests like to stand on kinks, where differences say nothing and may not
// show it: what is off there is looked at again nearby, where a wrong derivative is wrong as well.
void check_gradients(const Import& model, const InputSources& sources, int order,
                     TestOutcome& outcome) {
  bool floating = false;
  for (const ir::Result& r : model.program.stages[0].results)
    floating = floating || model.program[r.value].type.is_floating();
  if (!floating) return;
  GradcheckOptions options;
  options.order = order;
  options.max_elements = 3;
  options.directions = 1;
  options.tries = 3;
  auto off = [](const GradcheckEntry& e) { return !e.passed && e.checked > 0; };
  GradcheckReport report = gradcheck(model.program, sources, options);
  if (std::ranges::any_of(report.entries, off))
    report = gradcheck(model.program, moved(sources), options);
  for (const GradcheckEntry& e : report.entries) {
    outcome.right += e.passed;
    outcome.unjudged += !e.passed && e.checked == 0;
    if (!off(e)) continue;
    ++outcome.wrong;
    outcome.reason =
        fmt::format("gradient d{}_{} is off by {:.3g} ({})", e.stage, e.input, e.error, e.why);
  }
}

// Writes the program as a model, reads that, and holds what it gives against the same values.
// Elementary functions are not the same there, to the last digits.
void check_export(const Import& model, const InputSources& sources, const ImportOptions& options,
                  const ExportOptions& how, const Values& expected, const Tolerance& t,
                  TestOutcome& outcome) {
  std::string bytes;
  try {
    bytes = export_stage(model.program, model.weights, how);
  } catch (const Unsupported& e) {
    outcome.not_exported = e.reason();
    return;
  }
  Import back = import_bytes(bytes, "the exported model", {}, options);
  InputSources all = sources;
  // Large constants of the program are weights of the model.
  all.find = [&](std::string_view name) {
    auto found = sources.find(name);
    for (const auto& [weight, tensor] : back.weights)
      if (!found && weight == name) found = FoundTensor{tensor, "weights"};
    return found;
  };
  outcome.reason = run_and_compare(back, all, expected, t);
  if (outcome.reason.empty()) return;
  outcome.reason = "exported: " + outcome.reason;
  outcome.kind = TestOutcome::Kind::failed;
}

void run_data_set(const std::string& folder, const fs::path& data, const TestOptions& o,
                  const Tolerance& t, TestOutcome& outcome) {
  std::string path = (fs::path(folder) / "model.onnx").string();
  auto model = read_model(read_whole_file(path), path);
  std::vector<const pb::ValueInfoProto*> outputs;
  for (const auto& v : model->graph().output()) outputs.push_back(&v);
  Values given = read_values(data, "input", inputs_of(model->graph()));
  const Tensors& inputs = given.tensors;
  ImportOptions options;
  options.value = [&](std::string_view name) {
    auto it = inputs.find(name);
    return it == inputs.end() ? Tensor() : it->second;
  };
  options.length = [&](std::string_view name) -> std::optional<int64_t> {
    auto it = given.lengths.find(name);
    return it == given.lengths.end() ? std::nullopt : std::optional(it->second);
  };
  Import imported = import_file(path, options);
  Values expected = read_values(data, "output", outputs);
  InputSources sources;
  sources.find = [&](std::string_view name) -> std::optional<FoundTensor> {
    if (auto it = inputs.find(name); it != inputs.end()) return FoundTensor{it->second, "inputs"};
    for (const auto& [weight, tensor] : imported.weights)
      if (weight == name) return FoundTensor{tensor, "weights"};
    return std::nullopt;
  };
  outcome.reason = run_and_compare(imported, sources, expected, t);
  if (!outcome.reason.empty()) {
    outcome.kind = TestOutcome::Kind::failed;
    return;
  }
  if (o.exports) check_export(imported, sources, options, o.exported, expected, t, outcome);
  if (o.gradients > 0) check_gradients(imported, sources, o.gradients, outcome);
  if (outcome.wrong > 0) outcome.kind = TestOutcome::Kind::failed;
}

// Tests whose data cannot be held against anything; as of a version of the operators, where older
// data are sound.
struct Unsound {
  std::string_view test, why;
  int since = 0;
};
constexpr Unsound unsound[] = {
    {"test_adam_multiple", "expected values made with an epsilon that the model lacks"},
    {"test_cast_FLOAT_to_BFLOAT16", "expected values cut off where ONNX rounds"},
    {"test_castlike_FLOAT_to_BFLOAT16", "expected values cut off where ONNX rounds"},
    {"test_castlike_FLOAT_to_BFLOAT16_expanded", "expected values cut off where ONNX rounds"},
    {"test_castlike_BFLOAT16_to_FLOAT", "an input of other sizes than the model declares"},
    {"test_castlike_BFLOAT16_to_FLOAT_expanded", "an input of other sizes than the model declares"},
    {"test_operator_add_broadcast", "expected values from memory that nobody wrote"},
    {"test_operator_add_size1_broadcast", "expected values from memory that nobody wrote"},
    {"test_operator_add_size1_right_broadcast", "expected values from memory that nobody wrote"},
    {"test_operator_add_size1_singleton_broadcast",
     "expected values from memory that nobody wrote"},
    {"test_operator_addconstant", "expected values from memory that nobody wrote"},
    {"test_dft_inverse", "expected values with single precision's noise in place of zeros", 20},
    {"test_dft_inverse_opset19", "expected values with single precision's noise in place of zeros"},
};

// Tests whose expected values were made with five digits of pi, or were rounded to four digits.
constexpr std::string_view loose[] = {"test_blackmanwindow",
                                      "test_hammingwindow",
                                      "test_hannwindow",
                                      "test_gridsample_bicubic",
                                      "test_averagepool_2d_ceil_last_window_starts_on_pad",
                                      "test_roialign"};
// Tests of many steps, some in 16-bit floats, whose expected values are rounded after each.
constexpr std::string_view in_steps[] = {"test_attention"};

int opset_of_test(const std::string& folder) {
  std::string path = (fs::path(folder) / "model.onnx").string();
  int newest = 0;
  const auto model = read_model(read_whole_file(path), path);
  for (const auto& o : model->opset_import())
    if (o.domain().empty()) newest = std::max(newest, static_cast<int>(o.version()));
  return newest;
}

std::vector<fs::path> data_sets(const std::string& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && entry.path().filename().string().starts_with("test_data_set_"))
      out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TestOutcome run_test(const std::string& folder, const TestOptions& options) {
  TestOutcome outcome;
  Tolerance tolerance;
  std::string name = fs::path(folder).filename().string();
  for (std::string_view prefix : loose)
    if (name.starts_with(prefix)) tolerance.relative = 1e-3;
  for (std::string_view prefix : in_steps) tolerance.steps |= name.starts_with(prefix);
  try {
    for (const Unsound& u : unsound)
      if (name == u.test && (u.since == 0 || opset_of_test(folder) >= u.since))
        return {TestOutcome::Kind::unsupported, std::string(u.why)};
    for (const fs::path& data : data_sets(folder)) {
      run_data_set(folder, data, options, tolerance, outcome);
      if (outcome.kind != TestOutcome::Kind::passed) return outcome;
    }
  } catch (const Unsupported& e) {
    outcome.kind = TestOutcome::Kind::unsupported;
    outcome.reason = e.reason();
  } catch (const std::exception& e) {
    outcome.kind = TestOutcome::Kind::failed;
    outcome.reason = e.what();
  }
  return outcome;
}

std::vector<std::string> find_tests(const std::string& folder) {
  std::vector<std::string> out;
  auto is_test = [](const fs::path& p) {
    return fs::exists(p / "model.onnx") && fs::exists(p / "test_data_set_0");
  };
  std::error_code fault;
  if (!fs::is_directory(folder, fault)) throw Error("{}: there is no such folder", folder);
  if (is_test(folder)) return {folder};
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_directory() && is_test(entry.path())) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace gradus::onnx
