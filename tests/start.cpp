#include "tests/start.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace gradus::test {

namespace {

// Made by the first of the static objects that need it.
std::vector<void (*)()>& starters() {
  static std::vector<void (*)()> list;
  return list;
}

// Where a process of many tests ends within one of them, that is said: its output names failures
// alone.
char running[256] = "";

void name_running() {
  if (!*running) return;
  static_cast<void>(!write(2, running, std::strlen(running)));
}

class NamesRunning final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    std::snprintf(running, sizeof running, "in the test %s.%s\n", test.test_suite_name(),
                  test.name());
  }
  void OnTestEnd(const testing::TestInfo&) override { *running = 0; }
};

extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*)());

void name_running_at_end() {
  testing::UnitTest::GetInstance()->listeners().Append(new NamesRunning);
  if (__sanitizer_set_death_callback) return __sanitizer_set_death_callback(name_running);
  for (int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTERM})
    std::signal(signal, [](int number) {
      name_running();
      std::signal(number, SIG_DFL);
      std::raise(number);
    });
}

}  // namespace

std::string source_folder() {
  const char* given = std::getenv("GRADUS_SOURCE_DIR");
  return given ? given : GRADUS_SOURCE_DIR;
}

AtStart::AtStart(void (*function)()) { starters().push_back(function); }

int run_tests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (auto* start : starters()) start();
  name_running_at_end();
  return RUN_ALL_TESTS();
}

}  // namespace gradus::test
