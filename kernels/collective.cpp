// Exchanges with the other ranks of a group.
#include "kernels/collective.h"

#include "gradus/error.h"

namespace gradus::kernels {

namespace {

std::shared_ptr<Communicator> group_of(const std::string& name, KernelScope& scope) {
  GRADUS_CHECK(scope.context);
  return rank_groups(*scope.context).find(name);
}

void require_ranks(const std::string& group, const Communicator& ranks, int64_t wanted) {
  if (ranks.size() != wanted)
    throw Error("group '{}' has {} ranks, and the program is for {}", group, ranks.size(), wanted);
}

bool by_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all;
}

struct Exchange {
  Collective w;
  bool copies;  // operand 0 does not lie in order
};

// Result 1 is of a call that only begins.
int64_t& ticket_of(std::byte* memory) { return *reinterpret_cast<int64_t*>(memory); }

void run_exchange(const Exchange& p, std::byte* const* args, KernelScope& scope) {
  const Collective& w = p.w;
  const auto [ranks, call] = rank_call(w, scope);
  const std::byte* in = args[0];
  if (p.copies) {
    copy_elements(w.x, in, Layout(w.x.dtype, w.x.shape), scope.scratch);
    in = scope.scratch;
  }
  const uint64_t ticket = ranks->start(call, in, args[1]);
  if (w.begins)
    ticket_of(args[2]) = static_cast<int64_t>(ticket);
  else
    ranks->wait(ticket);
}

void run_end(const CollectiveEnd& p, std::byte* const* args, KernelScope& scope) {
  group_of(p.group, scope)->wait(static_cast<uint64_t>(ticket_of(args[0])));
}

void run_own_rank(const OwnRank& p, std::byte* const* args, KernelScope& scope) {
  *reinterpret_cast<int64_t*>(args[0]) = group_of(p.group, scope)->rank();
}

void run_own_block(const OwnBlock& p, std::byte* const* args, KernelScope& scope) {
  const auto ranks = group_of(p.group, scope);
  require_ranks(p.group, *ranks, p.x.shape[0]);
  Layout block(p.x.dtype, Sizes(p.x.shape.begin() + 1, p.x.shape.end()));
  const Layout result = block;
  block.strides = Sizes(p.x.strides.begin() + 1, p.x.strides.end());
  const int64_t offset = ranks->rank() * p.x.strides[0] * static_cast<int64_t>(size_of(p.x.dtype));
  copy_elements(block, args[0] + offset, result, args[1]);
}

}  // namespace

RankCall rank_call(const Collective& w, KernelScope& scope) {
  RankCall c{group_of(w.group, scope), {w.kind, w.reducer, w.x.dtype, w.x.numel(), w.peer}};
  if (w.ranks >= 0) require_ranks(w.group, *c.ranks, w.ranks);
  if (by_blocks(w.kind)) c.call.count /= c.ranks->size();
  return c;
}

bool copies_operand(const Collective& w) {
  return w.kind != CollectiveKind::receive && !w.x.contiguous() && w.x.numel() > 0;
}

Kernel make_kernel(const Collective& w) {
  const bool copies = copies_operand(w);
  GRADUS_CHECK(!copies || !w.begins);  // the copy goes with the step
  const auto bytes = copies ? static_cast<size_t>(w.x.numel()) * size_of(w.x.dtype) : 0;
  return Kernel::of<run_exchange>(Exchange{w, copies}, bytes);
}

Kernel make_kernel(const CollectiveEnd& w) { return Kernel::of<run_end>(w); }

Kernel make_kernel(const OwnRank& w) { return Kernel::of<run_own_rank>(w); }

Kernel make_kernel(const OwnBlock& w) { return Kernel::of<run_own_block>(w); }

}  // namespace gradus::kernels
