// The compiler of kernels as the library sees it.
//
// It is a module of its own, libgradus_llvm-0.1.so, which is linked with LLVM and opened when the
// first kernel is wanted: a process that is linked with libLLVM starts some 20 ms later. The module
// is linked with nothing of the library, and calls what it needs of it through `Core`: a process
// may have the library in its program, in a shared library, or in both, and the module serves each
// copy by its own functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fusion/cells.h"
#include "fusion/cost.h"
#include "fusion/cpu/bound.h"
#include "fusion/cpu/compiled_stage.h"
#include "fusion/rows.h"
#include "fusion/rules.h"
#include "fusion/stage.h"
#include "ops/powers.h"
#include "work/product.h"

namespace gradus::fusion::cpu {

// What an object holds, in this process; it goes with the last reference. Any thread.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
  // Where a function begins. Throws ResourceError where there is none of that name.
  virtual void* find(const std::string& function) const = 0;
};

// Any thread.
class CodeLoader {
 public:
  virtual ~CodeLoader() = default;
  // `name` is the object's, for people. Throws ResourceError for what is no object.
  virtual std::shared_ptr<const LoadedCode> load(std::string_view object,
                                                 const std::string& name) = 0;
};

enum class CodeForm : uint8_t { object, assembly };

// Any thread. There is one for each copy of the library, until the process ends.
class CodeMaker {
 public:
  // A function called `name`; of a nest that is verified, or of a stage. Throws ResourceError where
  // the compiler fails.
  virtual std::string make(const Nest& nest, const std::string& name, Isa isa, CodeForm form,
                           CompileTimes& times) const = 0;
  virtual std::string make(const StageProgram& stage, const std::string& name, Isa isa,
                           CodeForm form, CompileTimes& times) const = 0;
  // The compiler's version, the target, and the processor that it orders instructions for.
  virtual std::string describe(Isa isa) const = 0;
  // `symbols`: gdb is told of what is loaded. Throws ResourceError where no code can be made.
  virtual std::shared_ptr<CodeLoader> loader(bool symbols) const = 0;
  // How many bytes of code a function has in an object; 0 where it is not there.
  virtual uint64_t code_bytes(std::string_view object, const std::string& function) const = 0;
  // Does what LLVM does where it gives up, as a ResourceError: for a test.
  [[noreturn]] virtual void give_up(const char* reason) const = 0;

 protected:
  ~CodeMaker() = default;
};

// Opens the module if that is not done yet. Throws ResourceError, which names the file.
const CodeMaker& code_maker();

// Functions of the library, which the module defines as calls of these (llvm/core.cpp).
struct Core {
  const char* version;
  decltype(&gradus::check_failed) check_failed;
  int64_t (*numel)(std::span<const int64_t> sizes);
  std::string (*print)(const Nest& nest);
  bool (*reduces)(const Nest& nest);
  DType (*dtype_of)(const Nest& nest, ValueNumber v);
  decltype(&fusion::rule_of) rule_of;
  decltype(&fusion::half_power_rule) half_power_rule;
  decltype(&ops::half_power_of) half_power_of;
  decltype(&fusion::lanes_of) lanes_of;
  decltype(&fusion::row_loops) row_loops;
  decltype(&fusion::cells_of) cells_of;
  Walks (*walks)(const Nest& nest, const Frame& frame, const Cell& cell);
  decltype(&fusion::has_rows) has_rows;
  decltype(&work::with_wide_result) with_wide_result;
  int64_t (*outer_call)(StageCalls* calls, int64_t number);
};

// The module's one door: null for a library of another version than its own. `core` is copied.
using MakeCodeMaker = const CodeMaker* (*)(const Core& core);
inline constexpr const char* make_code_maker_name = "gradus_code_maker";

}  // namespace gradus::fusion::cpu
