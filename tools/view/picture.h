// A drawing of a staged graph before it is a file: boxes, links, columns, and where they are.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gradus::view {

inline constexpr uint32_t nothing = UINT32_MAX;

// What can be selected: an input, an instruction, a result, a value held between two stages.
struct Item {
  enum class Kind : uint8_t { input, constant, instruction, opaque, result, held };
  Kind kind = Kind::instruction;
  uint32_t column = 0;
  uint32_t group = nothing;     // index into Picture::groups
  std::string title, subtitle;  // the two lines of the box
  std::string time;             // at the right of the first line; empty: not known
  double heat = 0;              // 0 to 1: its time beside that of the slowest
  std::vector<std::pair<std::string, std::string>> details;  // shown for the selected item
  // Placed: size, and the left upper corner from the column's for a held value, else from the
  // block's.
  double width = 0, height = 0, x = 0, y = 0;
  uint32_t block = nothing;      // none for held values
  std::vector<uint32_t> bodies;  // of a loop, a branch, a call: the columns of the graphs it runs
};

// From what makes a value to what reads it.
struct Link {
  uint32_t from = 0, to = 0;  // items
  // Placed: how many layers it passes along its block's trunk. Of these, the link `after` (of the
  // same item) has drawn the first ones.
  uint32_t bends = 0, after = nothing;
};

// Instructions that run as one kernel.
struct Group {
  std::string title;  // "kernel 3: 7 instructions"
  std::string time;
  std::string nest;  // what it computes; empty: not known
  uint32_t block = nothing;
};

// What is placed in a layer of a stage: one item, or a group.
struct Block {
  uint32_t column = 0, layer = 0, group = nothing;
  std::vector<uint32_t> items;
  double centre = 0;          // from the column's left
  std::vector<double> trunk;  // where its links pass the layers below it, from the column's left
  double width = 0, height = 0;
  double y = 0;  // of its upper edge, as all is unfolded
};

// A stage, what is held between two of them, or a graph that loops, branches or calls run.
struct Column {
  bool is_stage = true;  // or a body: boxes in layers
  bool is_body = false;  // a page folds it until it is asked for
  std::string title, subtitle;
  double x = 0, width = 0;
  std::vector<double> tops, heights;  // of a stage's layers, as all is unfolded
};

struct Picture {
  std::string title;
  std::vector<std::string> notes;  // under the title
  std::vector<Item> items;
  std::vector<Link> links;
  std::vector<Group> groups;
  std::vector<Column> columns;
  // Placed by `arrange`.
  std::vector<Block> blocks;
  double width = 0, height = 0;
};

// Measures that the page's script needs as well: model_json hands them on.
namespace measure {
inline constexpr double top = 62;  // of the first layer: titles of columns are above
inline constexpr double layer_gap = 34;
inline constexpr double column_gap = 70;
inline constexpr double held_gap = 6;  // between two held values
inline constexpr double group_header = 20;
inline constexpr double group_margin = 10;
inline constexpr double folded_column = 34;
}  // namespace measure

// Finds every place. Throws Error where groups wait for each other.
void arrange(Picture& picture);

// The drawing of an arranged picture. All text in it is escaped. Within a page that has more than
// it, `scope` stands before the style's selectors ("#drawing "): the style is for it alone then.
std::string to_svg(const Picture& picture, std::string_view scope = {});
// A page that needs nothing else: the drawing, and what searches, folds and selects in it.
std::string to_page(const Picture& picture);
// What the page's script knows of the picture.
std::string model_json(const Picture& picture);

// As text in a markup: its special characters as entities, what cannot be shown as '?'.
std::string escaped(std::string_view text, size_t limit = 100);

}  // namespace gradus::view
