#include "tools/json.h"

#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "gradus/messages.h"
#include "gradus/registry.h"

namespace gradus::cli {

using Json = nlohmann::ordered_json;

namespace {

// A program's bytes may be no UTF-8 where it is quoted.
std::string dumped(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string trace_json(const std::vector<TraceEvent>& events, const ir::Source* source) {
  Json list = Json::array();
  for (const TraceEvent& e : events) {
    Json arguments = {{"stage", e.stage}, {"instruction", e.instruction}, {"operator", e.op}};
    if (!e.group.empty()) arguments["group"] = e.group;
    if (e.host) arguments["host"] = true;
    if (!e.body.empty()) {
      arguments["graph"] = e.body;
      arguments["step"] = e.step;
    }
    if (source && e.where.known()) {
      arguments["place"] = fmt::format("{}:{}:{}", source->file, e.where.line, e.where.column);
      arguments["line"] = printable(trimmed(source->line(e.where)), 200);
    }
    list.push_back({{"name", e.label.empty() ? e.op : e.label},
                    {"cat", fmt::format("stage {}", e.stage)},
                    {"ph", "X"},
                    {"ts", e.begin},
                    {"dur", e.duration},
                    {"pid", 1},
                    {"tid", 1},
                    {"args", std::move(arguments)}});
  }
  return dumped({{"traceEvents", std::move(list)}, {"displayTimeUnit", "ns"}});
}

std::vector<TraceEvent> read_trace(const std::string& path) {
  MappedFile file(path);
  auto bytes = file.bytes();
  std::vector<TraceEvent> events;
  try {
    Json trace = Json::parse(bytes.begin(), bytes.end());
    for (const Json& e : trace.at("traceEvents")) {
      const Json& arguments = e.at("args");
      if (arguments.contains("graph")) continue;  // a part of what its loop took
      TraceEvent event;
      event.op = arguments.at("operator").get<std::string>();
      event.stage = arguments.at("stage").get<size_t>();
      event.instruction = arguments.at("instruction").get<size_t>();
      event.duration = e.at("dur").get<double>();
      if (arguments.contains("group")) event.group = arguments["group"].get<std::vector<size_t>>();
      event.host = arguments.contains("host");
      events.push_back(std::move(event));
    }
  } catch (const Json::exception&) {
    throw Error("{}: this is no profile; gradus run --profile writes one", printable(path));
  }
  return events;
}

std::string operators_json() {
  Json list = Json::array();
  for (const ir::Operator* op : ops::all()) {
    Json operands = Json::array();
    for (const ir::OperandSpec& o : op->operands)
      operands.push_back({{"name", o.name}, {"optional", o.optional}, {"variadic", o.variadic}});
    Json attributes = Json::array();
    for (const ir::NamedLiteral& a : op->describe()) {
      // A default of `none` has a place; an attribute that has to be given has none.
      Json described = {{"name", a.name}};
      if (a.value.is_none() && !a.where.known())
        described["required"] = true;
      else
        described["default"] = to_string(a.value);
      attributes.push_back(std::move(described));
    }
    list.push_back(
        {{"name", op->name},
         {"signature", signature(*op)},
         {"operands", std::move(operands)},
         {"attributes", std::move(attributes)},
         {"results", Json(std::vector<std::string>(op->results.begin(), op->results.end()))},
         {"differentiable", op->traits.differentiable},
         {"zero_gradient", op->traits.zero_gradient},
         {"doc", op->traits.doc}});
  }
  return dumped(list);
}

}  // namespace gradus::cli
