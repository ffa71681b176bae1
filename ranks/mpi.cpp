// Groups whose ranks are processes of MPI.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <utility>

#include <sched.h>

#include "base/keep.h"
#include "gradus/error.h"
#include "ranks/exchange.h"
#include "ranks/listening.h"
#include "ranks/mpi_library.h"

namespace gradus {

namespace {

using ranks::MpiHandle;
using ranks::MpiLibrary;
using std::chrono::steady_clock;

constexpr int data_tag = 1, news_tag = 2;
// Of sums by blocks, two each: as many may be on their way at once as there are tags.
constexpr int first_block_tag = 16, block_calls = 1024;
// Bytes from where on a block is worth two messages with each other rank. Among many, the library
// does with fewer messages.
constexpr int64_t least_block(int ranks) { return ranks <= 8 ? 2048 : 65536; }

// Where a group has failed, MPI_Finalize could wait for ranks that never come.
std::atomic<bool> any_failed{false};
const MpiLibrary* finalized_at_exit = nullptr;

void finalize_at_exit() {
  int is_over = 0;
  if (any_failed || finalized_at_exit->finalized(&is_over) != 0 || is_over) return;
  finalized_at_exit->finalize();
}

void check_mpi(const MpiLibrary& mpi, int code, std::string_view what) {
  if (code == 0) return;
  char text[1024] = {};  // more than any library's MPI_MAX_ERROR_STRING
  int length = 0;
  mpi.error_string(code, text, &length);
  throw Error("MPI: {}: {}", what, text);
}

const MpiLibrary& ready_library(const MpiOptions& options) {
  const MpiLibrary& mpi = ranks::mpi_library(options.library);
  int is_ready = 0, is_over = 0;
  check_mpi(mpi, mpi.initialized(&is_ready), "MPI_Initialized");
  check_mpi(mpi, mpi.finalized(&is_over), "MPI_Finalized");
  if (is_over) throw Error("MPI has been finalised in this process");
  if (is_ready) return mpi;
  constexpr int multiple = 3;  // MPI_THREAD_MULTIPLE, of both families
  int provided = 0;
  check_mpi(mpi, mpi.init_thread(nullptr, nullptr, multiple, &provided), "MPI_Init_thread");
  finalized_at_exit = &mpi;
  std::atexit(finalize_at_exit);
  return mpi;
}

// What ranks tell each other beside the calls.
struct News {
  enum Kind : int32_t { waits = 1, gives_up = 2 };
  int32_t kind = 0, rank = 0;
  char text[1016] = {};
};

class MpiRank final : public Communicator, public ranks::Listening {
 public:
  // The communicator is this one's from now on.
  MpiRank(const MpiLibrary& mpi, MpiHandle comm, const MpiOptions& options)
      : mpi_(mpi), comm_(comm), limit_(options.limit), in_rank_order_(options.in_rank_order) {
    check(mpi_.comm_set_errhandler(comm_, mpi_.errors_return), "MPI_Comm_set_errhandler");
    check(mpi_.comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(mpi_.comm_size(comm_, &size_), "MPI_Comm_size");
    check(mpi_.comm_dup(comm_, &news_), "MPI_Comm_dup");
    check(mpi_.comm_set_errhandler(news_, mpi_.errors_return), "MPI_Comm_set_errhandler");
    heard_.resize(static_cast<size_t>(size_));
  }
  // Communicators are not freed: all ranks would have to, at the same time. Messages on their way
  // are waited for, since their memory goes.
  ~MpiRank() override {
    const auto end = steady_clock::now() + limit_;
    try {
      while (!posted_.empty() && failure_.empty() && steady_clock::now() < end) {
        test_posted();
        hear_news();
        sched_yield();
      }
    } catch (...) {  // those that are left are nobody's
    }
    if (!posted_.empty()) keep_for_good(std::move(posted_));
    forget_calls(nullptr);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool in_rank_order() const override { return in_rank_order_; }
  std::chrono::milliseconds limit() const override { return limit_; }

  uint64_t start(const CollectiveCall& call, const std::byte* in, std::byte* out) override {
    refuse_after_failure();
    ranks::check_call(call, size_);
    // The library moves what is on its way only while it is asked.
    for (Pending& other : pending_) advance(other);
    ++calls_;
    Pending p{call, calls_, {}, {}, {}};
    begin(p, in, out);
    pending_.push_back(std::move(p));
    return calls_;
  }

  void wait(uint64_t ticket) override {
    refuse_after_failure();
    const auto found = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const Pending& p) { return p.number == ticket; });
    GRADUS_CHECK(found != pending_.end());
    complete(*found);
    if (found->gathered.size() > spare_.size()) spare_ = std::move(found->gathered);
    pending_.erase(found);
  }

