// Groups whose ranks are threads of one process.
#include <array>
#include <condition_variable>
#include <deque>

#include "gradus/error.h"
#include "ranks/exchange.h"
#include "ranks/listening.h"

namespace gradus {

namespace {

using ranks::names_of_ranks;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What the ranks of a group share.
class Hub {
 public:
  Hub(int size, milliseconds limit)
      : size_(size),
        limit_(limit),
        places_(static_cast<size_t>(size)),
        messages_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

  int size() const { return size_; }
  milliseconds limit() const { return limit_; }

  void listen() {
    std::lock_guard lock(mutex_);
    refuse_after_failure();
  }

  void exchange(int rank, const CollectiveCall& call, const std::byte* in, std::byte* out) {
    std::unique_lock lock(mutex_);
    refuse_after_failure();
    places_[static_cast<size_t>(rank)] = {call, in, true};
    // The others' memory is read between two meetings.
    meet(lock, rank, call, [&] { compare_calls(); });
    std::vector<const std::byte*> all;
    for (const Place& p : places_) all.push_back(p.in);
    lock.unlock();
    take(rank, call, all, out);
    lock.lock();
    places_[static_cast<size_t>(rank)].arrived = true;
    meet(lock, rank, call, [] {});
  }

  void send(int rank, const CollectiveCall& call, const std::byte* in) {
    std::lock_guard lock(mutex_);
    refuse_after_failure();
    const int64_t bytes = call.count * static_cast<int64_t>(size_of(call.dtype));
    Message message{call, std::vector<std::byte>(static_cast<size_t>(bytes))};
    ranks::copy_bytes(message.bytes.data(), in, bytes);
    mailbox(rank, static_cast<int>(call.peer)).push_back(std::move(message));
    changed_.notify_all();
  }

  void receive(int rank, const CollectiveCall& call, std::byte* out) {
    std::unique_lock lock(mutex_);
    const int peer = static_cast<int>(call.peer);
    auto& box = mailbox(peer, rank);
    wait(
        lock, rank, call, [&] { return !box.empty(); }, [&] { return std::vector<int>{peer}; });
    const Message message = std::move(box.front());
    box.pop_front();
    if (message.call.dtype != call.dtype || message.call.count != call.count)
      fail(fmt::format("rank {} calls {}, and rank {} {}", peer, to_string(message.call), rank,
                       to_string(call)));
    ranks::copy_bytes(out, message.bytes.data(), static_cast<int64_t>(message.bytes.size()));
  }

  void abandon(int rank, std::string_view reason) {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = fmt::format("rank {} has given up: {}", rank, reason);
    changed_.notify_all();
  }

  void leave(int rank) {
    std::lock_guard lock(mutex_);
    places_[static_cast<size_t>(rank)].left = true;
    changed_.notify_all();
  }

 private:
  struct Place {
    CollectiveCall call;
    const std::byte* in = nullptr;
    bool arrived = false, left = false;
  };
  struct Message {
    CollectiveCall call;
    std::vector<std::byte> bytes;
  };

  std::deque<Message>& mailbox(int from, int to) {
    return messages_[static_cast<size_t>(from) * static_cast<size_t>(size_) +
                     static_cast<size_t>(to)];
  }

  [[noreturn]] void fail(const std::string& message) {
    if (failure_.empty()) failure_ = message;
    changed_.notify_all();
    throw Error("{}", failure_);
  }
  void refuse_after_failure() const {
    if (!failure_.empty()) throw Error("{}", failure_);
  }

  // Returns when `done`, and throws where it cannot become so any more.
  template <class Done, class Missing>
  void wait(std::unique_lock<std::mutex>& lock, int rank, const CollectiveCall& call, Done done,
            Missing missing) {
    const auto end = steady_clock::now() + limit_;
    while (!done()) {
      refuse_after_failure();
      for (int r : missing())
        if (places_[static_cast<size_t>(r)].left)
          fail(fmt::format("rank {} has left the group, and rank {} calls {}", r, rank,
                           to_string(call)));
      if (changed_.wait_until(lock, end) == std::cv_status::timeout && !done())
        fail(fmt::format("rank {} has waited {} ms in {} for {}", rank, limit_.count(),
                         to_string(call), names_of_ranks(missing())));
    }
  }

