// Which instruction of the program a kernel's code is of, for debuggers.
#pragma once

#include <optional>

#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/IRBuilder.h>

#include "fusion/nest.h"

namespace gradus::fusion::cpu {

// Of one function. Where the nest names no file, nothing is recorded.
class LineTable {
 public:
  LineTable(const Nest& nest, llvm::Function& function, llvm::IRBuilder<>& builder);

  // What is emitted until the scope ends is the step's; outside of all, it is the first line's.
  class Scope {
   public:
    ~Scope() { builder_.SetCurrentDebugLocation(before_); }
    Scope(Scope&&) = delete;

   private:
    friend class LineTable;
    Scope(llvm::IRBuilder<>& builder, llvm::DebugLoc here)
        : builder_(builder), before_(builder.getCurrentDebugLocation()) {
      builder_.SetCurrentDebugLocation(std::move(here));
    }
    llvm::IRBuilder<>& builder_;
    llvm::DebugLoc before_;
  };
  Scope of(const Step& step);
  // Called when the function is whole.
  void finish();

 private:
  llvm::IRBuilder<>& builder_;
  std::optional<llvm::DIBuilder> table_;
  llvm::DISubprogram* function_ = nullptr;
};

}  // namespace gradus::fusion::cpu