  void forget_calls(const std::shared_ptr<const void>& memory) noexcept override {
    if (pending_.empty()) return;
    any_failed = true;
    keep_for_good(std::pair(std::exchange(pending_, {}), memory));
  }

  void listen() override {
    refuse_after_failure();
    hear_news();
  }

  void abandon(std::string_view reason) noexcept override {
    if (has_given_up_) return;
    has_given_up_ = any_failed = true;
    try {
      if (failure_.empty()) failure_ = fmt::format("rank {} has given up: {}", rank_, reason);
      tell(News::gives_up, reason);
    } catch (...) {  // the others notice by their time limits
    }
  }

 private:
  struct Pending {
    CollectiveCall call;
    uint64_t number;
    SmallVector<MpiHandle, 2> requests;
    std::vector<std::byte> gathered;  // what is combined in the order of ranks
    // After the requests; may begin others. Empty: nothing is left to do.
    std::function<void(Pending&)> next;
  };

  void check(int code, std::string_view what) const { check_mpi(mpi_, code, what); }
  void refuse_after_failure() const {
    if (!failure_.empty()) throw Error("{}", failure_);
  }
  // Messages that have not arrived.
  struct Posted {
    std::vector<std::byte> bytes;
    MpiHandle request = 0;
  };

  [[noreturn]] void fail(std::string message) {
    if (failure_.empty()) failure_ = std::move(message);
    any_failed = true;
    throw Error("{}", failure_);
  }

  MpiHandle& new_request(Pending& p) {
    p.requests.push_back(mpi_.request_null);
    return p.requests.back();
  }

  // MPI's counts are ints. Calls of more elements than that are done in parts, one after the other.
  static constexpr int64_t most = int64_t{1} << 30;

  void begin(Pending& p, const std::byte* in, std::byte* out) {
    const CollectiveCall c = p.call;
    const auto bytes = static_cast<int64_t>(size_of(c.dtype));
    const bool by_blocks = c.kind == CollectiveKind::all_gather ||
                           c.kind == CollectiveKind::all_to_all ||
                           c.kind == CollectiveKind::reduce_scatter;
    if (by_blocks && c.count > most)
      throw Error("{}: by MPI a block has at most {} elements", to_string(c), most);
    CollectiveCall left = c;
    for (; left.count > most; left.count -= most) {
      Pending part{left, p.number, {}, {}, {}};
      part.call.count = most;
      begin_part(part, in, out);
      complete(part);
      if (in) in += most * bytes;
      if (out) out += most * bytes;
    }
    p.call = left;
    begin_part(p, in, out);
    p.call = c;
  }

  // Sums are the library's where it has them and any order will do.
  bool reduces_here(const CollectiveCall& c) const {
    const bool has_type = c.dtype != DType::f16 && c.dtype != DType::bf16;
    return in_rank_order_ || !has_type || c.reducer != CollectiveReducer::sum;
  }

