// Guards of torch.export: the conditions of inputs' sizes that the trace of a model went by, as
// Python writes them: "(L['x'].size()[0] % 2) == 0".
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/graph.h"

namespace gradus::pt2 {

// Where an argument of the model is: its name, then keys and indices within it; an attribute with
// its point: {"data", "pos"}, {"x", "._base"}.
using ArgumentPath = std::vector<std::string>;

// A number of a tensor among the arguments.
struct GuardedNumber {
  ArgumentPath path;
  enum class Kind : uint8_t { size, stride } kind = Kind::size;
  int64_t dim = 0;
};
// What it is in the program. Throws Error where it is nothing there.
using GuardedSizes = std::function<ir::Dim(const GuardedNumber&)>;

// The conditions that a guard sets, all of which have to hold; none where it holds for all sizes.
// Numbers are exact: a guard is refused where Python's floating numbers would be rounded otherwise.
// Throws Error for a guard that has no meaning for sizes, and for one that holds for no sizes.
std::vector<ir::SizeCondition> read_guard(std::string_view text, const GuardedSizes& sizes);

}  // namespace gradus::pt2
