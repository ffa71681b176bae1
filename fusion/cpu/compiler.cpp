#include "fusion/cpu/compiler.h"

#include <chrono>

#include "fusion/cpu/code_maker.h"
#include "fusion/cpu/kernel_sources.h"
#include "fusion/cpu/lower.h"
#include "fusion/cpu/lower_stage.h"
#include "fusion/cpu/symbols.h"
#include "gradus/isa.h"

namespace gradus::fusion::cpu {

namespace {

void check_runs_here(Isa isa) {
  if (!runs_here(isa)) throw ResourceError("this machine does not run {} code", name_of(isa));
}

std::string key_of(const std::string& text, Isa isa) {
  return fmt::format("gradus {} {}\n{}", kernel_sources, code_maker().describe(isa), text);
}

// An object in this process, whose functions are told of to perf.
class Loading {
 public:
  Loading(CodeLoader& loader, std::string_view object, const std::string& name, bool symbols)
      : object_(object), symbols_(symbols), code_(loader.load(object, name)) {}
  template <class Function>
  Function find(const std::string& name) {
    void* address = code_->find(name);
    if (symbols_)
      add_to_perf_map(reinterpret_cast<uint64_t>(address), code_maker().code_bytes(object_, name),
                      name);
    return reinterpret_cast<Function>(address);
  }
  std::shared_ptr<const LoadedCode> code() const { return code_; }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string_view object_;
  bool symbols_;
  std::shared_ptr<const LoadedCode> code_;
};

}  // namespace

bool runs_here(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::neon || !cpu_has_v3()) return false;
  return isa == Isa::avx2 || __builtin_cpu_supports("x86-64-v4");
#elif defined(__AARCH64EL__)
  return isa == Isa::neon;  // which every such processor has
#else
  static_cast<void>(isa);
  return false;
#endif
}

void open_compiler() { code_maker(); }

Compiler::Compiler(bool symbols) : symbols_(symbols), loader_(code_maker().loader(symbols)) {}

std::string Compiler::object(const Nest& nest, Isa isa, CompileTimes& times) {
  verify(nest);
  return code_maker().make(nest, kernel_name(nest), isa, CodeForm::object, times);
}

std::string Compiler::object(const StageProgram& stage, Isa isa, CompileTimes& times) {
  for (const work::Work& piece : stage.pieces) GRADUS_CHECK(is_inline(piece));
  return code_maker().make(stage, kernel_name(stage), isa, CodeForm::object, times);
}

std::shared_ptr<const Kernel> Compiler::load(const Nest& nest, std::string_view object,
                                             CompileTimes times) {
  const std::string name = kernel_name(nest);
  Loading loading(*loader_, object, name, symbols_);
  const auto entry = loading.find<KernelEntry>(name);
  times.link = loading.seconds();
  return std::make_shared<Kernel>(loading.code(), nest, times, entry);
}

std::shared_ptr<const CompiledStage> Compiler::load(const StageProgram& stage,
                                                    std::string_view object, CompileTimes times) {
  const std::string name = kernel_name(stage);
  Loading loading(*loader_, object, name, symbols_);
  const auto entry = loading.find<StageEntry>(name);
  std::vector<StageKernel::Loops> pieces;
  for (size_t n = 0; n < stage.pieces.size(); ++n)
    pieces.push_back(loading.find<StageKernel::Loops>(piece_name(name, stage, n)));
  times.link = loading.seconds();
  return std::make_shared<CompiledStage>(loading.code(), times, entry, std::move(pieces));
}

std::shared_ptr<const Kernel> Compiler::compile(const Nest& nest, Isa isa) {
  check_runs_here(isa);
  CompileTimes times;
  std::string bytes = object(nest, isa, times);
  return load(nest, bytes, times);
}
std::shared_ptr<const CompiledStage> Compiler::compile(const StageProgram& stage, Isa isa) {
  check_runs_here(isa);
  CompileTimes times;
  std::string bytes = object(stage, isa, times);
  return load(stage, bytes, times);
}

std::string Compiler::key(const Nest& nest, Isa isa) { return key_of(print(nest), isa); }
std::string Compiler::key(const StageProgram& stage, Isa isa) { return key_of(print(stage), isa); }

std::string assembly(const Nest& nest, Isa isa) {
  verify(nest);
  CompileTimes times;
  return code_maker().make(nest, kernel_name(nest), isa, CodeForm::assembly, times);
}

}  // namespace gradus::fusion::cpu
