#include "gradus/trace.h"

#include <algorithm>
#include <cmath>

#include "gradus/engine.h"
#include "gradus/inputs.h"
#include "interpreter/trace_tape.h"

namespace gradus {

using autograd::Edge;
using autograd::Variable;
using autograd::Variables;
using interpreter::TracedProgram;
using interpreter::TraceTape;

namespace {

// Cotangents for the results of stage `stage` of a trace, by the names and types of the next one.
Tensor random_cotangent(const std::string& name, const ir::Type& type, uint64_t seed) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.value());
  return random_tensor(type.dtype, shape, name, seed, *autograd::current_context());
}

// Runs backward from the outputs, and from its gradients, as often as there are to be stages.
void run_backwards(Variables outputs, Variables inputs, int order) {
  for (int k = 1; k <= order; ++k) {
    std::vector<Edge> roots;
    Variables cotangents;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i].gradient_edge());
      Tensor ct = random_tensor(outputs[i].dtype(), outputs[i].shape(), fmt::format("{}.{}", k, i),
                                1, *autograd::current_context());
      cotangents.emplace_back(std::move(ct), k < order);
    }
    std::vector<autograd::Capture> captures;
    for (const Variable& x : inputs)
      if (x.requires_grad()) captures.push_back({x.gradient_edge(), {}});
    if (roots.empty() || captures.empty()) return;
    outputs =
        autograd::engine_of(autograd::current_context())
            ->execute(roots, cotangents, {.keep_graph = true, .create_graph = k < order}, captures);
    for (const Variable& ct : cotangents) inputs.push_back(ct);
  }
}

}  // namespace

Trace trace_of(std::shared_ptr<TracedProgram> program) {
  Trace trace;
  trace.program_ = std::move(program);
  return trace;
}

Traced trace(const VariableFunction& f, std::span<const Variable> inputs,
             const TraceOptions& options) {
  if (options.order < 0) throw Error("a trace to order {} is none", options.order);
  if (options.captures && options.order > 0)
    throw Error("a trace that captures variables has order 0, not {}", options.order);
  if (!options.inputs.empty() && options.inputs.size() != inputs.size())
    throw Error("{} inputs to trace were given {} names", inputs.size(), options.inputs.size());
  if (autograd::Recorder* around = autograd::thread_state().recorder)
    around->meets(fmt::format("another trace, '{}'", options.name));
  auto program = std::make_shared<TracedProgram>();
  program->options = options;
  program->options.captures = nullptr;  // it outlives them
  auto tape = std::make_shared<TraceTape>(program);
  program->tape = tape;
  if (options.captures) tape->capture_leading();
  Traced traced;
  try {
    traced.outputs = tape->run(f, inputs);
    if (options.run_backward)
      run_backwards(traced.outputs, Variables(inputs.begin(), inputs.end()), options.order);
  } catch (...) {
    if (!tape->needs_values()) throw;
  }
  if (tape->needs_values()) {
    TraceOptions with_values = options;
    with_values.shapes_only = false;
    return trace(f, inputs, with_values);
  }
  if (options.captures) *options.captures = tape->captured();
  traced.trace = trace_of(std::move(program));
  return traced;
}

Variable leaf_of(const Variable& v) {
  Variable leaf(v.data(), true);
  if (auto* values = interpreter::TraceValues::current()) values->know_leaf(leaf);
  return leaf;
}

TracedProgram& Trace::program() const {
  if (!program_) throw Error("this trace is empty; `trace` makes one");
  return *program_;
}

int Trace::order() const { return program().options.order; }

bool Trace::complete() const {
  std::lock_guard guard(program().mutex);
  return static_cast<int>(program().graph.stages.size()) == order() + 1;
}

ir::Graph Trace::graph() const {
  std::lock_guard guard(program().mutex);
  return program().graph;
}

std::vector<std::string> Trace::absent_cotangents() const {
  std::lock_guard guard(program().mutex);
  return program().unread;
}

std::shared_ptr<const Code> Trace::code() const {
  std::lock_guard guard(program().mutex);
  const auto& [name, stages] = std::pair(program().options.name, program().graph.stages.size());
  if (static_cast<int>(stages) <= order())
    throw Error("stage {} of trace '{}' is not recorded yet: {}", stages, name,
                program().tape.expired()
                    ? "and cannot be any more, since the variables that it was recorded from are "
                      "gone; trace it again, and run its backward while they are there"
                    : "run the backward of what the stage before gave, with create_graph where a "
                      "further one is to follow");
  if (!program().code) program().code = Code::compile(program().graph);
  return program().code;
}

