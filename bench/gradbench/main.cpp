// A tool of GradBench: a message on each line of standard input, an answer on each of standard
// output. What an evaluation computes is the program NAME.ir beside this file.
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus::gradbench {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// The graph that computes a function, by the function's name.
using Functions = std::map<std::string, std::string, std::less<>>;

const std::map<std::string, Functions, std::less<>>& modules() {
  // The modes of particle and saddle are one program: derivatives in it are reverse.
  const Functions modes{{"ff", "rr"}, {"fr", "rr"}, {"rf", "rr"}, {"rr", "rr"}};
  static const std::map<std::string, Functions, std::less<>> all{
      {"lstm", {{"objective", "objective"}, {"jacobian", "jacobian"}}},
      {"ode", {{"primal", "primal"}, {"gradient", "gradient"}}},
      {"particle", modes},
      {"saddle", modes},
  };
  return all;
}

const Json& member(const Json& object, const char* name) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || it == object.end())
    throw Error("'{}' is missing; it stands in an object beside the others", name);
  return *it;
}

std::string text_member(const Json& object, const char* name) {
  const Json& text = member(object, name);
  if (!text.is_string()) throw Error("'{}' has to be a string, it is a {}", name, text.type_name());
  return text.get<std::string>();
}

// The array's sizes, as its first elements say them.
Sizes shape_of(const Json& value, int rank, const std::string& name) {
  Sizes shape;
  const Json* inner = &value;
  for (int d = 0; d < rank; ++d) {
    if (!inner->is_array() || (inner->empty() && d + 1 < rank))
      throw Error("input '{}' has to be an array of {} dimensions with something in it", name,
                  rank);
    shape.push_back(static_cast<int64_t>(inner->size()));
    if (!inner->empty()) inner = &inner->front();
  }
  return shape;
}

void append(const Json& value, std::span<const int64_t> shape, DType dtype, const std::string& name,
            std::vector<double>& to) {
  if (shape.empty()) {
    if (is_floating(dtype) ? !value.is_number() : !value.is_number_integer())
      throw Error("input '{}' has {} where a {} is expected", name, value.type_name(),
                  is_floating(dtype) ? "number" : "whole number");
    to.push_back(value.get<double>());
    return;
  }
  if (!value.is_array() || static_cast<int64_t>(value.size()) != shape[0])
    throw Error("input '{}' has rows of different lengths", name);
  for (const Json& v : value) append(v, shape.subspan(1), dtype, name, to);
}

Tensor tensor_of(const Json& value, const ir::Type& type, const std::string& name) {
  const Sizes shape = shape_of(value, type.rank(), name);
  std::vector<double> elements;
  append(value, shape, type.dtype, name, elements);
  return Tensor::from(type.dtype, shape, elements);
}

Json json_of(std::span<const double> elements, std::span<const int64_t> shape) {
  if (shape.empty()) return elements[0];
  Json array = Json::array();
  const size_t each = shape[0] ? elements.size() / static_cast<size_t>(shape[0]) : 0;
  for (size_t i = 0; i < static_cast<size_t>(shape[0]); ++i)
    array.push_back(json_of(elements.subspan(i * each, each), shape.subspan(1)));
  return array;
}

// How often a function is to be run.
struct Runs {
  int64_t least = 1;
  double seconds = 0;

  explicit Runs(const Json& input) {
    if (input.contains("min_runs")) {
      if (!input["min_runs"].is_number_integer() || input["min_runs"].get<int64_t>() < 1)
        throw Error("'min_runs' has to be a whole number, at least 1");
      least = input["min_runs"].get<int64_t>();
    }
    if (input.contains("min_seconds")) {
      if (!input["min_seconds"].is_number() || !(input["min_seconds"].get<double>() >= 0))
        throw Error("'min_seconds' has to be a number, at least 0");
      seconds = input["min_seconds"].get<double>();
    }
  }
};

