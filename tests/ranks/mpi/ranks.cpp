// One of several processes that MPI has started: every call against the same calls by threads.
//   mpi_ranks_test all | abandon | late | die N | cut
// `die N`: rank 1 is killed before its call N, of one call of each kind. `cut`: calls for 30 s,
// which the network does not last.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include <unistd.h>

#include "gradus/communicator.h"
#include "gradus/tensor.h"

using namespace gradus;

namespace {

using Bytes = std::vector<std::byte>;

struct Trial {
  CollectiveCall call;
  int64_t in = 0, out = 0;  // elements
};

std::vector<Trial> trials(int size) {
  std::vector<Trial> all;
  using enum CollectiveKind;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i32, DType::u8})
    for (const int64_t n : {0, 1, 7, 4099}) {
      for (const auto reducer :
           {CollectiveReducer::sum, CollectiveReducer::max, CollectiveReducer::min}) {
        all.push_back({{all_reduce, reducer, dtype, n, 0}, n, n});
        all.push_back({{reduce_scatter, reducer, dtype, n, 0}, n * size, n});
      }
      all.push_back({{all_gather, {}, dtype, n, 0}, n, n * size});
      all.push_back({{all_to_all, {}, dtype, n, 0}, n * size, n * size});
      all.push_back({{broadcast, {}, dtype, n, size - 1}, n, n});
      for (const int64_t by : {0, 1, -1, 5}) all.push_back({{shift, {}, dtype, n, by}, n, n});
    }
  return all;
}

// The same on every process for a rank and a trial. Numbers of which any sum is exact.
Bytes values_of(size_t trial, int rank, const Trial& t) {
  std::mt19937 random(static_cast<uint32_t>(1000 * trial) + static_cast<uint32_t>(rank));
  std::vector<double> numbers;
  for (int64_t i = 0; i < t.in; ++i) numbers.push_back(static_cast<double>(random() % 30));
  const Tensor x = Tensor::from(t.call.dtype, Sizes{t.in}, numbers);
  Bytes bytes(static_cast<size_t>(t.in) * size_of(t.call.dtype));
  if (t.in) std::memcpy(bytes.data(), x.data(), bytes.size());
  return bytes;
}

std::vector<Bytes> run_all(Communicator& ranks, const std::vector<Trial>& list) {
  std::vector<Bytes> results;
  for (size_t k = 0; k < list.size(); ++k) {
    const Bytes in = values_of(k, ranks.rank(), list[k]);
    Bytes out(static_cast<size_t>(list[k].out) * size_of(list[k].call.dtype));
    ranks.run(list[k].call, in.data(), out.data());
    results.push_back(std::move(out));
  }
  return results;
}

// What this rank gets where all are threads.
std::vector<Bytes> expected(int rank, int size, const std::vector<Trial>& list) {
  const auto ends = thread_ranks(size);
  std::vector<Bytes> mine;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      auto results = run_all(*ends[static_cast<size_t>(r)], list);
      if (r == rank) mine = std::move(results);
    });
  for (std::thread& t : threads) t.join();
  return mine;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw Error("{}", what);
}

// Messages around the ring, several on their way at once, and calls that overlap.
void check_messages(Communicator& ranks) {
  const int size = ranks.size(), rank = ranks.rank();
  if (size == 1) return;
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  double sent[3] = {rank + 0.5, rank + 1.5, rank + 2.5}, got[3] = {};
  std::vector<uint64_t> tickets;
  auto bytes = [](double& x) { return reinterpret_cast<std::byte*>(&x); };
  for (double& x : sent)
    tickets.push_back(ranks.start({CollectiveKind::send, {}, DType::f64, 1, next}, bytes(x), {}));
  double sum = 0, one = 1;
  const uint64_t other =
      ranks.start({CollectiveKind::all_reduce, {}, DType::f64, 1, 0}, bytes(one), bytes(sum));
  for (double& x : got)
    ranks.run({CollectiveKind::receive, {}, DType::f64, 1, before}, {}, bytes(x));
  ranks.wait(other);
  for (const uint64_t t : tickets) ranks.wait(t);
  for (int k = 0; k < 3; ++k) require(got[k] == before + 0.5 + k, "a message went astray");
  require(sum == size, "a sum is off while messages are on their way");
  // All send before any receives, more than a library takes without a receiver.
  std::vector<double> large(1 << 18, rank + 0.25), other_large(large.size());
  const auto n = static_cast<int64_t>(large.size());
  ranks.run({CollectiveKind::send, {}, DType::f64, n, next}, bytes(large[0]), {});
  ranks.run({CollectiveKind::receive, {}, DType::f64, n, before}, {}, bytes(other_large[0]));
  require(other_large[0] == before + 0.25 && other_large.back() == before + 0.25,
          "a large message is off");
}

