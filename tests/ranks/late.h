// A communicator whose calls are done when they are waited for, with those that began before them,
// and not before: what a program reads too early, or writes too late, gives other bits. Ranks whose
// sizes differ may have other groups, and so wait in another order; all begin in one order.
#pragma once

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "gradus/communicator.h"

namespace gradus::test {

class Late final : public Communicator {
 public:
  explicit Late(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool in_rank_order() const override { return inner_->in_rank_order(); }

  uint64_t start(const CollectiveCall& call, const std::byte* in, std::byte* out) override {
    log.push_back(fmt::format("begin {}", calls_.size()));
    calls_.push_back({call, in, out});
    if (call.kind != CollectiveKind::send)
      std::memset(out, 0xff, static_cast<size_t>(size_of_result(call)) * size_of(call.dtype));
    return calls_.size() - 1;
  }
  void wait(uint64_t ticket) override {
    log.push_back(fmt::format("wait {}", ticket));
    if (!failure.empty()) throw Error("{}", failure);
    for (; done_ <= ticket; ++done_) {
      const Call& c = calls_.at(done_);
      inner_->run(c.call, c.in, c.out);
    }
  }
  void forget_calls(const std::shared_ptr<const void>& memory) noexcept override {
    if (memory) kept.push_back(memory);
    inner_->forget_calls(memory);
  }
  void abandon(std::string_view reason) noexcept override { inner_->abandon(reason); }

  // What a library does with calls that nobody waits for: it reads and writes some time.
  void do_forgotten() {
    for (const Call& c : calls_) inner_->run(c.call, c.in, c.out);
  }

  std::vector<std::string> log;
  std::string failure;  // what calls that are waited for throw
  std::vector<std::shared_ptr<const void>> kept;

 private:
  struct Call {
    CollectiveCall call;
    const std::byte* in;
    std::byte* out;
  };
  int64_t size_of_result(const CollectiveCall& call) const {
    const bool blocks =
        call.kind == CollectiveKind::all_gather || call.kind == CollectiveKind::all_to_all;
    return blocks ? call.count * size() : call.count;
  }

  const std::shared_ptr<Communicator> inner_;
  std::deque<Call> calls_;
  size_t done_ = 0;  // of the calls
};

}  // namespace gradus::test
