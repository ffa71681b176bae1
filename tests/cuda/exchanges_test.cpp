// Calls of ranks on devices: by NCCL, of which there is a double, or through the host.
// SPEC C1
#include <fstream>
#include <future>
#include <sstream>

#include "gradus/passes.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/needs.h"
#include "tests/start.h"

namespace gradus::fusion::test {
namespace {

// %y is what the calls give of %x.
std::string program(const std::string& type, const std::string& calls) {
  return fmt::format(
      "graph g {{ size R = ranks(data) from 1 stage 0 (%x: {} varying(data)) {{ {} return %y }} }}",
      type, calls);
}
std::string call(const std::string& op, const std::string& attributes = "") {
  return fmt::format("%y = {}(%x) {{group = \"data\"{}{}}}", op, attributes.empty() ? "" : ", ",
                     attributes);
}

struct Case {
  const char *name, *type, *op, *attributes;
  const char* by;  // what NCCL makes of it; null: the host makes it
};
constexpr Case cases[] = {
    {"sum_f64", "f64[3]", "all_reduce", "", "all_reduce"},
    {"sum_f32", "f32[3]", "all_reduce", "", "all_reduce"},
    {"sum_i64", "i64[3]", "all_reduce", "", "all_reduce"},
    {"sum_i8", "i8[3]", "all_reduce", "", "all_reduce"},
    {"max_i32", "i32[3]", "all_reduce", "reduce = \"max\"", "all_reduce"},
    {"min_i64", "i64[3]", "all_reduce", "reduce = \"min\"", "all_reduce"},
    {"sum_f16", "f16[3]", "all_reduce", "", nullptr},
    {"sum_bf16", "bf16[3]", "all_reduce", "", nullptr},
    {"sum_i16", "i16[3]", "all_reduce", "", nullptr},
    {"max_f64", "f64[3]", "all_reduce", "reduce = \"max\"", nullptr},
    {"min_f32", "f32[3]", "all_reduce", "reduce = \"min\"", nullptr},
    {"scatter_f64", "f64[R, 3]", "reduce_scatter", "", "reduce_scatter"},
    {"scatter_f16", "f16[R, 3]", "reduce_scatter", "", nullptr},
    {"gather_f64", "f64[2, 3]", "all_gather", "ranks = R", "all_gather"},
    {"gather_bf16", "bf16[5]", "all_gather", "ranks = R", "all_gather"},
    {"gather_bool", "bool[5]", "all_gather", "ranks = R", "all_gather"},
    {"to_all_f32", "f32[R, 3]", "all_to_all", "", "send"},
    {"broadcast_f64", "f64[3]", "broadcast", "root = 1", "broadcast"},
    {"shift_f64", "f64[3]", "shift", "by = 1", "send"},
    {"shift_back", "i16[3]", "shift", "by = -4", "send"},
};
std::string program_of(const Case& c) { return program(c.type, call(c.op, c.attributes)); }

class DeviceCalls : public DeviceRanks, public testing::WithParamInterface<Case> {};

// In a group that adds in any order.
TEST_P(DeviceCalls, GiveWhatTheHostGives) {
  const Case& c = GetParam();
  for (int ranks : {2, 3}) {
    exchange_double().calls.clear();
    const bool f32 = std::string_view(c.type).starts_with("f32");
    const Names host = check(program_of(c), ranks, false, f32 ? 1e-6 : 1e-12);
    EXPECT_EQ(exchange_double().calls, c.by ? Names{c.by} : Names()) << ranks;
    EXPECT_EQ(host.empty(), c.by != nullptr) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCalls, testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(DeviceRanks, AddInTheOrderOfRanksThroughTheHost) {
  EXPECT_EQ(check(program("f64[3]", call("all_reduce")), 3, true), Names{"all_reduce of 3 f64"});
  EXPECT_EQ(exchange_double().calls, Names());
  // The order of integers is of no account.
  EXPECT_EQ(check(program("i64[3]", call("all_reduce")), 3, true), Names());
  EXPECT_EQ(exchange_double().calls, Names{"all_reduce"});
}

// Values of a call stay on the device: they are copied there as inputs, and back as results.
TEST_F(DeviceRanks, CopyNothingToTheHost) {
  const Devices devices = devices_of(2);
  check(program("f64[3]", call("all_gather", "ranks = R")), 2, false, 0, devices);
  EXPECT_EQ(devices[0]->copies_in, 1u);
  EXPECT_EQ(devices[0]->copies_out, 1u);
}

TEST_F(DeviceRanks, PutStridedOperandsInOrder) {
  GRADUS_NEEDS_NVRTC();
  const std::string calls =
      "%t = transpose(%x) {dim0 = 0, dim1 = 1} %y = all_gather(%t) {group = \"data\", ranks = R}";
  EXPECT_EQ(check(program("f64[2, 3]", calls), 2, true), Names());
  EXPECT_EQ(exchange_double().calls, Names{"all_gather"});
}

TEST_F(DeviceRanks, ReadConstants) {
  const char* text = R"(graph g {
    size R = ranks(data) from 1
    stage 0 (%x: f64[2] varying(data)) {
      %c = constant() {value = f64[2] [1.5, 2.5]}
      %v = vary(%c) {group = "data"}
      %y = all_gather(%v) {group = "data", ranks = R}
      %m = all_reduce(%v) {group = "data", reduce = "max"}
      return %y, %m
    } })";
  EXPECT_EQ(check(text, 2, true).size(), 1u);
}

TEST_F(DeviceRanks, AllGoThroughTheHostIfOneLacksNccl) {
  const std::string text = program("f64[3]", call("all_gather", "ranks = R"));
  Devices devices = devices_of(3);
  devices[1] = std::make_shared<RankDevice>(1, false);
  EXPECT_EQ(check(text, 3, true, 0, devices), Names{"all_gather of 3 f64"});
  devices[1] = nullptr;  // on the CPU
  EXPECT_EQ(check(text, 3, true, 0, devices), Names{"all_gather of 3 f64"});
  devices = devices_of(3);  // two ranks with one device
  devices[2]->set_id(1), devices[0]->set_id(1);
  EXPECT_EQ(check(text, 3, true, 0, devices), Names{"all_gather of 3 f64"});
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  EXPECT_EQ(check(text, 3, true, 0, devices_of(3)), Names{"all_gather of 3 f64"});
  unsetenv("NCCL_COMM_BLOCKING");
  EXPECT_EQ(exchange_double().calls, Names());
}

// Two ranks that both send first; a token has no elements. They have not compared these programs,
// so the other calls go through the host, too, though their group exchanges by NCCL.
TEST_F(DeviceRanks, SendThroughTheHost) {
  const auto gathers =
      Code::compile(ir::parse(program("f64[3]", call("all_gather", "ranks = R"))).program());
  const auto sends = [](int peer) {
    const std::string text = fmt::format(
        R"(graph step {{
             stage 0 (%x: f64[3] varying(data)) {{
             %y = shift(%x) {{group = "data", by = 1}}
             return %y }} }}
           graph g {{
             size R = ranks(data) from 1
             stage 0 (%x: f64[3] varying(data), %t: f64[0] varying(data)) {{
             %s = send(%x) {{group = "data", dest = {0}}}
             %y = receive(%t) {{group = "data", source = {0}, shape = [3]}}
             %g = all_gather(%x) {{group = "data", ranks = R}}
             %l = scan(%x) {{body = "step", carries = 1, length = 2}}
             return %y, %s, %g, %l }} }})",
        peer);
    return Code::compile(ir::parse(text).program());
  };
  const auto ends = thread_ranks(2, std::chrono::seconds(20));
  const Devices devices = devices_of(2);
  auto run = [&](size_t r) {
    auto context = std::make_shared<Context>(ContextOptions{});
    rank_groups(*context).bind("data", ends[r]);
    use(*context, devices[r]);
    const Tensor x = Tensor::from(DType::f64, Sizes{3}, std::vector<double>(3, 1.0 + double(r)));
    State(gathers, context, {.fusion = FusionMode::first}).run(std::vector{x});
    State state(sends(1 - static_cast<int>(r)), context, {.fusion = FusionMode::first});
    return state.run(std::vector{x, Tensor::empty(DType::f64, Sizes{0})})[0].to_doubles();
  };
  auto other = std::async(std::launch::async, run, 1);
  EXPECT_EQ(run(0), std::vector<double>(3, 2.0));
  EXPECT_EQ(other.get(), std::vector<double>(3, 1.0));
  EXPECT_EQ(exchange_double().calls, Names{"all_gather"});  // of the first program
}

