// cross_write FOLDER: kernels as object files of AArch64, a table of them as C++, and what to call
// them with and what they have to give by the reference loops of this machine: tests/cross/run.cpp
// is what reads it there.
#include <cstdio>
#include <fstream>

#include "fusion/cells.h"
#include "fusion/cpu/bound.h"
#include "fusion/cpu/symbols.h"
#include "tests/functions.h"
#include "tests/fusion/collected.h"
#include "tests/fusion/sample_nests.h"
#include "tests/fusion/support.h"
#include "tests/start.h"
#include "tools/functions.h"

namespace gradus::fusion::test {
namespace {

class Writer {
 public:
  explicit Writer(std::string folder)
      : folder_(std::move(folder)), cases_(folder_ + "/cases", std::ios::binary) {}

  void add(const Nest& nest, std::span<const Sizes> sizes) {
    const std::string name = cpu::kernel_name(nest);
    if (!seen_.insert(name).second) return;
    cpu::CompileTimes times;
    std::ofstream(fmt::format("{}/{}.o", folder_, seen_.size()), std::ios::binary)
        << compiler_.object(nest, cpu::Isa::neon, times);
    declarations_ += fmt::format("Kernel {};\n", name);
    entries_ += fmt::format("  {{\"{0}\", {0}}},\n", name);
    for (const Sizes& s : sizes)
      for (bool tame : {false, true}) write(nest, s, tame);
  }

  void finish() {
    std::ofstream(folder_ + "/table.cpp")
        << "#include \"tests/cross/kernel.h\"\n\nextern \"C\" {\n"
        << declarations_ << "}\n\nconst NamedKernel kernels[] = {\n"
        << entries_ << "};\n";
    cases_.flush();
    if (!cases_) throw Error("cannot write {}/cases", folder_);
    std::printf("%zu kernels, %zu cases\n", seen_.size(), count_);
  }

 private:
  void number(int64_t n) { cases_.write(reinterpret_cast<const char*>(&n), sizeof n); }
  void bytes(const std::vector<std::byte>& b) {
    number(static_cast<int64_t>(b.size()));
    cases_.write(reinterpret_cast<const char*>(b.data()), static_cast<std::streamsize>(b.size()));
  }

  // One call: the loops of the nest are the code's own.
  void write(const Nest& nest, const Sizes& sizes, bool tame) {
    const Memory memory(nest, sizes, ++count_, tame);
    const cpu::Walks walks(nest, memory.frame, cells_of(nest, memory.frame).at(0));
    number(static_cast<int64_t>(seen_.size() - 1));
    number(walks.rows);
    number(walks.columns);
    number(static_cast<int64_t>(walks.slots));
    for (int64_t step : walks.row_steps) number(step);
    number(static_cast<int64_t>(walks.column_steps.size()));
    for (int64_t step : walks.column_steps) number(step);
    number(static_cast<int64_t>(memory.operands().size()));
    for (const auto& b : memory.operands()) bytes(b);
    for (size_t i = 0; i < memory.expected().size(); ++i) {
      const ValueNumber v =
          i < nest.stores.size() ? nest.stores[i] : nest.row_stores[i - nest.stores.size()];
      const DType d = nest.dtype_of(v);
      number(is_floating(d) ? static_cast<int64_t>(size_of(d)) * (d == DType::bf16 ? -1 : 1) : 0);
      bytes(memory.expected()[i]);
    }
  }

  const std::string folder_;
  std::ofstream cases_;
  cpu::Compiler compiler_;
  std::set<std::string> seen_;
  std::string declarations_, entries_;
  size_t count_ = 0;
};

void write_all(const std::string& folder) {
  gradus::test::register_test_functions();
  cli::register_functions();
  Writer writer(folder);
  const Sizes vectors[] = {{1}, {3}, {8}, {61}};
  const Sizes rows[] = {{3, 1}, {2, 7}, {3, 33}, {2, 1029}};
  for (const Nest& nest : operator_nests()) writer.add(nest, vectors);
  for (const Nest& nest : row_nests())
    writer.add(nest, nest.rank == 1 ? std::span<const Sizes>(vectors) : rows);
  for (const std::string& file : corpus::fixture_files())
    for (const auto& [text, nest] : nests_of(corpus::load(file)))
      if (is_one_call(nest))
        writer.add(nest, nest.rank == 1 ? std::span<const Sizes>(vectors) : rows);
  writer.finish();
}

}  // namespace
}  // namespace gradus::fusion::test

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    gradus::fusion::test::write_all(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
