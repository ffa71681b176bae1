// The machines that code is made for, as LLVM knows them. Seen only by the files that use LLVM's
// headers; which there are is said in fusion/cpu/compiler.h.
#pragma once

#include <memory>
#include <string>

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "fusion/cpu/compiler.h"

namespace gradus::fusion::cpu {

// What the compiler's own process runs code with. Throws ResourceError where there is nothing. Any
// thread.
void initialize_native();

// What LLVM generates code by. Throws ResourceError where this LLVM has no such target. Any thread.
std::unique_ptr<llvm::TargetMachine> target_machine(Isa isa);

// The module is for that machine from then on.
void set_target(llvm::Module& module, const llvm::TargetMachine& machine);

// For functions of kernels: their vectors fill registers of so many bits, and they throw nothing.
void set_attributes(llvm::Function& function, unsigned vector_bits);

// The processor that instructions are ordered for: this machine's, if such code could be its own;
// else empty.
std::string tuned_for(Isa isa);

}  // namespace gradus::fusion::cpu
