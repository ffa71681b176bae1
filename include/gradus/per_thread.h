// Thread-local objects.
#pragma once

#include <pthread.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace gradus {

// A T for each thread, made on first use and destroyed with the thread. There is one for each type
// T.
//
// A thread_local object with a destructor would keep a shared module loaded as long as a thread
// lives that has used the object. This includes the library's own threads, which end only when the
// module is unloaded. The pointer is therefore trivial, and a pthread key destroys the object. If
// the module is unloaded before the thread ends, or for the main thread at the end of the process,
// the object is not destroyed.
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
    // A detached thread may end after the key was deleted and before the process ends.
    __lsan_ignore_object(mine_);
#endif
    if (key.valid) pthread_setspecific(key.key, mine_);
  }
  // The destructor may use the object of another type T, or make this one again.
  static void drop(void* mine) {
    mine_ = nullptr;
    delete static_cast<T*>(mine);
  }
  static inline constinit thread_local T* mine_ = nullptr;
};

}  // namespace gradus
