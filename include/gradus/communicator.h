// Groups of ranks: what collectives of a program run on.
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

// What a call exchanges. `count` is in elements, that of one block where there are blocks.
enum class CollectiveKind : uint8_t {
  all_reduce,      // out[count] = the reduction over ranks of in[count]
  all_gather,      // out[size * count]: block r is in[count] of rank r
  reduce_scatter,  // out[count] = the reduction over ranks of block `rank` of in[size * count]
  all_to_all,      // out[size * count]: block r is block `rank` of in[size * count] of rank r
  broadcast,       // out[count] = in[count] of rank `peer`; `in` of others is not read
  shift,           // out[count] = in[count] of rank (rank - peer) mod size
  send,            // in[count] goes to rank `peer`, and need not have arrived; `out` is not written
  receive,         // out[count] = what rank `peer` sends; `in` is not read
};
enum class CollectiveReducer : uint8_t { sum, max, min };

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveReducer reducer = CollectiveReducer::sum;
  DType dtype = DType::f64;
  int64_t count = 0;
  int64_t peer = 0;  // a rank, or how far a shift goes: any integer
};
// "all_reduce of 12 f64", for messages.
std::string to_string(const CollectiveCall& call);

// One rank's end of a group. The ranks of a group make the same calls in the same order, but for
// `send` and `receive`, which two ranks make: what goes from one rank to another arrives in order.
// A communicator is used by one thread at a time. Memory of a call is on the host and stays with
// the call until it has been waited for; `in` and `out` do not overlap.
//
// A rank that cannot go on says so (`abandon`), and the calls of all others end with an Error that
// names it and tells its reason. Calls that wait longer than the group's time limit end with an
// Error that says in which call, and which ranks have not been heard of. After either, every
// further call ends with the same Error. Bits: for the same inputs, the same number of ranks and
// the same machine the results are the same; where `in_rank_order`, sums are
// ((r0 + r1) + r2) + ... whatever the library.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool in_rank_order() const = 0;

  // Begins a call and returns a ticket; others may be begun before it is waited for. A call may
  // also be done within `start`.
  virtual uint64_t start(const CollectiveCall& call, const std::byte* in, std::byte* out) = 0;
  // Returns when the call is done. Each ticket is waited for once.
  virtual void wait(uint64_t ticket) = 0;
  void run(const CollectiveCall& call, const std::byte* in, std::byte* out) {
    wait(start(call, in, out));
  }
  // Ends calls that have begun and will not be waited for, or whose wait has failed. The library
  // may still read and write their memory, so that it stays until the process ends.
  virtual void forget_calls(const std::shared_ptr<const void>& memory) noexcept = 0;
  // Tells the other ranks that this one cannot go on, and why. Never throws; may be called again.
  virtual void abandon(std::string_view reason) noexcept = 0;
};

// A group of one rank: calls copy.
std::shared_ptr<Communicator> single_rank();

// Groups of `size` ranks that are threads of this process, one end for each: for tests, and for
// programs that divide work among threads. Each end may move to its thread. Reductions are in rank
// order. A call that waits for longer than the limit ends with an Error.
std::vector<std::shared_ptr<Communicator>> thread_ranks(
    int size, std::chrono::milliseconds limit = std::chrono::minutes(10));

struct MpiOptions {
  std::chrono::milliseconds limit = std::chrono::minutes(10);
  bool in_rank_order = false;  // reductions gather, then add in the order of ranks
  // The library to open; empty: $GRADUS_MPI_LIBRARY, else one that the process has loaded, else
  // libmpi.so.40 (Open MPI), libmpich.so.12 or libmpi.so.12 (MPICH and those that share its ABI):
  // the one whose launcher started the process, if that can be told, comes first.
  std::string library;
};
// The ranks of MPI_COMM_WORLD, or those of them with the same colour, in their order there. MPI is
// opened at run time and initialised (MPI_THREAD_MULTIPLE if it grants that) where the program has
// not done so; then it is finalised when the process exits normally. Every rank of the world makes
// this call, in the same order as others of the kind. Throws Error where no library is found.
std::shared_ptr<Communicator> mpi_ranks(const MpiOptions& options = {}, int colour = 0);
// Of a communicator that the host program has: an MPI_Fint as MPI_Comm_c2f gives (mpi4py: py2f).
// It is duplicated; all ranks of it make this call.
std::shared_ptr<Communicator> mpi_ranks_of(int64_t fortran_handle, const MpiOptions& options = {});

// The groups that programs of a context name. Thread-safe.
class RankGroups {
 public:
  // Null takes the group away.
  void bind(std::string_view name, std::shared_ptr<Communicator> communicator);
  // Throws Error, which says what to do, where nothing of this name is bound.
  std::shared_ptr<Communicator> find(std::string_view name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Communicator>, std::less<>> groups_;
};
RankGroups& rank_groups(Context& context);

}  // namespace gradus

#pragma GCC visibility pop
