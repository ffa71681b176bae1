#include "ops/collectives.h"

#include <algorithm>
#include <set>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/structural.h"

namespace gradus::ops {

namespace {

using ir::Sharing;

std::string_view name_of(Sharing sharing) {
  constexpr std::string_view names[]{"replicated", "varying", "partial"};
  return names[static_cast<size_t>(sharing)];
}

Type shared(Type type, std::string_view group, Sharing sharing) {
  type.set_sharing(group, sharing);
  return type;
}

// Operand 0, of which the ranks have to have values of their own.
const Type& own_values(InferCall& call, const std::string& group, bool parts) {
  const Type& x = call.tensor(0);
  const Sharing s = x.sharing(group);
  if (s == Sharing::varying || (parts && s == Sharing::partial)) return x;
  if (s == Sharing::partial)
    call.fail("'x' is {}: a part of a sum over group '{}'; all_reduce it first", to_string(x),
              group);
  call.fail(
      "'x' is {}, the same on all ranks of group '{}'; declare an input that differs between ranks "
      "as {} varying({}), or apply vary(%x)",
      to_string(x), group, to_string(x), group);
}

const Type& known_to_all(InferCall& call, const std::string& group) {
  const Type& x = call.tensor(0);
  if (x.sharing(group) != Sharing::replicated)
    call.fail("'x' is {}; it must be the same on all ranks of group '{}'", to_string(x), group);
  return x;
}

// Without the first dimension, which counts ranks.
Type block_of(InferCall& call, const Type& x) {
  if (x.rank() == 0) call.fail("'x' is {}; its first dimension counts ranks", to_string(x));
  Type y = x;
  y.dims.erase(y.dims.begin());
  return y;
}

CollectiveReducer reducer_of(std::string_view name) {
  return name == "max"   ? CollectiveReducer::max
         : name == "min" ? CollectiveReducer::min
                         : CollectiveReducer::sum;
}

void exchange(BindCall& call, const std::string& group, CollectiveKind kind, int64_t peer = 0,
              int64_t ranks = -1) {
  work::Collective w;
  w.kind = kind;
  w.group = group;
  w.x = kind == CollectiveKind::receive ? call.out[0] : call.in[0];
  w.peer = peer;
  w.ranks = ranks;
  call.set_work(std::move(w));
}

// Each element by itself: more of them are as good.
BatchedResults batch_elements(const BatchedCall& c) {
  return c.world.emit(c.op, c.attributes, {{c.stretched(0)}});
}

const Type token(DType dtype, const std::string& group) {
  return shared(Type(dtype, {0}), group, Sharing::varying);
}

}  // namespace

void AllReduce::infer(InferCall& call, const Attr& a) {
  if (a.reduce != "sum" && a.reduce != "max" && a.reduce != "min")
    call.fail("'reduce' is \"{}\"; it must be \"sum\", \"max\" or \"min\"", a.reduce);
  const Type& x = own_values(call, a.group, a.reduce == "sum");
  if (x.dtype == DType::boolean) call.fail("'x' is {}; cast it to a number first", to_string(x));
  call.out.push_back(shared(x, a.group, Sharing::replicated));
}
void AllReduce::bind(BindCall& call, const Attr& a) {
  work::Collective w;
  w.reducer = reducer_of(a.reduce);
  w.group = a.group;
  w.x = call.in[0];
  call.set_work(std::move(w));
}
// Of a maximum, where it is x: in equal parts where several ranks have it.
Value AllReduce::dx(VjpCall& d, const Attr& a) {
  const Value dy = d.dy();
  if (a.reduce == "sum") return dy;
  const Value is_it = cast(eq(d.x(), d.y()), d.x_type().dtype);
  const Value how_many = emit<AllReduce>({is_it}, {.group = a.group});
  return keep_where(eq(d.x(), d.y()), dy / how_many);
}
BatchedResults AllReduce::batch(const BatchedCall& c) { return batch_elements(c); }

void Vary::infer(InferCall& call, const Attr& a) {
  call.out.push_back(shared(known_to_all(call, a.group), a.group, Sharing::varying));
}
void Vary::bind(BindCall& call) { call.set_view(0, 0, call.in[0], 0); }
Value Vary::dx(VjpCall& d) { return d.dy(); }
BatchedResults Vary::batch(const BatchedCall& c) { return batch_elements(c); }

void AllGather::infer(InferCall& call, const Attr& a) {
  Type y = shared(own_values(call, a.group, false), a.group, Sharing::replicated);
  y.dims.insert(y.dims.begin(), a.ranks);
  call.out.push_back(std::move(y));
}
void AllGather::bind(BindCall& call, const Attr& a) {
  exchange(call, a.group, CollectiveKind::all_gather, 0, call.size(a.ranks));
}
Value AllGather::dx(VjpCall& d, const Attr& a) {
  return emit<OwnBlock>({d.dy()}, {.group = a.group});
}

void OwnBlock::infer(InferCall& call, const Attr& a) {
  const Type& x = known_to_all(call, a.group);
  call.out.push_back(shared(block_of(call, x), a.group, Sharing::varying));
}
void OwnBlock::bind(BindCall& call, const Attr& a) {
  call.set_work(work::OwnBlock{a.group, call.in[0]});
}
Value OwnBlock::dx(VjpCall& d, const Attr& a) {
  return emit<AllGather>({d.dy()}, {.group = a.group, .ranks = d.x_type().dims[0]});
}

void ReduceScatter::infer(InferCall& call, const Attr& a) {
  const Type& x = own_values(call, a.group, true);
  if (x.dtype == DType::boolean) call.fail("'x' is {}; cast it to a number first", to_string(x));
  call.out.push_back(shared(block_of(call, x), a.group, Sharing::varying));
}
void ReduceScatter::bind(BindCall& call, const Attr& a) {
  exchange(call, a.group, CollectiveKind::reduce_scatter, 0, call.in[0].shape[0]);
}
Value ReduceScatter::dx(VjpCall& d, const Attr& a) {
  return emit<AllGather>({d.dy()}, {.group = a.group, .ranks = d.x_type().dims[0]});
}

void AllToAll::infer(InferCall& call, const Attr& a) {
  const Type& x = own_values(call, a.group, false);
  block_of(call, x);
  call.out.push_back(x);
}
void AllToAll::bind(BindCall& call, const Attr& a) {
  exchange(call, a.group, CollectiveKind::all_to_all, 0, call.in[0].shape[0]);
}
Value AllToAll::dx(VjpCall& d, const Attr& a) {
  return emit<AllToAll>({d.dy()}, {.group = a.group});
}

void Broadcast::infer(InferCall& call, const Attr& a) {
  if (a.root < 0) call.fail("'root' is {}; ranks are counted from 0", a.root);
  call.out.push_back(shared(own_values(call, a.group, false), a.group, Sharing::replicated));
}
void Broadcast::bind(BindCall& call, const Attr& a) {
  exchange(call, a.group, CollectiveKind::broadcast, a.root);
}
Value Broadcast::dx(VjpCall& d, const Attr& a) {
  const Value own = emit_all<Rank>(d.world, {}, {.group = a.group})[0];
  return keep_where(eq(own, num(a.root)), d.dy());
}
BatchedResults Broadcast::batch(const BatchedCall& c) { return batch_elements(c); }

void Shift::infer(InferCall& call, const Attr& a) {
  call.out.push_back(own_values(call, a.group, false));
}
void Shift::bind(BindCall& call, const Attr& a) {
  exchange(call, a.group, CollectiveKind::shift, a.by);
}
Value Shift::dx(VjpCall& d, const Attr& a) {
  return emit<Shift>({d.dy()}, {.group = a.group, .by = -a.by});
}
BatchedResults Shift::batch(const BatchedCall& c) { return batch_elements(c); }

void Rank::infer(InferCall& call, const Attr& a) {
  call.out.push_back(shared(Type(DType::i64, {}), a.group, Sharing::varying));
}
void Rank::bind(BindCall& call, const Attr& a) { call.set_work(work::OwnRank{a.group}); }

void Send::infer(InferCall& call, const Attr& a) {
  if (a.dest < 0) call.fail("'dest' is {}; ranks are counted from 0", a.dest);
  call.out.push_back(token(own_values(call, a.group, false).dtype, a.group));
}
void Send::bind(BindCall& call, const Attr& a) {
  exchange(call, a.group, CollectiveKind::send, a.dest);
}
Value Send::dx(VjpCall& d, const Attr& a) {
  return emit<Receive>({d.dy()}, {.group = a.group, .source = a.dest, .shape = d.x_type().dims});
}

void Receive::infer(InferCall& call, const Attr& a) {
  if (a.source < 0) call.fail("'source' is {}; ranks are counted from 0", a.source);
  const Type& given = call.tensor(0);
  if (!(given == token(given.dtype, a.group)))
    call.fail("'token' is {}; it must be {}", to_string(given),
              to_string(token(given.dtype, a.group)));
  call.out.push_back(shared(Type(given.dtype, a.shape), a.group, Sharing::varying));
}
void Receive::bind(BindCall& call, const Attr& a) {
  exchange(call, a.group, CollectiveKind::receive, a.source);
}
Value Receive::dx(VjpCall& d, const Attr& a) {
  return emit<Send>({d.dy()}, {.group = a.group, .dest = a.source});
}

namespace {

// How a call's operands are shared over one group.
Sharing joined(const InferCall& call, const std::string& group) {
  size_t varying = 0, partial = 0, others = 0, first = SIZE_MAX;
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (!call.given(i)) continue;
    const Sharing s = call.is_number(i) || !call.in[i].type->is_tensor()
                          ? Sharing::replicated
                          : call.in[i].type->sharing(group);
    if (s == Sharing::partial && partial++ == 0) first = i;
    varying += s == Sharing::varying;
    others += s == Sharing::replicated;
  }
  if (partial == 0) return varying > 0 ? Sharing::varying : Sharing::replicated;
  const ir::Linear linear = call.op.traits.linear;
  const bool holds =
      varying == 0 && (linear == ir::Linear::jointly ? others == 0
                       : linear == ir::Linear::in_each
                           ? partial == 1
                           : linear == ir::Linear::in_first && partial == 1 && first == 0);
  if (!holds)
    call.fail(
        "{} is {}, a part of a sum over group '{}', and the call is not linear in it; all_reduce "
        "it first",
        call.name_of_operand(first), to_string(*call.in[first].type), group);
  return Sharing::partial;
}

}  // namespace

