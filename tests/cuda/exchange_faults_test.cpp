// What ends calls of ranks by NCCL: faults of the library, ranks that give up or are late.
// SPEC C3
#include <future>

#include "tests/cuda/device_ranks.h"

namespace gradus::fusion::test {
namespace {

// Ranks that run two stages, and what each throws. `before` is called between the stages.
class FailingRanks : public DeviceRanks {
 public:
  // False: the rank does not run the second stage.
  using Before = std::function<bool(size_t rank, Communicator& end)>;
  Names run_stages(std::chrono::milliseconds limit, const Before& before) {
    const auto code = Code::compile(ir::parse(R"(graph g {
      size R = ranks(data) from 1
      stage 0 (%x: f64[3] varying(data)) {
        %a = all_gather(%x) {group = "data", ranks = R}
        return %a
      }
      stage 1 (%z: f64[3] varying(data)) {
        %b = all_gather(%z) {group = "data", ranks = R}
        return %b
      }
    })")
                                        .program());
    const Group group = group_of(2, true, limit);
    Names thrown(2);
    std::vector<std::future<void>> threads;
    for (size_t r = 0; r < 2; ++r)
      threads.push_back(std::async(std::launch::async, [&, r] {
        thrown[r] = thrown_by([&] { run_rank(code, group.ends[r], r, before); });
      }));
    for (auto& t : threads) t.get();
    return thrown;
  }

 private:
  static void run_rank(const std::shared_ptr<const Code>& code,
                       const std::shared_ptr<Communicator>& end, size_t r, const Before& before) {
    auto context = std::make_shared<Context>(ContextOptions{});
    rank_groups(*context).bind("data", end);
    use(*context, std::make_shared<RankDevice>(static_cast<int>(r)));
    State state(code, context, {.fusion = FusionMode::first});
    const Tensor x = Tensor::from(DType::f64, Sizes{3}, std::vector<double>{1, 2, 3});
    state.run(std::vector{x});
    if (before(r, *end)) state.run(std::vector{x});
  }
};

TEST_F(FailingRanks, NameTheCallThatNcclRefuses) {
  const Names thrown = run_stages(std::chrono::seconds(20), [](size_t r, Communicator&) {
    std::lock_guard guard(exchange_double().mutex);
    if (r == 1) exchange_double().status_of_call[1] = 3;
    return true;
  });
  const std::string fault =
      "all_gather of 3 f64 of group 'data': NCCL fails on rank 1, cuda:1: internal error: the "
      "double "
      "was told to fail";
  EXPECT_NE(thrown[1].find(fault), std::string::npos) << thrown[1];
  EXPECT_NE(thrown[0].find("rank 1 has given up: " + fault), std::string::npos) << thrown[0];
  EXPECT_EQ(exchange_double().aborted, 2);
}

// Rank 0 waits for a result by then.
TEST_F(FailingRanks, HearWhatNcclReportsLater) {
  const Names thrown = run_stages(std::chrono::seconds(20), [](size_t r, Communicator&) {
    if (r == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::lock_guard guard(exchange_double().mutex);
    exchange_double().status_of_group[0] = 3;
    return false;
  });
  EXPECT_NE(thrown[0].find("all_gather of 3 f64 of group 'data': NCCL fails on rank 0, cuda:0"),
            std::string::npos)
      << thrown[0];
}

TEST_F(FailingRanks, WaitNoLongerThanTheirLimit) {
  const Names thrown = run_stages(std::chrono::milliseconds(300), [](size_t r, Communicator&) {
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return r == 0;
  });
  EXPECT_NE(
      thrown[0].find("rank 0 has waited 300 ms in all_gather of 3 f64 of group 'data', by NCCL "
                     "on cuda:0; another rank has not made the call, or cannot be reached"),
      std::string::npos)
      << thrown[0];
}

// The limit is one of the call, not of the stream's work before it.
TEST_F(DeviceRanks, TakeTheirTimeBeforeACall) {
  const Devices devices = devices_of(2);
  const auto ends = thread_ranks(2, std::chrono::milliseconds(300));
  auto run = [&](size_t r) {
    RankDevice& device = *devices[r];
    std::byte* const memory = zeros_on(device, 16);
    cuda::Exchanges exchanges(device, nullptr);
    join_pair(exchanges, ends[r]);
    device.computes = true;
    exchanges.start(*exchanges.find(ends[r]), {CollectiveKind::shift, {}, DType::f64, 1, 1}, "data",
                    memory, memory + 8, 0);
    auto later = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
      device.computes = false;
    });
    exchanges.wait(0);
  };
  auto other = std::async(std::launch::async, [&] { return thrown_by([&] { run(1); }); });
  EXPECT_EQ(thrown_by([&] { run(0); }), "");
  EXPECT_EQ(other.get(), "");
}

TEST_F(FailingRanks, HearThatAnotherHasGivenUp) {
  const Names thrown = run_stages(std::chrono::seconds(20), [](size_t r, Communicator& end) {
    if (r == 1) end.abandon("its input is broken");
    return r == 0;
  });
  EXPECT_NE(thrown[0].find("rank 1 has given up: its input is broken"), std::string::npos)
      << thrown[0];
}

TEST_F(FailingRanks, SayWhatToDoIfNcclDoesNotStart) {
  exchange_double().status_of_join = 3;
  const auto always = [](size_t, Communicator&) { return true; };
  for (const std::string& t : run_stages(std::chrono::seconds(20), always))
    EXPECT_NE(
        t.find("starting NCCL for group 'data' (without NCCL, as with GRADUS_NCCL_LIBRARY=off, "
               "ranks exchange through the host)"),
        std::string::npos)
        << t;
  SetUp();
  exchange_double().status_of_id = 3;
  for (const std::string& t : run_stages(std::chrono::seconds(20), always))
    EXPECT_NE(t.find("starting NCCL for group 'data'"), std::string::npos) << t;
}

}  // namespace
}  // namespace gradus::fusion::test
