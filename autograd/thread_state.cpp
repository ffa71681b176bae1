#include "gradus/thread_state.h"

#include <atomic>

#include "gradus/per_thread.h"

namespace gradus::autograd {

constinit thread_local ThreadState* own_thread_state = nullptr;

namespace {
struct Own {
  Own() { own_thread_state = &state; }
  // Before the state's own end, which may ask for one.
  ~Own() { own_thread_state = nullptr; }
  ThreadState state;
};
}  // namespace

ThreadState& make_thread_state() { return PerThread<Own>::get().state; }

const std::shared_ptr<Context>& current_context() {
  const ThreadState& state = thread_state();
  return state.context ? state.context : Context::default_context();
}

void warn(const std::string& message) {
  // A copy: what is called may change the state.
  if (auto sink = thread_state().warnings)
    sink(message);
  else
    current_context()->log(LogLevel::warning, message);
}

uint64_t thread_number() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1);
  return number;
}

}  // namespace gradus::autograd
