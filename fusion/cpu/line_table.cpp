#include "fusion/cpu/line_table.h"

#include <filesystem>

#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/IR/Module.h>

namespace gradus::fusion::cpu {

namespace {

uint32_t first_line(const Nest& nest) {
  for (const Step& s : nest.steps)
    if (s.where.known()) return s.where.line;
  return 0;
}

}  // namespace

LineTable::LineTable(const Nest& nest, llvm::Function& function, llvm::IRBuilder<>& builder)
    : builder_(builder) {
  const uint32_t line = first_line(nest);
  if (nest.program.empty() || line == 0) return;
  llvm::Module& module = *function.getParent();
  module.addModuleFlag(llvm::Module::Warning, "Debug Info Version", llvm::DEBUG_METADATA_VERSION);
  module.addModuleFlag(llvm::Module::Warning, "Dwarf Version", 4);
  table_.emplace(module);
  const std::filesystem::path path = nest.program;
  llvm::DIFile* file = table_->createFile(path.filename().string(), path.parent_path().string());
  // There is no language of ours; with that of C, debuggers take names as they are.
  table_->createCompileUnit(llvm::dwarf::DW_LANG_C99, file, "gradus", true, "", 0);
  auto* type = table_->createSubroutineType(table_->getOrCreateTypeArray({}));
  function_ = table_->createFunction(
      file, function.getName(), function.getName(), file, line, type, line, llvm::DINode::FlagZero,
      llvm::DISubprogram::SPFlagDefinition | llvm::DISubprogram::SPFlagOptimized);
  function.setSubprogram(function_);
  builder_.SetCurrentDebugLocation(llvm::DILocation::get(module.getContext(), line, 0, function_));
}

LineTable::Scope LineTable::of(const Step& step) {
  if (!function_ || !step.where.known()) return {builder_, builder_.getCurrentDebugLocation()};
  return {builder_, llvm::DILocation::get(builder_.getContext(), step.where.line, step.where.column,
                                          function_)};
}

void LineTable::finish() {
  if (table_) table_->finalize();
}

}  // namespace gradus::fusion::cpu
