#include "fusion/rows.h"

#include <algorithm>

#include "fusion/cost.h"

namespace gradus::fusion {

namespace {

// What a loop reduces or stores. The last one also has what columns reduce.
std::vector<ValueNumber> wanted_in(const Nest& nest, const RowLoops& rows, int loop) {
  std::vector<ValueNumber> wanted;
  if (loop > rows.levels) {
    wanted = nest.stores;
    for (ValueNumber v : nest.column_stores)
      wanted.push_back(nest.steps[v - nest.first_step()].operands[0]);
    return wanted;
  }
  for (size_t i = 0; i < nest.steps.size(); ++i)
    if (const Step& s = nest.steps[i];
        s.reduces_row() && rows.facts.level[nest.first_step() + i] == loop)
      wanted.push_back(s.operands[0]);
  return wanted;
}

RowLoops::Loop loop_of(const Nest& nest, const RowLoops& rows, int loop) {
  RowLoops::Loop l;
  l.wanted = wanted_in(nest, rows, loop);
  l.steps.resize(nest.steps.size());
  std::vector<bool> wanted(nest.values());
  for (ValueNumber v : l.wanted) wanted[v] = true;
  for (size_t v = nest.values(); v-- > nest.first_step();) {
    if (!wanted[v] || rows.facts.of_row[v]) continue;
    const auto kept = std::ranges::find(rows.kept, v, &RowLoops::Kept::value);
    const auto k = static_cast<size_t>(kept - rows.kept.begin());
    if (kept != rows.kept.end() && kept->loop < loop) {
      l.reads.push_back(k);
      continue;
    }
    if (kept != rows.kept.end()) l.writes.push_back(k);
    const size_t i = v - nest.first_step();
    l.steps[i] = true;
    for (ValueNumber o : nest.steps[i].operands) wanted[o] = true;
  }
  for (size_t k = nest.loads.size(); k-- > 0;)
    if (wanted[k] && nest.loads[k].index) wanted[*nest.loads[k].index] = true;
  l.loads.assign(wanted.begin(), wanted.begin() + static_cast<long>(nest.loads.size()));
  return l;
}

// Functions that more than one loop needs, the last ones first: then what they are made of may not
// be needed again.
void choose_kept(const Nest& nest, RowLoops& rows) {
  std::vector<bool> taken(nest.stores.size());
  for (size_t i = nest.steps.size(); i-- > 0;) {
    const auto v = static_cast<ValueNumber>(nest.first_step() + i);
    const Step& s = nest.steps[i];
    if (!s.call.op || !is_function(s.call.op) || rows.facts.of_row[v]) continue;
    int first = 0, loops = 0;
    for (int loop = 1; loop <= rows.levels + 1; ++loop)
      if (loop_of(nest, rows, loop).steps[i] && ++loops == 1) first = loop;
    if (loops < 2) continue;
    for (size_t k = 0; k < taken.size(); ++k) {
      if (taken[k] || nest.dtype_of(nest.stores[k]) != s.dtype) continue;
      taken[k] = true;
      rows.kept.push_back({v, k, first});
      break;
    }
  }
}

}  // namespace

RowLoops row_loops(const Nest& nest) {
  RowLoops rows;
  rows.facts = row_facts(nest);
  if (!rows.facts.level.empty()) rows.levels = *std::ranges::max_element(rows.facts.level);
  choose_kept(nest, rows);
  for (int loop = 1; loop <= rows.levels + 1; ++loop)
    rows.loops.push_back(loop_of(nest, rows, loop));
  return rows;
}

}  // namespace gradus::fusion
