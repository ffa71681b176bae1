// Kernels of rows: sixteen threads or more for each, in the order of work/reduce.h.
#include <algorithm>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/prelude.h"
#include "fusion/cuda/reducer_text.h"
#include "fusion/cuda/writer.h"
#include "fusion/rows.h"

namespace gradus::fusion::cuda {

namespace {

using work::Reducer;

// Instructions that a loop over elements is unrolled to, about, and registers that wait for loads.
constexpr size_t most_unrolled_of_rows = 512, most_waiting_words = 32;

class Rows : public Writer {
 public:
  Rows(const Nest& nest, std::span<const std::string> lines)
      : Writer(nest, lines), rows_(row_loops(nest)) {}

  Source run() {
    const int last = nest_.rank - 1;
    for (size_t i = 0; i < nest_.steps.size(); ++i) step_text(i);  // how long they are
    line("const u32 lane = threadIdx.x & 15;");
    line("const u32 group = (threadIdx.x >> 4) & (shape.groups - 1);");
    line(fmt::format("const u32 rows_each = {} / shape.groups;", most_chunks));
    for (size_t i = 0; i < nest_.steps.size(); ++i)
      if (is_reduction(i)) declare(i);
    line("#pragma unroll 1");
    line(
        "for (u32 first = blockIdx.x * rows_each; first < shape.rows; "
        "first += gridDim.x * rows_each) {");
    indent_ = "    ";
    line("// A row that is not there is one without elements.");
    line("const u32 wanted = first + threadIdx.x / (16 * shape.groups);");
    line("const bool there = wanted < shape.rows;");
    line("const u32 row = there ? wanted : shape.rows - 1;");
    line(fmt::format("const u32 columns = there ? shape.n{} : 0;", last));
    find_coordinates();
    if (!nest_.stores.empty()) line(fmt::format("const i64 begin = i64(row) * shape.n{};", last));
    for (size_t k = 0; k < nest_.loads.size(); ++k) {
      if (rows_.facts.of_row[k])
        define(static_cast<ValueNumber>(k), hold(nest_.loads[k].dtype, "*(" + place(k) + ")"));
      else
        line(fmt::format("const {}* __restrict__ const from{} = {};",
                         memory_type(nest_.loads[k].dtype), k, place(k)));
    }
    compute_row_steps(0);
    for (int level = 1; level <= rows_.levels; ++level) {
      reduce(level);
      compute_row_steps(level);
    }
    if (!nest_.stores.empty()) store_elements();
    store_rows();
    indent_ = "  ";
    line("}");
    const KernelShape shape{.by_rows = true, .pack = 1};
    return {finish(shape, true), shape};
  }

 private:
  bool is_reduction(size_t step) const { return nest_.steps[step].reduces(); }
  ValueNumber value_of(size_t step) const {
    return static_cast<ValueNumber>(nest_.first_step() + step);
  }

  // The dtype that a reduction's values are held as until it is done.
  DType accumulator(const Step& s) const {
    const bool logical = *s.reducer == Reducer::all || *s.reducer == Reducer::any;
    return logical ? DType::boolean : dtype_of(s.compute);
  }
  std::string_view accumulator_type(const Step& s) const {
    return cuda::accumulator_type(accumulator(s));
  }

  // A struct of what is reduced how, once for each kind.
  std::string reducer_struct(const Step& s) {
    const ReducerText text = reducer_text(*s.reducer, accumulator(s));
    if (std::find(structs_.begin(), structs_.end(), text.name) == structs_.end()) {
      structs_.push_back(text.name);
      definitions_ += text.definition;
    }
    return text.name;
  }

  void declare(size_t i) {
    const Step& s = nest_.steps[i];
    const ValueNumber v = value_of(i);
    line(fmt::format("__shared__ {} parts{}[2][{}];", accumulator_type(s), v, most_chunks));
    line(fmt::format("RowReduction<{0}> reduction{1}(parts{1});", reducer_struct(s), v));
  }

  void compute_row_steps(int level) {
    for (size_t i = 0; i < nest_.steps.size(); ++i) {
      const ValueNumber v = value_of(i);
      if (!is_reduction(i) && rows_.facts.of_row[v] && rows_.facts.level[v] == level) compute(i);
    }
  }

  // The values of the element `c` that a loop wants, and those that it keeps.
  void write_element(const RowLoops::Loop& loop) {
    for (size_t k = 0; k < nest_.loads.size(); ++k) {
      if (!loop.loads[k] || rows_.facts.of_row[k]) continue;
      const bool strided = nest_.loads[k].walks.back() == Walk::strided;
      define(static_cast<ValueNumber>(k),
             hold(nest_.loads[k].dtype,
                  strided ? fmt::format("from{0}[i64(c) * shape.x{0}_by_{1}]", k, nest_.rank - 1)
                          : fmt::format("from{}[c]", k)));
    }
    for (size_t r : loop.reads) {
      const RowLoops::Kept& kept = rows_.kept[r];
      line(
          fmt::format("const {} v{} = {};  // kept", type(kept.value), kept.value,
                      hold(nest_.dtype_of(kept.value), fmt::format("y{}[begin + c]", kept.store))));
    }
    for (size_t i = 0; i < nest_.steps.size(); ++i)
      if (loop.steps[i]) compute(i);
    for (size_t w : loop.writes) {
      const RowLoops::Kept& kept = rows_.kept[w];
      line(fmt::format("y{}[begin + c] = {};  // keep it", kept.store,
                       unhold(nest_.dtype_of(kept.value), value(kept.value))));
    }
  }

