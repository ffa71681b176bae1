#include "devices/cuda/exchanges.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include <sched.h>
#include <unistd.h>

#include "ranks/exchange.h"
#include "ranks/listening.h"

namespace gradus::fusion::cuda {

namespace {

using devices::ExchangeOffer;
using enum CollectiveKind;

// The first number of an offer: these, and NCCL's version above. The others are the device's id.
constexpr uint64_t has_nccl = 1, any_order = 2, has_joined = 4, blocks = 8;
constexpr int version_shift = 8;

std::optional<int> type_of(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return nccl::type_i8;
    case DType::u8:
      return nccl::type_u8;
    case DType::i32:
      return nccl::type_i32;
    case DType::u32:
      return nccl::type_u32;
    case DType::i64:
      return nccl::type_i64;
    case DType::u64:
      return nccl::type_u64;
    case DType::f32:
      return nccl::type_f32;
    case DType::f64:
      return nccl::type_f64;
    default:
      return std::nullopt;
  }
}

int number_of(CollectiveReducer reducer) {
  return reducer == CollectiveReducer::max   ? nccl::largest
         : reducer == CollectiveReducer::min ? nccl::smallest
                                             : nccl::sum;
}

// Leaves the core to others: at first for no time, later for some microseconds.
class Patience {
 public:
  void wait() {
    constexpr int eager_rounds = 1000;
    if (++rounds_ < eager_rounds)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  int rounds_ = 0;
};

// Why devices of such offers do not exchange; empty if they do.
std::string why_not(std::span<const ExchangeOffer> offers) {
  std::set<std::pair<uint64_t, uint64_t>> ids;
  for (size_t r = 0; r < offers.size(); ++r) {
    if (!(offers[r][0] & has_nccl)) return fmt::format("rank {} has no NCCL on a CUDA device", r);
    if (offers[r][0] & blocks)
      return fmt::format("on rank {} NCCL_COMM_BLOCKING is set, with which no time limit holds", r);
    if (offers[r][0] >> version_shift != offers[0][0] >> version_shift)
      return fmt::format("ranks 0 and {} have different versions of NCCL", r);
    if (!ids.emplace(offers[r][1], offers[r][2]).second)
      return fmt::format("rank {} has the device of another rank", r);
  }
  return "";
}

bool all_have(std::span<const ExchangeOffer> offers, uint64_t what) {
  return std::ranges::all_of(offers, [&](const ExchangeOffer& o) { return (o[0] & what) != 0; });
}

}  // namespace

bool nccl_makes(CollectiveKind kind, CollectiveReducer reducer, DType dtype, bool any_order) {
  if (ranks::is_message(kind)) return false;
  if (!ranks::is_reduction(kind)) return true;
  if (!type_of(dtype)) return false;
  return is_integral(dtype) || (any_order && reducer == CollectiveReducer::sum);
}

std::string GroupExchange::Call::text() const {
  return fmt::format("{} of group '{}'", to_string(call), name);
}

GroupExchange::GroupExchange(Device& device, std::string_view name,
                             const std::shared_ptr<Communicator>& ranks, bool any_order)
    : device_(device),
      t_(*device.exchange_table()),
      ranks_(ranks),
      rank_(ranks->rank()),
      size_(ranks->size()),
      limit_(ranks::limit_of(*ranks)),
      any_order_(any_order),
      process_(getpid()),
      caller_(std::this_thread::get_id()) {
  open(name, *ranks);
}

GroupExchange::~GroupExchange() {
  if (process_ != getpid() || !group_) return;  // a forked child has no device
  try {
    const auto since = Clock::now();
    for (Patience patience; !calls_.empty(); patience.wait()) watch(since);
    close();
  } catch (...) {  // `fail` has aborted it, and told the other ranks
  }
}

// Rank 0 makes the name of the group by which the others find it.
NcclId GroupExchange::share_id(Communicator& ranks, const std::string& what) {
  NcclId made{}, id{};
  if (rank_ == 0) check(t_.make_id(&made), what);
  ranks.run({.kind = broadcast, .dtype = DType::u8, .count = sizeof id},
            reinterpret_cast<const std::byte*>(&made), reinterpret_cast<std::byte*>(&id));
  return id;
}

// NCCL does not block: it returns before it is done, and is asked.
void GroupExchange::open(std::string_view name, Communicator& ranks) {
  const std::string what = fmt::format(
      "starting NCCL for group '{}' (without NCCL, as with GRADUS_NCCL_LIBRARY=off, ranks exchange "
      "through the host)",
      name);
  const NcclId id = share_id(ranks, what);
  NcclOptions options{sizeof options, nccl::options_magic, nccl::options_version, 0};
  device_.native(0);
  check(t_.join(&group_, size_, id, rank_, &options), what);
}

// No call is in progress. A rank that ends later than this one is waited for, but not for long.
void GroupExchange::close() noexcept {
  constexpr auto longest = std::chrono::seconds(10);
  try {
    device_.native(0);
  } catch (...) {
    return;  // the device is gone, and the communicator with it
  }
  const auto since = Clock::now();
  int status = t_.finalize(group_);
  for (Patience patience; status == nccl::in_progress && Clock::now() - since < longest;
       patience.wait())
    if (const int fault = t_.state(group_, &status)) status = fault;
  NcclGroup* const group = std::exchange(group_, nullptr);
  status ? t_.abort(group) : t_.destroy(group);
}

std::shared_ptr<const StreamMark> GroupExchange::start(const CollectiveCall& call,
                                                       std::string_view name, const std::byte* in,
                                                       std::byte* out, StreamNumber stream) {
  std::lock_guard guard(mutex_);
  refuse_after_failure();
  ranks::check_call(call, size_);
  if (call.count == 0) return nullptr;
  caller_ = std::this_thread::get_id();
  forget_done();
  Call added{call, std::string(name), device_.mark(stream), nullptr};
  const auto native = reinterpret_cast<DriverStream>(device_.native(stream));
  check(queue(call, in, out, native), added.text());
  added.behind = device_.mark(stream);
  if (calls_.empty()) reached_ = Clock::now();
  calls_.push_back(std::move(added));
  return calls_.back().behind;
}

// Elements that are only moved travel as bytes.
int GroupExchange::queue(const CollectiveCall& c, const std::byte* in, std::byte* out,
                         DriverStream stream) {
  const auto count = static_cast<size_t>(c.count), bytes = count * size_of(c.dtype);
  switch (c.kind) {
    case all_reduce:
      return t_.all_reduce(in, out, count, *type_of(c.dtype), number_of(c.reducer), group_, stream);
    case reduce_scatter:
      return t_.reduce_scatter(in, out, count, *type_of(c.dtype), number_of(c.reducer), group_,
                               stream);
    case all_gather:
      return t_.all_gather(in, out, bytes, nccl::type_u8, group_, stream);
    case broadcast:
      return t_.broadcast(in, out, bytes, nccl::type_u8, static_cast<int>(c.peer), group_, stream);
    case all_to_all:
    case shift:
      return queue_messages(c, in, out, stream);
    case send:
    case receive:
      break;
  }
  GRADUS_CHECK(false);
}

// Messages that NCCL makes as one call, so that they do not wait for each other.
int GroupExchange::queue_messages(const CollectiveCall& c, const std::byte* in, std::byte* out,
                                  DriverStream stream) {
  const size_t bytes = static_cast<size_t>(c.count) * size_of(c.dtype);
  int fault = t_.begin_calls();
  auto add = [&](int status) {
    if (!fault && status != nccl::in_progress) fault = status;
  };
  if (c.kind == shift) {
    const int by = ranks::modulo(c.peer, size_);
    add(t_.send(in, bytes, nccl::type_u8, ranks::modulo(rank_ + by, size_), group_, stream));
    add(t_.receive(out, bytes, nccl::type_u8, ranks::modulo(rank_ - by, size_), group_, stream));
  } else {
    for (int r = 0; r < size_; ++r) {
      const size_t block = static_cast<size_t>(r) * bytes;
      add(t_.send(in + block, bytes, nccl::type_u8, r, group_, stream));
      add(t_.receive(out + block, bytes, nccl::type_u8, r, group_, stream));
    }
  }
  const int status = t_.end_calls();
  return fault ? fault : status;
}

// What NCCL has returned: waits where it is in progress, and fails where it is a fault.
void GroupExchange::check(int status, const std::string& what) {
  const auto since = Clock::now();
  for (Patience patience; status == nccl::in_progress; patience.wait()) {
    if (const int fault = t_.state(group_, &status)) status = fault;
    if (status == nccl::in_progress) listen(what, since);
  }
  if (status == 0) return;
  const char *fault = t_.status_name(status), *detail = t_.last_fault(group_);
  fail(fmt::format("{}: NCCL fails on rank {}, cuda:{}: {}{}{}", what, rank_,
                   device_.facts().number, fault ? fault : "?", detail && *detail ? ": " : "",
                   detail ? detail : ""));
}

// Only the thread of the last call may use the communicator.
void GroupExchange::listen(const std::string& what, Clock::time_point since) {
  if (caller_ == std::this_thread::get_id())
    if (const auto ranks = ranks_.lock()) try {
        ranks::listen_to(*ranks);
      } catch (const Error& e) {
        fail(fmt::format("{}: {}", what, e.what()));
      }
  if (Clock::now() - since > limit_)
    fail(
        fmt::format("rank {} has waited {} ms in {}, by NCCL on cuda:{}; another rank has not made "
                    "the call, or cannot be reached",
                    rank_, limit_.count(), what, device_.facts().number));
}

void GroupExchange::watch(Clock::time_point since) {
  std::lock_guard guard(mutex_);
  refuse_after_failure();
  if (calls_.empty()) return;
  int status = 0;
  const std::string what = calls_.front().text();
  if (const int fault = t_.state(group_, &status)) status = fault;
  check(status, what);
  forget_done();
  if (calls_.empty()) return;
  if (!device_.is_done(*calls_.front().before)) reached_ = Clock::now();
  listen(calls_.front().text(), std::max(since, reached_));
}

void GroupExchange::forget_done() {
  while (!calls_.empty() && device_.is_done(*calls_.front().behind)) {
    calls_.pop_front();
    reached_ = Clock::now();
  }
}

void GroupExchange::refuse_after_failure() const {
  if (!failure_.empty()) throw Error("{}", failure_);
}

// Aborting ends the kernels that wait on the device, so that nobody waits for them. NCCL's abort
// waits for that of a machine's other ranks: they are told first.
void GroupExchange::fail(const std::string& message) {
  failure_ = message;
  calls_.clear();
  if (caller_ == std::this_thread::get_id())
    if (const auto ranks = ranks_.lock()) ranks->abandon(message);
  NcclGroup* const group = std::exchange(group_, nullptr);
  device_.native(0);
  if (group) t_.abort(group);
  throw Error("{}", message);
}

ExchangeOffer Exchanges::offer(const std::shared_ptr<Communicator>& ranks) {
  const ExchangeTable* table = device_.exchange_table();
  int version = 0;
  if (!table || table->version(&version)) return {};
  uint64_t first = has_nccl | static_cast<uint64_t>(version) << version_shift;
  if (!ranks->in_rank_order()) first |= any_order;
  if (find(ranks)) first |= has_joined;
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");  // to NCCL more than what it is told
  if (blocking && std::string_view(blocking) != "0") first |= blocks;
  return {first, device_.facts().id[0], device_.facts().id[1]};
}

void Exchanges::join(std::string_view name, const std::shared_ptr<Communicator>& ranks,
                     std::span<const ExchangeOffer> offers) {
  const std::string why = why_not(offers);
  if (why.empty() && all_have(offers, has_joined)) return;
  std::shared_ptr<GroupExchange> old, made;
  {
    std::lock_guard guard(mutex_);
    if (const auto known = position_of(ranks); known != groups_.end()) {
      old = std::move(known->exchange);
      groups_.erase(known);
    }
  }
  if (!why.empty()) {
    if (log_ && device_.exchange_table())
      log_(LogLevel::info,
           fmt::format("group '{}' exchanges through the host, not by NCCL: {}", name, why));
    return;
  }
  made = std::make_shared<GroupExchange>(device_, name, ranks, all_have(offers, any_order));
  std::lock_guard guard(mutex_);
  groups_.push_back({ranks, std::move(made)});
}

// Ranks close their groups in one order.
Exchanges::~Exchanges() {
  for (Joined& known : groups_) known.exchange.reset();
}

std::vector<Exchanges::Joined>::iterator Exchanges::position_of(
    const std::shared_ptr<Communicator>& ranks) {
  return std::ranges::find_if(groups_, [&](const Joined& known) {
    return !known.ranks.owner_before(ranks) && !ranks.owner_before(known.ranks);
  });
}

std::shared_ptr<GroupExchange> Exchanges::find(const std::shared_ptr<Communicator>& ranks) {
  std::lock_guard guard(mutex_);
  const auto found = position_of(ranks);
  return found == groups_.end() ? nullptr : found->exchange;
}

void Exchanges::start(GroupExchange& group, const CollectiveCall& call, std::string_view name,
                      const std::byte* in, std::byte* out, StreamNumber stream) {
  std::lock_guard guard(order_);
  if (last_ && last_stream_ != stream) device_.wait(stream, *last_);
  auto mark = group.start(call, name, in, out, stream);
  if (!mark) return;
  last_ = std::move(mark);
  last_stream_ = stream;
}

void Exchanges::wait(StreamNumber stream) {
  if (!groups().empty()) wait_for(*device_.mark(stream));
}

void Exchanges::finish() {
  std::shared_ptr<const StreamMark> last;
  {
    std::lock_guard guard(order_);
    last = last_;
  }
  if (last) wait_for(*last);
}

void Exchanges::wait_for(const StreamMark& mark) {
  const auto since = GroupExchange::Clock::now();
  for (Patience patience;; patience.wait()) {
    const bool done = device_.is_done(mark);
    for (const auto& group : groups()) group->watch(since);
    if (done) return;
  }
}

std::vector<std::shared_ptr<GroupExchange>> Exchanges::take_expired() {
  std::lock_guard guard(mutex_);
  std::vector<std::shared_ptr<GroupExchange>> gone;
  for (Joined& known : groups_)
    if (known.ranks.expired()) gone.push_back(std::move(known.exchange));
  std::erase_if(groups_, [](const Joined& known) { return !known.exchange; });
  return gone;
}

std::vector<std::shared_ptr<GroupExchange>> Exchanges::groups() {
  for (auto& gone : take_expired()) gone.reset();
  std::lock_guard guard(mutex_);
  std::vector<std::shared_ptr<GroupExchange>> list;
  for (const Joined& known : groups_) list.push_back(known.exchange);
  return list;
}

}  // namespace gradus::fusion::cuda