  void begin_part(Pending& p, const std::byte* in, std::byte* out) {
    const CollectiveCall& c = p.call;
    const int n = static_cast<int>(c.count);
    const MpiHandle bits = mpi_.bits_of(c.dtype);
    const auto block = c.count * static_cast<int64_t>(size_of(c.dtype));
    switch (c.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::reduce_scatter:
        if (c.kind == CollectiveKind::all_reduce && size_ > 1 &&
            block >= least_block(size_) * size_)
          return begin_blocks(p, in, out);
        if (reduces_here(c)) return begin_gathered(p, in, out);
        if (c.kind == CollectiveKind::all_reduce)
          return check(
              mpi_.iallreduce(in, out, n, mpi_.type_of(c.dtype), mpi_.sum, comm_, &new_request(p)),
              "MPI_Iallreduce");
        return check(mpi_.ireduce_scatter_block(in, out, n, mpi_.type_of(c.dtype), mpi_.sum, comm_,
                                                &new_request(p)),
                     "MPI_Ireduce_scatter_block");
      case CollectiveKind::all_gather:
        return check(mpi_.iallgather(in, n, bits, out, n, bits, comm_, &new_request(p)),
                     "MPI_Iallgather");
      case CollectiveKind::all_to_all:
        return check(mpi_.ialltoall(in, n, bits, out, n, bits, comm_, &new_request(p)),
                     "MPI_Ialltoall");
      case CollectiveKind::broadcast:
        if (c.peer == rank_) ranks::copy_bytes(out, in, block);
        return check(mpi_.ibcast(out, n, bits, static_cast<int>(c.peer), comm_, &new_request(p)),
                     "MPI_Ibcast");
      case CollectiveKind::shift: {
        const int by = ranks::modulo(c.peer, size_);
        receive_from(p, out, n, bits, ranks::modulo(rank_ - by, size_));
        return send_to(p, in, n, bits, ranks::modulo(rank_ + by, size_));
      }
      case CollectiveKind::send:
        return post(in, block, n, bits, static_cast<int>(c.peer));
      case CollectiveKind::receive:
        return receive_from(p, out, n, bits, static_cast<int>(c.peer));
    }
  }

  void send_to(Pending& p, const std::byte* in, int n, MpiHandle type, int peer,
               int tag = data_tag) {
    check(mpi_.isend(in, n, type, peer, tag, comm_, &new_request(p)), "MPI_Isend");
  }
  void receive_from(Pending& p, std::byte* out, int n, MpiHandle type, int peer,
                    int tag = data_tag) {
    check(mpi_.irecv(out, n, type, peer, tag, comm_, &new_request(p)), "MPI_Irecv");
  }

  // A message is on its way when the call returns: two ranks may send to each other first.
  void post(const std::byte* in, int64_t bytes, int n, MpiHandle type, int peer) {
    test_posted();
    Posted& message = posted_.emplace_back();
    message.bytes.assign(in, in + bytes);
    message.request = mpi_.request_null;
    check(mpi_.isend(message.bytes.data(), n, type, peer, data_tag, comm_, &message.request),
          "MPI_Isend");
  }
  void test_posted() {
    std::erase_if(posted_, [this](Posted& message) {
      int done = 0;
      check(mpi_.test(&message.request, &done, mpi_.status_ignore), "MPI_Test");
      return done != 0;
    });
  }

  // Memory of a call, that of one before it where it will do: fresh pages take as long as a sum.
  std::byte* gather_into(Pending& p, size_t bytes) {
    p.gathered = std::move(spare_);
    if (p.gathered.size() < bytes) p.gathered.resize(bytes);
    return p.gathered.data();
  }

  // Everybody gets everybody's values, and combines them in the order of ranks.
  void begin_gathered(Pending& p, const std::byte* in, std::byte* out) {
    const CollectiveCall c = p.call;
    const int n = static_cast<int>(c.count);
    const MpiHandle bits = mpi_.bits_of(c.dtype);
    const auto block = static_cast<size_t>(c.count) * size_of(c.dtype);
    std::byte* const all = gather_into(p, block * static_cast<size_t>(size_));
    if (c.kind == CollectiveKind::all_reduce)
      check(mpi_.iallgather(in, n, bits, all, n, bits, comm_, &new_request(p)), "MPI_Iallgather");
    else
      check(mpi_.ialltoall(in, n, bits, all, n, bits, comm_, &new_request(p)), "MPI_Ialltoall");
    p.next = [=, size = size_](Pending&) {
      std::vector<const std::byte*> blocks;
      for (int r = 0; r < size; ++r) blocks.push_back(all + static_cast<size_t>(r) * block);
      ranks::reduce(c.dtype, c.reducer, blocks, out, c.count);
    };
  }

