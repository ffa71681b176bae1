// One compilation for each key, a bounded number of kernels, and counts of both.
#include "fusion/cpu/cache.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/stat.h>

#include "tests/fusion/support.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

Nest sample(int n) {
  return parse_nest(fmt::format(
      "nest 1 {{ %v0 = load f32 [contiguous] %v1 = number {} %v2 = mul(%v0, %v1) : f32 in f32\n"
      "store %v2 }}",
      n));
}

class CacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  }
};

TEST_F(CacheTest, CompilesOnceHoweverManyAsk) {
  cpu::KernelCache cache;
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<const cpu::Kernel>> kernels(8);
  for (size_t t = 0; t < kernels.size(); ++t)
    threads.emplace_back([&, t] { kernels[t] = cache.get(sample(1), some_isa); });
  for (std::thread& t : threads) t.join();
  for (const auto& k : kernels) EXPECT_EQ(k, kernels[0]);
  cpu::CacheStatistics s = cache.statistics();
  EXPECT_EQ(s.misses, 1u);
  EXPECT_EQ(s.hits, 7u);
  EXPECT_GT(s.seconds, 0);
  WorkerPool workers(1);
  EXPECT_EQ(Memory(kernels[0]->nest(), {20}, 1).difference(*kernels[0], workers), "");
}

TEST_F(CacheTest, KeepsWhatWasAskedForLast) {
  cpu::KernelCache cache(2);
  auto one = cache.get(sample(1), some_isa);
  auto two = cache.get(sample(2), some_isa);
  EXPECT_EQ(cache.get(sample(1), some_isa), one);
  cache.get(sample(3), some_isa);  // the second goes
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.get(sample(1), some_isa), one);
  EXPECT_NE(cache.get(sample(2), some_isa), two);
  EXPECT_EQ(cache.statistics().evicted, 2u);
  EXPECT_EQ(cache.statistics().misses, 4u);
  WorkerPool workers(1);  // gone from the cache, not from here
  EXPECT_EQ(Memory(two->nest(), {20}, 1).difference(*two, workers), "");
}

TEST_F(CacheTest, ForgetsWhatFailed) {
  cpu::KernelCache cache;
  Nest nest = sample(1);
  nest.stores.clear();
  EXPECT_THROW(cache.get(nest, some_isa), Error);
  EXPECT_THROW(cache.get(nest, some_isa), Error);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.statistics().misses, 2u);
}

// A folder of its own for each test, gone with it.
class StoreTest : public CacheTest {
 protected:
  StoreTest() {
    std::string pattern = testing::TempDir() + "gradus_store_XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  ~StoreTest() override { std::filesystem::remove_all(folder); }

  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // What a new process would do: compiled or loaded, with the right results.
  cpu::CacheStatistics ask(const Nest& nest) {
    cpu::KernelCache cache(8, std::make_shared<ObjectStore>(folder));
    auto kernel = cache.get(nest, some_isa);
    WorkerPool workers(1);
    EXPECT_EQ(Memory(nest, {40}, 1).difference(*kernel, workers), "");
    return cache.statistics();
  }

  std::string folder;
};

TEST_F(StoreTest, ServesTheNextProcess) {
  EXPECT_EQ(ask(sample(1)).misses, 1u);
  cpu::CacheStatistics s = ask(sample(1));
  EXPECT_EQ(s.misses, 0u);
  EXPECT_EQ(s.loaded, 1u);
  EXPECT_EQ(ask(sample(2)).misses, 1u);
  // fmod is called from a kernel that was not compiled here.
  Nest calls = parse_nest(
      "nest 1 { %v0 = load f32 [contiguous] %v1 = number 0.7 %v2 = fmod(%v0, %v1) : f32 in f32 "
      "store %v2 }");
  ask(calls);
  EXPECT_EQ(ask(calls).loaded, 1u);
  // Entries appear whole: nothing else is left in the folder.
  size_t files = 0;
  for (auto& f : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(f.path().filename().string().size(), 32u) << f.path();
    ++files;
  }
  EXPECT_EQ(files, 3u);
}

// Whatever byte is wrong, wherever it ends, the kernel is compiled anew and written over.
TEST_F(StoreTest, CompilesAnewWhatIsDamaged) {
  ask(sample(1));
  const std::string path = ObjectStore(folder).path(cpu::Compiler::key(sample(1), some_isa));
  const std::string whole = read(path);
  ASSERT_GT(whole.size(), 500u);
  for (size_t at : {size_t{0}, size_t{17}, size_t{30}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write(path, damaged);
    EXPECT_EQ(ask(sample(1)).misses, 1u) << at;
    EXPECT_EQ(ask(sample(1)).loaded, 1u) << at;
  }
  for (size_t size : {size_t{0}, size_t{5}, size_t{20}, size_t{100}, whole.size() - 1}) {
    write(path, whole.substr(0, size));
    EXPECT_EQ(ask(sample(1)).misses, 1u) << size;
  }
  // Another key's entry, and one that is whole but no object.
  ask(sample(2));
  write(path, read(ObjectStore(folder).path(cpu::Compiler::key(sample(2), some_isa))));
  EXPECT_EQ(ask(sample(1)).misses, 1u);
  ObjectStore(folder).put(cpu::Compiler::key(sample(1), some_isa), "no object file");
  EXPECT_EQ(ask(sample(1)).misses, 1u);
  EXPECT_EQ(ask(sample(1)).loaded, 1u);
}

// What was used longest ago makes room.
TEST_F(StoreTest, IsBounded) {
  const std::string object(1000, 'x');
  auto key = [](int i) { return fmt::format("key {}", i); };
  auto bytes = [&] {
    uintmax_t sum = 0;
    for (auto& f : std::filesystem::directory_iterator(folder)) sum += f.file_size();
    return sum;
  };
  ObjectStore store(folder, 20000);
  for (int i = 0; i < 100; ++i) {
    store.put(key(i), object);
    EXPECT_TRUE(store.find(key(0))) << i;  // used all the time
    EXPECT_TRUE(store.find(key(i))) << i;
    EXPECT_LE(bytes(), 20000u + 2 * object.size()) << i;
  }
  EXPECT_FALSE(store.find(key(50)));
  EXPECT_GT(bytes(), 10000u);
  // An entry that is larger than the folder may be goes at once, and the others with it.
  ObjectStore tiny(folder, 500);
  tiny.put(key(0), object);
  EXPECT_LE(bytes(), 500u);
}

TEST_F(StoreTest, IsNotUsedWhereOthersCanWrite) {
  ask(sample(1));
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  ObjectStore open(folder);
  EXPECT_FALSE(open.usable());
  EXPECT_NE(open.why_not().find("written by others"), std::string::npos) << open.why_not();
  EXPECT_EQ(ask(sample(1)).misses, 1u);
  EXPECT_EQ(ask(sample(1)).loaded, 0u);
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  EXPECT_EQ(ask(sample(1)).loaded, 1u);
  // An entry that others can write is not read either.
  const std::string path = ObjectStore(folder).path(cpu::Compiler::key(sample(1), some_isa));
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(ask(sample(1)).misses, 1u);
  EXPECT_FALSE(ObjectStore(path).usable());
  EXPECT_FALSE(ObjectStore(folder + "/a/b").usable());
}

}  // namespace
}  // namespace gradus::fusion::test