void place_results(InferCall& call) {
  const bool any = std::ranges::any_of(call.in, [](const ir::OperandType& o) {
    return o.kind == ir::OperandType::Kind::tensor && o.type->placement;
  });
  if (!any) {
    for (Type& t : call.out) t.placement = {};
    return;
  }
  ir::Type all;  // groups over which an operand is not replicated
  for (const ir::OperandType& o : call.in) {
    if (o.kind != ir::OperandType::Kind::tensor || !o.type->placement) continue;
    for (const ir::Placement::Entry& e : o.type->placement->entries)
      all.set_sharing(e.group, Sharing::varying);
  }
  const std::vector<ir::Placement::Entry> groups = all.placement->entries;
  for (const ir::Placement::Entry& e : groups) all.set_sharing(e.group, joined(call, e.group));
  for (Type& t : call.out)
    if (t.is_tensor()) t.placement = all.placement;
}

namespace {

void add_groups(const ir::Graph& graph, std::set<std::string>& groups,
                std::set<const ir::Graph*>& seen) {
  if (!seen.insert(&graph).second) return;
  for (const ir::SizeRange& r : graph.ranges)
    if (!r.group.empty()) groups.insert(r.group);
  for (const ir::Stage& stage : graph.stages)
    for (const ir::Node& node : stage.nodes) {
      for (const GraphName* named : graphs_in(node))
        if (named->graph) add_groups(*named->graph, groups, seen);
      if (!node.op->traits.collective) continue;
      for (const ir::NamedLiteral& a : node.op->write(node.attributes))
        if (const auto* text = std::get_if<std::string>(&a.value.value); text && a.name == "group")
          groups.insert(*text);
    }
}

}  // namespace

