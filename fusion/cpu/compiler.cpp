#include "fusion/cpu/compiler.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include <llvm/ExecutionEngine/Orc/Debugging/DebuggerSupport.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Target/TargetMachine.h>
#include <unistd.h>

#include "fusion/cpu/emitter_state.h"
#include "fusion/cpu/fatal.h"
#include "fusion/cpu/lower.h"
#include "fusion/cpu/lower_stage.h"
#include "fusion/cpu/optimize.h"
#include "fusion/cpu/symbols.h"
#include "fusion/cpu/target.h"

namespace gradus::fusion::cpu {

namespace {

namespace orc = llvm::orc;

// Raised whenever the same nest comes to be compiled otherwise.
constexpr int generation = 10;

[[noreturn]] void fail(llvm::Error error) {
  throw ResourceError("the kernel compiler failed: {}", llvm::toString(std::move(error)));
}
template <class T>
T take(llvm::Expected<T> value) {
  if (!value) fail(value.takeError());
  return std::move(*value);
}

// A clock that tells the time since it was last asked.
class Lap {
 public:
  double operator()() {
    auto now = std::chrono::steady_clock::now();
    double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// What LLVM works on while one kernel is compiled. After a fatal error it is left, not destroyed.
struct Work {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::Module> module;
};

void verify(const llvm::Module& module) {
  std::string why;
  llvm::raw_string_ostream text(why);
  if (llvm::verifyModule(module, &text))
    throw InternalError("a kernel's code is not valid: " + why);
}

llvm::SmallVector<char, 0> generate(Work& work, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> out;
  llvm::raw_svector_ostream stream(out);
  llvm::legacy::PassManager passes;
  if (work.machine->addPassesToEmitFile(passes, stream, nullptr, type))
    throw ResourceError("the kernel compiler cannot write such a file");
  passes.run(*work.module);
  return out;
}

// A nest, or a stage.
struct Source {
  std::string name;  // of its function
  std::function<void(llvm::Module&)> lower;
  void (*optimize)(llvm::Module&, llvm::TargetMachine&);
};
Source source_of(const Nest& nest, Isa isa) {
  const std::string name = kernel_name(nest);
  return {name,
          [&nest, isa, name](llvm::Module& m) { lower(nest, vector_bits(isa), name.c_str(), m); },
          optimize};
}
Source source_of(const StageProgram& stage, Isa isa) {
  const std::string name = kernel_name(stage);
  return {name, [&stage, isa, name](llvm::Module& m) { lower(stage, vector_bits(isa), name, m); },
          optimize_stage};
}

// As an object file, or as assembly.
llvm::SmallVector<char, 0> compile_to(const Source& source, Isa isa, llvm::CodeGenFileType type,
                                      CompileTimes& times) {
  auto work = std::make_unique<Work>();
  try {
    FatalErrorsThrow scope;
    Lap lap;
    work->machine = target_machine(isa);
    work->module = std::make_unique<llvm::Module>(source.name, work->context);
    set_target(*work->module, *work->machine);
    source.lower(*work->module);
    if (const std::string host = tuned_for(isa); !host.empty())
      for (llvm::Function& f : *work->module) f.addFnAttr("tune-cpu", host);
    times.lower = lap();
    verify(*work->module);
    times.verify = lap();
    source.optimize(*work->module, *work->machine);
    times.optimize = lap();
    auto bytes = generate(*work, type);
    times.generate = lap();
    return bytes;
  } catch (...) {
    static_cast<void>(work.release());
    throw;
  }
}

float fmod_f32(float a, float b) { return std::fmod(a, b); }
double fmod_f64(double a, double b) { return std::fmod(a, b); }

int64_t outer_call(StageCalls* calls, int64_t number) { return calls->run(number); }

}  // namespace

struct Compiler::Jit {
  std::unique_ptr<orc::LLJIT> jit;
  std::atomic<uint64_t> next{0};  // numbers the kernels' libraries
  bool symbols = false;
  const pid_t process = getpid();
};

namespace {

// The library of one kernel's code, which goes with it.
class Library {
 public:
  explicit Library(std::shared_ptr<Compiler::Jit> jit)
      : jit_(std::move(jit)),
        library_(&jit_->jit->getExecutionSession().createBareJITDylib(
            fmt::format("kernel {}", jit_->next++))) {
    library_->addToLinkOrder(jit_->jit->getMainJITDylib());
  }
  ~Library() {
    if (!library_) return;
    if (jit_->process == getpid())
      llvm::consumeError(jit_->jit->getExecutionSession().removeJITDylib(*library_));
    else  // a forked child: a thread that is not there may hold the session, which is left
      new std::shared_ptr<Compiler::Jit>(std::move(jit_));
  }
  Library(Library&& other) noexcept
      : jit_(std::move(other.jit_)), library_(std::exchange(other.library_, nullptr)) {}
  Library& operator=(Library&&) = delete;
  void add(std::string_view object, const std::string& name) {
    auto bytes =
        llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object.data(), object.size()), name);
    if (auto error = jit_->jit->addObjectFile(*library_, std::move(bytes))) fail(std::move(error));
  }
  orc::ExecutorAddr find(std::string_view object, const std::string& name) {
    const auto address = take(jit_->jit->lookup(*library_, name));
    if (jit_->symbols) add_to_perf_map(address.getValue(), code_bytes(object, name), name);
    return address;
  }

