// Exchanges with the other ranks of a named group (gradus/communicator.h). Types say what the
// values of a group's ranks are to each other (Sharing in gradus/type.h); these operators alone
// change it. What other operators compute varies if an operand does.
//
// A derivative is that of the whole program, all ranks together: of the sum over ranks of
// <ct, y> for what varies, and of <ct, y> once for what is replicated. A replicated value that is
// used in something that varies has parts of its gradient on all ranks: `fit` (ops/reverse.h) adds
// them up. So each of these is the adjoint of another one: all_reduce and vary, all_gather and
// own_block, reduce_scatter and all_gather, broadcast and a product with [rank = root], shift and
// its inverse, all_to_all and itself, send and receive.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct GroupAttr {
  std::string group;
  static constexpr auto fields() { return std::tuple(required("group", &GroupAttr::group)); }
};

struct AllReduce {
  static constexpr auto name = "all_reduce"sv;
  static constexpr auto doc = "y = sum, max or min of x over the ranks of a group"sv;
  static constexpr bool collective = true;
  struct Attr {
    std::string group;
    std::string reduce = "sum";
    static constexpr auto fields() {
      return std::tuple(required("group", &Attr::group), field("reduce", &Attr::reduce));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&);
};

struct Vary {
  static constexpr auto name = "vary"sv;
  static constexpr auto doc = "y = x, said to be each rank's own"sv;
  static constexpr bool collective = true, may_be_view = true;
  using Attr = GroupAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
  static BatchedResults batch(const BatchedCall&);
};

// `ranks` is the number of the group's ranks, a size: `size R = ranks(data)` names it.
struct AllGather {
  static constexpr auto name = "all_gather"sv;
  static constexpr auto doc = "y[r, ..] = x[..] of rank r, for all ranks of a group"sv;
  static constexpr auto no_batch_rule = "ranks exchange whole tensors";
  static constexpr bool collective = true;
  struct Attr {
    std::string group;
    Dim ranks;
    static constexpr auto fields() {
      return std::tuple(required("group", &Attr::group), required("ranks", &Attr::ranks));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct OwnBlock {
  static constexpr auto name = "own_block"sv;
  static constexpr auto doc = "y[..] = x[r, ..], r the rank's number in a group"sv;
  static constexpr auto no_batch_rule = "ranks exchange whole tensors";
  static constexpr bool collective = true;
  using Attr = GroupAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct ReduceScatter {
  static constexpr auto name = "reduce_scatter"sv;
  static constexpr auto doc = "y[..] = sum over the ranks of x[r, ..], r the rank's own number"sv;
  static constexpr auto no_batch_rule = "ranks exchange whole tensors";
  static constexpr bool collective = true;
  using Attr = GroupAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct AllToAll {
  static constexpr auto name = "all_to_all"sv;
  static constexpr auto doc = "y[s, ..] = x[r, ..] of rank s, r the rank's own number"sv;
  static constexpr auto no_batch_rule = "ranks exchange whole tensors";
  static constexpr bool collective = true;
  using Attr = GroupAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Broadcast {
  static constexpr auto name = "broadcast"sv;
  static constexpr auto doc = "y = x of the group's rank `root`"sv;
  static constexpr bool collective = true;
  struct Attr {
    std::string group;
    int64_t root = 0;
    static constexpr auto fields() {
      return std::tuple(required("group", &Attr::group), field("root", &Attr::root));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&);
};

struct Shift {
  static constexpr auto name = "shift"sv;
  static constexpr auto doc =
      "y = x of rank (r - by) mod the group's size, r the rank's own number"sv;
  static constexpr bool collective = true;
  struct Attr {
    std::string group;
    int64_t by = 1;
    static constexpr auto fields() {
      return std::tuple(required("group", &Attr::group), field("by", &Attr::by));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&);
};

struct Rank {
  static constexpr auto name = "rank"sv;
  static constexpr auto doc = "the rank's own number in a group, 0-d"sv;
  static constexpr std::array<std::string_view, 0> inputs{};
  static constexpr auto no_batch_rule = "it has no operand";
  static constexpr bool collective = true, zero_gradient = true;
  using Attr = GroupAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
};

// Between programs of different ranks. What has been sent is a `token`, without elements: a result
// of the program, so that the call stays, and an operand of `receive`, so that its derivative,
// which sends, has a result in turn.
struct Send {
  static constexpr auto name = "send"sv;
  static constexpr auto doc = "sends x to the rank `dest` of a group; y is a token"sv;
  static constexpr auto no_batch_rule = "ranks exchange whole tensors";
  static constexpr bool collective = true;
  struct Attr {
    std::string group;
    int64_t dest = 0;
    static constexpr auto fields() {
      return std::tuple(required("group", &Attr::group), required("dest", &Attr::dest));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Receive {
  static constexpr auto name = "receive"sv;
  static constexpr auto doc = "y = what the rank `source` of a group sends"sv;
  static constexpr std::array inputs{"token"sv};
  static constexpr auto no_batch_rule = "ranks exchange whole tensors";
  static constexpr bool collective = true;
  struct Attr {
    std::string group;
    int64_t source = 0;
    Dims shape;
    static constexpr auto fields() {
      return std::tuple(required("group", &Attr::group), required("source", &Attr::source),
                        required("shape", &Attr::shape));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

// The type of a result of an operator that is no collective. Throws Error where a part of a sum
// meets an operator that is not linear in it.
void place_results(InferCall& call);

// The groups whose ranks a program, or a graph that it names, speaks to or counts: each once.
std::vector<std::string> groups_in(const ir::Graph& graph);

// Whether the node sends or receives: no two calls are one, and none is made again.
bool is_message(const ir::Node& node);
// Whether one of the graph's own nodes does.
bool has_messages(const ir::Graph& graph);

// x as this type says it is shared: parts are added up, what all know becomes each rank's own.
Value share_as(const Value& x, Type type);

}  // namespace gradus::ops
