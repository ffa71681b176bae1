#include "fusion/kernel_store.h"

#include <algorithm>
#include <utility>

namespace gradus::fusion {

KernelStore::KernelStore(TaskQueue& behind, Rules rules)
    : behind_(behind), rules_(std::move(rules)), ready_(std::make_shared<KernelSet>()) {}

uint64_t KernelStore::next_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

std::shared_ptr<const KernelSet> KernelStore::ready() const {
  static const std::shared_ptr<const KernelSet> none = std::make_shared<KernelSet>();
  if (forked()) return none;
  std::lock_guard guard(mutex_);
  return ready_;
}

std::optional<KernelStore::Code> KernelStore::find(const std::string& text) const {
  std::lock_guard guard(mutex_);
  auto found = codes_.find(text);
  return found == codes_.end() ? std::nullopt : std::optional(found->second);
}

// Gives what is published: another thread may have been first.
KernelStore::Code KernelStore::publish(Of of, const std::string& text, const Code& code,
                                       const KernelStatistics& spent) {
  std::shared_ptr<const KernelSet> before;  // dies after the lock is released
  std::lock_guard guard(mutex_);
  const auto [kept, fresh] = codes_.try_emplace(text, code);
  if (!fresh || !of) return kept->second;
  statistics_.misses += spent.misses;
  statistics_.loaded += spent.loaded;
  statistics_.seconds += spent.seconds;
  auto next = ready_->with(*of, text, code);
  order_.push_back(text);
  while (order_.size() > std::max<size_t>(rules_.most, 1)) {
    next = next->without(order_.front());
    codes_.erase(order_.front());
    order_.pop_front();
  }
  before = std::exchange(ready_, std::move(next));
  return code;
}

void KernelStore::fail(Of of, const std::string& text, const char* why) {
  {
    std::shared_ptr<const KernelSet> before;  // dies after the lock is released
    std::lock_guard guard(mutex_);
    if (!codes_.try_emplace(text, nullptr).second) return;
    if (of) before = std::exchange(ready_, ready_->with(*of, text, nullptr));
  }
  if (rules_.log)
    rules_.log(LogLevel::warning,
               fmt::format("{}: {}", rules_.no_code, why) + (of ? '\n' + text : ""));
}

void KernelStore::wait() {
  if (!forked()) behind_.wait();
}

KernelStatistics KernelStore::statistics() const {
  if (forked()) return {};
  const TaskQueue::Statistics behind = behind_.statistics();
  std::lock_guard guard(mutex_);
  KernelStatistics s = statistics_;
  s.hits = hits_;
  s.failed = ready_->failed();
  s.dropped = behind.dropped;
  s.waiting = behind.waiting;
  s.kernels = ready_->nests() + ready_->stages();
  return s;
}

}  // namespace gradus::fusion