  // All ranks come here; the last one calls `last` before any goes on.
  template <class Last>
  void meet(std::unique_lock<std::mutex>& lock, int rank, const CollectiveCall& call, Last last) {
    if (++arrived_ == size_) {
      last();
      arrived_ = 0;
      ++meetings_;
      for (Place& p : places_) p.arrived = false;
      changed_.notify_all();
      return;
    }
    wait(
        lock, rank, call, [this, now = meetings_] { return meetings_ != now; },
        [this] {
          std::vector<int> ranks;
          for (int r = 0; r < size_; ++r)
            if (!places_[static_cast<size_t>(r)].arrived) ranks.push_back(r);
          return ranks;
        });
  }

  void compare_calls() {
    for (size_t r = 1; r < places_.size(); ++r)
      if (!ranks::same_call(places_[r].call, places_[0].call))
        fail(fmt::format("rank {} calls {}, rank 0 {}", r, to_string(places_[r].call),
                         to_string(places_[0].call)));
  }

  void take(int rank, const CollectiveCall& call, std::vector<const std::byte*> in,
            std::byte* out) const {
    const int64_t bytes = call.count * static_cast<int64_t>(size_of(call.dtype));
    auto from = [&](int64_t r) { return in[static_cast<size_t>(ranks::modulo(r, size_))]; };
    switch (call.kind) {
      case CollectiveKind::reduce_scatter:
        for (const std::byte*& x : in) x += rank * bytes;
        [[fallthrough]];
      case CollectiveKind::all_reduce:
        return ranks::reduce(call.dtype, call.reducer, in, out, call.count);
      case CollectiveKind::all_gather:
        for (int r = 0; r < size_; ++r) ranks::copy_bytes(out + r * bytes, from(r), bytes);
        return;
      case CollectiveKind::all_to_all:
        for (int r = 0; r < size_; ++r)
          ranks::copy_bytes(out + r * bytes, from(r) + rank * bytes, bytes);
        return;
      case CollectiveKind::broadcast:
        return ranks::copy_bytes(out, from(call.peer), bytes);
      case CollectiveKind::shift:
        return ranks::copy_bytes(out, from(rank - ranks::modulo(call.peer, size_)), bytes);
      case CollectiveKind::send:
      case CollectiveKind::receive:
        GRADUS_CHECK(false);
    }
  }

  const int size_;
  const milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> places_;
  std::vector<std::deque<Message>> messages_;  // from one rank to another
  int arrived_ = 0;
  uint64_t meetings_ = 0;
  std::string failure_;
};

class ThreadRank final : public Communicator, public ranks::Listening {
 public:
  ThreadRank(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~ThreadRank() override { hub_->leave(rank_); }
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  bool in_rank_order() const override { return true; }
  milliseconds limit() const override { return hub_->limit(); }

  uint64_t start(const CollectiveCall& call, const std::byte* in, std::byte* out) override {
    ranks::check_call(call, size());
    if (call.kind == CollectiveKind::send)
      hub_->send(rank_, call, in);
    else if (call.kind == CollectiveKind::receive)
      hub_->receive(rank_, call, out);
    else
      hub_->exchange(rank_, call, in, out);
    return 0;
  }
  void wait(uint64_t) override {}
  void forget_calls(const std::shared_ptr<const void>&) noexcept override {}  // `start` ends them
  void listen() override { hub_->listen(); }
  void abandon(std::string_view reason) noexcept override { hub_->abandon(rank_, reason); }

 private:
  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> thread_ranks(int size, milliseconds limit) {
  if (size < 1) throw Error("a group of {} ranks; it has one at least", size);
  const auto hub = std::make_shared<Hub>(size, limit);
  std::vector<std::shared_ptr<Communicator>> ends;
  for (int r = 0; r < size; ++r) ends.push_back(std::make_shared<ThreadRank>(hub, r));
  return ends;
}

}  // namespace gradus
