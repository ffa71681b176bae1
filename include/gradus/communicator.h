// Groups of ranks, on which the collective operators of a program run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/context.h"
#include "gradus/dtype.h"
#include "gradus/error.h"

#pragma GCC visibility push(default)

namespace gradus {

// The kinds of calls. `count` is a number of elements: those of one block if there are blocks.
enum class CollectiveKind : uint8_t {
  all_reduce,      // out[count] = the reduction over ranks of in[count]
  all_gather,      // out[size * count]: block r is in[count] of rank r
  reduce_scatter,  // out[count] = the reduction over ranks of block `rank` of in[size * count]
  all_to_all,      // out[size * count]: block r is block `rank` of in[size * count] of rank r
  broadcast,       // out[count] = in[count] of rank `peer`; other ranks do not read `in`
  shift,           // out[count] = in[count] of rank (rank - peer) mod size
  // in[count] is sent to rank `peer`; the call may end before it arrives; `out` is not written
  send,
  receive,  // out[count] = the data that rank `peer` sends; `in` is not read
};
enum class CollectiveReducer : uint8_t { sum, max, min };

// One call of a group.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveReducer reducer = CollectiveReducer::sum;
  DType dtype = DType::f64;
  int64_t count = 0;
  // A rank, or the distance of a shift, which may be any integer.
  int64_t peer = 0;
};
// Returns a description for messages: "all_reduce of 12 f64".
std::string to_string(const CollectiveCall& call);

// The endpoint of one rank in a group. All ranks of a group make the same calls in the same order,
// except `send` and `receive`, which two ranks make. Messages from one rank to another arrive in
// order. One thread at a time may use a communicator. The memory of a call is host memory and
// belongs to the call until `wait` returns. `in` and `out` must not overlap.
//
// If a rank calls `abandon`, the calls of all other ranks throw an Error that names the rank and
// its reason. A call that waits longer than the time limit of the group throws an Error with the
// call and the ranks that are late. After either, every further call throws the same Error.
//
// For the same inputs, number of ranks and machine, results are bit-identical between runs. If
// `in_rank_order` is true, sums are ((r0 + r1) + r2) + ... with any library.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool in_rank_order() const = 0;

  // Starts a call and returns its ticket. Further calls may start before `wait`. `start` may
  // complete the call.
  virtual uint64_t start(const CollectiveCall& call, const std::byte* in, std::byte* out) = 0;
  // Waits until the call is complete. Each ticket is waited for once.
  virtual void wait(uint64_t ticket) = 0;
  void run(const CollectiveCall& call, const std::byte* in, std::byte* out) {
    wait(start(call, in, out));
  }
  // Gives up calls that were started and are not waited for, or whose `wait` failed. The library
  // may still access their memory, so `memory` is kept until the process ends.
  virtual void forget_calls(const std::shared_ptr<const void>& memory) noexcept = 0;
  // Notifies the other ranks that this rank cannot continue, and why. May be called several times.
  virtual void abandon(std::string_view reason) noexcept = 0;
};

// Returns a group of one rank, in which calls copy.
std::shared_ptr<Communicator> single_rank();

// Returns the endpoints of a group of `size` ranks that are threads of this process. For tests, and
// for programs that divide work among threads. Each endpoint may move to its thread. Reductions are
// in rank order. A call that waits longer than `limit` throws Error. Throws Error for a size below
// 1.
std::vector<std::shared_ptr<Communicator>> thread_ranks(
    int size, std::chrono::milliseconds limit = std::chrono::minutes(10));

// Options of groups that use MPI.
struct MpiOptions {
  std::chrono::milliseconds limit = std::chrono::minutes(10);
  bool in_rank_order = false;  // reductions gather, then add in the order of ranks
  // The MPI library to load. Empty: $GRADUS_MPI_LIBRARY, otherwise a library that the process has
  // loaded, otherwise libmpi.so.40 (Open MPI), libmpich.so.12 or libmpi.so.12 (MPICH and libraries
  // with its ABI). If the launcher of the process is known, its library is tried first. A process
  // uses one library.
  std::string library;
};
// Returns a group of the ranks of MPI_COMM_WORLD with the same colour, in their order there. MPI is
// loaded at run time. If the program has not initialised MPI, this function does so
// (MPI_THREAD_MULTIPLE, if MPI grants it), and MPI is finalised at the normal exit of the process.
// All ranks of the world must call this function, in the same order relative to other such calls.
// Throws Error if no library is found.
std::shared_ptr<Communicator> mpi_ranks(const MpiOptions& options = {}, int colour = 0);
// Returns a group of the ranks of an existing communicator: an MPI_Fint of MPI_Comm_c2f (mpi4py:
// py2f). The communicator is duplicated, so all of its ranks must call this function.
std::shared_ptr<Communicator> mpi_ranks_of(int64_t fortran_handle, const MpiOptions& options = {});

// The groups of a context by name. Thread-safe.
class RankGroups {
 public:
  // Binds a group to a name. Null removes the binding.
  void bind(std::string_view name, std::shared_ptr<Communicator> communicator);
  // Throws Error if no group is bound to the name.
  std::shared_ptr<Communicator> find(std::string_view name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Communicator>, std::less<>> groups_;
};
// The groups that the programs of a context use.
RankGroups& rank_groups(Context& context);

}  // namespace gradus

#pragma GCC visibility pop
