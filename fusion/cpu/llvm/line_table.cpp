#include "fusion/cpu/llvm/line_table.h"

#include <algorithm>
#include <filesystem>

#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/IR/Module.h>

namespace gradus::fusion::cpu {

LineTable::LineTable(const std::string& program, std::span<const SourceLocation> places,
                     llvm::Function& function, llvm::IRBuilder<>& builder)
    : builder_(builder) {
  const auto known = std::ranges::find_if(places, &SourceLocation::known);
  if (program.empty() || known == places.end()) return;
  const uint32_t line = known->line;
  llvm::Module& module = *function.getParent();
  module.addModuleFlag(llvm::Module::Warning, "Debug Info Version", llvm::DEBUG_METADATA_VERSION);
  module.addModuleFlag(llvm::Module::Warning, "Dwarf Version", 4);
  table_.emplace(module);
  const std::filesystem::path path = program;
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

LineTable::Scope LineTable::of(const SourceLocation& where) {
  if (!function_ || !where.known()) return {builder_, builder_.getCurrentDebugLocation()};
  return {builder_,
          llvm::DILocation::get(builder_.getContext(), where.line, where.column, function_)};
}

void LineTable::finish() {
  if (table_) table_->finalize();
}

}  // namespace gradus::fusion::cpu
