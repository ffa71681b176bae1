#include "fusion/cells.h"

#include <algorithm>

namespace gradus::fusion {

namespace {

// By dimension where a part begins, and the loops' end.
std::vector<std::vector<int64_t>> cuts_of(const Nest& nest, const Frame& frame) {
  std::vector<std::vector<int64_t>> cuts(frame.sizes.size());
  for (size_t d = 0; d < cuts.size(); ++d) {
    cuts[d] = {0, frame.sizes[d]};
    for (size_t k = 0; k < nest.loads.size(); ++k)
      if (nest.loads[k].operands > 1)
        for (const Frame::Part& p : frame.parts[k]) {
          cuts[d].push_back(p.first[d]);
          cuts[d].push_back(p.first[d] + p.sizes[d]);
        }
    std::ranges::sort(cuts[d]);
    cuts[d].erase(std::unique(cuts[d].begin(), cuts[d].end()), cuts[d].end());
  }
  return cuts;
}

}  // namespace

int64_t count_cells(const Nest& nest, const Frame& frame) {
  int64_t n = 1;
  for (const auto& c : cuts_of(nest, frame)) n *= static_cast<int64_t>(c.size()) - 1;
  return n;
}

std::vector<int64_t> row_pieces(const Nest& nest, const Frame& frame) {
  const std::vector<int64_t> cuts = cuts_of(nest, frame).back();
  std::vector<int64_t> pieces;
  for (size_t i = 1; i < cuts.size(); ++i) pieces.push_back(cuts[i] - cuts[i - 1]);
  return pieces;
}

std::vector<Cell> cells_of(const Nest& nest, const Frame& frame) {
  const auto cuts = cuts_of(nest, frame);
  const size_t rank = cuts.size();
  std::vector<Cell> cells;
  const int64_t count = count_cells(nest, frame);
  for (int64_t c = 0; c < count; ++c) {
    Cell cell{Sizes(rank), Sizes(rank), {}};
    int64_t rest = c;
    for (size_t d = rank; d-- > 0;) {
      const auto n = static_cast<int64_t>(cuts[d].size()) - 1;
      const auto at = static_cast<size_t>(rest % n);
      rest /= n;
      cell.first[d] = cuts[d][at];
      cell.sizes[d] = cuts[d][at + 1] - cuts[d][at];
    }
    for (size_t k = 0; k < nest.loads.size(); ++k)
      cell.part.push_back(nest.loads[k].operands > 1 ? frame.part_at(k, cell.first) : 0);
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace gradus::fusion
