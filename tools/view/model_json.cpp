// The picture for the page's script.
#include <nlohmann/json.hpp>

#include "gradus/messages.h"
#include "tools/view/picture.h"

namespace gradus::view {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(uint32_t n) { return n == nothing ? Json() : Json(n); }

double rounded(double x) { return static_cast<double>(static_cast<int64_t>(x * 10 + 0.5)) / 10; }

Json item_json(const Item& item) {
  Json details = Json::array();
  for (const auto& [key, value] : item.details) details.push_back({key, printable(value, 400)});
  Json json = {{"c", item.column},
               {"b", number_or_null(item.block)},
               {"g", number_or_null(item.group)},
               {"x", rounded(item.x)},
               {"y", rounded(item.y)},
               {"w", rounded(item.width)},
               {"h", item.height},
               {"t", item.title},
               {"s", item.subtitle},
               {"d", std::move(details)}};
  if (!item.bodies.empty()) json["o"] = item.bodies;
  return json;
}

}  // namespace

std::string model_json(const Picture& p) {
  Json model;
  model["measure"] = {{"top", measure::top},
                      {"layer_gap", measure::layer_gap},
                      {"column_gap", measure::column_gap},
                      {"held_gap", measure::held_gap},
                      {"folded_column", measure::folded_column}};
  for (const char* list : {"columns", "blocks", "groups", "items", "links"})
    model[list] = Json::array();
  for (const Column& c : p.columns)
    model["columns"].push_back({{"stage", c.is_stage},
                                {"body", c.is_body},
                                {"w", rounded(c.width)},
                                {"layers", c.tops.size()}});
  for (const Block& b : p.blocks) {
    Json trunk = Json::array();
    for (double x : b.trunk) trunk.push_back(rounded(x));
    model["blocks"].push_back({{"c", b.column},
                               {"l", b.layer},
                               {"x", rounded(b.centre)},
                               {"w", rounded(b.width)},
                               {"h", b.height},
                               {"g", number_or_null(b.group)},
                               {"k", std::move(trunk)}});
  }
  for (const Group& g : p.groups) model["groups"].push_back({{"b", g.block}, {"n", g.nest}});
  for (const Item& item : p.items) model["items"].push_back(item_json(item));
  for (const Link& l : p.links) {
    Json link = {{"f", l.from}, {"t", l.to}};
    if (l.bends) link["b"] = l.bends;
    if (l.after != nothing) link["a"] = l.after;
    model["links"].push_back(std::move(link));
  }
  // No text of the program may end the script that this stands in.
  std::string text = model.dump(-1, ' ', false, Json::error_handler_t::replace), safe;
  for (char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

}  // namespace gradus::view