// What a stage launches is recorded when it comes again, but for calls of ranks.
TEST_F(DeviceRanks, AreNotRecorded) {
  GRADUS_NEEDS_NVRTC();
  const std::string four =
      "%a = sum(%x) {dim = [0]} %b = cumsum(%x) {dim = 0} %c = flip(%b) {dims = [0]} %d = "
      "cumsum(%c) "
      "{dim = 0} %e = flip(%d) {dims = [0]} ";
  const auto with = Code::compile(
      ir::parse(program("f64[3]", four + "%y = all_gather(%e) {group = \"data\", ranks = R}"))
          .program());
  const auto without = Code::compile(ir::parse(program("f64[3]", four + "%y = neg(%e)")).program());
  const Group group = group_of(2, true, std::chrono::seconds(20));
  const Devices devices = devices_of(2);
  auto run = [&](const std::shared_ptr<const Code>& code, size_t r) {
    auto context = std::make_shared<Context>(ContextOptions{});
    rank_groups(*context).bind("data", group.ends[r]);
    use(*context, devices[r]);
    State state(code, context, {.fusion = FusionMode::first});
    for (int round = 0; round < 4; ++round) {
      if (round) state.restart();
      state.run(std::vector{Tensor::from(DType::f64, Sizes{3}, std::vector<double>{1, 2, 3})});
    }
  };
  for (const auto& code : {with, without}) {
    auto other = std::async(std::launch::async, run, code, 1);
    run(code, 0);
    other.get();
    EXPECT_EQ(devices[0]->recordings, code == with ? 0u : 1u);
  }
}

