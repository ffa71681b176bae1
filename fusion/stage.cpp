#include "fusion/stage.h"

#include <algorithm>
#include <cstring>

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

std::string print(const work::Gemm& g) {
  return fmt::format("{} [{}, {}] by ({}, {}) times [{}, {}] by ({}, {})\n", name_of(g.dtype), g.m,
                     g.k, g.a_row, g.a_column, g.k, g.n, g.b_row, g.b_column);
}

std::string print(const work::Reduce& sum) {
  auto text = [](const work::Axes& axes) {
    std::string out;
    for (const work::Axis& a : axes)
      out += fmt::format("{}{} by {}", out.empty() ? "" : ", ", a.size, a.stride);
    return "(" + out + ")";
  };
  return fmt::format("{} {} over {}\n", name_of(sum.in), text(sum.kept), text(sum.reduced));
}

std::string print(const work::Move& copies) {
  auto text = [](const work::Window& w) {
    return fmt::format("{} {} by {}", w.argument, w.offset, text_of(w.strides));
  };
  std::string out;
  for (const work::Copy& m : copies.copies) {
    uint64_t bits = 0;
    std::memcpy(&bits, m.pattern.data(), sizeof bits);
    out += fmt::format("\n  {} {} {} to {}", name_of(m.target.dtype), text_of(m.shape),
                       m.fills ? fmt::format("{:x}", bits) : text(m.source), text(m.target));
  }
  return out + "\n";
}

std::string print(const StageProgram& stage) {
  std::string out = "stage {\n";
  for (size_t i = 0; i < stage.loops.size(); ++i)
    out +=
        fmt::format("loops {}: {}{}", i, print(stage.loops[i].nest), print(stage.loops[i].frame));
  for (size_t i = 0; i < stage.products.size(); ++i)
    out += fmt::format("product {}: {}", i, print(stage.products[i]));
  for (size_t i = 0; i < stage.sums.size(); ++i)
    out += fmt::format("sum {}: {}", i, print(stage.sums[i]));
  for (size_t i = 0; i < stage.copies.size(); ++i)
    out += fmt::format("copies {}:{}", i, print(stage.copies[i]));
  for (const StageProgram::Item& i : stage.items) {
    static constexpr const char* kinds[] = {"loops", "product", "sum", "copies", "call"};
    out += fmt::format("{} {} at {}", kinds[static_cast<size_t>(i.kind)], i.what, i.args);
    if (!stage.program.empty() && i.where.known())
      out += fmt::format("  # {}:{}", i.where.line, i.where.column);
    out += "\n";
  }
  if (!stage.program.empty()) out += "# " + stage.program + "\n";
  return out + "}\n";
}

bool is_inline(const work::Gemm& g) {
  constexpr int64_t most_terms = 128, most_steps = 1024, lanes = 8;
  if ((g.dtype != DType::f32 && g.dtype != DType::f64) || !g.batch.empty()) return false;
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.k > std::min(most_terms, work::gemm_block)) return false;
  const work::Gemm wide = work::with_wide_result(g);
  if (wide.m > most_steps || wide.n > most_steps * lanes) return false;
  if (wide.m * wide.k * ((wide.n + lanes - 1) / lanes) > most_steps) return false;
  // b is read by vectors: along its rows, or along its columns and turned then.
  return wide.b_column == 1 || wide.n == 1 || wide.b_row == 1 || wide.k == 1;
}

bool is_inline(const work::Reduce& r) {
  constexpr int64_t most_terms = 64, most_elements = 1 << 11;
  return r.reducer == work::Reducer::sum && r.in == r.out &&
         (r.in == DType::f32 || r.in == DType::f64) && r.outputs > 0 && r.count > 0 &&
         r.count <= most_terms && r.outputs <= most_elements / r.count && r.kept.size() == 1 &&
         (r.kept[0].stride == 1 || r.outputs == 1);
}

bool is_inline(const work::Move& copies) {
  constexpr int64_t most_elements = 1 << 10, most_single = 1 << 6, most_rows = 1 << 6;
  int64_t elements = 0, rows = 0, single = 0;
  for (const work::Copy& m : copies.copies) {
    if (m.target.argument < 0 || (!m.fills && m.source.argument < 0)) return false;
    if (!m.fills && m.source.dtype != m.target.dtype) return false;
    int64_t n = 1;
    for (int64_t size : m.shape) {
      if (size <= 0 || size > most_elements) return false;
      n *= size;
      if (n > most_elements) return false;
    }
    elements += n;
    if (m.shape.empty() || has_rows(m))
      rows += m.shape.empty() ? 1 : n / m.shape.back();
    else
      single += n;
  }
  return elements > 0 && elements <= most_elements && rows <= most_rows && single <= most_single;
}

bool has_rows(const work::Copy& m) {
  return !m.shape.empty() && m.target.strides.back() == 1 &&
         (m.fills || m.source.strides.back() == 1);
}

}  // namespace gradus::fusion
