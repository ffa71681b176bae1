#include "fusion/cpu/lower.h"

#include <algorithm>
#include <bit>

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

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
    : nest(nest),
      vector_bits(vector_bits),
      in_stage(lanes != 0),
      rows(row_loops(nest)),
      builder(module.getContext()),
      state{builder, lanes ? lanes : static_cast<unsigned>(lanes_of(nest, vector_bits)),
            vector_bits, register_bits(nest, vector_bits)},
      emitter(state) {
  llvm::Type* pointer = builder.getPtrTy();
  llvm::Type* count = builder.getInt64Ty();
  auto* type = llvm::FunctionType::get(builder.getVoidTy(),
                                       {count, count, pointer, pointer, pointer}, false);
  function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  std::vector<SourceLocation> places;
  for (const Step& s : nest.steps) places.push_back(s.where);
  lines.emplace(nest.program, places, *function, builder);
  set_attributes(*function, state.register_bits);
  values.resize(nest.values());
}

void Lowering::run() {
  builder.SetInsertPoint(block("entry"));
  make_slots();
  if (nest.row_size)
    run_short_rows(*this);
  else
    run_rows();
  builder.CreateRetVoid();
  lines->finish();
}

void Lowering::run_rows() {
  BasicBlock *entry = builder.GetInsertBlock(), *row = block("row"), *end_row = block("end_row"),
             *exit = block("exit");
  Value *row_count = function->getArg(0), *columns = function->getArg(1);
  find_next_rows(*this);
  Value* none = builder.CreateOr(builder.CreateICmpSLE(row_count, integer(0)),
                                 builder.CreateICmpSLE(columns, integer(0)));
  builder.CreateCondBr(none, exit, row);

  builder.SetInsertPoint(row);
  llvm::PHINode* r = counter(integer(0), entry);
  for (Slot& s : slots) {
    s.row = builder.CreatePHI(builder.getPtrTy(), 2);
    s.row->addIncoming(s.first, entry);
  }
  find_next_row(*this, r);
  share_row();
  for (int level = 1; level <= rows.levels; ++level) {
    reduce_rows(*this, level);
    compute_row_steps(level);
  }
  Value* left_from = has_short_body() ? whole_vectors(columns) : integer(0);
  if (!nest.stores.empty() || !nest.column_stores.empty())
    each_vector(left_from, columns, rows.storing(), {}, [&](Value*, const Values&) {
      for (size_t i = 0; i < nest.stores.size(); ++i)
        store(slots[nest.loads.size() + i], values[nest.stores[i]]);
      add_to_columns();
      return Values();
    });
  store_rows();
  builder.CreateBr(end_row);

  builder.SetInsertPoint(end_row);
  for (Slot& s : slots)
    s.row->addIncoming(builder.CreateGEP(builder.getInt8Ty(), s.row, s.row_step), end_row);
  Value* next_row = builder.CreateAdd(r, integer(1));
  r->addIncoming(next_row, end_row);
  builder.CreateCondBr(builder.CreateICmpSLT(next_row, row_count), row, exit);

  builder.SetInsertPoint(exit);
  if (streams) {
    // Other threads see what went past the caches only behind this.
    BasicBlock *fence = block("fence"), *end = block("end");
    builder.CreateCondBr(streams, fence, end);
    builder.SetInsertPoint(fence);
    builder.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
    builder.CreateBr(end);
    builder.SetInsertPoint(end);
  }
}

// Whether a second copy of the body is little code, beside which asking for the row's end in each
// vector would be much.
bool Lowering::has_short_body() const {
  constexpr size_t most_steps = 32;
  auto is_plain = [](const Step& s) { return !s.call.op || !s.call.op->traits.is_function; };
  return !in_stage && !nest.reduces() && nest.column_stores.empty() &&
         nest.steps.size() <= most_steps && std::ranges::all_of(nest.steps, is_plain) &&
         std::ranges::none_of(nest.loads, [](const Load& l) { return l.index.has_value(); });
}

