// The door between Python and the library: which thread holds the interpreter's lock, and what may
// no longer ask for it because the interpreter ends.
//
// A thread that asks for the lock while the interpreter is being taken down never comes back. So an
// exit handler shuts the door first and waits until everybody who is inside has let go; who comes
// later is told so, and asks for nothing.
#pragma once

#include <memory>
#include <utility>

#include <nanobind/nanobind.h>

namespace gradus::python {

namespace nb = nanobind;

// Shuts the door for good. With the lock held, which is let go while it waits for those inside, for
// a few seconds at most.
void shut_door();

// The library runs: the lock is let go until the end of the scope. Where there is no door any more
// the lock is kept; a thread that comes back to a shut door stays there for ever, as CPython's own
// threads do.
class WithoutLock {
 public:
  WithoutLock();
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

// Python runs, called by the library on any thread. Throws Error where the interpreter has ended.
class WithLock {
 public:
  WithLock();
  ~WithLock();
  WithLock(const WithLock&) = delete;

 private:
  PyGILState_STATE state_;
};

// Python code runs, called from C++ on a thread of Python's own, which has the lock. CPython ends
// daemon threads where they ask for the lock again, unwinding through C++ that then drops objects
// without it. So the door waits for those inside, and who comes later stays there for ever; but for
// the thread that shut it, which may go on.
class IntoPython {
 public:
  IntoPython();
  ~IntoPython();
  IntoPython(const IntoPython&) = delete;

 private:
  bool entered_;
};

// A Python object that the library keeps: may be copied and dropped on any thread, without the
// lock. What is dropped after the interpreter has ended is left behind.
class Kept {
 public:
  Kept() = default;
  explicit Kept(nb::object object);
  explicit operator bool() const { return static_cast<bool>(object_); }
  // With the lock held.
  nb::handle get() const { return nb::handle(object_.get()); }
  nb::object take() const { return nb::borrow(get()); }

 private:
  std::shared_ptr<PyObject> object_;
};

// Runs `f` with the lock if the door is open, else not at all. For destructors.
template <class F>
void with_lock_or_never(F&& f) noexcept;

// Runs `f`, which calls the library, without the lock.
template <class F>
decltype(auto) unlocked(F&& f) {
  WithoutLock scope;
  return std::forward<F>(f)();
}

namespace detail {
bool enter() noexcept;
void leave() noexcept;
}  // namespace detail

template <class F>
void with_lock_or_never(F&& f) noexcept {
  if (!detail::enter()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  f();
  PyGILState_Release(state);
  detail::leave();
}

}  // namespace gradus::python