// Two contexts one after the other: each has its group, and ends it.
TEST_F(DeviceRanks, JoinAGroupForEachCommunicator) {
  const auto code =
      Code::compile(ir::parse(program("f64[3]", call("all_gather", "ranks = R"))).program());
  const Devices devices = devices_of(2);
  auto run = [&](size_t r, const std::vector<Group>& groups) {
    auto context = std::make_shared<Context>(ContextOptions{});
    use(*context, devices[r]);
    for (const Group& group : groups) {
      rank_groups(*context).bind("data", group.ends[r]);
      for (int round = 0; round < 2; ++round) {
        State state(code, context, {.fusion = FusionMode::first});
        state.run(std::vector{Tensor::from(DType::f64, Sizes{3}, std::vector<double>{1, 2, 3})});
      }
    }
  };
  std::vector<Group> groups;
  for (int n = 0; n < 2; ++n) groups.push_back(group_of(2, true, std::chrono::seconds(20)));
  auto other = std::async(std::launch::async, run, 1, groups);
  run(0, groups);
  other.get();
  EXPECT_EQ(exchange_double().calls, Names(4, "all_gather"));
  EXPECT_EQ(exchange_double().aborted, 0);
}

// Calls on two streams come in the order in which they are asked for.
TEST_F(DeviceRanks, KeepTheOrderOfCallsOnStreams) {
  const Devices devices = devices_of(2);
  const auto ends = thread_ranks(2, std::chrono::seconds(20));
  auto run = [&](size_t r) {
    RankDevice& device = *devices[r];
    std::byte* const memory = zeros_on(device, 16);
    cuda::Exchanges exchanges(device, nullptr);
    join_pair(exchanges, ends[r]);
    const CollectiveCall c{CollectiveKind::shift, {}, DType::f64, 1, 1};
    for (cuda::StreamNumber stream : {0u, 0u, 5u, 0u})
      exchanges.start(*exchanges.find(ends[r]), c, "data", memory, memory + 8, stream);
    exchanges.finish();
    EXPECT_EQ(device.waits, 2u);
  };
  auto other = std::async(std::launch::async, run, 1);
  run(0);
  other.get();
  EXPECT_EQ(exchange_double().calls, Names(4, "send"));
}

