#include "python/gil.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <unistd.h>

#include "gradus/error.h"

namespace gradus::python {

namespace {

constexpr std::chrono::seconds longest_wait{5};

std::atomic<bool> shut{false};
// Threads that hold the lock on the library's behalf, or are about to ask for it.
std::atomic<int> inside{0};
// The thread that shut the door.
std::atomic<std::thread::id> closer{};
// This thread's part of it: what it calls within may let go of the lock and take it again.
thread_local int depth = 0;

}  // namespace

namespace detail {

bool enter() noexcept {
  if (depth > 0) {
    ++depth;
    return true;
  }
  // First counted, then looked: either shut_door sees the count, or this sees the door shut.
  inside.fetch_add(1);
  if (shut.load()) {
    inside.fetch_sub(1);
    return false;
  }
  ++depth;
  return true;
}

void leave() noexcept {
  if (--depth == 0) inside.fetch_sub(1);
}

}  // namespace detail

void shut_door() {
  closer.store(std::this_thread::get_id());
  shut.store(true);
  PyThreadState* state = PyEval_SaveThread();
  auto end = std::chrono::steady_clock::now() + longest_wait;
  // The caller may be inside itself: a Python function that ends the program.
  while (inside.load() > (depth > 0) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
}

WithoutLock::WithoutLock() {
  if (!shut.load()) state_ = PyEval_SaveThread();
}
WithoutLock::~WithoutLock() {
  if (!state_) return;
  if (!detail::enter())
    for (;;) pause();
  PyEval_RestoreThread(state_);
  detail::leave();
}

WithLock::WithLock() {
  if (!detail::enter()) throw Error("the Python interpreter has ended: its functions are gone");
  state_ = PyGILState_Ensure();
}
WithLock::~WithLock() {
  PyGILState_Release(state_);
  detail::leave();
}

IntoPython::IntoPython() : entered_(detail::enter()) {
  if (entered_ || closer.load() == std::this_thread::get_id()) return;
  PyEval_SaveThread();
  for (;;) pause();
}
IntoPython::~IntoPython() {
  if (entered_) detail::leave();
}

Kept::Kept(nb::object object)
    : object_(object.release().ptr(),
              [](PyObject* p) { with_lock_or_never([p] { Py_DECREF(p); }); }) {}

}  // namespace gradus::python