std::vector<std::string> groups_in(const ir::Graph& graph) {
  std::set<std::string> groups;
  std::set<const ir::Graph*> seen;
  add_groups(graph, groups, seen);
  return {groups.begin(), groups.end()};
}

bool is_message(const ir::Node& node) {
  return node.op == &record<Send>() || node.op == &record<Receive>();
}

bool has_messages(const ir::Graph& graph) {
  return std::ranges::any_of(graph.stages, [](const ir::Stage& stage) {
    return std::ranges::any_of(stage.nodes, is_message);
  });
}

Value share_as(const Value& x, Type type) {
  Value y = x;
  const auto placement = x.type.placement;
  if (placement)
    for (const ir::Placement::Entry& e : placement->entries)
      if (type.sharing(e.group) == Sharing::replicated)
        y = emit<AllReduce>({y}, {.group = e.group});
  if (type.placement)
    for (const ir::Placement::Entry& e : type.placement->entries) {
      const Sharing now = y.type.sharing(e.group);
      if (now == Sharing::replicated && e.sharing == Sharing::varying)
        y = emit<Vary>({y}, {.group = e.group});
      else if (now != e.sharing && now != Sharing::replicated)
        throw Error("a gradient is {} over group '{}', and its operand {}", name_of(now), e.group,
                    name_of(e.sharing));
    }
  return y;
}

Family collectives_family() {
  return fold<std::tuple<AllReduce, Vary, AllGather, OwnBlock, ReduceScatter, AllToAll, Broadcast,
                         Shift, Rank, Send, Receive>>();
}

}  // namespace gradus::ops