Value* Lowering::whole_vectors(Value* to) {
  BasicBlock *before = builder.GetInsertBlock(), *whole = block("whole"), *left = block("left");
  builder.CreateCondBr(builder.CreateICmpSGT(to, integer(state.lanes)), whole, left);
  builder.SetInsertPoint(whole);
  llvm::PHINode* i = counter(integer(0), before);
  const Values shared = values;
  for (size_t k = 0; k < slots.size(); ++k) {
    Slot& s = slots[k];
    s.loaded = s.stored = nullptr;
    if (!s.moves) continue;
    s.at = s.here = advance(s.start, i, s.column_step);
    s.step = s.column_step;
    if (k < nest.loads.size()) values[k] = hold(state, s.dtype, load(s));
  }
  for (size_t k = 0; k < nest.steps.size(); ++k)
    if (Value*& v = values[nest.first_step() + k]; !v) v = step(nest.steps[k]);
  for (size_t k = 0; k < nest.stores.size(); ++k)
    store(slots[nest.loads.size() + k], values[nest.stores[k]]);
  store_vector(rows.storing());
  values = shared;
  Value* next = builder.CreateAdd(i, integer(state.lanes));
  BasicBlock* end = builder.GetInsertBlock();
  i->addIncoming(next, end);
  Value* remaining = builder.CreateSub(to, next);
  builder.CreateCondBr(builder.CreateICmpSGT(remaining, integer(state.lanes)), whole, left);
  builder.SetInsertPoint(left);
  return choose(integer(0), before, next, end);
}

