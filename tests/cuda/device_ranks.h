// Programs of several ranks, each on a simulated device of its own, with a double of NCCL.
#pragma once

#include "devices/cuda/kernels.h"
#include "gradus/text.h"
#include "ranks/listening.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/exchange_double.h"
#include "tests/ranks/joint.h"

namespace gradus::fusion::test {

using gradus::test::one_group;
using gradus::test::random_inputs;
using gradus::test::RankBindings;
using gradus::test::RankTensors;
using gradus::test::run_jointly;
using Devices = std::vector<std::shared_ptr<RankDevice>>;
using Names = std::vector<std::string>;

// A group whose sums may be in any order, as those of MPI; it notes what goes through the host.
class Noting final : public Communicator, public ranks::Listening {
 public:
  Noting(std::shared_ptr<Communicator> inner, bool in_rank_order)
      : inner_(std::move(inner)), in_rank_order_(in_rank_order) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool in_rank_order() const override { return in_rank_order_; }
  std::chrono::milliseconds limit() const override { return ranks::limit_of(*inner_); }
  void listen() override { ranks::listen_to(*inner_); }
  uint64_t start(const CollectiveCall& call, const std::byte* in, std::byte* out) override {
    // Of 32 bytes or more are the ranks' agreement and the id of the group, which are no values.
    if (call.dtype != DType::u64 && call.dtype != DType::u8) calls.push_back(to_string(call));
    return inner_->start(call, in, out);
  }
  void wait(uint64_t ticket) override { inner_->wait(ticket); }
  void forget_calls(const std::shared_ptr<const void>& memory) noexcept override {
    inner_->forget_calls(memory);
  }
  void abandon(std::string_view reason) noexcept override { inner_->abandon(reason); }

  Names calls;

 private:
  const std::shared_ptr<Communicator> inner_;
  const bool in_rank_order_;
};

struct Group {
  std::vector<std::shared_ptr<Noting>> ends;
  RankBindings bindings;
};

inline Group group_of(int ranks, bool in_rank_order, std::chrono::milliseconds limit,
                      const Names& names = {"data"}) {
  Group g;
  for (auto& end : thread_ranks(ranks, limit))
    g.ends.push_back(std::make_shared<Noting>(std::move(end), in_rank_order));
  g.bindings.resize(static_cast<size_t>(ranks));
  for (size_t r = 0; r < g.ends.size(); ++r)
    for (const std::string& name : names) g.bindings[r][name] = g.ends[r];
  return g;
}

inline Devices devices_of(int ranks) {
  Devices devices;
  for (int r = 0; r < ranks; ++r) devices.push_back(std::make_shared<RankDevice>(r));
  return devices;
}

inline void use(Context& context, const std::shared_ptr<RankDevice>& device) {
  context.replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(
      device, KernelOptions{.folder = kernel_folder()}, nullptr));
}

inline bool equal_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return std::ranges::equal(a.shape(), b.shape()) && bitwise_equal(a.contiguous(), b.contiguous());
}

inline std::string difference_of(const RankTensors& a, const RankTensors& b, double tolerance) {
  for (size_t r = 0; r < a.size(); ++r)
    for (size_t s = 0; s < a[r].size(); ++s)
      for (size_t i = 0; i < a[r][s].size(); ++i) {
        const std::string where = fmt::format("rank {}, stage {}, result {}", r, s, i);
        if (equal_bits(a[r][s][i], b[r][s][i])) continue;
        if (!tolerance) return where;
        const auto x = a[r][s][i].to_doubles(), y = b[r][s][i].to_doubles();
        double largest = 1;
        for (double v : y) largest = std::max(largest, std::abs(v));
        for (size_t e = 0; e < x.size(); ++e)
          if (!(std::abs(x[e] - y[e]) <= tolerance * largest))
            return fmt::format("{}: {} and {}", where, x[e], y[e]);
      }
  return "";
}

// Memory of the device. What nothing has written there may not be read.
inline std::byte* zeros_on(RankDevice& device, size_t bytes) {
  const cuda::Address address = device.allocate(bytes);
  device.write(address, std::vector<std::byte>(bytes));
  return reinterpret_cast<std::byte*>(address);
}

// A rank of two joins the group "data". The other's offer differs by the id of its device alone.
inline void join_pair(cuda::Exchanges& exchanges, const std::shared_ptr<Communicator>& end) {
  const devices::ExchangeOffer own = exchanges.offer(end);
  const devices::ExchangeOffer offers[] = {{own[0], 1, 1}, {own[0], 2, 2}};
  exchanges.join("data", end, offers);
}

class DeviceRanks : public testing::Test {
 public:
  void SetUp() override {
    std::lock_guard guard(exchange_double().mutex);
    exchange_double().calls.clear();
    exchange_double().faults.clear();
    exchange_double().status_of_call.clear();
    exchange_double().status_of_group.clear();
    exchange_double().status_of_join = exchange_double().status_of_id = 0;
    exchange_double().aborted = 0;
  }
  void TearDown() override {
    EXPECT_EQ(exchange_double().faults, Names());
    EXPECT_EQ(exchange_double().open, 0);
  }

  RankTensors run_on(const Devices& devices, const std::shared_ptr<const Code>& code,
                     const RankBindings& groups, const RankTensors& inputs) {
    return run_jointly(code, groups, inputs, FusionMode::first, 1, [&](Context& c, size_t r) {
      if (devices[r]) use(c, devices[r]);
    });
  }
  // Holds a program on devices against the same program on the CPU, whose groups add in the order
  // of ranks. Returns the calls that went through the host, of rank 0.
  Names check(const std::string& text, int ranks, bool in_rank_order, double tolerance = 0,
              Devices devices = {}) {
    const auto code = Code::compile(ir::parse(text).program());
    const RankTensors inputs = random_inputs(code->graph(), ranks, 5);
    const Group group = group_of(ranks, in_rank_order, std::chrono::seconds(20));
    if (devices.empty()) devices = devices_of(ranks);
    const RankTensors expected = run_jointly(code, one_group(ranks, {"data"}), inputs),
                      found = run_on(devices, code, group.bindings, inputs);
    EXPECT_EQ(difference_of(found, expected, tolerance), "") << text;
    return group.ends[0]->calls;
  }
  // What a run throws; empty if it throws nothing.
  template <class Run>
  static std::string thrown_by(Run run) {
    try {
      run();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

}  // namespace gradus::fusion::test
