#include "fusion/cpu/lower_stage.h"

#include <algorithm>
#include <bit>
#include <map>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "fusion/cost.h"
#include "fusion/cpu/bound.h"
#include "fusion/cpu/llvm/line_table.h"
#include "fusion/cpu/llvm/target.h"
#include "fusion/cpu/lower.h"

namespace gradus::fusion::cpu {

using llvm::Value;

namespace {

// Functions for loops: the nest's own code, called with sizes and steps that are constants, and
// made one with its caller (fusion/cpu/optimize.h), which leaves straight code of small ones.
class LoopsLowering {
 public:
  LoopsLowering(unsigned vector_bits, llvm::Module& module)
      : vector_bits_(vector_bits), module_(module), builder_(module.getContext()) {}

  void run(const work::Loops& loops, const std::string& name) {
    auto* type = llvm::FunctionType::get(builder_.getVoidTy(), {builder_.getPtrTy()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
    set_attributes(*function_, vector_bits_);
    builder_.SetInsertPoint(llvm::BasicBlock::Create(builder_.getContext(), "entry", function_));
    for (const Cell& cell : cells_of(loops.nest, loops.frame)) {
      const Walks walks(loops.nest, loops.frame, cell);
      llvm::Function* code = code_of(loops.nest, walks.columns);
      for (int64_t o = 0; o < numel(walks.outer); ++o) call(*code, walks, o);
    }
    builder_.CreateRetVoid();
  }

 private:
  // One for each nest and how many elements it takes at a time: no more than a row has.
  llvm::Function* code_of(const Nest& nest, int64_t columns) {
    const auto most = static_cast<uint64_t>(lanes_of(nest, vector_bits_));
    const uint64_t lanes = nest.reduces()
                               ? most
                               : std::clamp(std::bit_ceil(static_cast<uint64_t>(columns)),
                                            std::min<uint64_t>(4, most), most);
    llvm::Function*& f = codes_[{print(nest), lanes}];
    if (f) return f;
    const std::string name = fmt::format("nest_{}", codes_.size() - 1);
    Nest unplaced = nest;  // its places are the stage's to tell
    unplaced.program.clear();
    lower(unplaced, vector_bits_, name.c_str(), module_, static_cast<unsigned>(lanes));
    f = module_.getFunction(name);
    f->setLinkage(llvm::Function::InternalLinkage);
    f->addFnAttr(llvm::Attribute::AlwaysInline);
    return f;
  }

  void call(llvm::Function& code, const Walks& walks, int64_t outer_index) {
    auto* pointers = builder_.CreateAlloca(builder_.getPtrTy(), builder_.getInt64(walks.slots));
    for (size_t k = 0; k < walks.slots; ++k) {
      int64_t offset = walks.offsets[k], rest = outer_index;
      for (size_t d = walks.outer.size(); d-- > 0; rest /= walks.outer[d])
        offset += rest % walks.outer[d] * walks.outer_steps[d * walks.slots + k];
      Value* base = builder_.CreateLoad(
          builder_.getPtrTy(),
          builder_.CreateConstGEP1_64(builder_.getPtrTy(), function_->getArg(0), walks.args[k]));
      Value* from =
          builder_.CreateConstGEP1_64(builder_.getInt8Ty(), base, static_cast<uint64_t>(offset));
      builder_.CreateStore(from, builder_.CreateConstGEP1_64(builder_.getPtrTy(), pointers, k));
    }
    auto integer = [&](int64_t n) { return builder_.getInt64(static_cast<uint64_t>(n)); };
    builder_.CreateCall(&code, {integer(walks.rows), integer(walks.columns), pointers,
                                list(walks.row_steps), list(walks.column_steps)});
  }
  llvm::Constant* list(const SmallVector<int64_t, 16>& steps) {
    std::vector<uint64_t> words(steps.begin(), steps.end());
    llvm::Constant* data = llvm::ConstantDataArray::get(builder_.getContext(), words);
    return new llvm::GlobalVariable(module_, data->getType(), true,
                                    llvm::GlobalValue::PrivateLinkage, data);
  }

  const unsigned vector_bits_;
  llvm::Module& module_;
  llvm::IRBuilder<> builder_;
  llvm::Function* function_ = nullptr;
  std::map<std::pair<std::string, uint64_t>, llvm::Function*> codes_;
};

}  // namespace

void lower(const StageProgram& stage, unsigned vector_bits, const std::string& name,
           llvm::Module& module) {
  LoopsLowering loops(vector_bits, module);
  for (size_t n = 0; n < stage.pieces.size(); ++n) {
    const std::string piece = piece_name(name, stage, n);
    if (const auto* nest = std::get_if<work::Loops>(&stage.pieces[n]))
      loops.run(*nest, piece);
    else if (const auto* product = std::get_if<work::Product>(&stage.pieces[n]))
      lower_product(product->gemm, vector_bits, piece, module);
    else if (const auto* sum = std::get_if<work::Reduce>(&stage.pieces[n]))
      lower_sum(*sum, vector_bits, piece, module);
    else
      lower_copies(std::get<work::Move>(stage.pieces[n]), vector_bits, piece, module);
  }

  llvm::IRBuilder<> builder(module.getContext());
  llvm::Type *pointer = builder.getPtrTy(), *number = builder.getInt64Ty();
  auto* function =
      llvm::Function::Create(llvm::FunctionType::get(number, {pointer, pointer}, false),
                             llvm::Function::ExternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  auto outer = module.getOrInsertFunction(
      outer_call_name, llvm::FunctionType::get(number, {pointer, number}, false));
  std::vector<SourceLocation> places;
  for (const StageProgram::Item& i : stage.items) places.push_back(i.where);
  LineTable lines(stage.program, places, *function, builder);
  builder.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  uint64_t calls = 0;
  for (size_t n = 0; n < stage.items.size(); ++n) {
    const StageProgram::Item& item = stage.items[n];
    auto scope = lines.of(item.where);
    if (item.piece != StageProgram::call) {
      builder.CreateCall(module.getFunction(piece_name(name, stage, item.piece)),
                         {builder.CreateConstGEP1_64(pointer, function->getArg(0), item.args)});
      continue;
    }
    Value* failed = builder.CreateIsNotNull(
        builder.CreateCall(outer, {function->getArg(1), builder.getInt64(calls++)}));
    auto* stop = llvm::BasicBlock::Create(module.getContext(), "stop", function);
    auto* next = llvm::BasicBlock::Create(module.getContext(), "next", function);
    builder.CreateCondBr(failed, stop, next);
    builder.SetInsertPoint(stop);
    builder.CreateRet(builder.getInt64(n));
    builder.SetInsertPoint(next);
  }
  builder.CreateRet(builder.getInt64(stage.items.size()));
  lines.finish();
}

}  // namespace gradus::fusion::cpu
