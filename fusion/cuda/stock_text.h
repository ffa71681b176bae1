// Kernels from texts with gaps.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "fusion/cuda/parameters.h"
#include "fusion/cuda/prelude.h"
#include "gradus/dtype.h"

namespace gradus::fusion::cuda {

// What elements are that are moved and not computed with.
inline std::string_view bits_type(DType dtype) {
  constexpr std::string_view types[] = {"u8", "u8", "u16", "", "u32", "", "", "", "u64"};
  return types[size_of(dtype)];
}
// What items are counted in.
constexpr int64_t most_narrow = (int64_t{1} << 31) - 1;
inline std::string_view count_type(bool wide) { return wide ? "u64" : "u32"; }
inline std::string_view count_type(int64_t items) { return count_type(items > most_narrow); }
// Blocks that have a thread for each item.
inline int64_t blocks_of(int64_t items) { return (items + block_threads - 1) / block_threads; }

// A kernel of which each thread takes items in turn: `body` is what it does with `item`, a Count,
// and `before` is what that calls.
inline std::string for_each_item(std::string_view body, std::string_view before = {}) {
  return fmt::format(R"(
typedef $COUNT$ Count;
{}struct Work {{
$FIELDS$}};
extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {{
  const Count items = Count(work.items), step = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < items; item += step) {{
{}  }}
}}
)",
                     before, body);
}

// A translation unit: the text with $NAME$ filled in, behind what it calls.
class StockText {
 public:
  explicit StockText(std::string_view text) : text_(text) {}
  StockText& with(std::string_view name, std::string_view value) {
    const std::string mark = '$' + std::string(name) + '$';
    for (size_t at = 0; (at = text_.find(mark, at)) != std::string::npos; at += value.size())
      text_.replace(at, mark.size(), value);
    return *this;
  }
  StockText& with(std::string_view name, int value) { return with(name, std::to_string(value)); }
  StockText& with(std::string_view name, const Parameters& fields) {
    return with(name, fields.text());
  }
  Source source() const { return {prelude_for(text_) + text_, {}}; }
  // $FIELDS$ are those of its parameters.
  StockKernel kernel(const Parameters& parameters, int64_t blocks) {
    with("FIELDS", parameters);
    return {source(), {{parameters.arguments(), blocks}}};
  }
  // Of a text of items: so many, none of which is no launch.
  StockKernel kernel_of_items(Parameters parameters, int64_t items) {
    if (items == 0) return {};
    parameters.add("items", items);
    return with("COUNT", count_type(items)).kernel(parameters, blocks_of(items));
  }

 private:
  std::string text_;
};

}  // namespace gradus::fusion::cuda