  // Large values by blocks: each rank gets everybody's numbers of its block, combines them in the
  // order of ranks, and gives all others what comes out. No way moves fewer bytes; it takes
  // 2 (size - 1) messages (Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19,
  // 49, 2005). Libraries take longer where a call may not block.
  void begin_blocks(Pending& p, const std::byte* in, std::byte* out) {
    const CollectiveCall c = p.call;
    const MpiHandle bits = mpi_.bits_of(c.dtype);
    const auto bytes = static_cast<int64_t>(size_of(c.dtype));
    const int64_t each = (c.count + size_ - 1) / size_;
    auto first = [each, c](int r) { return std::min(c.count, each * r); };
    auto count = [first](int r) { return static_cast<int>(first(r + 1) - first(r)); };
    const int tag = first_block_tag + 2 * static_cast<int>(block_calls_++ % block_calls);
    const int mine = count(rank_);
    std::byte* const all = gather_into(p, static_cast<size_t>(mine * bytes * size_));
    for (int by = 1; by < size_; ++by) {
      const int from = ranks::modulo(rank_ - by, size_), to = ranks::modulo(rank_ + by, size_);
      receive_from(p, all + from * mine * bytes, mine, bits, from, tag);
      send_to(p, in + first(to) * bytes, count(to), bits, to, tag);
    }
    p.next = [=, this](Pending& q) {
      std::vector<const std::byte*> blocks;
      for (int r = 0; r < size_; ++r)
        blocks.push_back(r == rank_ ? in + first(r) * bytes : all + r * mine * bytes);
      std::byte* const sums = out + first(rank_) * bytes;
      ranks::reduce(c.dtype, c.reducer, blocks, sums, mine);
      for (int by = 1; by < size_; ++by) {
        const int from = ranks::modulo(rank_ - by, size_), to = ranks::modulo(rank_ + by, size_);
        receive_from(q, out + first(from) * bytes, count(from), bits, from, tag + 1);
        send_to(q, sums, mine, bits, to, tag + 1);
      }
    };
  }

  // Whether the call is done.
  bool advance(Pending& p) {
    for (;;) {
      while (!p.requests.empty()) {
        int done = 0;
        check(mpi_.test(&p.requests.back(), &done, mpi_.status_ignore), to_string(p.call).c_str());
        if (!done) return false;
        p.requests.pop_back();
      }
      if (!p.next) return true;
      std::exchange(p.next, {})(p);
    }
  }

  // The library moves data only while it is asked: first without a pause, then as others leave
  // the core to this thread. Each question may itself leave the core to others for long.
  void complete(Pending& p) {
    constexpr auto eager = std::chrono::microseconds(200);
    if (advance(p)) return;
    struct Until {
      const Pending*& waits_in;
      ~Until() { waits_in = nullptr; }
    } until{waits_in_};
    waits_in_ = &p;
    const auto began = steady_clock::now();
    auto looked = began;
    while (!advance(p)) {
      const auto now = steady_clock::now();
      if (now - began < eager) continue;
      sched_yield();
      if (now - looked < std::chrono::milliseconds(1)) continue;
      looked = now;
      // Another rank may wait for a call first that this one waits for later.
      for (Pending& other : pending_)
        if (&other != &p) advance(other);
      test_posted();
      hear_news();
      if (now - began > limit_) give_up_waiting(p);
    }
  }

  // Takes what others tell; throws where one has given up.
  void hear_news() {
    for (;;) {
      int there = 0;
      check(mpi_.iprobe(mpi_.any_source, news_tag, news_, &there, mpi_.status_ignore),
            "MPI_Iprobe");
      if (!there) return;
      News news;
      check(mpi_.recv(&news, sizeof news, mpi_.bits_of(DType::u8), mpi_.any_source, news_tag, news_,
                      mpi_.status_ignore),
            "MPI_Recv");
      news.text[sizeof news.text - 1] = 0;
      if (news.rank < 0 || news.rank >= size_) continue;
      heard_[static_cast<size_t>(news.rank)] = true;
      // Who gives up soon asks who waits as well.
      if (news.kind == News::waits && waits_in_ && answered_ != waits_in_->number) {
        answered_ = waits_in_->number;
        tell(News::waits, where_of(*waits_in_));
      }
      if (news.kind == News::gives_up)
        fail(fmt::format("rank {} has given up: {}", news.rank, news.text));
    }
  }

