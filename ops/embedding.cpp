#include "ops/embedding.h"

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/extremum.h"
#include "ops/families.h"
#include "ops/indexing.h"
#include "ops/operands.h"

namespace gradus::ops {

void Embedding::compose(ComposeCall& c, const Attr& a) {
  const Value &weight = c.x(), &index = c.x(1);
  if (!weight.is_tensor() || weight.rank() != 2)
    c.fail("operand 'weight' must be a tensor of two dimensions");
  if (!index.is_tensor()) c.fail("operand 'index' must be a tensor");
  if (const Dim& rows = weight.dims()[0]; a.padding_idx && rows.is_constant())
    if (*a.padding_idx < -rows.value() || *a.padding_idx >= rows.value())
      c.fail("'padding_idx' is {}, 'weight' has {} rows", *a.padding_idx, rows.value());
  Value flat = reshape(index, {ir::numel(index.dims())});
  Value rows = index_select(weight, flat, 0);
  Dims dims = index.dims();
  dims.push_back(weight.dims()[1]);
  c.give(reshape(rows, dims));
}
namespace {

// The row that has no gradient, counted from the front.
Value padding_row(int64_t padding_idx, const Dim& rows) {
  return padding_idx < 0 ? Value::number(rows + padding_idx) : num(padding_idx);
}

}  // namespace

// Where each of the batch has its own table, no row of all tables is the padding: what is read of
// that row is a constant.
BatchedResults Embedding::batch(const BatchedCall& c, const Attr& a) {
  const Value &weight = c.operands[0], &index = c.operands[1];
  if (!c.batched[0]) return c.world.emit(c.op, c.attributes, c.operands);
  const Dim n = ir::numel(std::span<const Dim>(index.dims()).subspan(c.batched[1] ? 1 : 0));
  const Dim &table = weight.dims()[1], &width = weight.dims()[2];
  Value flat = reshape(index, {c.batched[1] ? c.size : Dim(1), n, 1});
  Value rows = gather(weight, expand(flat, {c.size, n, width}), 1);
  if (a.padding_idx)
    rows = where(ne(flat, padding_row(*a.padding_idx, table)), rows, emit<Detach>(rows));
  return {reshape(rows, c.with_batch(c.results[0].dims))};
}

// Only with a padding_idx: without one, what it is composed of has the same derivative.
Value Embedding::dx(VjpCall& d, const Attr& a) {
  const Type& weight = d.x_type(0);
  Value flat = reshape(d.x(1), {ir::numel(d.x_type(1).dims)});
  Dims rows{flat.dims()[0], weight.dims[1]};
  Value counts = unsqueeze(ne(flat, padding_row(*a.padding_idx, weight.dims[0])), 1);
  Value kept = keep_where(counts, reshape(d.dy(), rows));
  Value zeros = zeros_to_fill(d.world, weight);
  return emit<IndexAdd>({zeros, flat, kept}, {.dim = 0});
}

void EmbeddingBag::compose(ComposeCall& c, const Attr& a) {
  const Value &weight = tensor_operand(c, 0), &index = tensor_operand(c, 1);
  const std::string& mode = a.mode;
  if (index.rank() != 2)
    c.fail("operand 'index' is {}; it must have two dimensions, a row for each bag",
           to_string(index.type));
  if (mode != "mean" && mode != "sum" && mode != "max")
    c.fail("'mode' is \"{}\"; it must be \"mean\", \"sum\" or \"max\"", mode);
  floating_operand(c, 0);
  Value rows = emit<Embedding>({weight, index});
  const Dim& length = index.dims()[1];
  if (mode == "max" && length != Dim(0)) {
    SmallVector<Value, 1> in{rows};
    c.give(emit_all<MaxDim>(c.world, in, {.dim = 1})[0]);
    return;
  }
  Value total = sum(rows, {1}, false);
  c.give(mode == "mean" ? total / max(length, Dim(1)) : total);
}

Family embedding_family() { return fold<EmbeddingOperators>(); }

}  // namespace gradus::ops
