// Runs every fixture of tests/text, and the cases of the examples, in every disguise: a test is
// named disguise.file.
#include "tests/corpus/subject.h"
#include "tests/functions.h"
#include "tests/start.h"
#include "tools/functions.h"

namespace {

using namespace gradus;

class FixtureTest : public testing::Test {
 public:
  FixtureTest(void (*run)(const ir::Fixture&), std::string file)
      : run_(run), file_(std::move(file)) {}
  void TestBody() override { run_(corpus::load(file_)); }

 private:
  void (*run_)(const ir::Fixture&);
  std::string file_;
};

const gradus::test::AtStart start([] {
  gradus::test::register_test_functions();
  cli::register_functions();
  size_t operators = 0;
  for (const std::string& file : corpus::fixture_files()) {
    std::string name = file.substr(0, file.size() - 3);  // ".ir"
    const bool of_operator = name.starts_with("ops/");
    operators += of_operator;
    for (const corpus::Disguise& d : corpus::disguises) {
      if (of_operator && operators % d.one_in != 0) continue;
      testing::RegisterTest(
          d.name, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
          [file, run = d.run]() -> FixtureTest* { return new FixtureTest(run, file); });
    }
  }
});

}  // namespace