Lowering::Values Lowering::each_vector(
    Value* from, Value* to, const RowLoops::Loop& loop, Values carried,
    const std::function<Values(Value* left, const Values&)>& work) {
  BasicBlock *before = builder.GetInsertBlock(), *column = block("column"),
             *entire = block("entire"), *partial = block("partial"), *body = block("body"),
             *copy_out = block("copy_out"), *store_out = block("store_out"), *next = block("next"),
             *done = block("done");
  builder.CreateBr(column);

  builder.SetInsertPoint(column);
  llvm::PHINode* i = counter(from, before);
  std::vector<llvm::PHINode*> phis;
  for (Value*& c : carried) {
    phis.push_back(builder.CreatePHI(c->getType(), 2));
    phis.back()->addIncoming(c, before);
    c = phis.back();
  }
  Value* left = builder.CreateSub(function->getArg(1), i);
  Value* whole = builder.CreateICmpSGE(left, integer(state.lanes));
  // Slots that this loop reads, and writes.
  std::vector<bool> in = loop.loads, out(slots.size());
  in.resize(slots.size());
  for (size_t k : loop.reads) in[nest.loads.size() + rows.kept[k].store] = true;
  for (size_t k : loop.writes) out[nest.loads.size() + rows.kept[k].store] = true;
  if (&loop == &rows.storing()) {
    std::fill_n(out.begin() + static_cast<long>(nest.loads.size()), nest.stores.size(), true);
    for (size_t k = first_column(); k < slots.size(); ++k) in[k] = out[k] = true;
  }
  auto used = [&](size_t k) { return slots[k].moves && (in[k] || out[k]); };
  for (size_t k = 0; k < slots.size(); ++k) {
    Slot& s = slots[k];
    s.loaded = s.stored = nullptr;
    if (used(k)) s.here = advance(s.start, i, s.column_step);
  }
  builder.CreateCondBr(whole, entire, partial);

  // What masks load goes from memory to the body as a value, and back; the rest by buffers.
  auto masked = [&](size_t k) { return used(k) && in[k] && !slots[k].buffer; };
  Values loaded(slots.size()), rest(slots.size());
  builder.SetInsertPoint(entire);
  for (size_t k = 0; k < slots.size(); ++k)
    if (const Slot& s = slots[k]; masked(k))
      loaded[k] = builder.CreateAlignedLoad(state.vector(s.element), s.here, align_of(s.dtype));
  builder.CreateBr(body);

  builder.SetInsertPoint(partial);
  Value* mask = mask_of(left);
  for (size_t k = 0; k < slots.size(); ++k)
    if (const Slot& s = slots[k]; masked(k)) {
      llvm::Type* vector = state.vector(s.element);
      rest[k] = builder.CreateMaskedLoad(vector, s.here, align_of(s.dtype), mask,
                                         llvm::Constant::getNullValue(vector));
    }
  BasicBlock* partial_end = copy_left(left, in, true);
  builder.CreateBr(body);

  builder.SetInsertPoint(body);
  for (size_t k = 0; k < slots.size(); ++k)
    if (masked(k)) slots[k].loaded = choose(loaded[k], entire, rest[k], partial_end);
  for (size_t k = 0; k < slots.size(); ++k) {
    Slot& s = slots[k];
    if (!used(k) || !s.buffer) continue;
    s.at = choose(s.here, entire, s.buffer, partial_end);
    if (s.walk == Walk::strided) s.step = choose(s.column_step, entire, s.bytes, partial_end);
  }
  const Values shared = values;
  auto read = [&](const Slot& s) { return hold(state, s.dtype, load(s)); };
  fetch_next_row(*this, loop);
  for (size_t k = 0; k < nest.loads.size(); ++k)
    if (used(k)) values[k] = read(slots[k]);
  for (size_t k = 0; k < nest.loads.size(); ++k)
    if (loop.loads[k] && gathers(k)) values[k] = hold(state, slots[k].dtype, gather(k, i, left));
  for (size_t k : loop.reads) values[rows.kept[k].value] = read(slot_of(rows.kept[k]));
  for (size_t k = 0; k < nest.steps.size(); ++k) {
    Value*& v = values[nest.first_step() + k];
    if (!v && loop.steps[k]) v = step(nest.steps[k]);
  }
  for (size_t k : loop.writes) store(slot_of(rows.kept[k]), values[rows.kept[k].value]);
  carried = work(left, carried);
  values = shared;
  builder.CreateCondBr(whole, store_out, copy_out);

  builder.SetInsertPoint(store_out);
  store_vector(loop);
  builder.CreateBr(next);

  builder.SetInsertPoint(copy_out);
  store_left(left);
  copy_left(left, out, false);
  builder.CreateBr(next);

  builder.SetInsertPoint(next);
  Value* following = builder.CreateAdd(i, integer(state.lanes));
  i->addIncoming(following, next);
  for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(carried[k], next);
  builder.CreateCondBr(builder.CreateICmpSLT(following, to), column, done);
  builder.SetInsertPoint(done);
  return carried;
}

// The first `left` lanes of what the body has computed. Processors of AMD take twelve cycles and
// more for a masked store without mask registers (Zen 3): there a half of the lanes is stored if
// they are all left, then a half of the rest, and so on.
void Lowering::store_left(Value* left) {
  SmallVector<const Slot*, 8> stored;
  for (const Slot& s : slots)
    if (s.stored) stored.push_back(&s);
  if (stored.empty()) return;
  if (vector_bits >= 512 || !std::has_single_bit(state.lanes)) {
    Value* mask = mask_of(left);
    for (const Slot* s : stored)
      builder.CreateMaskedStore(s->stored, s->here, align_of(s->dtype), mask);
    return;
  }
  left = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, integer(0));
  Values rest;
  for (const Slot* s : stored) rest.push_back(s->stored);
  for (unsigned half = state.lanes / 2; half; half /= 2) {
    SmallVector<int, 16> low, high;
    for (unsigned l = 0; l < half; ++l) {
      low.push_back(static_cast<int>(l));
      high.push_back(static_cast<int>(half + l));
    }
    BasicBlock *before = builder.GetInsertBlock(), *full = block("half"), *less = block("less");
    Values lows;
    for (Value* v : rest) lows.push_back(builder.CreateShuffleVector(v, {low.data(), low.size()}));
    Value* bit = builder.CreateAnd(left, integer(half));
    builder.CreateCondBr(builder.CreateICmpNE(bit, integer(0)), full, less);
    builder.SetInsertPoint(full);
    Value* first = builder.CreateAnd(left, integer(state.lanes - 2 * half));
    Values highs;
    for (size_t k = 0; k < rest.size(); ++k) {
      const Slot& s = *stored[k];
      builder.CreateAlignedStore(lows[k], advance(s.here, first, s.bytes), align_of(s.dtype));
      highs.push_back(builder.CreateShuffleVector(rest[k], {high.data(), high.size()}));
    }
    builder.CreateBr(less);
    builder.SetInsertPoint(less);
    for (size_t k = 0; k < rest.size(); ++k) rest[k] = choose(lows[k], before, highs[k], full);
  }
}

