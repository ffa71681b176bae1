#include "fusion/cpu/llvm/target.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

namespace gradus::fusion::cpu {

namespace {

// Whether this LLVM has the target of that name, which then is ready.
bool initialize(std::string_view wanted) {
  bool target = false, printer = false;
#define LLVM_TARGET(name)               \
  if (wanted == #name) {                \
    LLVMInitialize##name##TargetInfo(); \
    LLVMInitialize##name##Target();     \
    LLVMInitialize##name##TargetMC();   \
    target = true;                      \
  }
#include <llvm/Config/Targets.def>
#define LLVM_ASM_PRINTER(name)          \
  if (wanted == #name) {                \
    LLVMInitialize##name##AsmPrinter(); \
    printer = true;                     \
  }
#include <llvm/Config/AsmPrinters.def>
  return target && printer;
}

struct Target {
  llvm::Triple::ArchType arch;
  const char* arch_name;
  const char* level;  // as the target calls the processors that have at least this
  bool initialized;   // whether this LLVM has it
};

// Triples are given as such to LLVM 21 and later, as text to those before; targets are looked up by
// one from 22 on.
#if LLVM_VERSION_MAJOR >= 21
const llvm::Triple& given(const llvm::Triple& triple) { return triple; }
#else
const std::string& given(const llvm::Triple& triple) { return triple.str(); }
#endif
const llvm::Target* look_up(const llvm::Triple& triple, std::string& why) {
#if LLVM_VERSION_MAJOR >= 22
  return llvm::TargetRegistry::lookupTarget(triple, why);
#else
  return llvm::TargetRegistry::lookupTarget(triple.str(), why);
#endif
}

Target target_of(Isa isa) {
  if (isa == Isa::neon) {
    static const bool there = initialize("AArch64");
    return {llvm::Triple::aarch64, "aarch64", "generic", there};
  }
  static const bool there = initialize("X86");
  return {llvm::Triple::x86_64, "x86_64", name_of(isa).data(), there};
}

// This process's, where that is of such machines; else Linux's.
llvm::Triple triple_of(const Target& target) {
  llvm::Triple process(llvm::sys::getProcessTriple());
  if (process.getArch() == target.arch) return process;
  return llvm::Triple(fmt::format("{}-unknown-linux-gnu", target.arch_name));
}

}  // namespace

void initialize_native() {
  static const bool done = [] {
    return !llvm::InitializeNativeTarget() && !llvm::InitializeNativeTargetAsmPrinter();
  }();
  if (!done) throw ResourceError("the kernel compiler has no code generator for this machine");
}

void set_attributes(llvm::Function& function, unsigned vector_bits) {
  const std::string bits = fmt::format("{}", vector_bits);
  function.addFnAttr(llvm::Attribute::NoUnwind);
  function.addFnAttr("prefer-vector-width", bits);
  function.addFnAttr("min-legal-vector-width", bits);
}

std::string tuned_for(Isa isa) {
  const llvm::Triple process(llvm::sys::getProcessTriple());
  if (process.getArch() != target_of(isa).arch) return "";
  static const std::string host = llvm::sys::getHostCPUName().str();  // takes longer than a lookup
  return host;
}

std::unique_ptr<llvm::TargetMachine> target_machine(Isa isa) {
  const Target target = target_of(isa);
  if (!target.initialized)
    throw ResourceError("this LLVM makes no code for {}; build Gradus with one that has its target",
                        name_of(isa));
  const llvm::Triple triple = triple_of(target);
  std::string why;
  const llvm::Target* found = look_up(triple, why);
  if (!found) throw ResourceError("the kernel compiler knows no target {}: {}", triple.str(), why);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // what is fused is written fma
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(given(triple), target.level, "", options, llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
  if (!machine)
    throw ResourceError("the kernel compiler has no code generator for {}", triple.str());
  return machine;
}

void set_target(llvm::Module& module, const llvm::TargetMachine& machine) {
  module.setTargetTriple(given(machine.getTargetTriple()));
  module.setDataLayout(machine.createDataLayout());
}

}  // namespace gradus::fusion::cpu
