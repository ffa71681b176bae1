// Where everything stands.
#include <algorithm>
#include <map>

#include "gradus/error.h"
#include "tools/view/layering.h"
#include "tools/view/picture.h"

namespace gradus::view {

namespace {

constexpr double character = 6.65;  // of the drawing's font, 11 pixels and of fixed width
constexpr double padding = 9;

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

double text_width(std::string_view text) {
  return static_cast<double>(characters(text)) * character;
}

void measure_item(Item& item) {
  double first = text_width(item.title);
  if (!item.time.empty()) first += text_width(item.time) + 2 * character;
  item.width = std::max({first, text_width(item.subtitle), 26.0}) + 2 * padding;
  item.height = item.subtitle.empty() ? 22 : 36;
}

// Links between the two given kinds of ends, as a graph of local numbers.
struct Local {
  LayeredGraph graph;
  std::vector<uint32_t> links;  // by edge
};

[[noreturn]] void fail_circle() {
  throw Error("groups of instructions wait for each other, which no run's groups do");
}

// Places the members of a group, each from the block's corner.
void arrange_group(Picture& p, Block& block, const std::vector<uint32_t>& inner) {
  Local local;
  std::map<uint32_t, uint32_t> number;
  for (uint32_t item : block.items) {
    number.emplace(item, static_cast<uint32_t>(number.size()));
    local.graph.widths.push_back(p.items[item].width);
  }
  for (uint32_t l : inner)
    local.graph.edges.emplace_back(number[p.links[l].from], number[p.links[l].to]);
  auto layering = find_layers(local.graph);
  if (!layering) fail_circle();
  const double row = 36 + measure::layer_gap * 0.6;
  double height = 0;
  for (uint32_t i = 0; i < block.items.size(); ++i) {
    Item& item = p.items[block.items[i]];
    item.x = measure::group_margin + layering->centre[i] - item.width / 2;
    item.y = measure::group_header + measure::group_margin + layering->layer[i] * row;
    height = std::max(height, item.y + item.height);
  }
  const double title = text_width(p.groups[block.group].title + p.groups[block.group].time) + 40;
  const double spare = std::max(0.0, title - layering->width - 2 * measure::group_margin);
  for (uint32_t i : block.items) p.items[i].x += spare / 2;
  block.width = layering->width + 2 * measure::group_margin + spare;
  block.height = height + measure::group_margin;
}

// Blocks of a stage: groups, and every other item by itself.
std::vector<uint32_t> make_blocks(Picture& p, uint32_t column) {
  std::vector<uint32_t> blocks;
  std::map<uint32_t, uint32_t> of_group;
  for (uint32_t i = 0; i < p.items.size(); ++i) {
    Item& item = p.items[i];
    if (item.column != column) continue;
    auto known = item.group == nothing ? of_group.end() : of_group.find(item.group);
    if (known != of_group.end()) {
      item.block = known->second;
    } else {
      item.block = static_cast<uint32_t>(p.blocks.size());
      if (item.group != nothing) {
        of_group.emplace(item.group, item.block);
        p.groups[item.group].block = item.block;
      }
      Block block;
      block.column = column;
      block.group = item.group;
      p.blocks.push_back(std::move(block));
      blocks.push_back(item.block);
    }
    p.blocks[item.block].items.push_back(i);
  }
  return blocks;
}

// Links of an item along the trunk, each after the one that goes less far: the drawing of a value
// with many readers grows with the longest link, not with the sum of all.
void chain_links(Picture& p, std::vector<uint32_t> links) {
  std::erase_if(links, [&](uint32_t l) { return !p.links[l].bends; });
  std::ranges::stable_sort(
      links, {}, [&](uint32_t l) { return std::pair(p.links[l].from, p.links[l].bends); });
  for (size_t k = 1; k < links.size(); ++k)
    if (p.links[links[k]].from == p.links[links[k - 1]].from)
      p.links[links[k]].after = links[k - 1];
}

void arrange_stage(Picture& p, uint32_t column,
                   const std::vector<std::vector<uint32_t>>& links_of_column) {
  std::vector<uint32_t> blocks = make_blocks(p, column);
  std::map<uint32_t, uint32_t> number;
  for (uint32_t b : blocks) number.emplace(b, static_cast<uint32_t>(number.size()));
  std::map<uint32_t, std::vector<uint32_t>> inner;  // by block
  Local outer;
  for (uint32_t l : links_of_column[column]) {
    const uint32_t from = p.items[p.links[l].from].block, to = p.items[p.links[l].to].block;
    if (from == to) {
      inner[from].push_back(l);
      continue;
    }
    outer.graph.edges.emplace_back(number[from], number[to]);
    outer.links.push_back(l);
  }
  for (uint32_t b : blocks) {
    Block& block = p.blocks[b];
    if (block.group != nothing) {
      arrange_group(p, block, inner[b]);
    } else {
      block.width = p.items[block.items[0]].width;
      block.height = p.items[block.items[0]].height;
    }
    outer.graph.widths.push_back(block.width);
  }
  auto layering = find_layers(outer.graph);
  if (!layering) fail_circle();
  Column& c = p.columns[column];
  c.heights.assign(layering->layers, 0);
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    Block& block = p.blocks[blocks[i]];
    block.layer = layering->layer[i];
    block.centre = layering->centre[i];
    c.heights[block.layer] = std::max(c.heights[block.layer], block.height);
  }
  double y = measure::top;
  for (double h : c.heights) {
    c.tops.push_back(y);
    y += h + measure::layer_gap;
  }
  for (uint32_t b : blocks) {
    Block& block = p.blocks[b];
    block.y = c.tops[block.layer] + (c.heights[block.layer] - block.height) / 2;
  }
  for (size_t e = 0; e < outer.links.size(); ++e) {
    auto [from, to] = outer.graph.edges[e];
    if (!layering->straight[e])
      p.links[outer.links[e]].bends = layering->layer[to] - layering->layer[from] - 1;
  }
  chain_links(p, outer.links);
  c.width = std::max(layering->width, text_width(c.title + "  " + c.subtitle) * 1.2);
  const double shift = (c.width - layering->width) / 2;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    Block& block = p.blocks[blocks[i]];
    block.centre += shift;
    block.trunk = std::move(layering->trunks[i]);
    for (double& x : block.trunk) x += shift;
  }
  p.height = std::max(p.height, y);
}