// What the body has computed of a whole vector.
void Lowering::store_vector(const RowLoops::Loop& loop) {
  auto store_all = [&](bool past_caches) {
    for (size_t k = 0; k < slots.size(); ++k) {
      const Slot& s = slots[k];
      if (!s.stored) continue;
      const bool streams_it = past_caches && may_stream(k);
      auto* instruction = builder.CreateAlignedStore(
          s.stored, s.here, streams_it ? llvm::Align(uint64_t{line_bytes}) : align_of(s.dtype));
      if (!streams_it) continue;
      llvm::LLVMContext& context = builder.getContext();
      auto* one = llvm::ConstantAsMetadata::get(builder.getInt32(1));
      instruction->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context, one));
    }
  };
  // What an earlier loop over the row keeps is read again.
  if (!streams || &loop != &rows.storing()) return store_all(false);
  BasicBlock *plain = block("plain_out"), *stream = block("stream_out"), *stored = block("stored");
  // Small arrays stay in the caches: their loop goes straight on to its end.
  llvm::MDBuilder weights(builder.getContext());
  builder.CreateCondBr(streams, stream, plain, weights.createBranchWeights(1, 10000));
  builder.SetInsertPoint(plain);
  store_all(false);
  builder.CreateBr(stored);
  builder.SetInsertPoint(stream);
  store_all(true);
  builder.CreateBr(stored);
  builder.SetInsertPoint(stored);
}

// Whether a store can go past the caches: whole lines at a time, and not those that an earlier loop
// over the row has brought there.
bool Lowering::may_stream(size_t slot) const {
  const Slot& s = slots[slot];
  const bool stores = slot >= nest.loads.size() && slot < nest.loads.size() + nest.stores.size();
  const bool kept = std::ranges::any_of(
      rows.kept, [&](const RowLoops::Kept& k) { return nest.loads.size() + k.store == slot; });
  return stores && !kept && vector_bits >= 256 && !s.buffer &&
         static_cast<int64_t>(state.lanes * size_of(s.dtype)) % line_bytes == 0;
}

// The caller asks for it, behind so many column steps, and each row begins with a line.
void Lowering::find_streams(size_t steps) {
  Value* bits = nullptr;
  for (size_t k = 0; k < slots.size(); ++k) {
    if (!may_stream(k)) continue;
    Value* first = builder.CreatePtrToInt(slots[k].first, builder.getInt64Ty());
    Value* both = builder.CreateOr(first, slots[k].row_step);
    bits = bits ? builder.CreateOr(bits, both) : both;
  }
  if (!bits) return;
  Value* place = builder.CreateConstGEP1_64(builder.getInt64Ty(), function->getArg(4), steps);
  Value* asked = builder.CreateLoad(builder.getInt64Ty(), place);
  Value* within = builder.CreateAnd(bits, integer(line_bytes - 1));
  streams = builder.CreateAnd(builder.CreateICmpNE(asked, integer(0)),
                              builder.CreateICmpEQ(within, integer(0)));
}

