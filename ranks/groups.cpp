#include <string>
#include <utility>

#include "gradus/communicator.h"

namespace gradus {

namespace {

constexpr std::string_view kind_names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                           "all_to_all", "broadcast",  "shift",
                                           "send",       "receive"};
constexpr std::string_view reducer_names[] = {"sum", "max", "min"};

}  // namespace

std::string to_string(const CollectiveCall& call) {
  using enum CollectiveKind;
  std::string text = fmt::format("{} of {} {}", kind_names[static_cast<size_t>(call.kind)],
                                 call.count, name_of(call.dtype));
  switch (call.kind) {
    case all_reduce:
    case reduce_scatter:
      if (call.reducer != CollectiveReducer::sum)
        text += fmt::format(" by {}", reducer_names[static_cast<size_t>(call.reducer)]);
      break;
    case broadcast:
    case receive:
      text += fmt::format(" from rank {}", call.peer);
      break;
    case send:
      text += fmt::format(" to rank {}", call.peer);
      break;
    case shift:
      text += fmt::format(" by {}", call.peer);
      break;
    case all_gather:
    case all_to_all:
      break;
  }
  return text;
}

std::shared_ptr<Communicator> single_rank() { return thread_ranks(1).front(); }

void RankGroups::bind(std::string_view name, std::shared_ptr<Communicator> communicator) {
  // The one that goes may have to wait for its last messages: not under the lock.
  std::lock_guard guard(mutex_);
  auto found = groups_.find(name);
  if (found == groups_.end()) {
    if (communicator) groups_.emplace(name, std::move(communicator));
    return;
  }
  std::swap(found->second, communicator);
  if (!found->second) groups_.erase(found);
}

std::shared_ptr<Communicator> RankGroups::find(std::string_view name) const {
  std::lock_guard guard(mutex_);
  auto found = groups_.find(name);
  if (found != groups_.end()) return found->second;
  std::string bound;
  for (const auto& [other, communicator] : groups_)
    bound += fmt::format("{}\"{}\"", bound.empty() ? "" : ", ", other);
  throw Error(
      "no group of ranks is bound to the name \"{0}\" in this context{1}; bind mpi_ranks(), one of "
      "thread_ranks(n), or single_rank() to it: rank_groups(context).bind(\"{0}\", ranks) in C++, "
      "gradus.bind_group(\"{0}\", ranks) in Python",
      name, bound.empty() ? "" : fmt::format(" (bound are {})", bound));
}

RankGroups& rank_groups(Context& context) {
  return *context.part<RankGroups>([] { return std::make_shared<RankGroups>(); });
}

}  // namespace gradus
