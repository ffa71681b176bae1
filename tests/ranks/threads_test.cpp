// Groups whose ranks are threads: what a call gives, and what ends it.
// SPEC C3
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "gradus/code.h"
#include "gradus/communicator.h"
#include "gradus/error.h"
#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus {
namespace {

using Ends = std::vector<std::shared_ptr<Communicator>>;
using enum CollectiveKind;

// Runs it on every rank; what each threw, empty where it did not.
std::vector<std::string> on_each(Ends ends, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> thrown(ends.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ends.size(); ++r)
    threads.emplace_back([&, r, end = std::move(ends[r])]() mutable {
      try {
        body(*end);
      } catch (const Error& e) {
        thrown[r] = e.what();
      }
      end.reset();
    });
  for (std::thread& t : threads) t.join();
  return thrown;
}

double reduced(Communicator& ranks, double x, CollectiveReducer reducer = CollectiveReducer::sum) {
  double y = 0;
  ranks.run({all_reduce, reducer, DType::f64, 1, 0}, reinterpret_cast<std::byte*>(&x),
            reinterpret_cast<std::byte*>(&y));
  return y;
}

TEST(ThreadRanks, AddInTheOrderOfRanks) {
  // ((1e16 + 1) + 1) + 1 loses every 1; another order would keep some.
  const auto thrown = on_each(thread_ranks(4), [](Communicator& r) {
    for (int n = 0; n < 50; ++n) EXPECT_EQ(reduced(r, r.rank() ? 1 : 1e16), 1e16);
    EXPECT_EQ(reduced(r, r.rank(), CollectiveReducer::max), 3);
    EXPECT_EQ(reduced(r, r.rank(), CollectiveReducer::min), 0);
  });
  for (const std::string& t : thrown) EXPECT_EQ(t, "");
}

TEST(ThreadRanks, TellOfCallsThatDiffer) {
  const auto thrown = on_each(thread_ranks(3), [](Communicator& r) {
    double x[3] = {}, y[9] = {};
    r.run({r.rank() == 2 ? all_gather : all_reduce, {}, DType::f64, 3, 0},
          reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(y));
  });
  for (const std::string& t : thrown)
    EXPECT_EQ(t, "rank 2 calls all_gather of 3 f64, rank 0 all_reduce of 3 f64");
}

TEST(ThreadRanks, TellWhyOneGaveUp) {
  const auto thrown = on_each(thread_ranks(3), [](Communicator& r) {
    if (r.rank() == 1) return r.abandon("its input is broken");
    reduced(r, 1);
  });
  EXPECT_EQ(thrown[0], "rank 1 has given up: its input is broken");
  EXPECT_EQ(thrown[2], thrown[0]);
}

TEST(ThreadRanks, TellWhoHasLeft) {
  const auto thrown = on_each(thread_ranks(3), [](Communicator& r) {
    if (r.rank() != 2) reduced(r, 1);
  });
  EXPECT_NE(thrown[0].find("rank 2 has left the group"), std::string::npos) << thrown[0];
  EXPECT_EQ(thrown[1], thrown[0]);
}

TEST(ThreadRanks, WaitNoLongerThanTheirLimit) {
  const auto thrown = on_each(thread_ranks(3, std::chrono::milliseconds(50)), [](Communicator& r) {
    if (r.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    reduced(r, 1);
  });
  EXPECT_NE(thrown[0].find("has waited 50 ms in all_reduce of 1 f64 for rank 1"), std::string::npos)
      << thrown[0];
  EXPECT_EQ(thrown[1], thrown[0]);
  EXPECT_EQ(thrown[2], thrown[0]);
}

TEST(ThreadRanks, MessagesArriveInOrder) {
  const auto thrown = on_each(thread_ranks(2), [](Communicator& r) {
    for (double n = 0; n < 5; ++n) {
      double x = n;
      if (r.rank() == 0) r.run({send, {}, DType::f64, 1, 1}, reinterpret_cast<std::byte*>(&x), {});
    }
    for (double n = 0; r.rank() == 1 && n < 5; ++n) {
      double y = -1;
      r.run({receive, {}, DType::f64, 1, 0}, {}, reinterpret_cast<std::byte*>(&y));
      EXPECT_EQ(y, n);
    }
  });
  for (const std::string& t : thrown) EXPECT_EQ(t, "");
}

TEST(ThreadRanks, MessagesHaveTheSizeThatIsExpected) {
  const auto thrown = on_each(thread_ranks(2), [](Communicator& r) {
    double x[3] = {};
    auto* bytes = reinterpret_cast<std::byte*>(x);
    if (r.rank() == 0) r.run({send, {}, DType::f64, 3, 1}, bytes, {});
    if (r.rank() == 1) r.run({receive, {}, DType::f64, 2, 0}, {}, bytes);
  });
  EXPECT_EQ(thrown[1],
            "rank 0 calls send of 3 f64 to rank 1, and rank 1 receive of 2 f64 from rank 0");
}

// Ranks that began different programs can begin one program after that.
TEST(RankGroups, CompareAgainWhatDiffered) {
  const auto program = [](std::string_view operation) {
    return Code::compile(ir::parse(fmt::format(R"(graph g {{
      stage 0 (%x: f64[] varying(data)) {{
        %s = all_reduce(%x) {{group = "data"}}
        %y = {}(%s)
        return %y
      }} }})",
                                               operation))
                             .program());
  };
  const auto neg = program("neg"), square = program("square");
  std::vector<double> results(2);
  const auto thrown = on_each(thread_ranks(2), [&](Communicator& r) {
    const std::shared_ptr<Communicator> end(std::shared_ptr<void>(), &r);  // does not own it
    auto context = std::make_shared<Context>();
    rank_groups(*context).bind("data", end);
    const std::vector<Tensor> inputs{Tensor::from(DType::f64, Sizes{}, std::vector{3.0})};
    EXPECT_THROW(State(r.rank() == 0 ? neg : square, context).run(inputs), Error);
    results[static_cast<size_t>(r.rank())] = State(neg, context).run(inputs)[0].to_doubles()[0];
  });
  EXPECT_EQ(thrown, std::vector<std::string>(2));
  EXPECT_EQ(results, std::vector<double>(2, -6));
}

TEST(RankGroups, SayWhatIsNotBound) {
  Context context;
  rank_groups(context).bind("data", single_rank());
  EXPECT_EQ(rank_groups(context).find("data")->size(), 1);
  try {
    rank_groups(context).find("model");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no group of ranks is bound to the name \"model\""),
              std::string::npos)
        << e.what();
  }
  rank_groups(context).bind("data", nullptr);
  EXPECT_THROW(rank_groups(context).find("data"), Error);
}

}  // namespace
}  // namespace gradus