 private:
  std::shared_ptr<Compiler::Jit> jit_;
  orc::JITDylib* library_;
};

class CompiledKernel final : public Kernel {
 public:
  CompiledKernel(Library library, const Nest& nest, const CompileTimes& times, Entry entry)
      : library_(std::move(library)) {
    nest_ = nest;
    times_ = times;
    entry_ = entry;
  }

 private:
  Library library_;
};

class LoadedStage final : public CompiledStage {
 public:
  LoadedStage(Library library, const CompileTimes& times, StageEntry entry,
              std::vector<Loops> loops)
      : CompiledStage(times, entry, std::move(loops)), library_(std::move(library)) {}

 private:
  Library library_;
};

}  // namespace

Compiler::Compiler(bool symbols) : jit_(std::make_shared<Jit>()) {
  FatalErrorsThrow scope;
  initialize_native();
  jit_->jit = take(orc::LLJITBuilder().create());
  orc::LLJIT& jit = *jit_->jit;
  auto symbol = [&](auto* function) {
    return orc::ExecutorSymbolDef(orc::ExecutorAddr::fromPtr(function),
                                  llvm::JITSymbolFlags::Exported);
  };
  orc::SymbolMap called{{jit.mangleAndIntern(fmod_f32_name), symbol(&fmod_f32)},
                        {jit.mangleAndIntern(fmod_f64_name), symbol(&fmod_f64)},
                        {jit.mangleAndIntern(outer_call_name), symbol(&outer_call)}};
  if (auto error = jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(called))))
    fail(std::move(error));
  jit_->symbols = symbols;
  if (!symbols) return;
  if (auto error = orc::enableDebuggerSupport(jit)) fail(std::move(error));
}
Compiler::~Compiler() = default;

std::string Compiler::object(const Nest& nest, Isa isa, CompileTimes& times) {
  fusion::verify(nest);
  auto bytes = compile_to(source_of(nest, isa), isa, llvm::CodeGenFileType::ObjectFile, times);
  return std::string(bytes.begin(), bytes.end());
}

std::string Compiler::object(const StageProgram& stage, Isa isa, CompileTimes& times) {
  auto bytes = compile_to(source_of(stage, isa), isa, llvm::CodeGenFileType::ObjectFile, times);
  return std::string(bytes.begin(), bytes.end());
}

std::shared_ptr<const Kernel> Compiler::load(const Nest& nest, std::string_view object,
                                             CompileTimes times) {
  FatalErrorsThrow scope;
  Lap lap;
  const std::string name = kernel_name(nest);
  Library library(jit_);
  library.add(object, name);
  const auto address = library.find(object, name);
  times.link = lap();
  return std::make_shared<CompiledKernel>(std::move(library), nest, times,
                                          address.toPtr<KernelEntry>());
}

std::shared_ptr<const CompiledStage> Compiler::load(const StageProgram& stage,
                                                    std::string_view object, CompileTimes times) {
  FatalErrorsThrow scope;
  Lap lap;
  const std::string name = kernel_name(stage);
  Library library(jit_);
  library.add(object, name);
  const auto entry = library.find(object, name).toPtr<StageEntry>();
  using Kind = StageProgram::Item::Kind;
  auto piece = [&](Kind kind, size_t n) { return library.find(object, piece_name(name, kind, n)); };
  std::vector<StageKernel::Loops> loops;
  for (size_t l = 0; l < stage.loops.size(); ++l)
    loops.push_back(piece(Kind::loops, l).toPtr<StageKernel::Loops>());
  if (jit_->symbols) {  // perf is told of what is found
    for (size_t n = 0; n < stage.products.size(); ++n) piece(Kind::product, n);
    for (size_t n = 0; n < stage.sums.size(); ++n) piece(Kind::sum, n);
    for (size_t n = 0; n < stage.copies.size(); ++n) piece(Kind::copies, n);
  }
  times.link = lap();
  return std::make_shared<LoadedStage>(std::move(library), times, entry, std::move(loops));
}

namespace {

void check_runs_here(Isa isa) {
  if (!runs_here(isa)) throw ResourceError("this machine does not run {} code", name_of(isa));
}

std::string key_of(const std::string& text, Isa isa) {
  return fmt::format("gradus {} llvm {} {} tuned for {}\n{}", generation, LLVM_VERSION_STRING,
                     name_of(isa), tuned_for(isa), text);
}

}  // namespace

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
  fusion::verify(nest);
  CompileTimes times;
  auto text = compile_to(source_of(nest, isa), isa, llvm::CodeGenFileType::AssemblyFile, times);
  return std::string(text.begin(), text.end());
}

}  // namespace gradus::fusion::cpu
