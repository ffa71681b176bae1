// A potential alone, for bench/clients/plugin.py: bench_potential PROGRAM WEIGHTS INPUT.npz
// INPUT.npz has positions, species, edges and ghosts. For each number of calls that it
// reads, it makes them and prints the seconds that they took.
#include "gradus/potential.h"

#include <chrono>
#include <cstdio>
#include <iostream>

#include "gradus/files.h"
#include "gradus/kernels.h"

using namespace gradus;

int main(int argc, char** argv) try {
  if (argc != 4) throw Error("bench_potential PROGRAM WEIGHTS INPUT.npz");
  auto context = std::make_shared<Context>(ContextOptions{.workers = 1});
  Potential potential = Potential::load(argv[1], argv[2], {}, context);
  const NamedTensors arrays = read_npz(argv[3]);
  const PotentialInput in{arrays.at("positions"), arrays.at("species"), arrays.at("edges"),
                          Tensor(), arrays.at("ghosts")};
  for (int i = 0; i < 20; ++i) potential.run(in);
  wait_for_kernels(*context);
  for (int calls = 0; std::cin >> calls;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) potential.run(in);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::cout << taken.count() << std::endl;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
