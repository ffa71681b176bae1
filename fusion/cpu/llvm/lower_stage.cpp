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
    const uint64_t lanes = nest.reduces() || nest.row_size
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

// The stage's function: a loop over rounds, each of which has all items.
class StageLowering {
 public:
  StageLowering(const StageProgram& stage, const std::string& name, llvm::Module& module)
      : stage_(stage), name_(name), module_(module), builder_(module.getContext()) {}

  void run() {
    llvm::Type *pointer = builder_.getPtrTy(), *number = builder_.getInt64Ty();
    function_ = llvm::Function::Create(
        llvm::FunctionType::get(number, {pointer, pointer, pointer, number}, false),
        llvm::Function::ExternalLinkage, name_, module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    std::vector<SourceLocation> places;
    for (const StageProgram::Item& i : stage_.items) places.push_back(i.where);
    LineTable lines(stage_.program, places, *function_, builder_);
    auto* entry = block("entry");
    auto* round = block("again");
    builder_.SetInsertPoint(entry);
    Value* rounds = builder_.CreateLoad(number, calls());
    builder_.CreateBr(round);
    builder_.SetInsertPoint(round);
    llvm::PHINode* left = builder_.CreatePHI(number, 2);
    left->addIncoming(rounds, entry);
    add_items(lines, left);
    Value* fewer = builder_.CreateSub(left, builder_.getInt64(1));
    auto *end = block("end"), *move = block("move");
    builder_.CreateCondBr(builder_.CreateIsNull(fewer), end, move);
    builder_.SetInsertPoint(end);
    leave(fewer, stage_.items.size());
    builder_.SetInsertPoint(move);
    left->addIncoming(fewer, add_moves(round));
    lines.finish();
  }

 private:
  llvm::BasicBlock* block(const char* name) {
    return llvm::BasicBlock::Create(module_.getContext(), name, function_);
  }
  Value* args() const { return function_->getArg(0); }
  Value* calls() const { return function_->getArg(1); }

  void leave(Value* left, size_t item) {
    builder_.CreateStore(left, calls());
    builder_.CreateRet(builder_.getInt64(item));
  }

  void add_items(LineTable& lines, Value* left) {
    llvm::Type *pointer = builder_.getPtrTy(), *number = builder_.getInt64Ty();
    auto outer = module_.getOrInsertFunction(
        outer_call_name, llvm::FunctionType::get(number, {pointer, number}, false));
    uint64_t next_call = 0;
    for (size_t n = 0; n < stage_.items.size(); ++n) {
      const StageProgram::Item& item = stage_.items[n];
      auto scope = lines.of(item.where);
      if (item.piece != StageProgram::call) {
        builder_.CreateCall(module_.getFunction(piece_name(name_, stage_, item.piece)),
                            {builder_.CreateConstGEP1_64(pointer, args(), item.args)});
        continue;
      }
      Value* failed = builder_.CreateIsNotNull(
          builder_.CreateCall(outer, {calls(), builder_.getInt64(next_call++)}));
      auto *stop = block("stop"), *next = block("next");
      builder_.CreateCondBr(failed, stop, next);
      builder_.SetInsertPoint(stop);
      leave(left, n);
      builder_.SetInsertPoint(next);
    }
  }

  // Pointers move; then the next round. Returns the block that goes there.
  llvm::BasicBlock* add_moves(llvm::BasicBlock* round) {
    llvm::Type *pointer = builder_.getPtrTy(), *number = builder_.getInt64Ty();
    Value *moves = function_->getArg(2), *count = function_->getArg(3);
    auto *before = builder_.GetInsertBlock(), *test = block("moves"), *move = block("moving");
    builder_.CreateBr(test);
    builder_.SetInsertPoint(test);
    llvm::PHINode* n = builder_.CreatePHI(number, 2);
    n->addIncoming(builder_.getInt64(0), before);
    builder_.CreateCondBr(builder_.CreateICmpEQ(n, count), round, move);
    builder_.SetInsertPoint(move);
    Value* fields[3];  // of a PointerMove
    for (uint64_t k = 0; k < 3; ++k)
      fields[k] = builder_.CreateGEP(
          number, moves,
          builder_.CreateAdd(builder_.CreateMul(n, builder_.getInt64(3)), builder_.getInt64(k)));
    Value* place = builder_.CreateGEP(pointer, args(), builder_.CreateLoad(number, fields[0]));
    Value *next = builder_.CreateLoad(number, fields[1]),
          *after = builder_.CreateLoad(number, fields[2]);
    builder_.CreateStore(
        builder_.CreateGEP(builder_.getInt8Ty(), builder_.CreateLoad(pointer, place), next), place);
    builder_.CreateStore(after, fields[1]);
    builder_.CreateStore(next, fields[2]);
    n->addIncoming(builder_.CreateAdd(n, builder_.getInt64(1)), move);
    builder_.CreateBr(test);
    return test;
  }

  const StageProgram& stage_;
  const std::string& name_;
  llvm::Module& module_;
  llvm::IRBuilder<> builder_;
  llvm::Function* function_ = nullptr;
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

  StageLowering(stage, name, module).run();
}

}  // namespace gradus::fusion::cpu
