// Calls of groups of ranks by NCCL, in the memory of the ranks' devices.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "devices/backend.h"
#include "devices/cuda/device.h"

namespace gradus::fusion::cuda {

// Numbers of nccl.h.
namespace nccl {
inline constexpr int in_progress = 7;
inline constexpr int type_i8 = 0, type_u8 = 1, type_i32 = 2, type_u32 = 3, type_i64 = 4,
                     type_u64 = 5, type_f32 = 7, type_f64 = 8;
inline constexpr int sum = 0, largest = 2, smallest = 3;
inline constexpr unsigned options_magic = 0xcafebeef, options_version = 21400;
}  // namespace nccl

// Whether NCCL can make such calls, with results as gradus/communicator.h says. It moves elements
// of every dtype, and reduces integers of its types. It adds f32 and f64 in an order of its own, so
// the group has to allow any order. The host makes the other calls:
// - NCCL rounds a sum of 16-bit floats after each addition.
// - Its maxima and minima of floats ignore NaN, and do not tell 0 from -0.
// - Its send waits for the receiver: two ranks that both send first would wait forever.
bool nccl_makes(CollectiveKind kind, CollectiveReducer reducer, DType dtype, bool any_order);

// NCCL's communicator of a group, on this rank's device. Thread-safe.
class GroupExchange {
 public:
  using Clock = std::chrono::steady_clock;

  // All ranks of the group make it together. `name` is that of the group, for messages. Throws
  // Error if NCCL does not start on a rank.
  GroupExchange(Device& device, std::string_view name, const std::shared_ptr<Communicator>& ranks,
                bool any_order);
  // Waits for the calls that are in progress, at most for the group's time limit.
  ~GroupExchange();
  GroupExchange(const GroupExchange&) = delete;

  bool makes(const CollectiveCall& call) const {
    return nccl_makes(call.kind, call.reducer, call.dtype, any_order_);
  }
  // Adds a call to the work of the stream, and returns a mark behind it; null for a call without
  // elements.
  std::shared_ptr<const StreamMark> start(const CollectiveCall& call, std::string_view name,
                                          const std::byte* in, std::byte* out, StreamNumber stream);
  // For a thread that has waited for the device since then. Throws the Error of a group that has
  // failed. Fails the group if NCCL reports a fault, if another rank has given up, or if a call in
  // progress takes longer than the time limit.
  void watch(Clock::time_point since);

 private:
  struct Call {
    CollectiveCall call;
    std::string name;
    std::shared_ptr<const StreamMark> before, behind;
    std::string text() const;
  };

  NcclId share_id(Communicator& ranks, const std::string& what);
  void open(std::string_view name, Communicator& ranks);
  int queue(const CollectiveCall& call, const std::byte* in, std::byte* out, DriverStream stream);
  int queue_messages(const CollectiveCall& call, const std::byte* in, std::byte* out,
                     DriverStream stream);
  void check(int status, const std::string& what);
  void listen(const std::string& what, Clock::time_point since);
  void forget_done();
  void refuse_after_failure() const;
  [[noreturn]] void fail(const std::string& message);
  void close() noexcept;

  Device& device_;
  const ExchangeTable& t_;
  const std::weak_ptr<Communicator> ranks_;
  const int rank_, size_;
  const std::chrono::milliseconds limit_;
  const bool any_order_;
  const int64_t process_;
  std::mutex mutex_;
  NcclGroup* group_ = nullptr;  // null after a failure
  std::deque<Call> calls_;      // in progress
  Clock::time_point reached_;   // no earlier has the device reached the first of them
  std::thread::id caller_;      // of the last call: the thread that may use `ranks_`
  std::string failure_;
};

// The groups with which a backend exchanges on its device. Thread-safe.
class Exchanges {
 public:
  // The log is told why a group does not use NCCL that this rank has.
  Exchanges(Device& device, LogSink log) : device_(device), log_(std::move(log)) {}
  // Waits as the groups' ends do.
  ~Exchanges();

  // See devices::Backend.
  devices::ExchangeOffer offer(const std::shared_ptr<Communicator>& ranks);
  void join(std::string_view name, const std::shared_ptr<Communicator>& ranks,
            std::span<const devices::ExchangeOffer> offers);
  // Null where the group's calls go by the host.
  std::shared_ptr<GroupExchange> find(const std::shared_ptr<Communicator>& ranks);

  // Adds a call to the work of the stream, after all calls that were added before: ranks start the
  // calls of all groups in one order.
  void start(GroupExchange& group, const CollectiveCall& call, std::string_view name,
             const std::byte* in, std::byte* out, StreamNumber stream);
  // The host waits for what the stream has been given, or for all calls. Throws Error if a group
  // fails meanwhile, or has failed. Does not wait where no group exchanges.
  void wait(StreamNumber stream);
  void finish();

 private:
  struct Joined {
    std::weak_ptr<Communicator> ranks;
    std::shared_ptr<GroupExchange> exchange;
  };
  std::vector<Joined>::iterator position_of(const std::shared_ptr<Communicator>& ranks);
  void wait_for(const StreamMark& mark);
  // Those whose communicator is there; the others end when what this returns goes.
  std::vector<std::shared_ptr<GroupExchange>> groups();
  std::vector<std::shared_ptr<GroupExchange>> take_expired();

  Device& device_;
  const LogSink log_;
  std::mutex mutex_;                        // of the members below
  std::vector<Joined> groups_;              // in the order in which the ranks have joined them
  std::mutex order_;                        // of calls
  std::shared_ptr<const StreamMark> last_;  // behind the last call
  StreamNumber last_stream_ = 0;
};

}  // namespace gradus::fusion::cuda