  void tell(News::Kind kind, std::string_view text) {
    auto news = std::make_unique<News>();
    news->kind = kind;
    news->rank = rank_;
    std::memcpy(news->text, text.data(), std::min(text.size(), sizeof news->text - 1));
    std::vector<MpiHandle> requests;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      requests.push_back(mpi_.request_null);
      check(mpi_.isend(news.get(), sizeof *news, mpi_.bits_of(DType::u8), r, news_tag, news_,
                       &requests.back()),
            "MPI_Isend");
    }
    const auto end = steady_clock::now() + std::chrono::seconds(1);
    for (MpiHandle& request : requests)
      for (int done = 0; !done && steady_clock::now() < end; sched_yield())
        check(mpi_.test(&request, &done, mpi_.status_ignore), "MPI_Test");
    told_.push_back(std::move(news));  // it may still be on its way
  }

  static std::string where_of(const Pending& p) {
    return fmt::format("call {}, {}", p.number, to_string(p.call));
  }

  // Others that wait say so, too: who is not heard of is the one that all wait for.
  [[noreturn]] void give_up_waiting(const Pending& p) {
    const std::string where = where_of(p);
    answered_ = p.number;
    std::fill(heard_.begin(), heard_.end(), false);
    tell(News::waits, where);
    const auto end = steady_clock::now() + std::chrono::seconds(1);
    while (steady_clock::now() < end) {
      try {
        hear_news();
      } catch (const Error&) {  // one that has given up for the same reason
        failure_.clear();
      }
      sched_yield();
    }
    std::vector<int> missing;
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && !heard_[static_cast<size_t>(r)]) missing.push_back(r);
    const std::string message =
        fmt::format("rank {} has waited {} ms in {}{}", rank_, limit_.count(), where,
                    missing.empty() ? std::string("; all ranks wait, in different calls")
                                    : fmt::format(" for {}", ranks::names_of_ranks(missing)));
    failure_ = message;
    abandon(message);
    fail(message);
  }

  const MpiLibrary& mpi_;
  const MpiHandle comm_;
  MpiHandle news_ = 0;
  const std::chrono::milliseconds limit_;
  const bool in_rank_order_;
  int rank_ = 0, size_ = 1;
  uint64_t calls_ = 0, block_calls_ = 0;
  std::vector<Pending> pending_;  // in the order of their begin
  std::list<Posted> posted_;
  std::vector<std::byte> spare_;
  const Pending* waits_in_ = nullptr;  // of the calls that are waited for, while one is
  uint64_t answered_ = 0;              // the call of which others know that this rank waits in it
  std::string failure_;
  bool has_given_up_ = false;
  std::vector<bool> heard_;  // by rank: in the last second of waiting
  std::vector<std::unique_ptr<News>> told_;
};

}  // namespace

std::shared_ptr<Communicator> mpi_ranks(const MpiOptions& options, int colour) {
  const MpiLibrary& mpi = ready_library(options);
  int rank = 0;
  check_mpi(mpi, mpi.comm_rank(mpi.world, &rank), "MPI_Comm_rank");
  MpiHandle comm = 0;
  check_mpi(mpi, mpi.comm_split(mpi.world, colour, rank, &comm), "MPI_Comm_split");
  return std::make_shared<MpiRank>(mpi, comm, options);
}

std::shared_ptr<Communicator> mpi_ranks_of(int64_t fortran_handle, const MpiOptions& options) {
  const MpiLibrary& mpi = ready_library(options);
  const MpiHandle given = mpi.comm_f2c
                              ? mpi.comm_f2c(static_cast<int>(fortran_handle))
                              : static_cast<MpiHandle>(static_cast<uint32_t>(fortran_handle));
  MpiHandle comm = 0;
  check_mpi(mpi, mpi.comm_dup(given, &comm), "MPI_Comm_dup");
  return std::make_shared<MpiRank>(mpi, comm, options);
}

}  // namespace gradus
