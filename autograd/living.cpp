#include "autograd/living.h"

#include <mutex>
#include <new>

namespace gradus::autograd {

namespace {

// Never destroyed: threads may end late.
struct All {
  std::mutex mutex;
  LivingOfThread* first = nullptr;
  std::array<int64_t, 2> of_ended{};
};

alignas(All) std::byte memory[sizeof(All)];

// A fork while another thread begins or ends would leave the child without.
struct Made {
  Made() {
    new (memory) All;
    pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                   [] { get().mutex.unlock(); });
  }
  static All& get() { return *std::launder(reinterpret_cast<All*>(memory)); }
};

All& all() {
  static const Made made;
  return Made::get();
}

}  // namespace

LivingOfThread::LivingOfThread() {
  std::lock_guard guard(all().mutex);
  next = all().first;
  if (next) next->before = this;
  all().first = this;
}

LivingOfThread::~LivingOfThread() {
  std::lock_guard guard(all().mutex);
  for (size_t i = 0; i < counts.size(); ++i) all().of_ended[i] += counts[i].value();
  (before ? before->next : all().first) = next;
  if (next) next->before = before;
}

size_t living_objects(Living what) {
  const auto i = static_cast<size_t>(what);
  std::lock_guard guard(all().mutex);
  int64_t sum = all().of_ended[i];
  for (const LivingOfThread* t = all().first; t; t = t->next) sum += t->counts[i].value();
  return static_cast<size_t>(sum);
}

}  // namespace gradus::autograd
