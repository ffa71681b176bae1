// Nests compiled to machine code of this process, by the code maker that is opened for the first.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fusion/cpu/compiled_stage.h"
#include "fusion/kernels.h"

namespace gradus::fusion::cpu {

// What code is made for: x86-64-v3 in 256-bit registers, x86-64-v4 in 512-bit ones, AArch64 in its
// 128-bit ones. All give the bits of the reference loops. Objects and assembly are made on any
// machine whose LLVM has the target.
enum class Isa : uint8_t { avx2, avx512, neon };
inline constexpr Isa all_isas[] = {Isa::avx512, Isa::avx2, Isa::neon};  // the widest first

constexpr unsigned vector_bits(Isa isa) {
  return isa == Isa::avx512 ? 512 : isa == Isa::avx2 ? 256 : 128;
}
constexpr std::string_view name_of(Isa isa) {
  return isa == Isa::avx512 ? "x86-64-v4" : isa == Isa::avx2 ? "x86-64-v3" : "aarch64";
}
// Whether this machine runs such code.
bool runs_here(Isa isa);

// Opens the compiler, if that is not done yet. Throws ResourceError, which says what is missing,
// where that cannot be. Any thread.
void open_compiler();

// The code of a nest as assembly, for people. Throws Error for an invalid nest, ResourceError where
// there is no compiler, or none for such machines. Any thread.
std::string assembly(const Nest& nest, Isa isa);

class LoadedCode;  // fusion/cpu/code_maker.h
class CodeLoader;

// Compiled code of one nest.
class Kernel final : public fusion::Kernel {
 public:
  // `code` has the function, of which fusion/cpu/lower.h says how it is called.
  using Entry = void (*)(int64_t, int64_t, std::byte* const*, const int64_t*, const int64_t*);
  Kernel(std::shared_ptr<const LoadedCode> code, const Nest& nest, const CompileTimes& times,
         Entry entry)
      : code_(std::move(code)), nest_(nest), times_(times), entry_(entry) {}

  // Calls keep the kernel alive. It is owned by a shared_ptr.
  work::Kernel bind(const Frame& frame) const override;
  // Binds and runs.
  void run(const Frame& frame, std::byte* const* args, WorkerPool& workers) const;
  const Nest& nest() const { return nest_; }
  const CompileTimes& times() const { return times_; }

 private:
  const std::shared_ptr<const LoadedCode> code_;
  const Nest nest_;
  const CompileTimes times_;
  const Entry entry_;
};

// Thread-safe: several threads may compile at once.
class Compiler {
 public:
  // `symbols`: gdb and perf are told of each kernel that is loaded (KernelOptions::symbols). Throws
  // ResourceError where no code can be made, or the code maker cannot be opened.
  explicit Compiler(bool symbols = false);

  // Throws Error for an invalid nest, ResourceError where the compiler fails or the machine does
  // not run such code.
  std::shared_ptr<const Kernel> compile(const Nest& nest, Isa isa);

  // The same in two steps: an object file, and its code in this process. Objects may be kept for
  // other processes under their key. load() throws ResourceError for what is no such object; one
  // that somebody else made is not to be given to it.
  std::string object(const Nest& nest, Isa isa, CompileTimes& times);
  std::shared_ptr<const Kernel> load(const Nest& nest, std::string_view object,
                                     CompileTimes times = {});

  // The same of a small stage, whose nests are valid.
  std::shared_ptr<const CompiledStage> compile(const StageProgram& stage, Isa isa);
  std::string object(const StageProgram& stage, Isa isa, CompileTimes& times);
  std::shared_ptr<const CompiledStage> load(const StageProgram& stage, std::string_view object,
                                            CompileTimes times = {});
  static std::string key(const StageProgram& stage, Isa isa);

  // What a kernel depends on: the nest's text, the compiler's version, the target, and how code is
  // made.
  static std::string key(const Nest& nest, Isa isa);

 private:
  bool symbols_;
  std::shared_ptr<CodeLoader> loader_;
};

}  // namespace gradus::fusion::cpu
