#include <cmath>
#include <csignal>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "gradus/files.h"
#include "tests/tensor/bytes.h"

using namespace gradus;
using namespace gradus::test;

namespace {

using Pairs = std::vector<std::pair<std::string, Tensor>>;

Tensor numbers(DType dtype, std::vector<double> values) {
  return Tensor::from(dtype, Sizes{static_cast<int64_t>(values.size())}, values);
}

struct Expected {
  std::string_view name, type;
  std::vector<double> values;
};

// What make.py put into the archives.
const std::vector<Expected>& numpys() {
  static const std::vector<Expected> all = {
      {"f8", "f64[2, 3]", {0, 0.25, 0.5, 0.75, 1, 1.25}},
      {"f4", "f32[3]", {1.5, -2.25, HUGE_VAL}},
      {"f2", "f16[3]", {1.5, -2.25, 65504}},
      {"bf", "bf16[3]", {1.5, -2.25, 0x1.c4p127}},
      {"i4", "i32[2]", {-2147483648.0, 2147483647}},
      {"i2", "i16[2]", {-32768, 32767}},
      {"i1", "i8[2]", {-128, 127}},
      {"u4", "u32[2]", {0, 4294967295}},
      {"u2", "u16[2]", {0, 65535}},
      {"u1", "u8[2]", {0, 255}},
      {"b1", "bool[3]", {1, 0, 1}},
      {"big/f8", "f64[2]", {1.5, -2.25}},
      {"big/f4", "f32[2]", {1.5, -2.25}},
      {"big/f2", "f16[2]", {1.5, -2.25}},
      {"big/i8", "i64[2]", {1, -2}},
      {"big/i4", "i32[2]", {1, -2}},
      {"big/i2", "i16[2]", {1, -2}},
      {"big/u4", "u32[2]", {1, 4294967294}},
      {"big/u8", "u64[2]", {1, 2}},
      {"fortran", "f32[2, 3, 4]", {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                   12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
      {"fortran_i2", "i16[2, 3]", {0, 1, 2, 3, 4, 5}},
      {"scalar", "f64[]", {2.5}},
      {"empty", "f32[3, 0, 2]", {}},
      {"0/in.x0", "f64[3]", {0, 1, 2}},
  };
  return all;
}

// SPEC W3
TEST(Npz, ReadsWhatNumpyWrites) {
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    NpzFile file(data_file(name));
    EXPECT_EQ(file.names().size(), numpys().size() + 2) << name;
    for (const Expected& e : numpys()) {
      Tensor t = file.read(e.name);
      EXPECT_EQ(describe(t), e.type) << name << " " << e.name;
      EXPECT_EQ(t.to_doubles(), e.values) << name << " " << e.name;
      EXPECT_TRUE(t.layout().contiguous());
      NpyHeader header = file.header(e.name);
      EXPECT_EQ(header.dtype, t.dtype()) << e.name;
      EXPECT_EQ(header.shape, t.layout().shape) << e.name;
    }
    EXPECT_EQ(file.read("i8").to_int64s(), (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
    EXPECT_EQ(file.read("u8").to_int64s(), (std::vector<int64_t>{0, INT64_MAX}));
    EXPECT_EQ(read_npz(data_file(name)).size(), file.names().size());
  }
  Tensor large = NpzFile(data_file("large.npz")).read("x");
  EXPECT_EQ(describe(large), "i64[40000]");
  for (int64_t i : {0, 8191, 8192, 39999}) EXPECT_EQ(large.data_as<int64_t>()[i], i % 7);
  EXPECT_TRUE(read_npz(data_file("none.npz")).empty());
}

TEST(Npz, RefusesDtypesByName) {
  NpzFile file(data_file("refused.npz"));
  const std::pair<const char*, const char*> all[] = {
      {"objects", "Python objects"},
      {"complex", "x.real and x.imag"},
      {"structured", "structured"},
      {"text", "strings"},
      {"bytes", "strings"},
      {"dates", "dates"},
      {"long_double", "another size"},
      {"float8", "foreign type"},
  };
  EXPECT_EQ(file.names().size(), std::size(all) + 1);
  EXPECT_EQ(file.read("unsigned").data_as<uint64_t>()[1], uint64_t{1} << 63);
  for (auto [name, says] : all) {
    std::string error = error_of([&] { file.read(name); });
    EXPECT_NE(error.find(fmt::format("refused.npz: entry '{}': ", name)), std::string::npos)
        << error;
    EXPECT_NE(error.find(says), std::string::npos) << error;
  }
}

class NpzFiles : public FolderTest {
 protected:
  // Reads everything of an archive; gives what was refused, and holds memory to `most` bytes.
  std::string refusal(const std::string& bytes, size_t most = 1 << 20) {
    put(at("x.npz"), bytes);
    Counted counted;
    std::string error = error_of([&] { read_npz(at("x.npz"), counted.context); });
    EXPECT_LE(counted.heap->peak_bytes(), most) << error;
    EXPECT_EQ(counted.heap->live_bytes(), 0u);
    if (!error.empty()) {
      EXPECT_TRUE(error.starts_with(at("x.npz") + ": ")) << error;
    }
    return error;
  }
  void expect_refusal(const std::string& bytes, std::string_view says, size_t most = 1 << 20) {
    std::string error = refusal(bytes, most);
    EXPECT_NE(error.find(says), std::string::npos) << "expected: " << says << "\nis: " << error;
  }
  std::string zip(std::initializer_list<ZipBytes::Member> members) {
    ZipBytes z;
    for (const auto& m : members) z.add(m);
    return z.bytes();
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }
  const std::string array = npy_f4(std::vector<float>{1, 2, 3});
};

TEST_F(NpzFiles, RoundTripWithOrderNamesAndBits) {
  Pairs pairs;
  for (int d = 0; d < dtype_count; ++d) {
    auto dtype = static_cast<DType>(d);
    pairs.emplace_back(fmt::format("{}/x.{}", 9 - d, name_of(dtype)), numbers(dtype, {0, 1, 2}));
  }
  pairs.emplace_back("nan", numbers(DType::f32, {NAN, -0.0, -HUGE_VAL}));
  pairs.emplace_back("../up", numbers(DType::f32, {1}));
  pairs.emplace_back("a.npy", numbers(DType::f32, {2}));
  pairs.emplace_back("\u00e4\u20ac", numbers(DType::f32, {3}));
  pairs.emplace_back("none", Tensor::zeros(DType::i8, Sizes{0}));
  Tensor wide = Tensor::from(DType::i32, Sizes{2, 2}, std::vector<double>{0, 1, 2, 3});
  pairs.emplace_back("view", wide.view(Layout(DType::i32, {2, 2}, {1, 2}), 0));
  write_npz(at("x.npz"), pairs);
  NpzFile file(at("x.npz"));
  ASSERT_EQ(file.names().size(), pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(file.names()[i], pairs[i].first);
    EXPECT_TRUE(bitwise_equal(file.read(pairs[i].first), pairs[i].second)) << pairs[i].first;
    EXPECT_TRUE(file.contains(pairs[i].first));
  }
  EXPECT_FALSE(file.contains("view.npy"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(NpzFiles, EqualTensorsGiveEqualBytes) {
  NamedTensors tensors{{"b", numbers(DType::f32, {1, 2})}, {"a", numbers(DType::i64, {3})}};
  write_npz(at("x.npz"), tensors);
  write_npz(at("y.npz"), read_npz(at("x.npz")));
  std::string bytes = get(at("x.npz"));
  EXPECT_EQ(bytes, get(at("y.npz")));
  EXPECT_EQ(bytes.substr(10, 4), std::string_view("\0\0\x21\0", 4));  // always 1980-01-01
  EXPECT_EQ(NpzFile(at("x.npz")).names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(NpzFiles, WithoutEntriesAreArchivesToo) {
  write_npz(at("x.npz"), Pairs{});
  EXPECT_TRUE(read_npz(at("x.npz")).empty());
  EXPECT_EQ(get(at("x.npz")), get(data_file("none.npz")));
}

TEST_F(NpzFiles, TakeMemoryFromTheContext) {
  write_npz(at("x.npz"), Pairs{{"x", Tensor::zeros(DType::f64, Sizes{100})}});
  Counted counted;
  Tensor t = NpzFile(at("x.npz")).read("x", counted.context);
  EXPECT_EQ(counted.heap->live_bytes(), 800u);
}

TEST_F(NpzFiles, ServeSeveralThreads) {
  Pairs pairs;
  for (int i = 0; i < 20; ++i)
    pairs.emplace_back(std::to_string(i), numbers(DType::f64, std::vector<double>(1000, i)));
  write_npz(at("x.npz"), pairs);
  NpzFile file(at("x.npz"));
  auto read_all = [&] {
    for (int i = 0; i < 1000; ++i) {
      const auto& [name, tensor] = pairs[static_cast<size_t>(i) % pairs.size()];
      ASSERT_TRUE(bitwise_equal(file.read(name), tensor));
      ASSERT_EQ(file.header(name).shape, tensor.layout().shape);
    }
  };
  std::thread other(read_all);
  read_all();
  other.join();
}

TEST_F(NpzFiles, UnknownNamesAreErrorsThatListSome) {
  write_npz(at("x.npz"), Pairs{{"weight", numbers(DType::f32, {1})}});
  NpzFile file(at("x.npz"));
  EXPECT_EQ(error_of([&] { file.read("wait"); }),
            at("x.npz") + ": there is no entry 'wait'; it has 1 entries: 'weight'");
  EXPECT_THROW(file.header(""), Error);
}

TEST_F(NpzFiles, TheTestsOwnArchivesAreValid) {
  auto wide = ZipBytes::stored("wide.npy", array);
  wide.zip64 = true;
  put(at("x.npz"),
      zip({ZipBytes::stored("a.npy", array), ZipBytes::deflated("b.npy", array), wide,
           ZipBytes::stored("README.txt", "no array"), ZipBytes::stored("folder/", "")}));
  NamedTensors all = read_npz(at("x.npz"));
  ASSERT_EQ(all.size(), 3u);
  for (const auto& [name, t] : all)
    EXPECT_EQ(t.to_doubles(), (std::vector<double>{1, 2, 3})) << name;
}

TEST_F(NpzFiles, RefuseWhatIsNoArchive) {
  expect_refusal("", "cut short");
  expect_refusal("not a zip", "no .npz file");
  std::string valid = get(data_file("stored.npz"));
  expect_refusal(valid.substr(0, valid.size() - 1), "");
  for (size_t size = 0; size < valid.size(); size += 13)
    EXPECT_NE(refusal(valid.substr(0, size)), "") << size;
  EXPECT_NE(error_of([&] { NpzFile(at("missing.npz")); }).find("No such file"), std::string::npos);
  EXPECT_THROW(NpzFile(folder.string()), Error);
  EXPECT_THROW(NpzFile("/dev/zero"), Error);
}

TEST_F(NpzFiles, RefuseDuplicateNames) {
  auto a = ZipBytes::stored("a.npy", array);
  expect_refusal(zip({a, a}), "entry 'a' is there twice");
}

TEST_F(NpzFiles, RefuseEncryptedEntries) {
  auto a = ZipBytes::stored("a.npy", array);
  a.flags = 1;
  a.bytes += std::string(12, 'k');
  expect_refusal(zip({a}), "entry 'a': it is encrypted");
}

TEST_F(NpzFiles, RefuseOtherCompression) {
  auto a = ZipBytes::stored("a.npy", array);
  a.method = 12;
  expect_refusal(zip({a}), "compressed by method 12");
}

TEST_F(NpzFiles, RefuseWrongChecksumsAndSizes) {
  for (bool deflated : {false, true}) {
    auto good = deflated ? ZipBytes::deflated("a.npy", array) : ZipBytes::stored("a.npy", array);
    auto a = good;
    a.crc ^= 1;
    expect_refusal(zip({a}), "the checksum does not match");
    a = good;
    a.size += 4;  // the header promises three elements
    EXPECT_NE(refusal(zip({a})), "");
    a = good;
    a.size -= 4;
    EXPECT_NE(refusal(zip({a})), "");
    a = good;
    a.bytes.back() ^= 1;
    EXPECT_NE(refusal(zip({a})), "");
  }
  expect_refusal(zip({ZipBytes::stored("a.npy", "garbage and more")}), "does not begin with");
  expect_refusal(zip({ZipBytes::stored("a.npy", "")}), "cannot hold a header");
}

// Every flipped bit of the elements is noticed.
TEST_F(NpzFiles, NoticeEveryFlippedBit) {
  write_npz(at("y.npz"), Pairs{{"a", numbers(DType::u8, {1, 2, 3, 4, 5, 6, 7, 8})}});
  std::string valid = get(at("y.npz"));
  size_t elements = valid.find("\1\2\3\4\5\6\7");
  ASSERT_NE(elements, std::string::npos);
  for (size_t bit = 0; bit < 64; ++bit) {
    std::string bytes = valid;
    bytes[elements + bit / 8] ^= static_cast<char>(1 << bit % 8);
    expect_refusal(bytes, "entry 'a': its bytes are damaged: the checksum does not match");
  }
}

TEST_F(NpzFiles, NamesAreOnlyNames) {
  put(at("x.npz"), zip({ZipBytes::stored("../../up.npy", array),
                        ZipBytes::stored("/etc/x.npy", array), ZipBytes::stored(".npy", array)}));
  NpzFile file(at("x.npz"));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"../../up", "/etc/x", ""}));
  for (const auto& name : file.names()) EXPECT_EQ(file.read(name).numel(), 3);
  EXPECT_EQ(files(), 1u);
  // A NUL ends no name early: "a\0b" is not "a".
  put(at("x.npz"), zip({ZipBytes::stored(std::string("a\0b.npy", 7), array)}));
  EXPECT_FALSE(NpzFile(at("x.npz")).contains("a"));
  put(at("x.npz"), zip({ZipBytes::stored(std::string("a.npy\0b", 7), array)}));
  EXPECT_FALSE(NpzFile(at("x.npz")).contains("a"));
  // What is shown of a name is harmless.
  auto odd = ZipBytes::stored("\x1b[2J\n.npy", "garbage and more");
  for (int flags : {0, 0x800}) {  // in an old code page, in UTF-8
    odd.flags = static_cast<uint16_t>(flags);
    std::string error = refusal(zip({odd}));
    EXPECT_NE(error, "");
    for (char c : error) EXPECT_GE(static_cast<uint8_t>(c), 0x20) << error;
  }
  std::string error = refusal(zip({ZipBytes::stored(std::string(60000, 'n') + ".npy", "garbage")}));
  EXPECT_LT(error.size(), 600u);
}

std::string zeros_header(int64_t count) {
  return npy(fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}\n", count),
             "");
}

TEST_F(NpzFiles, TakeNoMemoryForFalseClaims) {
  // The header and the archive agree on 60 million bytes; there are 65 thousand.
  constexpr int64_t claimed = 60'000'000;
  std::string header = zeros_header(claimed);
  ZipBytes::Member bomb = ZipBytes::stored("a.npy", "");
  bomb.size = header.size() + claimed;
  bomb.method = 8;
  bomb.bytes = deflate_plain(header + std::string(65000, '\0'));
  expect_refusal(zip({bomb}), "entry 'a': its bytes are damaged", 0);
  bomb.bytes = deflate_plain(header + std::string(65000, '\0'), false);  // just stops
  expect_refusal(zip({bomb}), "entry 'a': its bytes are damaged", 0);
  // More than deflate can pack.
  bomb.bytes = deflate_plain(header);
  expect_refusal(zip({bomb}), "claims 60000", 0);
  // Stored: the bytes must lie in the file.
  bomb.method = 0;
  expect_refusal(zip({bomb}), "claims 60000", 0);
  bomb.zip64 = true;
  bomb.size = UINT64_MAX;
  EXPECT_NE(refusal(zip({bomb}), 0), "");
  bomb.size = uint64_t{1} << 62;
  EXPECT_NE(refusal(zip({bomb}), 0), "");
  // The header alone lies.
  expect_refusal(zip({ZipBytes::stored("a.npy", zeros_header(claimed) + "1234")}),
                 "takes 60000000 bytes and 4 follow", 0);
  expect_refusal(zip({ZipBytes::deflated("a.npy", zeros_header(claimed) + "1234")}),
                 "takes 60000000 bytes and 4 follow", 0);
}

TEST_F(NpzFiles, EntriesShareNoBytes) {
  std::vector<float> values(10000);
  ZipBytes z;
  auto a = ZipBytes::stored("a0.npy", npy_f4(values));
  a.offset = static_cast<int64_t>(z.add(a));
  for (int i = 1; i < 100; ++i) {
    a.name = fmt::format("a{}.npy", i);
    z.add(a);
  }
  expect_refusal(z.bytes(), "claim more bytes than the archive has", 0);
}

TEST_F(NpzFiles, TrueClaimsAreRead) {
  // Packed a hundred to one, and honest.
  Tensor t = NpzFile(data_file("large.npz")).read("x");
  EXPECT_EQ(t.numel(), 40000);
}

TEST_F(NpzFiles, DamageIsAnErrorOrOtherTensorsButNeverACrash) {
  auto wide = ZipBytes::stored("w.npy", array);
  wide.zip64 = true;
  const std::string valid[] = {
      zip({ZipBytes::stored("a.npy", array), ZipBytes::deflated("b/c.npy", array), wide}),
      get(data_file("deflated.npz")),
  };
  std::mt19937 random(31);
  Counted counted;
  int fine = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = valid[round % 2];
    for (auto flips = 1 + random() % 4; flips > 0; --flips) {
      size_t place = random() % bytes.size();
      if (random() % 2)
        bytes[place] ^= static_cast<char>(1 << random() % 8);
      else
        bytes[place] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    if (random() % 5 == 0) bytes.resize(random() % (bytes.size() + 1));
    put(at("x.npz"), bytes);
    try {
      NpzFile file(at("x.npz"));
      for (const auto& name : file.names()) {
        try {
          file.read(name, counted.context);
          ++fine;
        } catch (const Error& e) {
          ASSERT_TRUE(e.message().starts_with(at("x.npz") + ": ")) << e.message();
          ++refused;
        }
      }
    } catch (const Error& e) {
      ASSERT_TRUE(e.message().starts_with(at("x.npz") + ": ")) << e.message();
      ++refused;
    }
  }
  EXPECT_GT(fine, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_LE(counted.heap->peak_bytes(), size_t{1} << 20);
  EXPECT_EQ(counted.heap->live_bytes(), 0u);
}

TEST_F(NpzFiles, RefuseToWriteWhatCannotBe) {
  Tensor t = numbers(DType::f32, {1});
  auto refusal_of = [&](Pairs pairs) {
    std::string error = error_of([&] { write_npz(at("x.npz"), pairs); });
    EXPECT_EQ(files(), 0u);
    return error;
  };
  EXPECT_EQ(refusal_of({{"a", t}, {"a", t}}),
            at("x.npz") + ": entry 'a': the name is given twice; give each name once");
  EXPECT_NE(refusal_of({{"", t}}).find("empty"), std::string::npos);
  EXPECT_NE(refusal_of({{std::string("a\0b", 3), t}}).find("NUL"), std::string::npos);
  EXPECT_NE(refusal_of({{"\xff\xfe", t}}).find("UTF-8"), std::string::npos);
  EXPECT_NE(refusal_of({{std::string(70000, 'n'), t}}).find("60000"), std::string::npos);
  EXPECT_NE(refusal_of({{"a", t}, {"b", Tensor()}}).find("entry 'b': an undefined tensor"),
            std::string::npos);
  EXPECT_THROW(write_npz(at("no/folder/x.npz"), Pairs{{"a", t}}), Error);
  EXPECT_THROW(write_npz(folder.string(), Pairs{{"a", t}}), Error);
}

TEST_F(NpzFiles, LeaveNothingHalfWrittenWhenTheDiskIsFull) {
  put(at("x.npz"), "old");
  chmod(at("x.npz").c_str(), 0640);
  Pairs pairs{{"small", numbers(DType::f32, {1})},
              {"large", Tensor::zeros(DType::f64, Sizes{100000})}};
  rlimit before, small;
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 4096;
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  std::string failure;
  try {
    write_npz(at("x.npz"), pairs);
  } catch (const ResourceError& e) {
    failure = e.message();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(failure, at("x.npz") + ": cannot be written: File too large");
  EXPECT_EQ(get(at("x.npz")), "old");
  EXPECT_EQ(files(), 1u);
  write_npz(at("x.npz"), pairs);
  struct stat info;
  stat(at("x.npz").c_str(), &info);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_EQ(read_npz(at("x.npz")).size(), 2u);
  EXPECT_EQ(files(), 1u);
}

}  // namespace
