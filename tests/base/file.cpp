#include "base/file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gradus/error.h"

using namespace gradus;
namespace fs = std::filesystem;

namespace {

class AtomicFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "gradus-file-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string at(const char* name) const { return (folder / name).string(); }
  static void put(const std::string& path, std::string_view text) { std::ofstream(path) << text; }
  static std::string get(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path folder;
};

TEST_F(AtomicFiles, AppearWhenCommitted) {
  {
    AtomicFile file(at("x"));
    put(file.temporary(), "new");
    EXPECT_FALSE(fs::exists(at("x")));
    file.commit();
  }
  EXPECT_EQ(get(at("x")), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFiles, LeaveTheOldOneWithoutACommit) {
  put(at("x"), "old");
  {
    AtomicFile file(at("x"));
    put(file.temporary(), "half of the ne");
  }
  EXPECT_EQ(get(at("x")), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFiles, KeepPermissionsAndLinks) {
  put(at("target"), "old");
  chmod(at("target").c_str(), 0640);
  fs::create_symlink("target", at("link"));
  fs::create_symlink("not-yet", at("dangling"));
  for (const char* name : {"link", "dangling"}) {
    AtomicFile file(at(name));
    put(file.temporary(), "new");
    file.commit();
    EXPECT_TRUE(fs::is_symlink(at(name)));
  }
  EXPECT_EQ(get(at("target")), "new");
  EXPECT_EQ(get(at("not-yet")), "new");
  struct stat info;
  stat(at("target").c_str(), &info);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  mode_t mask = umask(0);
  umask(mask);
  stat(at("not-yet").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0666u & ~mask);
}

TEST_F(AtomicFiles, RefuseWhatIsNoFile) {
  EXPECT_THROW(AtomicFile(folder.string()), Error);
  EXPECT_THROW(AtomicFile("/dev/null"), Error);
  EXPECT_THROW(AtomicFile(at("no/such/folder")), Error);
  EXPECT_THROW(AtomicFile(std::string("a\0b", 3)), Error);
  EXPECT_THROW(AtomicFile(""), Error);
  fs::create_symlink("loop", at("loop"));
  EXPECT_THROW(AtomicFile(at("loop")), Error);
  try {
    AtomicFile file(at("no/such/folder"));
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), at("no/such/folder") + ": cannot be written: No such file or directory");
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFiles, RefuseWhatMayNotBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "the superuser may write everything";
  put(at("x"), "old");
  chmod(at("x").c_str(), 0444);
  EXPECT_THROW(AtomicFile(at("x")), Error);
  chmod(folder.c_str(), 0555);
  EXPECT_THROW(AtomicFile(at("y")), Error);
  chmod(folder.c_str(), 0755);
}

TEST_F(AtomicFiles, SizesAreOfRegularFiles) {
  put(at("x"), "12345");
  EXPECT_EQ(regular_file_size(at("x")), 5u);
  EXPECT_THROW(regular_file_size(folder.string()), Error);
  EXPECT_THROW(regular_file_size("/dev/zero"), Error);
  EXPECT_THROW(regular_file_size(at("missing")), Error);
  mkfifo(at("pipe").c_str(), 0600);
  EXPECT_THROW(regular_file_size(at("pipe")), Error);  // and does not wait for a writer
}

TEST(FileErrors, TellTheUsersFaultFromTheMachines) {
  EXPECT_THROW(throw_file_error("p", "cannot be read", ENOENT), Error);
  EXPECT_THROW(throw_file_error("p", "cannot be written", ENOSPC), ResourceError);
}

}  // namespace