  // How many elements of a loop a thread has under way at a time: what hides memory's latency, and
  // fits into registers.
  int unrolled(const RowLoops::Loop& loop) const {
    size_t instructions = 0, words = 0;  // registers that loads wait in
    for (size_t i = 0; i < nest_.steps.size(); ++i)
      if (loop.steps[i]) instructions += instructions_[i];
    for (size_t k = 0; k < nest_.loads.size(); ++k)
      if (loop.loads[k]) words += (size_of(nest_.loads[k].dtype) + 3) / 4;
    int n = 4;
    while (n > 1 && (instructions * static_cast<size_t>(n) > most_unrolled_of_rows ||
                     words * static_cast<size_t>(n) > most_waiting_words))
      n /= 2;
    return n;
  }

  // The elements of this thread in a chunk, or in all of its chunks.
  void open_elements(const RowLoops::Loop& loop) {
    line(fmt::format("#pragma unroll {}", unrolled(loop)));
    line("for (u32 c = chunk + lane; c < end; c += 16) {");
    indent_ += "  ";
  }
  void close() {
    indent_.resize(indent_.size() - 2);
    line("}");
  }

  void open_chunks(const char* bound) {
    line("#pragma unroll 1");
    line(fmt::format("for (u32 pass = 0; pass < {}; pass += {} * shape.groups) {{", bound,
                     work::reduce_chunk));
    indent_ += "  ";
    line(fmt::format("const u32 chunk = pass + {} * group;", work::reduce_chunk));
    line(fmt::format("const u32 end = min(chunk + {}, columns);", work::reduce_chunk));
  }

  // All reductions of a level, in one run over the row.
  void reduce(int level) {
    std::vector<size_t> steps;
    for (size_t i = 0; i < nest_.steps.size(); ++i)
      if (is_reduction(i) && rows_.facts.level[value_of(i)] == level) steps.push_back(i);
    for (size_t i : steps) line(fmt::format("reduction{}.begin();", value_of(i)));
    // As many passes for each thread: a barrier stands in them.
    open_chunks(fmt::format("shape.n{}", nest_.rank - 1).c_str());
    for (size_t i : steps)
      line(fmt::format("{} sum{} = {}::identity();", accumulator_type(nest_.steps[i]), value_of(i),
                       reducer_struct(nest_.steps[i])));
    open_elements(rows_.of_level(level));
    write_element(rows_.of_level(level));
    for (size_t i : steps) {
      const Step& s = nest_.steps[i];
      line(fmt::format("sum{0} = {1}::combine(sum{0}, {2});", value_of(i), reducer_struct(s),
                       value_as(s.operands[0], accumulator(s))));
    }
    close();
    for (size_t i : steps)
      line(fmt::format("reduction{0}.put(sum{0}, shape.groups);", value_of(i)));
    line("if (shape.groups > 2) __syncthreads();");
    for (size_t i : steps) line(fmt::format("reduction{}.take(shape.groups);", value_of(i)));
    close();
    for (size_t i : steps) {
      const Step& s = nest_.steps[i];
      const DType d = accumulator(s);
      const std::string result = fmt::format("reduction{}.result()", value_of(i));
      define(value_of(i), d == DType::boolean ? convert(d, s.dtype, result + " != 0")
                                              : convert(d, s.dtype, result));
    }
  }

  void store_elements() {
    open_chunks("columns");  // no barrier stands inside
    open_elements(rows_.storing());
    write_element(rows_.storing());
    for (size_t i = 0; i < nest_.stores.size(); ++i)
      line(fmt::format("y{}[begin + c] = {};", i, unhold(stored(i), value(nest_.stores[i]))));
    close();
    close();
  }

  void store_rows() {
    if (nest_.row_stores.empty()) return;
    line("if (there && lane == 0 && group == 0) {");
    indent_ += "  ";
    for (size_t i = 0; i < nest_.row_stores.size(); ++i)
      line(fmt::format("r{}[row] = {};", i,
                       unhold(stored(nest_.stores.size() + i), value(nest_.row_stores[i]))));
    close();
  }

  const RowLoops rows_;
  std::vector<std::string> structs_;
};

}  // namespace

Source write_rows(const Nest& nest, std::span<const std::string> lines) {
  return Rows(nest, lines).run();
}

}  // namespace gradus::fusion::cuda
