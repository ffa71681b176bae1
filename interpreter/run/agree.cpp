// Whether the ranks that begin a program together have the same one, and how their devices
// exchange.
#include <map>
#include <set>

#include "gradus/communicator.h"
#include "interpreter/run/steps.h"

namespace gradus::interpreter {

namespace {

// A program, and where it runs: 0 is the CPU, another number the kernels of a device.
using Begun = std::pair<uint64_t, uint64_t>;

// Of a context: what the ranks of a communicator have compared, and found to be the same.
struct Agreed {
  std::mutex mutex;
  std::map<std::weak_ptr<Communicator>, std::set<Begun>, std::owner_less<>> programs;

  bool is_known(const std::shared_ptr<Communicator>& ranks, Begun program) {
    std::lock_guard guard(mutex);
    return programs[ranks].contains(program);
  }
  void add(const std::shared_ptr<Communicator>& ranks, Begun program) {
    std::lock_guard guard(mutex);
    programs[ranks].insert(program);
  }
};

// What a rank tells the others.
struct Told {
  uint64_t program = 0;
  devices::ExchangeOffer offer{};
};

std::vector<Told> tell_all(Communicator& ranks, const Told& own) {
  static_assert(sizeof(Told) % sizeof(uint64_t) == 0);
  std::vector<Told> all(static_cast<size_t>(ranks.size()));
  ranks.run({.kind = CollectiveKind::all_gather,
             .dtype = DType::u64,
             .count = sizeof(Told) / sizeof(uint64_t)},
            reinterpret_cast<const std::byte*>(&own), reinterpret_cast<std::byte*>(all.data()));
  return all;
}

void require_same_program(const std::vector<Told>& all, const std::string& group, int rank,
                          const std::string& name) {
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].program != all[static_cast<size_t>(rank)].program)
      throw Error(
          "rank {} of group '{}' begins another program than rank {}, which begins '{}'; ranks "
          "that run different programs use send and receive alone",
          r, group, rank, name);
}

}  // namespace

void agree_on_program(const StateData& s) {
  const RankProgram* program = s.code->rank_program();
  if (!program || program->messages) return;
  const auto agreed = s.place.context->part<Agreed>([] { return std::make_shared<Agreed>(); });
  const Begun begun{program->fingerprint, s.place.on_host() ? 0 : s.place.kernels.source->id()};
  devices::Backend& backend = *s.place.kernels.backend;
  for (const std::string& group : program->groups) {
    const auto ranks = rank_groups(*s.place.context).find(group);
    if (ranks->size() == 1 || agreed->is_known(ranks, begun)) continue;
    const auto all = tell_all(*ranks, {program->fingerprint, backend.exchange_offer(ranks)});
    require_same_program(all, group, ranks->rank(), s.code->graph().name);
    std::vector<devices::ExchangeOffer> offers;
    for (const Told& told : all) offers.push_back(told.offer);
    backend.join_exchange(group, ranks, offers);
    agreed->add(ranks, begun);
  }
}

}  // namespace gradus::interpreter
