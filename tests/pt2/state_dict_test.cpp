// Weights go back to PyTorch by their names in its state_dict. SPEC T6
#include <filesystem>
#include <regex>

#include <gtest/gtest.h>
#include <unistd.h>

#include "gradus/pt2.h"
#include "tensor/zip_reader.h"
#include "tests/pt2/fixture.h"

namespace gradus::test {
namespace {

// Where an archive's weights lie, by name, read by other means. They are contiguous here.
struct Place {
  std::string member;
  size_t offset;  // in elements
};

class Weights {
 public:
  explicit Weights(const std::string& path) : zip_(path) {
    const std::string config = contents("model_weights_config.json");
    const std::regex entry(
        R"re("([^"]+)": \{"path_name": "([^"]+)".*?"storage_offset": \{"as_int": (\d+)\})re");
    for (std::sregex_iterator it(config.begin(), config.end(), entry), end; it != end; ++it)
      places_.emplace((*it)[1], Place{(*it)[2], std::stoul((*it)[3])});
  }
  const std::map<std::string, Place>& places() const { return places_; }
  std::string contents(const std::string& member) const {
    for (const ZipMember& m : zip_.members())
      if (m.name.ends_with("/data/weights/" + member)) {
        const std::vector<std::byte> bytes = zip_.contents(m);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
      }
    throw Error("there is no member {}", member);
  }

 private:
  ZipReader zip_;
  std::map<std::string, Place> places_;
};

std::string bytes_of(const Tensor& t) {
  const Tensor dense = t.layout().contiguous() ? t : t.copy();
  return {reinterpret_cast<const char*>(dense.data()),
          static_cast<size_t>(dense.numel()) * size_of(dense.dtype())};
}

NamedTensors written_and_read(const NamedTensors& tensors) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            fmt::format("gradus_state_dict_{}.safetensors", getpid()))
                               .string();
  write_safetensors(path, tensors);
  NamedTensors read;
  for (const auto& [name, t] : read_safetensors(path)) read.emplace(name, t.copy());
  std::filesystem::remove(path);
  return read;
}

class StateDict : public testing::TestWithParam<std::string> {};

TEST_P(StateDict, HasAllNamesAndValues) {
  const std::string path = archive_path(GetParam());
  const Weights expected(path);
  const NamedTensors found = written_and_read(pt2::state_dict(path));
  for (const auto& [name, place] : expected.places()) {
    ASSERT_TRUE(found.contains(name)) << name;
    const std::string bytes = bytes_of(found.at(name));
    const size_t from = place.offset * size_of(found.at(name).dtype());
    EXPECT_EQ(bytes, expected.contents(place.member).substr(from, bytes.size())) << name;
  }
  EXPECT_EQ(found.size(), expected.places().size());
}

// Of all archives: some have no weights, buffers that nothing reads, tied parameters.
INSTANTIATE_TEST_SUITE_P(Pt2, StateDict, testing::ValuesIn(archive_names()),
                         [](const auto& info) { return info.param; });

TEST(StateDict, TakesTrainedValues) {
  const std::string path = archive_path("gpt2_tiny"), tied = "m.transformer.wte.weight";
  const NamedTensors before = pt2::state_dict(path);
  const Tensor& old = before.at(tied);
  const std::vector<double> ones(static_cast<size_t>(old.numel()), 1.0);
  const Tensor trained = Tensor::from(old.dtype(), old.shape(), ones);
  for (const std::string name : {"m.transformer.wte.weight", "m.lm_head.weight"}) {
    const NamedTensors after = pt2::state_dict(path, {{name, trained}});
    EXPECT_EQ(after.size(), before.size());
    for (const auto& [n, t] : after)
      EXPECT_EQ(bytes_of(t),
                bytes_of(n == tied || n == "m.lm_head.weight" ? trained : before.at(n)))
          << n;
  }
}

std::string refusal(const NamedTensors& values) {
  try {
    pt2::state_dict(archive_path("mlp_tanh"), values);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(StateDict, RefusesOtherNamesAndTypes) {
  const Tensor t = Tensor::from(DType::f64, std::array<int64_t, 1>{2}, std::vector<double>{1, 2});
  EXPECT_NE(refusal({{"net.9.bias", t}}).find("has no 'net.9.bias'"), std::string::npos);
  EXPECT_NE(refusal({{"net.0.bias", t}}).find("'net.0.bias' is f64[16], and its value is f64[2]"),
            std::string::npos);
  const NamedTensors weights = pt2::state_dict(archive_path("mlp_tanh"));
  const Tensor other = weights.at("net.4.bias").to(DType::f32);
  EXPECT_NE(refusal({{"net.4.bias", other}}).find("its value is f32[2]"), std::string::npos);
}

}  // namespace
}  // namespace gradus::test
