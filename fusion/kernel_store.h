// Compiled code by its text, and the rules by which it comes and goes, whichever compiler makes it.
//
// Publish: what is made is added to a new set. A set is never changed: whoever holds one keeps what
//   it had. So many are kept, and the oldest go first.
// Fail: a text that no code can be made for is remembered, is in the sets, and is told to the log
//   once.
// Fork: in a child of a process that compiles there is nothing, and nothing is made.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "fusion/kernels.h"
#include "fusion/task_queue.h"
#include "gradus/context.h"

namespace gradus::fusion {

// Thread-safe.
class KernelStore {
 public:
  struct Rules {
    std::string no_code;     // what the log is told where a text has none, before the reason
    LogSink log = {};        // may be null
    size_t most = SIZE_MAX;  // kept
  };
  // A kernel, or a stage's code. That of any other type is in no set, is kept, and does not count.
  template <class T>
  struct Made {
    std::shared_ptr<const T> code;
    KernelStatistics spent = {};  // misses, loaded, seconds
  };

  // Threads of `behind` compile; its owner stops them before this goes.
  KernelStore(TaskQueue& behind, Rules rules);

  // Tells sources of kernels apart, also those that are gone.
  static uint64_t next_id();

  // Of what is compiled.
  void claim() { owner_.claim(); }
  bool forked() const { return owner_.forked(); }

  // What is there now.
  std::shared_ptr<const KernelSet> ready() const;
  // Whether a text's code is there, or will never be.
  bool is_settled(const std::string& text) const { return forked() || find(text); }
  // The code of a text; made here, where it is not there. Null where none can be made. `make` gives
  // a Made<T> or throws; several threads may call it at a time.
  template <class Make>
  auto get(const std::string& text, const Make& make) {
    using Code = decltype(make().code);
    if (forked()) return Code();
    if (auto found = find(text)) {
      if (*found) ++hits_;
      return std::static_pointer_cast<typename Code::element_type>(*found);
    }
    return compile<typename Code::element_type>(text, make);
  }
  // The same behind, unless it is there, on its way or has failed, or too many are waiting.
  template <class Make>
  void request(const std::string& text, Make make) {
    if (is_settled(text)) return;
    behind_.add(text, [this, text, make = std::move(make)] { get(text, make); });
  }
  // Returns when nothing is waiting to be made.
  void wait();
  KernelStatistics statistics() const;

 private:
  using Code = std::shared_ptr<const void>;
  using Of = std::optional<KernelSet::Of>;  // none: in no set

  template <class T, class Make>
  std::shared_ptr<T> compile(const std::string& text, const Make& make) {
    Of of;
    if constexpr (std::is_same_v<T, const Kernel>) of = KernelSet::Of::nest;
    if constexpr (std::is_same_v<T, const StageKernel>) of = KernelSet::Of::stage;
    try {
      const auto made = make();
      return std::static_pointer_cast<T>(publish(of, text, made.code, made.spent));
    } catch (const std::exception& e) {
      fail(of, text, e.what());
      return nullptr;
    }
  }
  std::optional<Code> find(const std::string& text) const;
  Code publish(Of of, const std::string& text, const Code& code, const KernelStatistics& spent);
  void fail(Of of, const std::string& text, const char* why);

  TaskQueue& behind_;
  const Rules rules_;
  Owner owner_;
  std::atomic<uint64_t> hits_{0};
  mutable std::mutex mutex_;
  // Guarded by the mutex.
  std::unordered_map<std::string, Code> codes_;  // null: none can be made
  std::shared_ptr<const KernelSet> ready_;       // never null
  std::deque<std::string> order_;                // of what is ready: the oldest first
  KernelStatistics statistics_;
};

}  // namespace gradus::fusion
