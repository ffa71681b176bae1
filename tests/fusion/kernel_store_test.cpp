// By which rules compiled code comes and goes, with compilers that compile nothing.
#include "fusion/kernel_store.h"

#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gradus::fusion {
namespace {

struct None final : Kernel {
  work::Kernel bind(const Frame&) const override { return {}; }
};

class KernelStoreTest : public testing::Test {
 protected:
  KernelStore::Rules rules() {
    return {.no_code = "no code",
            .log = [this](LogLevel, std::string_view m) { told.emplace_back(m); },
            .most = 2};
  }
  auto get(const std::string& text) {
    return store.get(text, [] {
      return KernelStore::Made<Kernel>{std::make_shared<None>(), {.misses = 1, .seconds = 0.5}};
    });
  }
  std::shared_ptr<const Kernel> fail(const std::string& text) {
    return store.get(text, [this]() -> KernelStore::Made<Kernel> {
      ++tried;
      throw Error("the compiler is gone");
    });
  }
  std::vector<std::string> told;
  int tried = 0;
  TaskQueue behind{1, 8, [this] { store.claim(); }};
  KernelStore store{behind, rules()};
  ~KernelStoreTest() override { behind.stop(); }
};

TEST_F(KernelStoreTest, PublishesNewSets) {
  const auto before = store.ready();
  const auto one = get("one");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(get("one"), one);
  EXPECT_EQ(before->find("one"), nullptr);
  EXPECT_EQ(store.ready()->find("one"), one);
  EXPECT_GT(store.ready()->generation(), before->generation());
  get("two"), get("three");  // the oldest goes
  EXPECT_EQ(store.ready()->find("one"), nullptr);
  EXPECT_FALSE(store.is_settled("one"));
  EXPECT_NE(get("one"), one);
  const KernelStatistics s = store.statistics();
  EXPECT_EQ(s.hits, 1u);
  EXPECT_EQ(s.misses, 4u);
  EXPECT_EQ(s.kernels, 2u);
  EXPECT_EQ(s.seconds, 2);
}

// Whatever the order in which parts of a set are joined.
TEST(KernelSets, AreLargerByOneEach) {
  auto text = [](size_t n) { return fmt::format("kernel {}", n); };
  std::vector<std::shared_ptr<const KernelSet>> sets{std::make_shared<KernelSet>()};
  std::vector<std::shared_ptr<const Kernel>> kernels;
  constexpr size_t most = 70;
  for (size_t n = 0; n < most; ++n) {
    kernels.push_back(n % 7 == 0 ? nullptr : std::make_shared<None>());
    sets.push_back(sets.back()->with(KernelSet::Of::nest, text(n), kernels.back()));
  }
  for (size_t k = 0; k < sets.size(); ++k) {
    EXPECT_EQ(sets[k]->generation(), k);
    EXPECT_EQ(sets[k]->failed(), (k + 6) / 7);
    EXPECT_EQ(sets[k]->nests() + sets[k]->failed(), k);
    EXPECT_EQ(sets[k]->stages(), 0u);
    for (size_t n = 0; n < most; ++n) {
      EXPECT_EQ(sets[k]->find(text(n)), n < k ? kernels[n] : nullptr);
      EXPECT_EQ(sets[k]->has_failed(text(n)), n < k && n % 7 == 0);
      EXPECT_EQ(sets[k]->find_stage(text(n)), nullptr);
    }
  }
  std::shared_ptr<const KernelSet> fewer = sets.back();
  for (size_t n = 0; n < most; ++n) {
    fewer = fewer->without(text(n));
    EXPECT_EQ(fewer->nests() + fewer->failed(), most - n - 1);
    for (size_t m = 0; m < most; ++m) EXPECT_EQ(fewer->find(text(m)), m > n ? kernels[m] : nullptr);
  }
  EXPECT_EQ(sets.back()->find(text(1)), kernels[1]);
}

TEST_F(KernelStoreTest, RemembersWhatFailed) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(fail("bad"), nullptr);
    store.request("bad", [] { return KernelStore::Made<Kernel>{}; });
    store.wait();
  }
  EXPECT_EQ(tried, 1);
  EXPECT_TRUE(store.is_settled("bad"));
  EXPECT_TRUE(store.ready()->has_failed("bad"));
  EXPECT_EQ(store.ready()->generation(), 1u);
  EXPECT_EQ(store.statistics().failed, 1u);
  EXPECT_EQ(store.statistics().hits, 0u);
  EXPECT_EQ(told, std::vector<std::string>{"no code: the compiler is gone\nbad"});
}

// Code of other types is in no set.
TEST_F(KernelStoreTest, KeepsOtherCode) {
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(*store.get(std::to_string(i),
                         [&] { return KernelStore::Made<int>{std::make_shared<int>(i)}; }),
              i);
  store.get("bad", []() -> KernelStore::Made<int> { throw Error("why"); });
  EXPECT_TRUE(store.is_settled("0"));
  EXPECT_EQ(store.ready()->generation(), 0u);
  EXPECT_EQ(store.statistics().failed, 0u);
  EXPECT_EQ(told, std::vector<std::string>{"no code: why"});
}

TEST_F(KernelStoreTest, MakesBehind) {
  std::thread::id on;
  store.request("one", [&] {
    on = std::this_thread::get_id();
    return KernelStore::Made<Kernel>{std::make_shared<None>()};
  });
  store.wait();
  EXPECT_NE(on, std::this_thread::get_id());
  EXPECT_NE(store.ready()->find("one"), nullptr);
}

TEST_F(KernelStoreTest, HasNothingInAForkedChild) {
  get("one");
  fail("bad");
  store.claim();
  const pid_t child = fork();
  if (child == 0) {
    store.wait();
    const bool nothing = !get("one") && !get("two") && store.ready()->nests() == 0 &&
                         store.statistics().kernels == 0 && store.is_settled("three");
    _exit(nothing ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(get("two"), nullptr);
}

}  // namespace
}  // namespace gradus::fusion
