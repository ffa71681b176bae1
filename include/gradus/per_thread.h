// What each thread keeps for itself.
#pragma once

#include <pthread.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace gradus {

// A T of each thread's own, made on first use and gone with the thread; one for each type T.
//
// A thread_local with a destructor would keep a shared module loaded for as long as a thread lives
// that has used it: also the library's own threads, which end only when the module goes. So the
// pointer is trivial, and a key of the system's destroys what it points to. Where the module goes
// before a thread, what that thread kept is left behind. Nor is the main thread's destroyed when
// the process ends.
template <class T>
class PerThread {
 public:
  static T& get() {
    if (!mine_) [[unlikely]]
      make();
    return *mine_;
  }

 private:
  struct Key {
    Key() { valid = pthread_key_create(&key, drop) == 0; }
    ~Key() {
      if (valid) pthread_key_delete(key);
    }
    Key(const Key&) = delete;
    pthread_key_t key{};
    bool valid = false;
  };
  static void make() {
    static const Key key;
    mine_ = new T();
#if defined(__SANITIZE_ADDRESS__)
    // A thread that is left behind may end between the key's end and the process's.
    __lsan_ignore_object(mine_);
#endif
    if (key.valid) pthread_setspecific(key.key, mine_);
  }
  // What dies may use another one of these, or make this one anew.
  static void drop(void* mine) {
    mine_ = nullptr;
    delete static_cast<T*>(mine);
  }
  static inline constinit thread_local T* mine_ = nullptr;
};

}  // namespace gradus