// What a group of one rank gets is what it gives.
void check_one_rank(cuda::Device& device) {
  const auto ranks = single_rank();
  cuda::Exchanges exchanges(device, nullptr);
  const devices::ExchangeOffer offers[] = {exchanges.offer(ranks)};
  exchanges.join("data", ranks, offers);
  const auto group = exchanges.find(ranks);
  ASSERT_TRUE(group);
  constexpr int64_t count = 1000;
  const cuda::Address in = device.allocate(count * 8), out = device.allocate(count * 8);
  using enum CollectiveKind;
  int64_t first = 0;
  for (CollectiveKind kind :
       {all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, shift}) {
    std::vector<int64_t> given(count), got(count);
    for (int64_t i = 0; i < count; ++i) given[static_cast<size_t>(i)] = ++first;
    device.copy_to_device(in, given.data(), count * 8, 0);
    exchanges.start(*group, {kind, {}, DType::i64, count, 0}, "data",
                    reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out), 0);
    exchanges.wait(0);
    device.copy_to_host(got.data(), out, count * 8, 0);
    EXPECT_EQ(got, given) << to_string(CollectiveCall{kind, {}, DType::i64, count, 0});
  }
  device.free(in), device.free(out);
}

TEST_F(DeviceRanks, MakeCallsOfOneRank) {
  RankDevice device(0);
  check_one_rank(device);
}

// On the device at hand, if there is one with the library.
TEST(ExchangesOnGpu, CallsOfOneRank) {
  if (const std::string why = cuda::why_no_device(0); !why.empty()) GTEST_SKIP() << why;
  const auto& library = cuda::exchange_library().library;
  if (!library) GTEST_SKIP() << library.fault;
  check_one_rank(*cuda::open_device(0));
}

// On two devices: the cases of DeviceCalls.
TEST(ExchangesOnGpu, CallsOfTwoRanks) {
  if (const std::string why = cuda::why_no_device(1); !why.empty()) GTEST_SKIP() << why;
  const auto& library = cuda::exchange_library().library;
  if (!library) GTEST_SKIP() << library.fault;
  for (const Case& c : cases) {
    const auto code = Code::compile(ir::parse(program_of(c)).program());
    const RankTensors inputs = random_inputs(code->graph(), 2, 5);
    const Group group = group_of(2, false, std::chrono::seconds(60));
    const RankTensors expected = run_jointly(code, one_group(2, {"data"}), inputs);
    const RankTensors found = run_jointly(
        code, group.bindings, inputs, FusionMode::first, 1, [](Context& context, size_t r) {
          cuda::use_device(context, static_cast<int>(r), {.folder = kernel_folder()});
        });
    const bool f32 = std::string_view(c.type).starts_with("f32");
    EXPECT_EQ(difference_of(found, expected, f32 ? 1e-6 : 1e-12), "") << c.name;
    EXPECT_EQ(group.ends[0]->calls.empty(), c.by != nullptr) << c.name;
  }
}

// The programs of tests/ranks, with their derivatives.
class DevicePrograms : public DeviceRanks,
                       public testing::WithParamInterface<std::tuple<const char*, int>> {};

std::shared_ptr<const Code> derivatives_of(const std::string& name) {
  const std::string path = gradus::test::source_folder() + "/tests/ranks/programs/" + name + ".ir";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const ir::Module module = ir::parse(text.str(), path);
  for (const auto& g : module.graphs)
    if (g->name == "split") return Code::compile(ir::differentiate(*g, {.order = 1}));
  return nullptr;
}

TEST_P(DevicePrograms, GiveWhatTheCpuGives) {
  GRADUS_NEEDS_NVRTC();
  const auto [name, ranks] = GetParam();
  const Names names{"data", "line", "model"};
  const auto code = derivatives_of(name);
  ASSERT_TRUE(code);
  const RankTensors inputs = random_inputs(code->graph(), ranks, 1);
  const RankTensors expected = run_jointly(code, one_group(ranks, names), inputs);
  for (bool in_rank_order : {true, false}) {
    const Group group = group_of(ranks, in_rank_order, std::chrono::seconds(60), names);
    const RankTensors found = run_on(devices_of(ranks), code, group.bindings, inputs);
    EXPECT_EQ(difference_of(found, expected, in_rank_order ? 0 : 1e-12), "") << in_rank_order;
  }
  EXPECT_FALSE(exchange_double().calls.empty());
}

INSTANTIATE_TEST_SUITE_P(All, DevicePrograms,
                         testing::Combine(testing::Values("data_parallel", "gather", "blocks",
                                                          "ring", "extremes", "tensor_parallel",
                                                          "parts", "scatter", "loop"),
                                          testing::Values(2, 3)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

}  // namespace
}  // namespace gradus::fusion::test
