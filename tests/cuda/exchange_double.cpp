#include "tests/cuda/exchange_double.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>

#include "ranks/exchange.h"

namespace gradus::fusion::cuda {

// A part of a call: messages are several parts.
struct ExchangePart {
  std::string what;
  Address in = 0, out = 0;
  size_t count = 0;
  int type = 0, number = 0;  // a reducer, a root or a peer
};

struct NcclCommunicator {
  struct DoubleGroup* group = nullptr;
  int rank = 0;
  test::RankDevice* device = nullptr;
  std::deque<std::vector<ExchangePart>> waiting;  // calls that some rank has not made
  int busy = 0;                                   // how often it says that it is in progress
  bool finalized = false;
};

// Ranks that have joined by one id.
struct DoubleGroup {
  size_t size = 0;
  std::map<int, NcclCommunicator*> members;
};

}  // namespace gradus::fusion::cuda

namespace gradus::fusion::test {

namespace {

using namespace cuda;

constexpr int ok = 0, internal_error = 3, invalid_argument = 4;

RankDevice*& current_device() {
  thread_local RankDevice* device = nullptr;
  return device;
}

void expect(bool good, const char* what) {
  if (!good) exchange_double().faults.emplace_back(what);
}

// Parts between begin_calls and end_calls, of this thread.
struct OpenCall {
  int depth = 0;
  NcclGroup* group = nullptr;
  std::vector<ExchangePart> parts;
};
OpenCall& open_call() {
  thread_local OpenCall call;
  return call;
}

std::map<std::string, DoubleGroup>& groups() {
  static auto& all = *new std::map<std::string, DoubleGroup>;
  return all;
}

int version(int* v) {
  *v = 22809;
  return ok;
}
const char* status_name(int status) {
  return status == internal_error ? "internal error" : "status";
}
const char* last_fault(NcclGroup*) { return "the double was told to fail"; }

int make_id(NcclId* id) {
  static std::atomic<int> next{0};
  std::snprintf(id->bytes, sizeof id->bytes, "group %d", next++);
  return exchange_double().status_of_id;
}

int join(NcclGroup** made, int ranks, NcclId id, int rank, NcclOptions* options) {
  ExchangeDouble& d = exchange_double();
  std::lock_guard guard(d.mutex);
  expect(options->bytes == sizeof *options && options->magic == 0xcafebeef, "options");
  expect(options->blocking == 0, "a communicator that blocks");
  expect(current_device() != nullptr, "no device is current");
  if (d.status_of_join) return d.status_of_join;
  DoubleGroup& group = groups()[id.bytes];
  group.size = static_cast<size_t>(ranks);
  expect(rank >= 0 && rank < ranks && !group.members.contains(rank), "the number of a rank");
  auto* c = new NcclCommunicator{&group, rank, current_device(), {}, 0, false};
  for (const auto& [r, other] : group.members) expect(other->device != c->device, "a device twice");
  group.members[rank] = *made = c;
  ++d.open;
  return nccl::in_progress;
}

int state(NcclGroup* c, int* status) {
  ExchangeDouble& d = exchange_double();
  std::lock_guard guard(d.mutex);
  *status = ok;
  if (const auto f = d.status_of_group.find(c->device->facts().number);
      f != d.status_of_group.end())
    *status = f->second;
  else if (c->group->members.size() < c->group->size || (c->busy && c->busy--))
    *status = nccl::in_progress;
  return ok;
}

void drop_calls(NcclGroup* c) {
  c->device->done += c->waiting.size();
  c->waiting.clear();
  exchange_double().changed.notify_all();
}

int finalize(NcclGroup* c) {
  std::lock_guard guard(exchange_double().mutex);
  expect(c->waiting.empty(), "calls that are in progress at the end");
  expect(current_device() == c->device, "another device is current at the end");
  c->finalized = true;
  return ok;
}

// The memory of a communicator is kept, since other ranks may look at it.
int end(NcclGroup* c) {
  drop_calls(c);
  --exchange_double().open;
  return ok;
}
int destroy(NcclGroup* c) {
  std::lock_guard guard(exchange_double().mutex);
  expect(c->finalized, "destroyed before it was finalised");
  return end(c);
}
int abort(NcclGroup* c) {
  std::lock_guard guard(exchange_double().mutex);
  ++exchange_double().aborted;
  return end(c);
}

using Parts = std::vector<ExchangePart>;
using Made = std::map<int, Parts>;  // a call, by rank

std::vector<std::byte> bytes_of(DoubleGroup& group, int rank, Address from, size_t bytes) {
  return group.members.at(rank)->device->read(from, bytes);
}

constexpr DType dtypes[] = {DType::i8,  DType::u8,  DType::i32, DType::u32, DType::i64,
                            DType::u64, DType::f16, DType::f32, DType::f64};
constexpr CollectiveReducer reducers[] = {CollectiveReducer::sum, CollectiveReducer::sum,
                                          CollectiveReducer::max, CollectiveReducer::min};

// From the last rank to the first: not the order of the host.
std::vector<std::byte> reduced(DoubleGroup& group, const Made& made, size_t first_element) {
  const ExchangePart& p = made.at(0)[0];
  const DType dtype = dtypes[p.type];
  const size_t size = size_of(dtype);
  std::vector<std::vector<std::byte>> all;
  std::vector<const std::byte*> in;
  for (const auto& [rank, parts] : made)
    all.push_back(bytes_of(group, rank, parts[0].in + first_element * size, p.count * size));
  for (size_t r = all.size(); r-- > 0;) in.push_back(all[r].data());
  std::vector<std::byte> out(p.count * size);
  ranks::reduce(dtype, reducers[p.number], in, out.data(), static_cast<int64_t>(p.count));
  return out;
}

void write(DoubleGroup& group, int rank, Address to, const std::vector<std::byte>& bytes) {
  group.members.at(rank)->device->write(to, bytes);
}

void do_reduction(DoubleGroup& group, const Made& made, bool scatters) {
  std::map<int, std::vector<std::byte>> results;
  for (const auto& [rank, parts] : made)
    results[rank] = reduced(group, made, scatters ? static_cast<size_t>(rank) * parts[0].count : 0);
  for (const auto& [rank, parts] : made) write(group, rank, parts[0].out, results[rank]);
}

void do_gather(DoubleGroup& group, const Made& made) {
  std::vector<std::byte> all;
  for (const auto& [rank, parts] : made) {
    const auto block = bytes_of(group, rank, parts[0].in, parts[0].count);
    all.insert(all.end(), block.begin(), block.end());
  }
  for (const auto& [rank, parts] : made) write(group, rank, parts[0].out, all);
}

void do_broadcast(DoubleGroup& group, const Made& made) {
  const ExchangePart& root = made.at(made.at(0)[0].number)[0];
  const auto bytes = bytes_of(group, root.number, root.in, root.count);
  for (const auto& [rank, parts] : made) write(group, rank, parts[0].out, bytes);
}

void do_messages(DoubleGroup& group, const Made& made) {
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> sent;
  for (const auto& [rank, parts] : made)
    for (const ExchangePart& p : parts)
      if (p.what == "send") sent[{rank, p.number}].push_back(bytes_of(group, rank, p.in, p.count));
  for (const auto& [rank, parts] : made)
    for (const ExchangePart& p : parts) {
      if (p.what != "receive") continue;
      auto& from = sent[{p.number, rank}];
      expect(!from.empty() && from.front().size() == p.count, "a message that nobody sends");
      if (from.empty()) continue;
      write(group, rank, p.out, from.front());
      from.pop_front();
    }
}

bool same_parts(const Made& made) {
  const ExchangePart& first = made.at(0)[0];
  return std::ranges::all_of(made, [&](const auto& m) {
    const ExchangePart& p = m.second[0];
    return p.what == first.what && p.count == first.count && p.type == first.type &&
           (p.what == "send" || p.number == first.number);
  });
}

void do_call(DoubleGroup& group, const Made& made) {
  const std::string& what = made.at(0)[0].what;
  exchange_double().calls.push_back(what);
  expect(same_parts(made), "calls that differ between ranks");
  if (what == "all_reduce") return do_reduction(group, made, false);
  if (what == "reduce_scatter") return do_reduction(group, made, true);
  if (what == "all_gather") return do_gather(group, made);
  if (what == "broadcast") return do_broadcast(group, made);
  do_messages(group, made);
}

// What all ranks have made is done.
void go_on(DoubleGroup& group) {
  while (group.members.size() == group.size &&
         std::ranges::none_of(group.members, [](auto& m) { return m.second->waiting.empty(); })) {
    Made made;
    for (auto& [rank, c] : group.members) {
      made[rank] = std::move(c->waiting.front());
      c->waiting.pop_front();
    }
    do_call(group, made);
    for (auto& [rank, c] : group.members) ++c->device->done;
    exchange_double().changed.notify_all();
  }
}

int make_call(NcclGroup* c, Parts parts) {
  ExchangeDouble& d = exchange_double();
  std::lock_guard guard(d.mutex);
  expect(current_device() == c->device, "another device is current");
  expect(!c->busy, "a call while another one is begun");
  if (auto node = d.status_of_call.extract(c->device->facts().number); !node.empty())
    return node.mapped();
  c->waiting.push_back(std::move(parts));
  ++c->device->given;
  c->busy = 2;
  go_on(*c->group);
  return nccl::in_progress;
}

int add(NcclGroup* c, DriverStream stream, ExchangePart part) {
  if (reinterpret_cast<uintptr_t>(stream) < InterpretedDevice::first_native)
    return invalid_argument;
  OpenCall& call = open_call();
  if (!call.depth) return make_call(c, {std::move(part)});
  call.group = c;
  call.parts.push_back(std::move(part));
  return ok;
}

Address at(const void* p) { return reinterpret_cast<Address>(p); }

int all_reduce(const void* in, void* out, size_t count, int type, int reducer, NcclGroup* c,
               DriverStream s) {
  return add(c, s, {"all_reduce", at(in), at(out), count, type, reducer});
}
int reduce_scatter(const void* in, void* out, size_t count, int type, int reducer, NcclGroup* c,
                   DriverStream s) {
  return add(c, s, {"reduce_scatter", at(in), at(out), count, type, reducer});
}
int all_gather(const void* in, void* out, size_t count, int type, NcclGroup* c, DriverStream s) {
  return add(c, s, {"all_gather", at(in), at(out), count, type, 0});
}
int broadcast(const void* in, void* out, size_t count, int type, int root, NcclGroup* c,
              DriverStream s) {
  return add(c, s, {"broadcast", at(in), at(out), count, type, root});
}
int send(const void* in, size_t count, int type, int peer, NcclGroup* c, DriverStream s) {
  return add(c, s, {"send", at(in), 0, count, type, peer});
}
int receive(void* out, size_t count, int type, int peer, NcclGroup* c, DriverStream s) {
  return add(c, s, {"receive", 0, at(out), count, type, peer});
}
int begin_calls() {
  ++open_call().depth;
  return ok;
}
int end_calls() {
  OpenCall& call = open_call();
  if (--call.depth || call.parts.empty()) return ok;
  return make_call(call.group, std::exchange(call.parts, {}));
}

struct Mark final : StreamMark {
  size_t given = 0;
};

}  // namespace

ExchangeDouble& exchange_double() {
  static ExchangeDouble& d = *new ExchangeDouble;
  return d;
}

const ExchangeTable& exchange_double_table() {
  static const ExchangeTable table{version,        status_name, last_fault, make_id, join,
                                   state,          finalize,    destroy,    abort,   all_reduce,
                                   reduce_scatter, all_gather,  broadcast,  send,    receive,
                                   begin_calls,    end_calls};
  return table;
}

RankDevice::RankDevice(int number, bool has_nccl)
    : InterpretedDevice(size_t{1} << 30, number), has_nccl_(has_nccl) {}

uintptr_t RankDevice::native(StreamNumber n) {
  current_device() = this;
  return InterpretedDevice::native(n);
}

std::shared_ptr<const StreamMark> RankDevice::mark(StreamNumber) {
  std::lock_guard guard(exchange_double().mutex);
  auto mark = std::make_shared<Mark>();
  mark->given = given;
  return mark;
}

bool RankDevice::is_done(const StreamMark& mark) {
  std::lock_guard guard(exchange_double().mutex);
  return !computes && done >= static_cast<const Mark&>(mark).given;
}

// A stream goes on when its calls are done. A test that would wait forever fails here.
void RankDevice::finish_calls() {
  ExchangeDouble& d = exchange_double();
  std::unique_lock lock(d.mutex);
  if (!d.changed.wait_for(lock, std::chrono::seconds(20), [&] { return done >= given; }))
    throw ResourceError("the stream waits for other ranks without end");
}

void RankDevice::copy_to_device(Address to, const void* from, size_t bytes, StreamNumber n) {
  finish_calls();
  InterpretedDevice::copy_to_device(to, from, bytes, n);
}
void RankDevice::copy_to_host(void* to, Address from, size_t bytes, StreamNumber n) {
  finish_calls();
  InterpretedDevice::copy_to_host(to, from, bytes, n);
}
void RankDevice::synchronize(StreamNumber n) {
  finish_calls();
  InterpretedDevice::synchronize(n);
}
void RankDevice::launch(const LoadedCode& code, const LaunchPlan::Launch& l, StreamNumber n) {
  finish_calls();
  InterpretedDevice::launch(code, l, n);
}

std::vector<std::byte> RankDevice::read(Address from, size_t bytes) {
  std::lock_guard guard(mutex_);
  std::vector<std::byte> there(bytes);
  memory().read(there.data(), from, bytes);
  return there;
}

void RankDevice::write(Address to, const std::vector<std::byte>& bytes) {
  std::lock_guard guard(mutex_);
  memory().write(to, bytes.data(), bytes.size());
}

}  // namespace gradus::fusion::test
