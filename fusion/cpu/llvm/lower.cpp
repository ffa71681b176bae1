#include "fusion/cpu/lower.h"

#include <algorithm>

#include "fusion/cost.h"
#include "fusion/cpu/llvm/convert.h"
#include "fusion/cpu/llvm/lowering.h"
#include "fusion/cpu/llvm/rule_emitter.h"
#include "fusion/cpu/llvm/target.h"
#include "ops/powers.h"

namespace gradus::fusion::cpu {

using llvm::BasicBlock;
using llvm::Value;

namespace {

llvm::Align align_of(DType d) { return llvm::Align(size_of(d)); }

}  // namespace

Lowering::Lowering(const Nest& nest, unsigned vector_bits, const char* name, llvm::Module& module,
                   unsigned lanes)
    : nest_(nest),
      vector_bits_(vector_bits),
      rows_(row_loops(nest)),
      builder_(module.getContext()),
      state_{builder_, lanes ? lanes : static_cast<unsigned>(lanes_of(nest, vector_bits)),
             vector_bits},
      emitter_(state_) {
  llvm::Type* pointer = builder_.getPtrTy();
  llvm::Type* count = builder_.getInt64Ty();
  auto* type = llvm::FunctionType::get(builder_.getVoidTy(),
                                       {count, count, pointer, pointer, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  std::vector<SourceLocation> places;
  for (const Step& s : nest.steps) places.push_back(s.where);
  lines_.emplace(nest.program, places, *function_, builder_);
  set_attributes(*function_, vector_bits);
  values_.resize(nest.values());
}

void Lowering::run() {
  BasicBlock *entry = block("entry"), *row = block("row"), *end_row = block("end_row"),
             *exit = block("exit");
  Value *rows = function_->getArg(0), *columns = function_->getArg(1);
  builder_.SetInsertPoint(entry);
  make_slots();
  find_next_rows();
  Value* none = builder_.CreateOr(builder_.CreateICmpSLE(rows, integer(0)),
                                  builder_.CreateICmpSLE(columns, integer(0)));
  builder_.CreateCondBr(none, exit, row);

  builder_.SetInsertPoint(row);
  llvm::PHINode* r = counter(integer(0), entry);
  for (Slot& s : slots_) {
    s.row = builder_.CreatePHI(builder_.getPtrTy(), 2);
    s.row->addIncoming(s.first, entry);
  }
  share_row();
  for (int level = 1; level <= rows_.levels; ++level) {
    reduce(level);
    compute_row_steps(level);
  }
  if (!nest_.stores.empty() || !nest_.column_stores.empty())
    each_vector(integer(0), columns, rows_.storing(), {}, [&](Value*, const Values&) {
      for (size_t i = 0; i < nest_.stores.size(); ++i)
        store(slots_[nest_.loads.size() + i], values_[nest_.stores[i]]);
      add_to_columns();
      return Values();
    });
  store_rows();
  builder_.CreateBr(end_row);

  builder_.SetInsertPoint(end_row);
  for (Slot& s : slots_)
    s.row->addIncoming(builder_.CreateGEP(builder_.getInt8Ty(), s.row, s.row_step), end_row);
  Value* next_row = builder_.CreateAdd(r, integer(1));
  r->addIncoming(next_row, end_row);
  builder_.CreateCondBr(builder_.CreateICmpSLT(next_row, rows), row, exit);

  builder_.SetInsertPoint(exit);
  builder_.CreateRetVoid();
  lines_->finish();
}

Lowering::Values Lowering::each_vector(
    Value* from, Value* to, const RowLoops::Loop& loop, Values carried,
    const std::function<Values(Value* left, const Values&)>& work) {
  BasicBlock *before = builder_.GetInsertBlock(), *column = block("column"),
             *partial = block("partial"), *body = block("body"), *copy_out = block("copy_out"),
             *next = block("next"), *done = block("done");
  builder_.CreateBr(column);

  builder_.SetInsertPoint(column);
  llvm::PHINode* i = counter(from, before);
  std::vector<llvm::PHINode*> phis;
  for (Value*& c : carried) {
    phis.push_back(builder_.CreatePHI(c->getType(), 2));
    phis.back()->addIncoming(c, before);
    c = phis.back();
  }
  Value* left = builder_.CreateSub(function_->getArg(1), i);
  Value* whole = builder_.CreateICmpSGE(left, integer(state_.lanes));
  // Slots that this loop reads, and writes.
  std::vector<bool> in = loop.loads, out(slots_.size());
  in.resize(slots_.size());
  for (size_t k : loop.reads) in[nest_.loads.size() + rows_.kept[k].store] = true;
  for (size_t k : loop.writes) out[nest_.loads.size() + rows_.kept[k].store] = true;
  if (&loop == &rows_.storing()) {
    std::fill_n(out.begin() + static_cast<long>(nest_.loads.size()), nest_.stores.size(), true);
    for (size_t k = first_column(); k < slots_.size(); ++k) in[k] = out[k] = true;
  }
  auto used = [&](size_t k) { return slots_[k].buffer && (in[k] || out[k]); };
  for (size_t k = 0; k < slots_.size(); ++k)
    if (used(k)) slots_[k].here = advance(slots_[k].start, i, slots_[k].column_step);
  builder_.CreateCondBr(whole, body, partial);

  builder_.SetInsertPoint(partial);
  BasicBlock* partial_end = copy_left(left, in, true);
  builder_.CreateBr(body);

  builder_.SetInsertPoint(body);
  for (size_t k = 0; k < slots_.size(); ++k) {
    Slot& s = slots_[k];
    if (!used(k)) continue;
    s.at = choose(s.here, column, s.buffer, partial_end);
    if (s.walk == Walk::strided) s.step = choose(s.column_step, column, s.bytes, partial_end);
  }
  const Values shared = values_;
  auto read = [&](const Slot& s) { return hold(state_, s.dtype, load(s)); };
  fetch_next_row(loop);
  for (size_t k = 0; k < nest_.loads.size(); ++k)
    if (used(k)) values_[k] = read(slots_[k]);
  for (size_t k = 0; k < nest_.loads.size(); ++k)
    if (loop.loads[k] && gathers(k)) values_[k] = hold(state_, slots_[k].dtype, gather(k, i, left));
  for (size_t k : loop.reads) values_[rows_.kept[k].value] = read(slot_of(rows_.kept[k]));
  for (size_t k = 0; k < nest_.steps.size(); ++k) {
    Value*& v = values_[nest_.first_step() + k];
    if (!v && loop.steps[k]) v = step(nest_.steps[k]);
  }
  for (size_t k : loop.writes) store(slot_of(rows_.kept[k]), values_[rows_.kept[k].value]);
  carried = work(left, carried);
  values_ = shared;
  builder_.CreateCondBr(whole, next, copy_out);

  builder_.SetInsertPoint(copy_out);
  copy_left(left, out, false);
  builder_.CreateBr(next);

  builder_.SetInsertPoint(next);
  Value* following = builder_.CreateAdd(i, integer(state_.lanes));
  i->addIncoming(following, next);
  for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(carried[k], next);
  builder_.CreateCondBr(builder_.CreateICmpSLT(following, to), column, done);
  builder_.SetInsertPoint(done);
  return carried;
}

BasicBlock* Lowering::block(const char* name) {
  return BasicBlock::Create(builder_.getContext(), name, function_);
}

llvm::PHINode* Lowering::counter(Value* first, BasicBlock* before) {
  llvm::PHINode* p = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  p->addIncoming(first, before);
  return p;
}

Value* Lowering::choose(Value* a, BasicBlock* from_a, Value* b, BasicBlock* from_b) {
  llvm::PHINode* p = builder_.CreatePHI(a->getType(), 2);
  p->addIncoming(a, from_a);
  p->addIncoming(b, from_b);
  return p;
}

// base + index * step, the step in bytes.
Value* Lowering::advance(Value* base, Value* index, Value* step) {
  return builder_.CreateGEP(builder_.getInt8Ty(), base, builder_.CreateMul(index, step));
}

void Lowering::make_slots() {
  size_t indices = first_column() + nest_.column_stores.size();
  auto add = [&](DType dtype, Walk walk, bool buffered = true) {
    const size_t k = slots_.size();
    auto argument = [&](unsigned a, llvm::Type* type) {
      Value* place = builder_.CreateConstGEP1_64(type, function_->getArg(a), k);
      return builder_.CreateLoad(type, place);
    };
    Slot s{dtype,
           walk,
           memory_type(builder_.getContext(), dtype),
           integer(static_cast<int64_t>(size_of(dtype))),
           nullptr,
           nullptr,
           nullptr};
    s.first = argument(2, builder_.getPtrTy());
    s.row_step = argument(3, builder_.getInt64Ty());
    s.column_step = walk == Walk::strided ? argument(4, builder_.getInt64Ty()) : s.bytes;
    if (walk != Walk::broadcast && buffered) {
      auto* buffer = builder_.CreateAlloca(state_.vector(s.element));
      buffer->setAlignment(llvm::Align(64));
      s.buffer = buffer;
      // No lane beyond what is left holds anything that an instruction might trip over.
      if (!by_mask(s))
        builder_.CreateAlignedStore(llvm::Constant::getNullValue(state_.vector(s.element)), buffer,
                                    llvm::Align(64));
    }
    slots_.push_back(s);
  };
  for (size_t k = 0; k < nest_.loads.size(); ++k) {
    const Load& l = nest_.loads[k];
    add(l.dtype, l.walks.back(), !gathers(k));
    if (!l.index) continue;
    Value* place =
        builder_.CreateConstGEP1_64(builder_.getInt64Ty(), function_->getArg(4), indices++);
    slots_[k].index_step = builder_.CreateLoad(builder_.getInt64Ty(), place);
  }
  for (ValueNumber v : nest_.stores) add(nest_.dtype_of(v), Walk::contiguous);
  for (ValueNumber v : nest_.row_stores) add(nest_.dtype_of(v), Walk::broadcast);
  for (ValueNumber v : nest_.column_stores)
    add(accumulator(nest_.steps[v - nest_.first_step()]), Walk::contiguous);
}

// Loads that do not move along a row, numbers, and the steps over such alone.
void Lowering::share_row() {
  for (size_t k = 0; k < slots_.size(); ++k) begin_row(k);
  for (size_t k = 0; k < nest_.loads.size(); ++k) {
    const Slot& s = slots_[k];
    if (!rows_.facts.of_row[k]) continue;
    Value* element = builder_.CreateAlignedLoad(s.element, s.start, align_of(s.dtype));
    values_[k] = hold(state_, s.dtype, builder_.CreateVectorSplat(state_.lanes, element));
  }
  for (size_t i = 0; i < nest_.numbers.size(); ++i)
    values_[nest_.first_number() + i] = number(nest_.numbers[i]);
  compute_row_steps(0);
}

// Where a slot's elements of the row begin: an index that the row has leads there.
void Lowering::begin_row(size_t slot) {
  Slot& s = slots_[slot];
  s.start = s.row;
  if (!s.index_step || gathers(slot)) return;
  const Slot& of = slots_[*nest_.loads[slot].index];
  Value* index = builder_.CreateAlignedLoad(of.element, of.row, align_of(of.dtype));
  s.start = advance(s.row, builder_.CreateSExt(index, builder_.getInt64Ty()), s.index_step);
}

// 0, 1, .. as i64 or i32.
Value* Lowering::lane_numbers(bool wide) {
  SmallVector<llvm::Constant*, 16> numbers;
  for (unsigned l = 0; l < state_.lanes; ++l)
    numbers.push_back(wide ? builder_.getInt64(l) : builder_.getInt32(l));
  return llvm::ConstantVector::get({numbers.begin(), numbers.size()});
}

// The elements from `first` on, each at its own index. Beyond the row's end nothing is read: there
// indices are anything.
Value* Lowering::gather(size_t load, Value* first, Value* left) {
  const Slot& s = slots_[load];
  const unsigned lanes = state_.lanes;
  auto all = [&](Value* v) { return builder_.CreateVectorSplat(lanes, v); };
  Value* lane = lane_numbers(true);
  Value* there = builder_.CreateICmpSLT(lane, all(left));
  const ValueNumber index = *nest_.loads[load].index;  // held as i64
  Value* offsets = builder_.CreateMul(values_[index], all(s.index_step));
  if (s.walk != Walk::broadcast) {
    Value* columns = builder_.CreateAdd(all(first), lane);
    offsets = builder_.CreateAdd(offsets, builder_.CreateMul(columns, all(s.column_step)));
  }
  Value* places = builder_.CreateGEP(builder_.getInt8Ty(), s.row, offsets);
  llvm::Type* vector = state_.vector(s.element);
  return builder_.CreateMaskedGather(vector, places, align_of(s.dtype), there,
                                     llvm::Constant::getNullValue(vector));
}

// The steps of the row that wait for so many reductions, which are there.
void Lowering::compute_row_steps(int level) {
  for (size_t i = 0; i < nest_.steps.size(); ++i) {
    const size_t v = nest_.first_step() + i;
    if (!values_[v] && rows_.facts.of_row[v] && rows_.facts.level[v] == level)
      values_[v] = step(nest_.steps[i]);
  }
}

Value* Lowering::number(const ir::Number& n) {
  if (n.category == Category::floating) return emitter_.constant(LaneType::f64, n.floating);
  if (n.category == Category::integral) return emitter_.constant(LaneType::i64, n.integer);
  return emitter_.truth(n.integer != 0);
}

Value* Lowering::step(const Step& s) {
  auto scope = lines_->of(s.where);
  if (!s.op) return convert(state_, nest_.dtype_of(s.operands[0]), s.dtype, values_[s.operands[0]]);
  const ops::PointwiseInfo& info = s.op->pointwise();
  const DType compute = dtype_of(s.compute);
  SmallVector<Value*, 4> operands;
  for (size_t k = 0; k < s.operands.size(); ++k) {
    const ValueNumber v = s.operands[k];
    const bool condition = info.roles[k] == ops::Role::condition;
    operands.push_back(
        convert(state_, nest_.dtype_of(v), condition ? DType::boolean : compute, values_[v]));
  }
  const int half = cheap_half_power(nest_, s);
  const Rule rule = half ? half_power_rule(half, s.compute) : rule_of(*s.op, s.compute);
  GRADUS_CHECK(rule);
  Value* y = emit(rule, emitter_, {operands.data(), operands.size()}, s.attributes.get());
  const bool truth = info.result == ops::Result::boolean;
  return convert(state_, truth ? DType::boolean : compute, s.dtype, y);
}

void Lowering::store(const Slot& s, Value* held) {
  builder_.CreateAlignedStore(unhold(state_, s.dtype, held), s.at, align_of(s.dtype));
}

// What columns reduce meets what they have.
void Lowering::add_to_columns() {
  for (size_t i = 0; i < nest_.column_stores.size(); ++i) {
    const Slot& s = slots_[first_column() + i];
    const Step& step = nest_.steps[nest_.column_stores[i] - nest_.first_step()];
    const ValueNumber x = step.operands[0];
    Value* have = hold(state_, s.dtype, load(s));
    store(s, combine(step, have, convert(state_, nest_.dtype_of(x), s.dtype, values_[x])));
  }
}

void Lowering::store_rows() {
  for (size_t i = 0; i < nest_.row_stores.size(); ++i) {
    const Slot& s = slots_[nest_.loads.size() + nest_.stores.size() + i];
    Value* elements = unhold(state_, s.dtype, values_[nest_.row_stores[i]]);
    builder_.CreateAlignedStore(builder_.CreateExtractElement(elements, uint64_t{0}), s.row,
                                align_of(s.dtype));
  }
}

Value* Lowering::load(const Slot& s) {
  if (s.walk == Walk::contiguous)
    return builder_.CreateAlignedLoad(state_.vector(s.element), s.at, align_of(s.dtype));
  Value* elements = llvm::PoisonValue::get(state_.vector(s.element));
  Value* at = s.at;
  for (uint64_t i = 0; i < state_.lanes; ++i) {
    if (i) at = builder_.CreateGEP(builder_.getInt8Ty(), at, s.step);
    Value* element = builder_.CreateAlignedLoad(s.element, at, align_of(s.dtype));
    elements = builder_.CreateInsertElement(elements, element, i);
  }
  return elements;
}

// Copies `left` elements of the slots, fewer than a vector has, into their buffers, or out of them.
// Ends in the block that is returned.
BasicBlock* Lowering::copy_left(Value* left, const std::vector<bool>& slots, bool in) {
  Value* some = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, integer(0));
  llvm::Type* bits = builder_.getIntNTy(state_.lanes);
  Value* ones = builder_.CreateSub(
      builder_.CreateShl(llvm::ConstantInt::get(bits, 1), builder_.CreateZExtOrTrunc(some, bits)),
      llvm::ConstantInt::get(bits, 1));
  Value* mask = builder_.CreateBitCast(ones, state_.vector(builder_.getInt1Ty()));
  bool others = false;
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& s = slots_[k];
    if (!s.buffer || !slots[k]) continue;
    if (!by_mask(s)) {
      others = true;
      continue;
    }
    llvm::Type* vector = state_.vector(s.element);
    const llvm::Align whole(64), one = align_of(s.dtype);
    if (in)
      builder_.CreateAlignedStore(builder_.CreateMaskedLoad(vector, s.here, one, mask,
                                                            llvm::Constant::getNullValue(vector)),
                                  s.buffer, whole);
    else
      builder_.CreateMaskedStore(builder_.CreateAlignedLoad(vector, s.buffer, whole), s.here, one,
                                 mask);
  }
  return others ? copy_one_by_one(left, slots, in) : builder_.GetInsertBlock();
}

// The same of those that no mask copies.
BasicBlock* Lowering::copy_one_by_one(Value* left, const std::vector<bool>& slots, bool in) {
  BasicBlock* before = builder_.GetInsertBlock();
  BasicBlock *loop = block(in ? "copy" : "copy_back"), *done = block("copied");
  builder_.CreateCondBr(builder_.CreateICmpSGT(left, integer(0)), loop, done);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* j = counter(integer(0), before);
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& s = slots_[k];
    if (!s.buffer || !slots[k] || by_mask(s)) continue;
    Value* place = advance(s.here, j, s.column_step);
    Value* buffered = builder_.CreateGEP(s.element, s.buffer, j);
    Value* element =
        builder_.CreateAlignedLoad(s.element, in ? place : buffered, align_of(s.dtype));
    builder_.CreateAlignedStore(element, in ? buffered : place, align_of(s.dtype));
  }
  Value* next = builder_.CreateAdd(j, integer(1));
  j->addIncoming(next, loop);
  builder_.CreateCondBr(builder_.CreateICmpSLT(next, left), loop, done);
  builder_.SetInsertPoint(done);
  return done;
}

void lower(const Nest& nest, unsigned vector_bits, const char* name, llvm::Module& module,
           unsigned lanes) {
  Lowering(nest, vector_bits, name, module, lanes).run();
}

}  // namespace gradus::fusion::cpu
