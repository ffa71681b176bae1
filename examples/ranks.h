// What the examples share that several ranks run together.
#pragma once

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "examples/command_line.h"
#include "gradus/communicator.h"

using Ranks = std::shared_ptr<gradus::Communicator>;

// A context whose programs know the ranks by that name.
inline std::shared_ptr<gradus::Context> context_of(const char* group, const Ranks& ranks) {
  auto context = std::make_shared<gradus::Context>(gradus::ContextOptions{.workers = 1});
  gradus::rank_groups(*context).bind(group, ranks);
  return context;
}

// Calls body(ranks) on every rank: on threads of this process, or in the processes that mpirun has
// started. Throws what the first rank that fails throws; the others are told.
template <class Body>
void on_ranks(const CommandLine& line, Body body) {
  auto guarded = [&](const Ranks& ranks) {
    try {
      body(ranks);
    } catch (const std::exception& e) {
      ranks->abandon(e.what());
      throw;
    }
  };
  if (line.mpi) return guarded(gradus::mpi_ranks());
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (const Ranks& ranks : gradus::thread_ranks(line.ranks))
    threads.emplace_back([&, ranks] {
      try {
        guarded(ranks);
      } catch (...) {
        std::lock_guard guard(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}