BasicBlock* Lowering::block(const char* name) {
  return BasicBlock::Create(builder.getContext(), name, function);
}

llvm::PHINode* Lowering::counter(Value* first, BasicBlock* before) {
  llvm::PHINode* p = builder.CreatePHI(builder.getInt64Ty(), 2);
  p->addIncoming(first, before);
  return p;
}

Value* Lowering::choose(Value* a, BasicBlock* from_a, Value* b, BasicBlock* from_b) {
  llvm::PHINode* p = builder.CreatePHI(a->getType(), 2);
  p->addIncoming(a, from_a);
  p->addIncoming(b, from_b);
  return p;
}

Value* Lowering::advance(Value* base, Value* index, Value* step) {
  return builder.CreateGEP(builder.getInt8Ty(), base, builder.CreateMul(index, step));
}

void Lowering::make_slots() {
  size_t indices = first_column() + nest.column_stores.size();
  auto add = [&](DType dtype, Walk walk, bool moves = true) {
    const size_t k = slots.size();
    auto argument = [&](unsigned a, llvm::Type* type) {
      Value* place = builder.CreateConstGEP1_64(type, function->getArg(a), k);
      return builder.CreateLoad(type, place);
    };
    Slot s{dtype,
           walk,
           memory_type(builder.getContext(), dtype),
           integer(static_cast<int64_t>(size_of(dtype))),
           nullptr,
           nullptr,
           nullptr};
    s.first = argument(2, builder.getPtrTy());
    s.row_step = argument(3, builder.getInt64Ty());
    s.column_step = walk == Walk::strided ? argument(4, builder.getInt64Ty()) : s.bytes;
    s.moves = moves && walk != Walk::broadcast;
    if (s.moves && !by_mask(s) && !nest.row_size) {
      auto* buffer = builder.CreateAlloca(state.vector(s.element));
      buffer->setAlignment(llvm::Align(64));
      s.buffer = buffer;
      // No lane beyond what is left holds anything that an instruction might trip over.
      builder.CreateAlignedStore(llvm::Constant::getNullValue(state.vector(s.element)), buffer,
                                 llvm::Align(64));
    }
    slots.push_back(s);
  };
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    const Load& l = nest.loads[k];
    add(l.dtype, l.walks.back(), !gathers(k));
    if (!l.index) continue;
    Value* place = builder.CreateConstGEP1_64(builder.getInt64Ty(), function->getArg(4), indices++);
    slots[k].index_step = builder.CreateLoad(builder.getInt64Ty(), place);
  }
  for (ValueNumber v : nest.stores) add(nest.dtype_of(v), Walk::contiguous);
  for (ValueNumber v : nest.row_stores) add(nest.dtype_of(v), Walk::broadcast);
  for (ValueNumber v : nest.column_stores)
    add(accumulator(nest.steps[v - nest.first_step()]), Walk::contiguous);
  if (!nest.row_size) find_streams(indices);
}

// Loads that do not move along a row, numbers, and the steps over such alone.
void Lowering::share_row() {
  for (size_t k = 0; k < slots.size(); ++k) begin_row(k);
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    const Slot& s = slots[k];
    if (!rows.facts.of_row[k]) continue;
    Value* element = builder.CreateAlignedLoad(s.element, s.start, align_of(s.dtype));
    values[k] = hold(state, s.dtype, builder.CreateVectorSplat(state.lanes, element));
  }
  for (size_t i = 0; i < nest.numbers.size(); ++i)
    values[nest.first_number() + i] = number(nest.numbers[i]);
  compute_row_steps(0);
}

// Where a slot's elements of the row begin: an index that the row has leads there.
void Lowering::begin_row(size_t slot) {
  Slot& s = slots[slot];
  s.start = s.row;
  if (!s.index_step || gathers(slot)) return;
  const Slot& of = slots[*nest.loads[slot].index];
  Value* index = builder.CreateAlignedLoad(of.element, of.row, align_of(of.dtype));
  s.start = advance(s.row, builder.CreateSExt(index, builder.getInt64Ty()), s.index_step);
}