Variables Trace::operator()(std::span<const Variable> inputs) const {
  auto code = this->code();
  std::vector<TracedProgram::Flags> flags;
  std::vector<std::string> unread;
  {
    std::lock_guard guard(program().mutex);
    flags = program().inputs;
    unread = program().unread;
  }
  const std::string& name = program().options.name;
  if (inputs.size() != flags.size())
    throw Error("'{}' was traced with {} inputs, {} are given", name, flags.size(), inputs.size());
  Variables given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto differs = [&](bool was, std::string_view yes, std::string_view no) {
      throw Error("'{}' was traced with an input '{}' that {}; this one {}: trace it anew for that",
                  name, flags[i].name, was ? yes : no, was ? no : yes);
    };
    if (inputs[i].defined() != flags[i].defined)
      differs(flags[i].defined, "was defined", "was undefined");
    if (autograd::recording() && inputs[i].requires_grad() != flags[i].requires_grad)
      differs(flags[i].requires_grad, "requires gradients", "requires none");
    if (inputs[i].defined()) given.push_back(inputs[i]);
  }
  return StagedFunction(code, autograd::current_context(), unread)(given);
}

namespace {

[[noreturn]] void differ(const Trace& trace, size_t stage, const std::string& result,
                         const std::string& how) {
  throw Error("the trace of '{}' differs from the function: stage {}, result '{}': {}",
              trace.graph().name, stage, result, how);
}

void compare(const Trace& trace, size_t stage, const std::string& name, const Variable& by_function,
             const Tensor& by_program) {
  Tensor expected = by_function.defined() ? by_function.data() : Tensor();
  if (expected.defined() != by_program.defined() ||
      (expected.defined() && describe(expected) != describe(by_program)))
    differ(trace, stage, name,
           fmt::format("{}, the program gives {}", describe(expected), describe(by_program)));
  if (!expected.defined() || bitwise_equal(expected, by_program)) return;
  std::vector<double> a = expected.to_doubles(), b = by_program.to_doubles();
  for (size_t e = 0; e < a.size(); ++e) {
    const bool same = std::isnan(a[e]) ? std::isnan(b[e]) : a[e] == b[e];
    if (!same)
      differ(trace, stage, name,
             fmt::format("element {} is {}, the program gives {}", e, a[e], b[e]));
  }
  // Equal numbers of other bits: zeros of another sign, other NaNs.
  differ(trace, stage, name, "numbers are equal, their bits are not");
}

}  // namespace

void verify(const Trace& trace, const VariableFunction& f, std::span<const Variable> inputs) {
  constexpr uint64_t seed = 1;  // of the cotangents
  auto code = trace.code();
  State state(code, autograd::current_context(), {.fusion = FusionMode::off});
  const std::vector<std::string> absent = trace.absent_cotangents();
  Variables leaves, differentiated;
  std::vector<Tensor> given;
  for (const Variable& v : inputs) {
    leaves.push_back(v.defined() ? Variable(v.data(), v.requires_grad()) : Variable());
    if (v.defined()) given.push_back(v.data());
    if (v.requires_grad()) differentiated.push_back(leaves.back());
  }
  Variables outputs;
  {
    autograd::GradModeGuard mode(autograd::GradMode::enabled);
    outputs = f(leaves);
  }
  for (size_t k = 0;; ++k) {
    std::vector<Tensor> results = state.run(given);
    if (outputs.size() != results.size())
      throw Error("the trace of '{}' has {} results in stage {}, the function gives {}",
                  code->graph().name, results.size(), k, outputs.size());
    for (size_t i = 0; i < results.size(); ++i)
      compare(trace, k, code->results(k)[i].name, outputs[i], results[i]);
    if (k + 1 == code->stages()) return;
    std::vector<Edge> roots;
    Variables seeds, next_leaves;
    given.clear();
    for (size_t i = 0, input = 0; i < results.size() && input < code->inputs(k + 1); ++i) {
      const std::string& name = code->input_name(k + 1, input);
      if (name != fmt::format("ct{}_{}", k + 1, code->results(k)[i].name)) continue;
      const ir::Type& type = code->input_type(k + 1, input++);
      Tensor ct = std::ranges::count(absent, name) ? Tensor() : random_cotangent(name, type, seed);
      next_leaves.push_back(ct.defined() ? Variable(ct, true) : Variable());
      given.push_back(std::move(ct));
      if (!next_leaves.back().defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i].gradient_edge());
      seeds.push_back(next_leaves.back());
    }
    std::vector<autograd::Capture> captures;
    for (const Variable& x : differentiated)
      if (x.defined()) captures.push_back({x.gradient_edge(), {}});
    Variables found(captures.size());
    if (!roots.empty() && !captures.empty())
      found = autograd::engine_of(autograd::current_context())
                  ->execute(roots, seeds, {.keep_graph = true, .create_graph = true}, captures);
    outputs.clear();
    for (size_t i = 0, next = 0; i < differentiated.size(); ++i)
      outputs.push_back(differentiated[i].defined() ? found[next++] : Variable());
    for (const Variable& ct : next_leaves) differentiated.push_back(ct);
  }
}

}  // namespace gradus