// Two large sums at once, for which ranks wait in different orders.
void check_waits(Communicator& ranks) {
  const int64_t n = 100'003;
  std::vector<double> x[2], y[2];
  uint64_t tickets[2];
  auto bytes = [](std::vector<double>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  for (int k = 0; k < 2; ++k) {
    x[k].assign(n, k + 1 + ranks.rank());
    y[k].assign(n, 0);
    const CollectiveCall call{CollectiveKind::all_reduce, {}, DType::f64, n, 0};
    tickets[k] = ranks.start(call, bytes(x[k]), bytes(y[k]));
  }
  for (int k = 0; k < 2; ++k) ranks.wait(tickets[(k + ranks.rank()) % 2]);
  for (int k = 0; k < 2; ++k) {
    double sum = 0;
    for (int r = 0; r < ranks.size(); ++r) sum += k + 1 + r;
    require(std::count(y[k].begin(), y[k].end(), sum) == n,
            "a sum that was waited for late is off");
  }
}

void check_all(bool in_rank_order) {
  const auto ranks = mpi_ranks({.in_rank_order = in_rank_order});
  const std::vector<Trial> list = trials(ranks->size());
  const auto ours = run_all(*ranks, list);
  const auto theirs = expected(ranks->rank(), ranks->size(), list);
  for (size_t k = 0; k < list.size(); ++k)
    require(ours[k] == theirs[k], fmt::format("{} is off", to_string(list[k].call)));
  check_messages(*ranks);
  check_waits(*ranks);
  // Those of one colour.
  const auto half = mpi_ranks({.in_rank_order = in_rank_order}, ranks->rank() % 2);
  require(half->size() == (ranks->size() + 1 - ranks->rank() % 2) / 2, "a colour has other ranks");
  int64_t one = 1, sum = 0;
  half->run({CollectiveKind::all_reduce, {}, DType::i64, 1, 0}, reinterpret_cast<std::byte*>(&one),
            reinterpret_cast<std::byte*>(&sum));
  require(sum == half->size(), "a sum over ranks of one colour is off");
}

// Runs calls until one fails; returns what it says.
std::string failure_of(Communicator& ranks) {
  for (int n = 0; n < 100; ++n) try {
      double x = 1, y = 0;
      ranks.run({CollectiveKind::all_reduce, {}, DType::f64, 1, 0},
                reinterpret_cast<std::byte*>(&x), reinterpret_cast<std::byte*>(&y));
    } catch (const Error& e) {
      return e.what();
    }
  return "";
}

// What is said has these words, one after the other.
void expect_failure(Communicator& ranks, std::initializer_list<const char*> words) {
  const std::string said = failure_of(ranks);
  size_t at = 0;
  for (const char* word : words) {
    at = said.find(word, at);
    require(at != std::string::npos, fmt::format("'{}' is missing in: {}", word, said));
    at += std::strlen(word);
  }
  require(failure_of(ranks) == said, "the next call fails in another way");
  std::fprintf(stderr, "rank %d was told\n", ranks.rank());
}

void run(const std::string& mode, int number) {
  if (mode == "all") {
    check_all(false);
    return check_all(true);
  }
  const auto ranks = mpi_ranks({.limit = std::chrono::seconds(2)});
  if (mode == "abandon") {
    if (ranks->rank() == 1) {
      ranks->abandon("its input is broken");
      // A launcher ends the others where one ends without MPI_Finalize.
      return std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    expect_failure(*ranks, {"rank 1 has given up", "its input is broken"});
  } else if (mode == "late") {
    if (ranks->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(5));
    if (ranks->rank() == 1)
      expect_failure(*ranks, {"has given up", "has waited"});
    else
      expect_failure(*ranks, {"has waited 2000 ms in call 1, all_reduce of 1 f64 for rank", " 1"});
  } else if (mode == "die") {
    std::vector<Trial> list = trials(ranks->size());
    std::erase_if(list,
                  [](const Trial& t) { return t.call.dtype != DType::f64 || t.in % 7 || !t.in; });
    for (int n = 0; n < static_cast<int>(list.size()); ++n) {
      if (ranks->rank() == 1 && n == number) kill(getpid(), SIGKILL);
      run_all(*ranks, {list[static_cast<size_t>(n)]});
    }
  } else if (mode == "cut") {
    if (ranks->rank() == 0) std::fprintf(stderr, "ready\n");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < end) {
      double x = 1, y = 0;
      ranks->run({CollectiveKind::all_reduce, {}, DType::f64, 1, 0},
                 reinterpret_cast<std::byte*>(&x), reinterpret_cast<std::byte*>(&y));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } else {
    throw Error("'{}' is no mode", mode);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 0);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "FAILED: %s\n", e.what());
    return 1;
  }
}
