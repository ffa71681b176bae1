#include "fusion/stage.h"

#include <algorithm>

namespace gradus::fusion {

namespace {

std::string text_of(const Sizes& s) { return fmt::format("[{}]", fmt::join(s, ", ")); }

}  // namespace

std::string print(const Frame& f) {
  std::string out = "sizes " + text_of(f.sizes) + "\n";
  for (const Sizes& s : f.strides) out += "strides " + text_of(s) + "\n";
  for (const auto& parts : f.parts) {
    out += "parts";
    for (const Frame::Part& p : parts)
      out += fmt::format(" {} of {} by {}", text_of(p.first), text_of(p.sizes), text_of(p.strides));
    out += "\n";
  }
  if (!f.index_steps.empty())
    out += fmt::format("index steps [{}]\n", fmt::join(f.index_steps, ", "));
  return out;
}

std::string print(const ops::Gemm& g) {
  return fmt::format("{} [{}, {}] by ({}, {}) times [{}, {}] by ({}, {})\n", name_of(g.dtype), g.m,
                     g.k, g.a_row, g.a_column, g.k, g.n, g.b_row, g.b_column);
}

std::string print(const StageProgram& stage) {
  std::string out = "stage {\n";
  for (size_t i = 0; i < stage.loops.size(); ++i)
    out +=
        fmt::format("loops {}: {}{}", i, print(stage.loops[i].nest), print(stage.loops[i].frame));
  for (size_t i = 0; i < stage.products.size(); ++i)
    out += fmt::format("product {}: {}", i, print(stage.products[i]));
  for (const StageProgram::Item& i : stage.items) {
    static constexpr const char* kinds[] = {"loops", "product", "call"};
    out += fmt::format("{} {} at {}", kinds[static_cast<size_t>(i.kind)], i.what, i.args);
    if (!stage.program.empty() && i.where.known())
      out += fmt::format("  # {}:{}", i.where.line, i.where.column);
    out += "\n";
  }
  if (!stage.program.empty()) out += "# " + stage.program + "\n";
  return out + "}\n";
}

bool is_inline(const ops::Gemm& g) {
  constexpr int64_t most_terms = 128, most_steps = 1024, lanes = 8;
  if ((g.dtype != DType::f32 && g.dtype != DType::f64) || !g.batch.empty()) return false;
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.k > std::min(most_terms, ops::gemm_block)) return false;
  const ops::Gemm wide = ops::with_wide_result(g);
  if (wide.m > most_steps || wide.n > most_steps * lanes) return false;
  if (wide.m * wide.k * ((wide.n + lanes - 1) / lanes) > most_steps) return false;
  // b is read by vectors: along its rows, or along its columns and turned then.
  return wide.b_column == 1 || wide.n == 1 || wide.b_row == 1 || wide.k == 1;
}

}  // namespace gradus::fusion
