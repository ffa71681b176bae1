#include "tools/view/scene.h"

#include <algorithm>
#include <set>

#include "gradus/attributes.h"
#include "gradus/messages.h"
#include "gradus/registry.h"
#include "gradus/text.h"

namespace gradus::view {

namespace {

constexpr size_t longest_title = 26, longest_line = 34;

std::string shortened(const std::string& text, size_t limit) { return printable(text, limit); }

std::string bytes_text(double bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (bytes /= 1024; bytes >= 1024 && unit < 3; bytes /= 1024) ++unit;
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

// "8*N B"; where sizes are numbers "2 KiB". Nothing where there is no such expression.
std::optional<ir::Dim> bytes_of(const ir::Type& type) {
  try {
    return ir::numel(type.dims) * ir::Dim(static_cast<int64_t>(size_of(type.dtype)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string cost_text(const std::optional<ir::Dim>& bytes) {
  if (!bytes) return "?";
  if (auto n = bytes->constant()) return bytes_text(static_cast<double>(*n));
  return bytes->to_string() + " B";
}

std::string time_text(double us) {
  return us < 1000 ? fmt::format("{:.3g} us", us) : fmt::format("{:.3g} ms", us / 1000);
}

bool is_call(const ir::Node& node) { return node.op->traits.structural && node.op->graphs; }

// A graph that others run, and the items that do. Each is drawn once.
struct Body {
  std::shared_ptr<const ir::Graph> graph;
  std::vector<uint32_t> callers;
};
using Bodies = std::vector<Body>;

class Scene {
 public:
  // Adds to the picture, and to the bodies those that are not among them.
  Scene(const ir::Graph& graph, const Overlay& overlay, Picture& picture, Bodies& bodies)
      : graph_(graph),
        overlay_(overlay),
        names_(graph),
        picture_(picture),
        bodies_(bodies),
        first_column_(static_cast<uint32_t>(picture.columns.size())),
        made_by_(graph.values.size(), nothing) {}
  void draw_stages();
  // The graph's inputs, as items.
  std::vector<uint32_t> draw_body();

 private:
  using Readers = std::vector<std::pair<ir::ValueId, uint32_t>>;  // what is read, by which item
  uint32_t column_of(size_t stage) const {
    return first_column_ + static_cast<uint32_t>(2 * stage);
  }
  uint32_t add(Item item) {
    picture_.items.push_back(std::move(item));
    return static_cast<uint32_t>(picture_.items.size()) - 1;
  }
  std::string described(ir::ValueId v) const {
    return names_.shown(v) + ": " + to_string(graph_[v].type);
  }
  void find_lives();
  void find_heat();
  void add_groups(size_t stage);
  void take_in_views(size_t stage);
  std::set<ir::ValueId> weights_of_calls(size_t stage) const;
  void add_inputs(size_t stage);
  void add_node(size_t stage, uint32_t n);
  void add_results(size_t stage);
  void add_held(size_t stage);
  void add_bodies(const ir::Node& node, uint32_t item);
  void connect();
  // Where an item is, for its details.
  std::pair<std::string, std::string> place(size_t stage) const {
    if (picture_.columns[first_column_].is_body) return {"graph", graph_.name};
    return {"stage", std::to_string(stage)};
  }

  const ir::Graph& graph_;
  const Overlay& overlay_;
  ir::NameTable names_;
  Picture& picture_;
  Bodies& bodies_;
  const uint32_t first_column_;
  std::vector<uint32_t> made_by_;     // by value: the item that it comes from, at this stage
  std::vector<uint32_t> last_stage_;  // by value: the last one that reads it
  std::vector<std::vector<ir::ValueId>> held_;  // by stage: what is held after it
  std::map<uint32_t, uint32_t> group_of_;       // of the stage at hand, by node
  Readers readers_;                             // of the stage at hand
  double slowest_ = 0;
};

void Scene::find_lives() {
  last_stage_.assign(graph_.values.size(), 0);
  for (uint32_t s = 0; s < graph_.stages.size(); ++s) {
    auto read = [&](ir::ValueId v) {
      if (v != ir::no_value) last_stage_[index_of(v)] = s;
    };
    for (const ir::Node& node : graph_.stages[s].nodes)
      for (const ir::Operand& o : node.operands) read(value_in(o));
    for (const ir::Result& r : graph_.stages[s].results) read(r.value);
  }
  held_.resize(graph_.stages.size());
  for (uint32_t v = 0; v < graph_.values.size(); ++v)
    for (uint32_t s = graph_.values[v].stage; s < last_stage_[v]; ++s)
      held_[s].push_back(static_cast<ir::ValueId>(v));
}

void Scene::find_heat() {
  for (const auto& stage : overlay_.times)
    for (auto [node, time] : stage) slowest_ = std::max(slowest_, time);
}

// A profile may say anything: a node is of one group, and a group has two at least.
void Scene::add_groups(size_t stage) {
  group_of_.clear();
  if (stage >= overlay_.kernels.size()) return;
  for (const Kernel& kernel : overlay_.kernels[stage]) {
    std::set<uint32_t> fresh;
    for (uint32_t n : kernel.nodes)
      if (!group_of_.contains(n)) fresh.insert(n);
    if (fresh.size() < 2) continue;
    const auto group = static_cast<uint32_t>(picture_.groups.size());
    double time = 0;
    for (uint32_t n : fresh) {
      group_of_.emplace(n, group);
      auto known = overlay_.times[stage].find(n);
      if (known != overlay_.times[stage].end()) time += known->second;
    }
    picture_.groups.push_back({fmt::format("kernel {}: {} instructions", group, fresh.size()),
                               time > 0 ? time_text(time) : "", kernel.nest, nothing});
  }
  take_in_views(stage);
}

// A view that a group reads of one of its own members is no instruction of the kernel. It is drawn
// within the group: outside, the group and the view would wait for each other.
void Scene::take_in_views(size_t stage) {
  const std::vector<ir::Node>& nodes = graph_.stages[stage].nodes;
  std::map<ir::ValueId, uint32_t> makers;
  // By view without a group: the groups that it is made of through others like it.
  std::vector<std::set<uint32_t>> made_of(nodes.size());
  auto for_makers = [&](uint32_t n, auto&& each) {
    for (const ir::Operand& o : nodes[n].operands)
      if (auto maker = makers.find(value_in(o)); maker != makers.end()) each(maker->second);
  };
  for (uint32_t n = 0; n < nodes.size(); ++n) {
    const auto own = group_of_.find(n);
    std::vector<uint32_t> between;
    for_makers(n, [&](uint32_t m) {
      const auto group = group_of_.find(m);
      if (own == group_of_.end() && !nodes[n].op->traits.may_be_view) return;
      if (own != group_of_.end()) {
        if (group == group_of_.end() && made_of[m].contains(own->second)) between.push_back(m);
      } else if (group != group_of_.end()) {
        made_of[n].insert(group->second);
      } else {
        made_of[n].insert(made_of[m].begin(), made_of[m].end());
      }
    });
    while (!between.empty()) {
      const uint32_t view = between.back();
      between.pop_back();
      if (!group_of_.emplace(view, own->second).second) continue;
      for_makers(view, [&](uint32_t m) {
        if (made_of[m].contains(own->second)) between.push_back(m);
      });
    }
    for (ir::ValueId v : nodes[n].results) makers.emplace(v, n);
  }
}

// Weights that calls alone read are drawn in the graphs that are called.
std::set<ir::ValueId> Scene::weights_of_calls(size_t stage) const {
  std::set<ir::ValueId> found;
  if (overlay_.weights.empty() || graph_.stages.size() > 1) return found;
  for (ir::ValueId v : graph_.stages[stage].inputs)
    if (overlay_.weights.contains(graph_[v].name)) found.insert(v);
  for (const ir::Node& node : graph_.stages[stage].nodes)
    if (!is_call(node))
      for (const ir::Operand& o : node.operands) found.erase(value_in(o));
  for (const ir::Result& r : graph_.stages[stage].results) found.erase(r.value);
  return found;
}

void Scene::add_inputs(size_t stage) {
  const std::set<ir::ValueId> elsewhere = weights_of_calls(stage);
  for (ir::ValueId v : graph_.stages[stage].inputs) {
    if (elsewhere.contains(v)) continue;
    Item item;
    item.kind = Item::Kind::input;
    item.column = column_of(stage);
    item.title = shortened(names_.shown(v), longest_title);
    item.subtitle = shortened(to_string(graph_[v].type), longest_line);
    item.details = {
        {"input", described(v)}, place(stage), {"memory", cost_text(bytes_of(graph_[v].type))}};
    made_by_[index_of(v)] = add(std::move(item));
  }
}

void Scene::add_node(size_t stage, uint32_t n) {
  const ir::Node& node = graph_.stages[stage].nodes[n];
  Item item;
  item.kind = node.op->traits.opaque   ? Item::Kind::opaque
              : ops::constant_in(node) ? Item::Kind::constant
                                       : Item::Kind::instruction;
  item.column = column_of(stage);
  if (auto group = group_of_.find(n); group != group_of_.end()) item.group = group->second;
  item.title = std::string(node.op->name);
  // What is called says more than that it is.
  if (is_call(node))
    item.title = shortened(node.op->graphs(node.attributes)[0]->name, longest_title);
  std::string memory;
  for (ir::ValueId v : node.results) {
    item.subtitle += (item.subtitle.empty() ? "" : ", ") + described(v);
    if (graph_[v].type.is_tensor())
      memory += (memory.empty() ? "" : ", ") + cost_text(bytes_of(graph_[v].type));
  }
  item.subtitle = shortened(item.subtitle, longest_line);
  item.details = {{"operator", signature(*node.op)}, {"meaning", std::string(node.op->traits.doc)}};
  for (ir::ValueId v : node.results) item.details.emplace_back("result", described(v));
  item.details.emplace_back("memory", memory);
  item.details.emplace_back("instruction", printable(ir::print(node, graph_, names_), 400));
  if (graph_.source && node.where.known()) {
    item.details.emplace_back(
        "place", fmt::format("{}:{}:{}", graph_.source->file, node.where.line, node.where.column));
    item.details.emplace_back("line", std::string(trimmed(graph_.source->line(node.where))));
    const auto& modules = graph_.source->modules;
    if (node.where.line <= modules.size() && !modules[node.where.line - 1].empty())
      item.details.emplace_back("module", printable(modules[node.where.line - 1], 400));
  }
  item.details.push_back(place(stage));
  if (item.group != nothing)
    item.details.emplace_back("runs in", picture_.groups[item.group].title);
  if (stage < overlay_.times.size())
    if (auto time = overlay_.times[stage].find(n); time != overlay_.times[stage].end()) {
      const bool within = item.group != nothing && !picture_.groups[item.group].time.empty();
      item.details.emplace_back("time", within ? picture_.groups[item.group].time + " of the kernel"
                                               : time_text(time->second));
      if (!within) {
        item.time = time_text(time->second);
        item.heat = slowest_ > 0 ? time->second / slowest_ : 0;
      }
    }
  const uint32_t made = add(std::move(item));
  add_bodies(node, made);
  for (const ir::Operand& o : node.operands)
    if (value_in(o) != ir::no_value) readers_.emplace_back(value_in(o), made);
  for (ir::ValueId v : node.results) made_by_[index_of(v)] = made;
}

void Scene::add_results(size_t stage) {
  for (const ir::Result& r : graph_.stages[stage].results) {
    Item item;
    item.kind = Item::Kind::result;
    item.column = column_of(stage);
    const bool zero = r.value == ir::no_value;
    item.title = shortened(r.name + (zero ? " = none" : ""), longest_title);
    if (!zero) item.subtitle = shortened(to_string(graph_[r.value].type), longest_line);
    item.details = {{"result", r.name},
                    {"value", zero ? "none: structurally zero" : described(r.value)},
                    place(stage)};
    const uint32_t made = add(std::move(item));
    if (!zero) readers_.emplace_back(r.value, made);
  }
}

// What later stages read of this one and the ones before, once for each memory.
void Scene::add_held(size_t stage) {
  Column column;
  column.is_stage = false;
  std::optional<ir::Dim> sum = ir::Dim(0);
  std::set<uint32_t> counted;
  size_t handles = 0;
  std::vector<std::pair<ir::ValueId, uint32_t>> fresh;
  for (ir::ValueId v : held_[stage]) {
    Item item;
    item.kind = Item::Kind::held;
    item.column = column_of(stage) + 1;
    item.title = shortened(names_.shown(v), longest_title);
    const ir::Type& type = graph_[v].type;
    const uint32_t made = made_by_[index_of(v)];
    auto view = overlay_.memory_of.find(v);
    const ir::ValueId memory = view == overlay_.memory_of.end() ? v : view->second;
    std::string cost;
    if (!type.is_tensor()) {
      cost = "handle";
      ++handles;
    } else if (picture_.items[made].kind == Item::Kind::constant ||
               picture_.items[made].subtitle == "of the program") {
      cost = "of the program";
    } else {
      if (counted.insert(index_of(memory)).second) {
        auto bytes = bytes_of(graph_[memory].type);
        try {
          sum = sum && bytes ? std::optional(*sum + *bytes) : std::nullopt;
        } catch (const Error&) {
          sum = std::nullopt;
        }
      }
      cost = memory == v ? cost_text(bytes_of(type)) : "view of " + names_.shown(memory);
    }
    item.subtitle = shortened(cost, longest_line);
    item.details = {{"held", described(v)},
                    {"cost", cost},
                    {"after stage", std::to_string(stage)},
                    {"until stage", std::to_string(last_stage_[index_of(v)])}};
    const uint32_t held = add(std::move(item));
    picture_.links.push_back({made, held, {}});
    fresh.emplace_back(v, held);
  }
  for (auto [v, held] : fresh) made_by_[index_of(v)] = held;
  column.title = fmt::format("held after stage {}", stage);
  column.subtitle =
      fmt::format("{} value{}, {}", fresh.size(), fresh.size() == 1 ? "" : "s", cost_text(sum));
  if (handles) column.subtitle += fmt::format(", {} handle{}", handles, handles == 1 ? "" : "s");
  picture_.columns.push_back(std::move(column));
}

void Scene::add_bodies(const ir::Node& node, uint32_t item) {
  if (!node.op->graphs || !node.attributes) return;
  for (const ops::GraphName* name : node.op->graphs(node.attributes)) {
    if (!name->graph) continue;
    auto body = std::ranges::find(bodies_, name->graph, &Body::graph);
    if (body == bodies_.end()) body = bodies_.insert(body, {name->graph, {}});
    if (body->callers.empty() || body->callers.back() != item) body->callers.push_back(item);
  }
}

// Each pair of items once: a value that is read twice by an instruction is one link.
void Scene::connect() {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (auto [v, reader] : readers_)
    if (uint32_t maker = made_by_[index_of(v)];
        maker != nothing && seen.emplace(maker, reader).second)
      picture_.links.push_back({maker, reader, {}});
  readers_.clear();
}

std::string counted(size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

void Scene::draw_stages() {
  find_lives();
  find_heat();
  for (size_t s = 0; s < graph_.stages.size(); ++s) {
    add_groups(s);
    const auto nodes = static_cast<uint32_t>(graph_.stages[s].nodes.size());
    double time = 0;
    if (s < overlay_.times.size())
      for (auto [node, t] : overlay_.times[s]) time += t;
    Column& column = picture_.columns.emplace_back();
    column.title = fmt::format("stage {}", s);
    column.subtitle = counted(nodes, "instruction") + (time > 0 ? ", " + time_text(time) : "");
    add_inputs(s);
    for (uint32_t n = 0; n < nodes; ++n) add_node(s, n);
    add_results(s);
    connect();
    if (s + 1 < graph_.stages.size()) add_held(s);
  }
}

std::vector<uint32_t> Scene::draw_body() {
  Column& column = picture_.columns.emplace_back();
  column.is_body = true;
  column.title = shortened("graph " + graph_.name, longest_title);
  const size_t nodes = graph_.stages[0].nodes.size();
  add_inputs(0);
  for (uint32_t n = 0; n < nodes; ++n) add_node(0, n);
  add_results(0);
  std::vector<uint32_t> inputs;
  for (ir::ValueId v : graph_.stages[0].inputs)
    if (made_by_[index_of(v)] != nothing) inputs.push_back(made_by_[index_of(v)]);
  connect();
  return inputs;
}

// What runs a body leads to the body's inputs.
void connect_callers(const Body& body, uint32_t column, const std::vector<uint32_t>& inputs,
                     Picture& picture) {
  for (uint32_t caller : body.callers) {
    picture.items[caller].bodies.push_back(column);
    for (uint32_t input : inputs) picture.links.push_back({caller, input, {}});
  }
  const std::string of = body.callers.size() == 1 ? picture.items[body.callers[0]].title
                                                  : counted(body.callers.size(), "instruction");
  picture.columns[column].subtitle =
      fmt::format("run by {}; {}", of, counted(body.graph->stages[0].nodes.size(), "instruction"));
}

}  // namespace

Picture picture_of(const ir::Graph& graph, const Overlay& overlay) {
  Picture picture;
  picture.title = graph.name;
  picture.notes = overlay.notes;
  Bodies bodies;
  Scene(graph, overlay, picture, bodies).draw_stages();
  Overlay unknown;  // nothing is planned or timed of what runs within
  unknown.weights = overlay.weights;
  std::vector<std::vector<uint32_t>> inputs;
  const auto first = static_cast<uint32_t>(picture.columns.size());
  for (size_t b = 0; b < bodies.size(); ++b) {  // which grow
    const auto body = bodies[b].graph;
    inputs.push_back(Scene(*body, unknown, picture, bodies).draw_body());
  }
  for (uint32_t b = 0; b < bodies.size(); ++b)
    connect_callers(bodies[b], first + b, inputs[b], picture);
  return picture;
}

}  // namespace gradus::view