// 0, 1, .. as i64 or i32.
Value* Lowering::lane_numbers(bool wide) {
  SmallVector<llvm::Constant*, 16> numbers;
  for (unsigned l = 0; l < state.lanes; ++l)
    numbers.push_back(wide ? builder.getInt64(l) : builder.getInt32(l));
  return llvm::ConstantVector::get({numbers.begin(), numbers.size()});
}

// The elements from `first` on, each at its own index. Beyond the row's end nothing is read: there
// indices are anything.
Value* Lowering::gather(size_t load, Value* first, Value* left) {
  const Slot& s = slots[load];
  const unsigned lanes = state.lanes;
  auto all = [&](Value* v) { return builder.CreateVectorSplat(lanes, v); };
  Value* lane = lane_numbers(true);
  Value* there = builder.CreateICmpSLT(lane, all(left));
  const ValueNumber index = *nest.loads[load].index;  // held as i64
  Value* offsets = builder.CreateMul(values[index], all(s.index_step));
  if (s.walk != Walk::broadcast) {
    Value* columns = builder.CreateAdd(all(first), lane);
    offsets = builder.CreateAdd(offsets, builder.CreateMul(columns, all(s.column_step)));
  }
  Value* places = builder.CreateGEP(builder.getInt8Ty(), s.row, offsets);
  llvm::Type* vector = state.vector(s.element);
  return builder.CreateMaskedGather(vector, places, align_of(s.dtype), there,
                                    llvm::Constant::getNullValue(vector));
}

// The steps of the row that wait for so many reductions, which are there.
void Lowering::compute_row_steps(int level) {
  for (size_t i = 0; i < nest.steps.size(); ++i) {
    const size_t v = nest.first_step() + i;
    if (!values[v] && rows.facts.of_row[v] && rows.facts.level[v] == level)
      values[v] = step(nest.steps[i]);
  }
}

Value* Lowering::number(const ir::Number& n) {
  if (n.category == Category::floating) return emitter.constant(LaneType::f64, n.floating);
  if (n.category == Category::integral) return emitter.constant(LaneType::i64, n.integer);
  return emitter.truth(n.integer != 0);
}

Value* Lowering::step(const Step& s) {
  auto scope = lines->of(s.where);
  if (!s.call.op)
    return convert(state, nest.dtype_of(s.operands[0]), s.dtype, values[s.operands[0]]);
  const ops::PointwiseInfo& info = s.call.op->pointwise();
  const DType compute = dtype_of(s.compute);
  SmallVector<Value*, 4> operands;
  for (size_t k = 0; k < s.operands.size(); ++k) {
    const ValueNumber v = s.operands[k];
    const bool condition = info.roles[k] == ops::Role::condition;
    operands.push_back(
        convert(state, nest.dtype_of(v), condition ? DType::boolean : compute, values[v]));
  }
  const int half = ops::half_power_of(nest, s);
  const Rule rule = half ? half_power_rule(half, s.compute) : rule_of(*s.call.op, s.compute);
  GRADUS_CHECK(rule);
  Value* y = emit(rule, emitter, {operands.data(), operands.size()}, s.call.attributes.get());
  const bool truth = info.result == ops::Result::boolean;
  return convert(state, truth ? DType::boolean : compute, s.dtype, y);
}

void Lowering::store(Slot& s, Value* held) {
  Value* elements = unhold(state, s.dtype, held);
  if (s.buffer)
    builder.CreateAlignedStore(elements, s.at, align_of(s.dtype));
  else
    s.stored = elements;
}

