#include "fusion/cpu/code_maker.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include <dlfcn.h>
#include <llvm/ExecutionEngine/Orc/Debugging/DebuggerSupport.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Target/TargetMachine.h>
#include <unistd.h>

#include "fusion/cpu/llvm/core.h"
#include "fusion/cpu/llvm/emitter_state.h"
#include "fusion/cpu/llvm/fatal.h"
#include "fusion/cpu/llvm/optimize.h"
#include "fusion/cpu/llvm/target.h"
#include "fusion/cpu/lower.h"
#include "fusion/cpu/lower_stage.h"
#include "gradus/version.h"

namespace gradus::fusion::cpu {

namespace {

namespace orc = llvm::orc;

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

std::string generate(Work& work, CodeForm form) {
  llvm::SmallVector<char, 0> out;
  llvm::raw_svector_ostream stream(out);
  llvm::legacy::PassManager passes;
  const auto type = form == CodeForm::object ? llvm::CodeGenFileType::ObjectFile
                                             : llvm::CodeGenFileType::AssemblyFile;
  if (work.machine->addPassesToEmitFile(passes, stream, nullptr, type))
    throw ResourceError("the kernel compiler cannot write such a file");
  passes.run(*work.module);
  return std::string(out.begin(), out.end());
}

// A nest, or a stage.
struct Source {
  const std::string& name;  // of its function
  std::function<void(llvm::Module&)> lower;
  void (*optimize)(llvm::Module&, llvm::TargetMachine&);
};

std::string compile(const Source& source, Isa isa, CodeForm form, CompileTimes& times) {
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
    std::string bytes = generate(*work, form);
    times.generate = lap();
    return bytes;
  } catch (...) {
    static_cast<void>(work.release());
    throw;
  }
}

float fmod_f32(float a, float b) { return std::fmod(a, b); }
double fmod_f64(double a, double b) { return std::fmod(a, b); }

// When a process ends, this module's objects go before those of LLVM, which was there first.
struct Ending {
  ~Ending() { begun = true; }
  static inline std::atomic<bool> begun{false};
} ending;

struct Jit {
  std::unique_ptr<orc::LLJIT> jit;
  std::atomic<uint64_t> next{0};  // numbers the kernels' libraries
  const pid_t process = getpid();
};

// A session that is no longer to be touched: LLVM's own objects are going, or, in a forked child, a
// thread that is not there may hold it. It is left as it is, where leak checkers find it.
struct Left {
  const std::shared_ptr<Jit> jit;
  const Left* const before;
};
std::atomic<const Left*> all_left{nullptr};

bool leave(std::shared_ptr<Jit>& jit) {
  if (!Ending::begun && jit->process == getpid()) return false;
  auto keep = [&](const Left* before) { return new Left{jit, before}; };
  const Left* before = all_left;
  for (const Left* left = keep(before); !all_left.compare_exchange_strong(before, left);) {
    delete left;
    left = keep(before);
  }
  return true;
}

// A library of one object, which goes with it.
class JitCode final : public LoadedCode {
 public:
  JitCode(std::shared_ptr<Jit> jit, std::string_view object, const std::string& name)
      : jit_(std::move(jit)),
        library_(jit_->jit->getExecutionSession().createBareJITDylib(
            fmt::format("kernel {}", jit_->next++))) {
    library_.addToLinkOrder(jit_->jit->getMainJITDylib());
    auto bytes =
        llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object.data(), object.size()), name);
    if (auto error = jit_->jit->addObjectFile(library_, std::move(bytes))) {
      remove();
      fail(std::move(error));
    }
  }
  ~JitCode() override {
    if (!leave(jit_)) remove();
  }
  JitCode(const JitCode&) = delete;
  JitCode& operator=(const JitCode&) = delete;
  void* find(const std::string& function) const override {
    FatalErrorsThrow scope;
    return take(jit_->jit->lookup(library_, function)).toPtr<void*>();
  }

 private:
  void remove() { llvm::consumeError(jit_->jit->getExecutionSession().removeJITDylib(library_)); }
  std::shared_ptr<Jit> jit_;
  orc::JITDylib& library_;
};

class JitLoader final : public CodeLoader {
 public:
  JitLoader(const Core& core, bool symbols) : jit_(std::make_shared<Jit>()) {
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
                          {jit.mangleAndIntern(outer_call_name), symbol(core.outer_call)}};
    if (auto error = jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(called))))
      fail(std::move(error));
    if (!symbols) return;
    // LLVM looks for the function that gdb stops in among what the whole process sees.
    Dl_info llvm;
    if (dladdr(reinterpret_cast<void*>(&llvm::install_fatal_error_handler), &llvm))
      dlopen(llvm.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (auto error = orc::enableDebuggerSupport(jit)) fail(std::move(error));
  }
  ~JitLoader() override { leave(jit_); }
  JitLoader(const JitLoader&) = delete;
  JitLoader& operator=(const JitLoader&) = delete;
  std::shared_ptr<const LoadedCode> load(std::string_view object,
                                         const std::string& name) override {
    FatalErrorsThrow scope;
    return std::make_shared<JitCode>(jit_, object, name);
  }

 private:
  std::shared_ptr<Jit> jit_;
};

class LlvmCodeMaker final : public CodeMaker {
 public:
  explicit LlvmCodeMaker(const Core& core) : core_(core) {}
  virtual ~LlvmCodeMaker() = default;

  std::string make(const Nest& nest, const std::string& name, Isa isa, CodeForm form,
                   CompileTimes& times) const override {
    CallsCore calls(core_);
    auto into = [&](llvm::Module& m) { lower(nest, vector_bits(isa), name.c_str(), m); };
    return compile({name, into, optimize}, isa, form, times);
  }
  std::string make(const StageProgram& stage, const std::string& name, Isa isa, CodeForm form,
                   CompileTimes& times) const override {
    CallsCore calls(core_);
    auto into = [&](llvm::Module& m) { lower(stage, vector_bits(isa), name, m); };
    return compile({name, into, optimize_stage}, isa, form, times);
  }
  std::string describe(Isa isa) const override {
    return fmt::format("llvm {} {} tuned for {}", LLVM_VERSION_STRING, name_of(isa),
                       tuned_for(isa));
  }
  std::shared_ptr<CodeLoader> loader(bool symbols) const override {
    return std::make_shared<JitLoader>(core_, symbols);
  }
  uint64_t code_bytes(std::string_view object, const std::string& function) const override {
    auto file = llvm::object::ObjectFile::createELFObjectFile(
        llvm::MemoryBufferRef({object.data(), object.size()}, function));
    if (!file) {
      llvm::consumeError(file.takeError());
      return 0;
    }
    for (const llvm::object::ELFSymbolRef symbol : (*file)->symbols()) {
      if (symbol.getELFType() != llvm::ELF::STT_FUNC) continue;  // the module has the name, too
      auto name = symbol.getName();
      if (!name)
        llvm::consumeError(name.takeError());
      else if (*name == function)
        return symbol.getSize();
    }
    return 0;
  }
  [[noreturn]] void give_up(const char* reason) const override {
    FatalErrorsThrow scope;
    llvm::report_fatal_error(reason, false);
  }

 private:
  const Core core_;
};

}  // namespace

}  // namespace gradus::fusion::cpu

extern "C" __attribute__((visibility("default"))) const gradus::fusion::cpu::CodeMaker*
gradus_code_maker(const gradus::fusion::cpu::Core& core) {
  if (std::string_view(core.version) != GRADUS_VERSION) return nullptr;
  return new gradus::fusion::cpu::LlvmCodeMaker(core);
}
