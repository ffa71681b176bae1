#include "work/reduce.h"

#include <algorithm>

namespace gradus::work {

namespace {

// The dimensions of a layout as axes that are kept and axes that are reduced.
template <class T>
void split_axes(T& w, const Layout& in, std::span<const int64_t> dims) {
  for (int d = 0; d < in.rank(); ++d) {
    bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    auto i = static_cast<size_t>(d);
    (reduced ? w.count : w.outputs) *= in.shape[i];
    push_axis(reduced ? w.reduced : w.kept, in.shape[i], in.strides[i]);
  }
  if (w.kept.empty()) w.kept.push_back({1, 1});
  if (w.reduced.empty()) w.reduced.push_back({1, 1});
}

}  // namespace

std::string_view name_of(Reducer reducer) {
  constexpr std::string_view names[] = {"sum", "prod", "max", "min", "all", "any"};
  return names[static_cast<size_t>(reducer)];
}

Reduce reduce(Reducer reducer, const Layout& in, std::span<const int64_t> dims, DType out) {
  Reduce r;
  r.reducer = reducer;
  r.in = in.dtype;
  r.out = out;
  split_axes(r, in, dims);
  return r;
}

Extremum extremum(bool greatest, const Layout& in, std::span<const int64_t> dims, int value,
                  int index) {
  Extremum e;
  e.greatest = greatest;
  e.dtype = in.dtype;
  e.value = value;
  e.index = index;
  split_axes(e, in, dims);
  return e;
}

}  // namespace gradus::work