// What columns reduce meets what they have.
void Lowering::add_to_columns() {
  for (size_t i = 0; i < nest.column_stores.size(); ++i) {
    Slot& s = slots[first_column() + i];
    const Step& step = nest.steps[nest.column_stores[i] - nest.first_step()];
    const ValueNumber x = step.operands[0];
    Value* have = hold(state, s.dtype, load(s));
    store(s, combine(*this, step, have, convert(state, nest.dtype_of(x), s.dtype, values[x])));
  }
}

void Lowering::store_rows() {
  for (size_t i = 0; i < nest.row_stores.size(); ++i) {
    const Slot& s = slots[nest.loads.size() + nest.stores.size() + i];
    Value* elements = unhold(state, s.dtype, values[nest.row_stores[i]]);
    builder.CreateAlignedStore(builder.CreateExtractElement(elements, uint64_t{0}), s.row,
                               align_of(s.dtype));
  }
}

Value* Lowering::load(const Slot& s) {
  if (s.loaded) return s.loaded;
  if (s.walk == Walk::contiguous)
    return builder.CreateAlignedLoad(state.vector(s.element), s.at, align_of(s.dtype));
  Value* elements = llvm::PoisonValue::get(state.vector(s.element));
  Value* at = s.at;
  for (uint64_t i = 0; i < state.lanes; ++i) {
    if (i) at = builder.CreateGEP(builder.getInt8Ty(), at, s.step);
    Value* element = builder.CreateAlignedLoad(s.element, at, align_of(s.dtype));
    elements = builder.CreateInsertElement(elements, element, i);
  }
  return elements;
}

// The first `left` lanes, which are fewer than a vector has.
Value* Lowering::mask_of(Value* left) {
  Value* some = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, integer(0));
  if (vector_bits < 512) {  // without mask registers each bit would be moved to its lane
    Value* count = builder.CreateTrunc(some, builder.getInt32Ty());
    return builder.CreateICmpSLT(lane_numbers(false),
                                 builder.CreateVectorSplat(state.lanes, count));
  }
  llvm::Type* bits = builder.getIntNTy(state.lanes);
  Value* ones = builder.CreateSub(
      builder.CreateShl(llvm::ConstantInt::get(bits, 1), builder.CreateZExtOrTrunc(some, bits)),
      llvm::ConstantInt::get(bits, 1));
  return builder.CreateBitCast(ones, state.vector(builder.getInt1Ty()));
}

// Copies `left` elements of the slots that have buffers into them, or out of them. Ends in the
// block that is returned.
BasicBlock* Lowering::copy_left(Value* left, const std::vector<bool>& which, bool in) {
  BasicBlock* before = builder.GetInsertBlock();
  auto copied = [&](size_t k) { return slots[k].buffer && which[k]; };
  size_t first = 0;
  while (first < slots.size() && !copied(first)) ++first;
  if (first == slots.size()) return before;
  BasicBlock *loop = block(in ? "copy" : "copy_back"), *done = block("copied");
  builder.CreateCondBr(builder.CreateICmpSGT(left, integer(0)), loop, done);
  builder.SetInsertPoint(loop);
  llvm::PHINode* j = counter(integer(0), before);
  for (size_t k = first; k < slots.size(); ++k) {
    if (!copied(k)) continue;
    const Slot& s = slots[k];
    Value* place = advance(s.here, j, s.column_step);
    Value* buffered = builder.CreateGEP(s.element, s.buffer, j);
    Value* element = builder.CreateAlignedLoad(s.element, in ? place : buffered, align_of(s.dtype));
    builder.CreateAlignedStore(element, in ? buffered : place, align_of(s.dtype));
  }
  Value* next = builder.CreateAdd(j, integer(1));
  j->addIncoming(next, loop);
  builder.CreateCondBr(builder.CreateICmpSLT(next, left), loop, done);
  builder.SetInsertPoint(done);
  return done;
}

void lower(const Nest& nest, unsigned vector_bits, const char* name, llvm::Module& module,
           unsigned lanes) {
  Lowering(nest, vector_bits, name, module, lanes).run();
}

}  // namespace gradus::fusion::cpu
