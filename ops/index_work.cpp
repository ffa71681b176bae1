#include "ops/index_work.h"

namespace gradus::ops {

namespace {

// Joins neighbouring dimensions that both sides walk in one stride; leaves at least one.
void join(Sizes& shape, Sizes& a, Sizes& b) { join_dimensions(shape, std::array{&a, &b}); }

// Where sums are kept that are rounded once, at the end: in scratch memory.
work::Window sums_window(const BindCall& call, DType dtype) {
  work::Window sums = result_window(call);
  sums.argument = work::Window::scratch;
  sums.dtype = dtype;
  return sums;
}

// Where `write` and `add` work: on the result, or on sums that are rounded into it. `begin` is
// given the window that the first elements go to.
template <class Begin>
void set_target(const BindCall& call, work::Index& w, Begin begin) {
  if (w.sides.action == IndexAction::read) return;
  work::Window result = result_window(call);
  w.sides.indexed = result.argument;
  const DType kept = work::accumulation_dtype(w.sides.dtype);
  work::Move first, last;
  if (w.sides.action == IndexAction::write || kept == w.sides.dtype) {
    begin(first, result);
  } else {
    work::Window sums = sums_window(call, kept);
    begin(first, sums);
    last.copy(call.out[0].shape, sums, result);
    w.sums = call.out[0].numel();
  }
  w.begin = std::move(first.copies);
  w.end = std::move(last.copies);
}
void begin_as_operand(const BindCall& call, work::Index& w) {
  set_target(call, w, [&](work::Move& m, work::Window target) {
    m.copy(call.in[0].shape, operand_window(call, 0), std::move(target));
  });
}

// Some dimensions behind the others; `indexed` is empty where indices say all.
void add_dimensions(work::Index& w, const Sizes& shape, const Sizes& plain, const Sizes& indexed,
                    bool serial) {
  for (size_t d = 0; d < shape.size(); ++d) {
    w.shape.push_back(shape[d]);
    w.plain.push_back(plain[d]);
    w.indexed.push_back(indexed.empty() ? 0 : indexed[d]);
    w.serial.push_back(serial);
  }
}

}  // namespace

void bind_slabs(BindCall& call, SlabPlan p) {
  join(p.outer, p.outer_plain, p.outer_indexed);
  join(p.inner, p.inner_plain, p.inner_indexed);
  if (p.shape.empty()) {
    p.shape = {1};
    p.plain_strides = {1};
    for (IndexOperand& o : p.indices) o.strides = {1};
  }
  if (p.indices.size() == 1) join(p.shape, p.plain_strides, p.indices[0].strides);
  work::Index w;
  w.op = &call.op;
  w.sides = p.sides;
  add_dimensions(w, p.outer, p.outer_plain, p.outer_indexed, false);
  add_dimensions(w, p.shape, p.plain_strides, {}, true);
  add_dimensions(w, p.inner, p.inner_plain, p.inner_indexed, false);
  for (IndexOperand o : p.indices) {
    Sizes strides(p.outer.size(), 0);
    strides.append(o.strides.begin(), o.strides.end());
    strides.resize(w.shape.size(), 0);
    o.strides = std::move(strides);
    w.indices.push_back(std::move(o));
  }
  begin_as_operand(call, w);
  call.set_work(std::move(w));
}

void bind_elements(BindCall& call, ElementPlan p) {
  if (p.shape.empty()) p.shape = p.plain_strides = p.indexed_strides = p.index.strides = {1};
  // An expanded index would look like one of few elements, which are checked: none may be there.
  if (numel(p.shape) == 0) p.index.strides = contiguous_strides(p.shape);
  work::Index w;
  w.op = &call.op;
  w.sides = p.sides;
  add_dimensions(w, p.shape, p.plain_strides, p.indexed_strides, false);
  w.serial[static_cast<size_t>(p.index.dimension)] = true;
  w.indices.push_back(std::move(p.index));
  begin_as_operand(call, w);
  call.set_work(std::move(w));
}

void bind_window_sum(BindCall& call, Sizes strides, int64_t offset) {
  const Layout& x = call.in[0];
  work::Index w;
  w.op = &call.op;
  w.sides.dtype = x.dtype;
  w.sides.action = IndexAction::add;
  w.shape = x.shape;
  w.plain = x.strides;
  w.indexed = std::move(strides);
  w.indexed_offset = offset;
  if (w.shape.empty()) w.shape = w.plain = w.indexed = {1};
  for (size_t d = 0; d < w.shape.size(); ++d)
    w.serial.push_back(x.numel() > 0 && !work::stands_apart(w.shape, w.indexed, d));
  set_target(call, w, [&](work::Move& m, work::Window target) {
    m.fill(call.out[0].shape, work::Pattern(), std::move(target));
  });
  call.set_work(std::move(w));
}

}  // namespace gradus::ops
