// PTX as it comes from NVRTC, nvcc or a hand, parsed and decoded for the interpreter.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ptx/code.h"

namespace gradus::ptx {

// Immutable, cheap to copy; threads may share it.
class Module {
 public:
  // Error, with the line, for what is no PTX, for an instruction that the interpreter does not
  // know, and for operands that do not fit their instruction.
  static Module parse(std::string_view ptx);

  std::vector<std::string> kernels() const;
  // The bytes of each of a kernel's parameters. Error if there is no such kernel.
  std::vector<size_t> parameter_sizes(std::string_view kernel) const;

  const Code& code() const { return *code_; }
  const Function& kernel(std::string_view name) const;

 private:
  explicit Module(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace gradus::ptx
