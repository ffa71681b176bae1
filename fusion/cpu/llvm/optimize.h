// What LLVM does to a module before code is generated.
#pragma once

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace gradus::fusion::cpu {

// Of a nest for any sizes. Rules written over values compute some things twice; the rest is in good
// order as it is emitted.
void optimize(llvm::Module& module, llvm::TargetMachine& machine);

// Of a stage: functions that are to be made one with their callers are, and what follows from the
// sizes is worked out. Nothing that could change a bit is among it: no arithmetic is rewritten.
void optimize_stage(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace gradus::fusion::cpu
