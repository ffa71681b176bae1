// The drawing as SVG.
#include <fmt/format.h>

#include "gradus/messages.h"
#include "tools/view/picture.h"

namespace gradus::view {

namespace {

struct Point {
  double x, y;
};

constexpr const char* kind_names[] = {"input",  "constant", "instruction",
                                      "opaque", "result",   "held"};

constexpr const char* style = R"(
text { font: 11px "DejaVu Sans Mono", "Liberation Mono", Menlo, Consolas, monospace; fill: #1d2733 }
.column-title { font-size: 13px; font-weight: bold }
.column-back { fill: #f5f7f9 }
.between .column-back { fill: #fdf6e8 }
.item rect { fill: #fff; stroke: #7b8794; rx: 4px }
.item .title { font-weight: bold }
.item .type { fill: #52606d }
.item .time { fill: #b03a00; font-weight: bold }
.input .box { fill: #e3f0fb; stroke: #4a90c8; rx: 10px }
.constant .box { fill: #ececec; stroke: #a0a7af }
.opaque .box { fill: #fbe6ef; stroke: #c2528b }
.result .box { fill: #e4f5e6; stroke: #4a9c59; rx: 10px }
.held .box { fill: #fff3d6; stroke: #d09a2c }
.opens .box { stroke-width: 3 }
.body .column-back { fill: #eef4ee }
.item .heat { stroke: none; fill: #ff6a2b; rx: 0 }
.frame { fill: #efeaff; stroke: #7a5cd6; stroke-width: 1.5; stroke-dasharray: 6 3; rx: 8px }
.group text { fill: #5638b5; font-weight: bold }
.link { fill: none; stroke: #9aa5b1; stroke-width: 1.1 }
.across { stroke: #d09a2c; opacity: 0.55 }
)";

// Each rule is a line, and has one selector.
std::string scoped_style(std::string_view scope) {
  std::string s;
  for (char c : std::string_view(style)) {
    if (c != '\n' && s.ends_with('\n')) s += scope;
    s += c;
  }
  return s;
}

Point corner(const Picture& p, const Item& item) {
  const Column& column = p.columns[item.column];
  if (item.block == nothing) return {column.x + item.x, item.y};
  const Block& block = p.blocks[item.block];
  return {column.x + block.centre - block.width / 2 + item.x, block.y + item.y};
}

// A curve that leaves and arrives upright.
std::string upright(Point from, Point to) {
  const double middle = (from.y + to.y) / 2;
  return fmt::format("C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", from.x, middle, to.x, middle,
                     to.x, to.y);
}

std::string path_of(const Picture& p, const Link& link) {
  const Item &from = p.items[link.from], &to = p.items[link.to];
  Point a = corner(p, from), b = corner(p, to);
  if (from.column != to.column) {
    a.x += from.width, a.y += from.height / 2, b.y += to.height / 2;
    const double middle = (a.x + b.x) / 2;
    return fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", a.x, a.y, middle,
                       a.y, middle, b.y, b.x, b.y);
  }
  a.x += from.width / 2, a.y += from.height, b.x += to.width / 2;
  const Column& column = p.columns[from.column];
  const Block& block = p.blocks[from.block];
  auto bend = [&](uint32_t k) {
    return Point{column.x + block.trunk[k], column.tops[block.layer + 1 + k]};
  };
  auto leave = [&](uint32_t k) {
    return Point{bend(k).x, bend(k).y + column.heights[block.layer + 1 + k]};
  };
  const uint32_t drawn = link.after == nothing ? 0 : p.links[link.after].bends;
  if (drawn) a = leave(drawn - 1);
  std::string d = fmt::format("M{:.1f} {:.1f}", a.x, a.y);
  for (uint32_t k = drawn; k < link.bends; ++k) {
    d += upright(a, bend(k)) + fmt::format("V{:.1f}", leave(k).y);
    a = leave(k);
  }
  return d + upright(a, b);
}

std::string column_svg(const Picture& p, uint32_t c) {
  const Column& column = p.columns[c];
  return fmt::format(
      "<g id=\"c{}\" class=\"column {}\" transform=\"translate({:.1f},0)\"><rect "
      "class=\"column-back\" x=\"-14\" y=\"4\" width=\"{:.1f}\" height=\"{:.1f}\"/>"
      "<text class=\"column-title\" y=\"26\">{}</text><text y=\"44\">{}</text></g>\n",
      c,
      column.is_body    ? "body"
      : column.is_stage ? "stage"
                        : "between",
      column.x, column.width + 28, p.height - 8, escaped(column.title), escaped(column.subtitle));
}

std::string group_svg(const Picture& p, uint32_t g) {
  const Group& group = p.groups[g];
  const Block& block = p.blocks[group.block];
  return fmt::format(
      "<g id=\"g{}\" class=\"group\" transform=\"translate({:.1f},{:.1f})\"><rect class=\"frame\" "
      "width=\"{:.1f}\" height=\"{:.1f}\"/><text x=\"10\" y=\"16\">{}</text></g>\n",
      g, p.columns[block.column].x + block.centre - block.width / 2, block.y, block.width,
      block.height, escaped(group.time.empty() ? group.title : group.title + "  " + group.time));
}

std::string item_svg(const Picture& p, uint32_t i) {
  const Item& item = p.items[i];
  const Point at = corner(p, item);
  std::string tip;
  for (const auto& [key, value] : item.details)
    tip += fmt::format("{}{}: {}", tip.empty() ? "" : "\n", escaped(key), escaped(value, 400));
  std::string s = fmt::format(
      "<g id=\"i{}\" class=\"item {}{}\" transform=\"translate({:.1f},{:.1f})\"><title>{}</title>"
      "<rect class=\"box\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
      i, kind_names[static_cast<int>(item.kind)], item.bodies.empty() ? "" : " opens", at.x, at.y,
      tip, item.width, item.height);
  if (item.heat > 0)
    s += fmt::format("<rect class=\"heat\" x=\"1\" y=\"{:.1f}\" width=\"4\" height=\"{:.1f}\"/>",
                     1 + (item.height - 2) * (1 - item.heat), (item.height - 2) * item.heat);
  s += fmt::format("<text class=\"title\" x=\"9\" y=\"15\">{}</text>", escaped(item.title));
  if (!item.time.empty())
    s += fmt::format("<text class=\"time\" x=\"{:.1f}\" y=\"15\" text-anchor=\"end\">{}</text>",
                     item.width - 8, escaped(item.time));
  if (!item.subtitle.empty())
    s += fmt::format("<text class=\"type\" x=\"9\" y=\"29\">{}</text>", escaped(item.subtitle));
  return s + "</g>\n";
}

}  // namespace

std::string escaped(std::string_view text, size_t limit) {
  std::string shown = printable(text, limit), s;
  // U+FFFE and U+FFFF are UTF-8, and no characters of XML.
  for (const char* odd : {"\xef\xbf\xbe", "\xef\xbf\xbf"})
    for (size_t at; (at = shown.find(odd)) != shown.npos;) shown.replace(at, 3, "?");
  for (char c : shown) {
    if (c == '&')
      s += "&amp;";
    else if (c == '<')
      s += "&lt;";
    else if (c == '>')
      s += "&gt;";
    else if (c == '"')
      s += "&quot;";
    else if (c == '\'')
      s += "&#39;";
    else
      s += c;
  }
  return s;
}

// Behind each other: columns, frames of groups, links, boxes.
std::string to_svg(const Picture& p, std::string_view scope) {
  std::string title = escaped(p.title);
  for (const std::string& note : p.notes) title += "; " + escaped(note, 400);
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"drawing\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\"><title>{2}</title>\n<style>{3}</style>\n"
      "<g id=\"all\">\n",
      p.width, p.height, title, scoped_style(scope));
  for (uint32_t c = 0; c < p.columns.size(); ++c) s += column_svg(p, c);
  for (uint32_t g = 0; g < p.groups.size(); ++g) s += group_svg(p, g);
  for (uint32_t l = 0; l < p.links.size(); ++l) {
    const Link& link = p.links[l];
    const bool across = p.items[link.from].column != p.items[link.to].column;
    s += fmt::format("<path id=\"l{}\" class=\"link{}\" d=\"{}\"/>\n", l, across ? " across" : "",
                     path_of(p, link));
  }
  for (uint32_t i = 0; i < p.items.size(); ++i) s += item_svg(p, i);
  return s + "</g>\n</svg>\n";
}

}  // namespace gradus::view
