// Kernels of elements, each on its own: a thread takes a pack of neighbours at a time.
#include <algorithm>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/prelude.h"
#include "fusion/cuda/writer.h"

namespace gradus::fusion::cuda {

namespace {

constexpr int most_packed = 8;
// Instructions that a pack is unrolled to, about: more would not fit into registers, and take long
// to compile.
constexpr size_t most_unrolled = 512;
constexpr size_t most_slots = 32;  // bits of Shape::whole

class Elements : public Writer {
 public:
  using Writer::Writer;

  Source run() {
    const size_t slots = nest_.loads.size() + nest_.stores.size();
    if (slots > most_slots)
      throw Error("CUDA kernels of elements take {} operands and results, this nest has {}",
                  most_slots, slots);
    choose_pack();
    find_shared();
    write_still();
    line("#pragma unroll 1");
    line(
        fmt::format("for (u32 item = blockIdx.x * {0} + threadIdx.x; item < shape.items; "
                    "item += gridDim.x * {0}) {{",
                    block_threads));
    indent_ = "    ";
    write_item();
    indent_ = "  ";
    line("}");
    const KernelShape shape{.by_rows = false, .pack = pack_};
    return {finish(shape, false), shape};
  }

 private:
  // What makes 16 bytes of the widest elements that lie side by side; less where a rule is long.
  void choose_pack() {
    size_t widest = 1;
    for (const Load& l : nest_.loads)
      if (l.walks.back() == Walk::contiguous) widest = std::max(widest, size_of(l.dtype));
    for (ValueNumber v : nest_.stores) widest = std::max(widest, size_of(nest_.dtype_of(v)));
    pack_ = std::min<int>(most_packed, static_cast<int>(16 / widest));
    size_t instructions = 1;
    for (size_t i = 0; i < nest_.steps.size(); ++i) {
      step_text(i);
      instructions += instructions_[i];
    }
    while (pack_ > 1 && instructions * static_cast<size_t>(pack_) > most_unrolled) pack_ /= 2;
  }

  // Values that all elements share, and those that a row's elements do.
  void find_shared() {
    for (size_t k = 0; k < nest_.loads.size(); ++k) still_.push_back(!moves(k));
    still_.resize(nest_.first_step(), true);
    for (const Step& s : nest_.steps)
      still_.push_back(std::all_of(s.operands.begin(), s.operands.end(),
                                   [&](ValueNumber o) { return still_[o]; }));
    of_row_ = row_facts(nest_).of_row;
  }

  // Before the loop: no store lies where they are read.
  void write_still() {
    for (size_t k = 0; k < nest_.loads.size(); ++k)
      if (still_[k])
        define(static_cast<ValueNumber>(k), hold(nest_.loads[k].dtype, fmt::format("x{}[0]", k)));
    write_steps([&](size_t v) { return still_[v]; });
  }

  template <class Which>
  void write_steps(Which which) {
    for (size_t i = 0; i < nest_.steps.size(); ++i)
      if (which(nest_.first_step() + i)) compute(i);
  }

  void write_item() {
    const int last = nest_.rank - 1;
    const bool one_row = last == 0;
    const std::string times = pack_ == 1 ? "" : fmt::format(" * {}", pack_);
    if (one_row) {
      line(fmt::format("const u32 column = item{};", times));
    } else {
      line("const u32 row = item / shape.groups;");
      line(fmt::format("const u32 column = (item - row * shape.groups){};", times));
      find_coordinates();
    }
    if (pack_ > 1) line(fmt::format("const u32 left = shape.n{} - column;", last));
    if (!one_row) line(fmt::format("const i64 at = i64(row) * shape.n{} + column;", last));
    // What the row shares.
    for (size_t k = 0; k < nest_.loads.size(); ++k)
      if (of_row_[k] && !still_[k])
        define(static_cast<ValueNumber>(k), hold(nest_.loads[k].dtype, "*(" + place(k) + ")"));
    write_steps([&](size_t v) { return of_row_[v] && !still_[v]; });
    for (size_t k = 0; k < nest_.loads.size(); ++k)
      if (!of_row_[k]) write_load(k);
    if (pack_ > 1) {
      for (size_t i = 0; i < nest_.stores.size(); ++i)
        line(fmt::format("Pack<{}, {}> to{};", memory_type(stored(i)), pack_, i));
      line("#pragma unroll");
      line(fmt::format("for (u32 e = 0; e < {}; ++e) {{", pack_));
      indent_ = "      ";
      for (size_t k = 0; k < nest_.loads.size(); ++k)
        if (!of_row_[k])
          define(static_cast<ValueNumber>(k),
                 hold(nest_.loads[k].dtype, fmt::format("from{}.at[e]", k)));
    }
    write_steps([&](size_t v) { return !of_row_[v]; });
    const std::string at = one_row ? "column" : "at";
    for (size_t i = 0; i < nest_.stores.size(); ++i) {
      const std::string x = unhold(stored(i), value(nest_.stores[i]));
      line(pack_ > 1 ? fmt::format("to{}.at[e] = {};", i, x)
                     : fmt::format("y{}[{}] = {};", i, at, x));
    }
    if (pack_ == 1) return;
    indent_ = "    ";
    line("}");
    for (size_t i = 0; i < nest_.stores.size(); ++i)
      line(fmt::format("store_pack(y{0} + {1}, to{0}, left, shape.whole >> {2} & 1);", i, at,
                       nest_.loads.size() + i));
  }

  void write_load(size_t k) {
    const Load& l = nest_.loads[k];
    const bool strided = l.walks.back() == Walk::strided;
    const std::string step = fmt::format("shape.x{}_by_{}", k, nest_.rank - 1);
    const std::string from =
        place(k) + (strided ? fmt::format(" + i64(column) * {}", step) : std::string(" + column"));
    if (pack_ == 1)
      define(static_cast<ValueNumber>(k), hold(l.dtype, "*(" + from + ")"));
    else if (strided)
      line(fmt::format("const Pack<{0}, {1}> from{2} = gather_pack<{0}, {1}>({3}, {4}, left);",
                       memory_type(l.dtype), pack_, k, from, step));
    else
      line(fmt::format(
          "const Pack<{0}, {1}> from{2} = load_pack<{0}, {1}>({3}, left, shape.whole >> {2} & 1);",
          memory_type(l.dtype), pack_, k, from));
  }

  int pack_ = 1;
  std::vector<bool> still_, of_row_;  // by value
};

}  // namespace

Source write_elements(const Nest& nest, std::span<const std::string> lines) {
  return Elements(nest, lines).run();
}

}  // namespace gradus::fusion::cuda