double upper_edge(const Picture& p, const Item& item) {
  return item.block == nothing ? item.y : p.blocks[item.block].y + item.y;
}

// Held values stand beside what makes them, or further down where that is taken. (The page's script
// does the same after folding.)
void arrange_held(Picture& p, uint32_t column, const std::vector<uint32_t>& maker) {
  std::vector<uint32_t> held;
  Column& c = p.columns[column];
  c.width = text_width(c.title) * 1.1;
  for (uint32_t i = 0; i < p.items.size(); ++i)
    if (p.items[i].column == column) {
      held.push_back(i);
      c.width = std::max(c.width, p.items[i].width);
    }
  c.width = std::max(c.width, text_width(c.subtitle));
  std::ranges::stable_sort(held, {}, [&](uint32_t i) { return upper_edge(p, p.items[maker[i]]); });
  double y = measure::top;
  for (uint32_t i : held) {
    Item& item = p.items[i];
    item.width = c.width;
    item.x = 0;
    item.y = std::max(y, upper_edge(p, p.items[maker[i]]));
    y = item.y + item.height + measure::held_gap;
  }
  p.height = std::max(p.height, y);
}

}  // namespace

void arrange(Picture& p) {
  for (Item& item : p.items) measure_item(item);
  std::vector<std::vector<uint32_t>> links_of_column(p.columns.size());
  std::vector<uint32_t> maker(p.items.size(), nothing);  // of held values
  for (uint32_t l = 0; l < p.links.size(); ++l) {
    const Item &from = p.items[p.links[l].from], &to = p.items[p.links[l].to];
    if (from.column == to.column) links_of_column[from.column].push_back(l);
    if (to.kind == Item::Kind::held) maker[p.links[l].to] = p.links[l].from;
  }
  double x = 24;
  for (uint32_t c = 0; c < p.columns.size(); ++c) {
    if (p.columns[c].is_stage)
      arrange_stage(p, c, links_of_column);
    else
      arrange_held(p, c, maker);
    p.columns[c].x = x;
    x += p.columns[c].width + measure::column_gap;
  }
  p.width = x - measure::column_gap + 24;
  p.height += 24;
}

}  // namespace gradus::view
