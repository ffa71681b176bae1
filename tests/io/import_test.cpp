// Which importer reads a file, and what is said of files that none reads.
#include "gradus/import.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace gradus;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view program = R"(graph p {
  stage 0 (%x: f64[2]) {
    %y = mul(%x, %x)
    return %y
  }
}
case values {
  input x = f64[2] [1.0, 2.0]
  expect y = f64[2] [1.0, 4.0]
}
)";

class ImportFiles : public testing::Test {
 protected:
  ImportFiles() { fs::create_directories(folder_); }
  ~ImportFiles() override { fs::remove_all(folder_); }
  std::string file(const std::string& name, std::string_view content) {
    std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("gradus_import_" + std::to_string(getpid()));
};

std::string refused(const std::string& path) {
  try {
    import_program(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

void expect_text(const std::string& path) {
  const ImportedProgram read = import_program(path);
  EXPECT_EQ(read.module.program().name, "p") << path;
  EXPECT_TRUE(read.weights.empty());
  ASSERT_EQ(read.cases.size(), 1u) << path;
  EXPECT_EQ(read.cases[0].expectations.size(), 1u);
}

}  // namespace

TEST_F(ImportFiles, EndingsSayWhatAFileIs) {
  expect_text(file("p.ir", program));
  EXPECT_EQ(importer_by_ending("no/such/file.ir")->ending, ".ir");
  EXPECT_EQ(importer_by_ending("p.txt"), nullptr);
  EXPECT_EQ(importer_by_ending(""), nullptr);
  // An ending is believed: the text's reader says what is wrong, with its place.
  EXPECT_NE(refused(file("noise.ir", "\x01\x02\x03")).find("noise.ir:1:1: error: "),
            std::string::npos);
}

TEST_F(ImportFiles, ContentSaysWhatTheNameDoesNot) {
  expect_text(file("p.txt", program));
  expect_text(file("p", "\xef\xbb\xbf# a remark\r\n\n  # another\n" + std::string(program)));
  expect_text(file("p.1", "gradus 1\n" + std::string(program)));
  EXPECT_NE(refused(file("cut", "graph p {")).find("cut:1:"), std::string::npos);
}

TEST_F(ImportFiles, WhatNobodyReadsListsTheFormats) {
  for (std::string_view content : {"", "hello", "# only a remark", "\x08\x07"})
    EXPECT_EQ(refused(file("some.file", content)),
              path("some.file") +
                  ": is no program by its name or its content; what can be read is a program text "
                  "(.ir), an ONNX model (.onnx) or an archive of torch.export (.pt2)")
        << content;
  EXPECT_NE(refused(file("zip", "PK\x03\x04")).find("zip: is no archive of torch.export"),
            std::string::npos);
  EXPECT_NE(refused(path("nothing")).find("nothing: cannot be read"), std::string::npos);
  fs::create_directories(path("folder"));
  EXPECT_NE(refused(path("folder")).find("folder: cannot be read"), std::string::npos);
}

TEST(Importers, EachHasAnEndingOfItsOwn) {
  for (const Importer* i : importers()) {
    EXPECT_TRUE(i->ending.starts_with('.'));
    EXPECT_EQ(importer_by_ending("file" + std::string(i->ending)), i);
    EXPECT_NE(importable().find(i->what), std::string::npos);
    EXPECT_EQ(importable(true).find(i->what) != std::string::npos, i->model);
  }
}
