#include "fusion/stage.h"

#include <algorithm>

namespace gradus::fusion {

std::string print(const StageProgram& stage) {
  std::string out = "stage {\n";
  for (size_t i = 0; i < stage.pieces.size(); ++i)
    out += fmt::format("{}: {}\n", i, describe(stage.pieces[i]));
  for (const StageProgram::Item& i : stage.items) {
    out += i.piece == StageProgram::call ? "call" : fmt::format("{}", i.piece);
    out += fmt::format(" at {}", i.args);
    if (!stage.program.empty() && i.where.known())
      out += fmt::format("  # {}:{}", i.where.line, i.where.column);
    out += "\n";
  }
  if (!stage.program.empty()) out += "# " + stage.program + "\n";
  return out + "}\n";
}

namespace {

bool is_small(const work::Product& product) {
  const work::Gemm& g = product.gemm;
  constexpr int64_t most_terms = 128, most_steps = 1024, lanes = 8;
  if ((g.dtype != DType::f32 && g.dtype != DType::f64) || !g.batch.empty() || product.adds_row)
    return false;
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.k > std::min(most_terms, work::gemm_block)) return false;
  const work::Gemm wide = work::with_wide_result(g);
  if (wide.m > most_steps || wide.n > most_steps * lanes) return false;
  if (wide.m * wide.k * ((wide.n + lanes - 1) / lanes) > most_steps) return false;
  // b is read by vectors: along its rows, or along its columns and turned then.
  return wide.b_column == 1 || wide.n == 1 || wide.b_row == 1 || wide.k == 1;
}

bool is_small(const work::Reduce& r) {
  constexpr int64_t most_terms = 64, most_elements = 1 << 11;
  return r.reducer == work::Reducer::sum && r.in == r.out &&
         (r.in == DType::f32 || r.in == DType::f64) && r.outputs > 0 && r.count > 0 &&
         r.count <= most_terms && r.outputs <= most_elements / r.count && r.kept.size() == 1 &&
         (r.kept[0].stride == 1 || r.outputs == 1);
}

bool is_small(const work::Move& copies) {
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

bool is_small(const work::Loops&) { return true; }

}  // namespace

bool is_inline(const work::Work& work) {
  return std::visit(
      [](const auto& w) {
        if constexpr (requires { is_small(w); })
          return is_small(w);
        else
          return false;
      },
      work);
}

bool has_rows(const work::Copy& m) {
  return !m.shape.empty() && m.target.strides.back() == 1 &&
         (m.fills || m.source.strides.back() == 1);
}

}  // namespace gradus::fusion
