// Which instruction of the program a kernel's code is of, for debuggers.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/IRBuilder.h>

#include "gradus/error.h"

namespace gradus::fusion::cpu {

// Of one function. Where the program has no name, or no place is known, nothing is recorded.
class LineTable {
 public:
  // `program`: the file, in full. `places`: of what the function is made of.
  LineTable(const std::string& program, std::span<const SourceLocation> places,
            llvm::Function& function, llvm::IRBuilder<>& builder);

  // What is emitted until the scope ends is of that place; outside of all, of the first one.
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
  Scope of(const SourceLocation& where);
  // Called when the function is whole.
  void finish();

 private:
  llvm::IRBuilder<>& builder_;
  std::optional<llvm::DIBuilder> table_;
  llvm::DISubprogram* function_ = nullptr;
};

}  // namespace gradus::fusion::cpu