// Calls it, and appends what that took; in seconds.
template <class F>
double timed(Json& timings, const char* name, F call) {
  const auto start = Clock::now();
  call();
  const auto time = Clock::now() - start;
  timings.push_back(
      {{"name", name},
       {"nanoseconds", std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()}});
  return std::chrono::duration<double>(time).count();
}

class Program {
 public:
  explicit Program(const ir::Graph& graph) : code_(Code::compile(graph)) {}

  Json evaluate(const Json& input) const {
    if (!input.is_object()) throw Error("'input' has to be an object");
    const Runs runs(input);
    std::vector<Tensor> inputs, results;
    for (size_t i = 0; i < code_->inputs(0); ++i) {
      const std::string& name = code_->input_name(0, i);
      inputs.push_back(tensor_of(member(input, name.c_str()), code_->input_type(0, i), name));
    }
    Json timings = Json::array();
    State state(code_, Context::default_context(), {.fusion = FusionMode::first, .dump_plans = {}});
    auto run = [&] {
      state.restart();
      results = state.run(inputs);
    };
    timed(timings, "prepare", run);  // plans, and compiles kernels, for these sizes
    double seconds = 0;
    for (int64_t n = 0; n < runs.least || seconds < runs.seconds; ++n)
      seconds += timed(timings, "evaluate", run);
    return {{"success", true},
            {"output", json_of(results[0].to_doubles(), results[0].shape())},
            {"timings", std::move(timings)}};
  }

 private:
  std::shared_ptr<const Code> code_;
};

class Tool {
 public:
  Json answer(const Json& message) {
    const std::string kind = text_member(message, "kind");
    if (kind == "start") {
      Json answer{{"tool", "gradus"}};
      if (message.contains("config")) answer["config"] = message["config"];
      return answer;
    }
    if (kind == "define") return define(text_member(message, "module"));
    if (kind == "evaluate")
      return find(text_member(message, "module"), text_member(message, "function"))
          .evaluate(member(message, "input"));
    if (kind == "analysis" || kind == "end") return Json::object();
    throw Error("there are no messages of the kind '{}'", kind);
  }

 private:
  Json define(const std::string& module) {
    const auto known = modules().find(module);
    if (known == modules().end()) throw Error("the module '{}' is not implemented", module);
    std::map<std::string, std::shared_ptr<const Program>, std::less<>> programs;
    Json timings = Json::array();
    timed(timings, "compile", [&] {
      const ir::Fixture file =
          ir::parse_file(std::string(GRADUS_GRADBENCH_PROGRAMS "/") + module + ".ir");
      for (const auto& [function, name] : known->second) programs[name] = nullptr;
      for (const auto& graph : file.module.graphs)
        if (auto wanted = programs.find(graph->name); wanted != programs.end())
          wanted->second = std::make_shared<const Program>(*graph);
    });
    for (const auto& [function, name] : known->second)
      defined_[module][function] = programs.at(name);
    return {{"success", true}, {"timings", std::move(timings)}};
  }

  const Program& find(const std::string& module, const std::string& function) const {
    const auto functions = defined_.find(module);
    if (functions == defined_.end())
      throw Error("the module '{}' is not defined; send 'define' first", module);
    const auto program = functions->second.find(function);
    if (program == functions->second.end())
      throw Error("the module '{}' has no function '{}'", module, function);
    return *program->second;
  }

  std::map<std::string, std::map<std::string, std::shared_ptr<const Program>>> defined_;
};

Json answer(Tool& tool, const std::string& line) {
  Json id;
  try {
    const Json message = Json::parse(line);
    if (!message.is_object())
      throw Error("a message is an object, this is a {}", message.type_name());
    if (message.contains("id")) id = message["id"];
    Json answer = tool.answer(message);
    answer["id"] = std::move(id);
    return answer;
  } catch (const std::exception& e) {
    return {{"id", std::move(id)}, {"success", false}, {"error", e.what()}};
  }
}

int run() {
  Tool tool;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(tool, line).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  return 0;
}

}  // namespace
}  // namespace gradus::gradbench

int main() { return gradus::gradbench::run(); }
