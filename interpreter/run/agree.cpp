// Whether the ranks that begin a program together have the same one.
#include <map>
#include <set>

#include "gradus/communicator.h"
#include "interpreter/run/steps.h"

namespace gradus::interpreter {

namespace {

// Of a context: the programs that the ranks of a communicator have compared.
struct Agreed {
  std::mutex mutex;
  std::map<std::weak_ptr<Communicator>, std::set<uint64_t>, std::owner_less<>> programs;

  bool is_new(const std::shared_ptr<Communicator>& ranks, uint64_t program) {
    std::lock_guard guard(mutex);
    return programs[ranks].insert(program).second;
  }
};

}  // namespace

void agree_on_program(const StateData& s) {
  const RankProgram* program = s.code->rank_program();
  if (!program || program->messages) return;
  const auto agreed = s.place.context->part<Agreed>([] { return std::make_shared<Agreed>(); });
  for (const std::string& group : program->groups) {
    const auto ranks = rank_groups(*s.place.context).find(group);
    if (ranks->size() == 1 || !agreed->is_new(ranks, program->fingerprint)) continue;
    std::vector<uint64_t> all(static_cast<size_t>(ranks->size()));
    ranks->run({.kind = CollectiveKind::all_gather, .dtype = DType::u64, .count = 1},
               reinterpret_cast<const std::byte*>(&program->fingerprint),
               reinterpret_cast<std::byte*>(all.data()));
    for (size_t r = 0; r < all.size(); ++r)
      if (all[r] != program->fingerprint)
        throw Error(
            "rank {} of group '{}' begins another program than rank {}, which begins '{}'; ranks "
            "that run different programs use send and receive alone",
            r, group, ranks->rank(), s.code->graph().name);
  }
}

}  // namespace gradus::interpreter
