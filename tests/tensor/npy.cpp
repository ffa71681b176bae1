#include <csignal>
#include <random>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "gradus/files.h"
#include "tests/tensor/bytes.h"

using namespace gradus;
using namespace gradus::test;

namespace {

Tensor parse(std::string_view bytes, Context& context = *Context::default_context()) {
  return read_npy(std::as_bytes(std::span(bytes)), context);
}
std::string header(std::string_view descr, std::string_view shape,
                   std::string_view order = "False") {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n", descr, order,
                     shape);
}

// SPEC W3
TEST(Npy, RoundTripsEveryDtypeAndShape) {
  std::mt19937 random(5);
  for (int d = 0; d < dtype_count; ++d)
    for (Sizes shape :
         {Sizes{}, Sizes{1}, Sizes{7}, Sizes{2, 3}, Sizes{2, 0, 3}, Sizes{2, 1, 3, 2}}) {
      std::vector<double> values(static_cast<size_t>(numel(shape)));
      for (double& v : values) v = static_cast<double>(random() % 256) - 100;
      Tensor t = Tensor::from(static_cast<DType>(d), shape, values);
      std::vector<std::byte> bytes = write_npy(t);
      EXPECT_TRUE(bitwise_equal(read_npy(bytes), t)) << describe(t);
      EXPECT_EQ((bytes.size() - static_cast<size_t>(t.numel()) * size_of(t.dtype())) % 64, 0u);
      // From an address that is aligned to nothing.
      std::vector<std::byte> shifted(bytes.size() + 1);
      std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
      EXPECT_TRUE(bitwise_equal(read_npy(std::span(shifted).subspan(1)), t)) << describe(t);
    }
}

TEST(Npy, WritesWhatNumpyWrites) {
  Tensor t = Tensor::from(DType::f32, Sizes{2, 3}, std::vector<double>{0, 1, 2, 3, 4, 5});
  auto bytes = write_npy(t);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(text.substr(0, 10), std::string_view("\x93NUMPY\1\0\x76\0", 10));
  EXPECT_EQ(text.substr(10, 60), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ");
  EXPECT_EQ(text[127], '\n');
  EXPECT_EQ(bytes.size(), 128u + 24u);
  EXPECT_NE(npy_header(Tensor::scalar(DType::f32, 1)).find("'shape': (), }"), std::string::npos);
  EXPECT_NE(npy_header(Tensor::zeros(DType::i8, Sizes{4})).find("'shape': (4,), }"),
            std::string::npos);
}

TEST(Npy, ReadsIntegersOfEverySize) {
  const std::string ones(8, '\xff');
  auto read = [&](std::string_view descr, size_t bytes) {
    return parse(npy(header(descr, "(1,)"), ones.substr(0, bytes)));
  };
  EXPECT_EQ(*read("<u8", 8).data_as<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(*read(">u4", 4).data_as<uint32_t>(), UINT32_MAX);
  EXPECT_EQ(*read("<u2", 2).data_as<uint16_t>(), UINT16_MAX);
  EXPECT_EQ(*read("<i2", 2).data_as<int16_t>(), -1);
}

TEST(Npy, WritesViewsRowByRow) {
  Tensor t = Tensor::from(DType::i32, Sizes{2, 3}, std::vector<double>{0, 1, 2, 3, 4, 5});
  Tensor transposed = t.view(Layout(DType::i32, {3, 2}, {1, 3}), 0);
  EXPECT_EQ(read_npy(write_npy(transposed)).to_int64s(), (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST(Npy, ReadsAllVersions) {
  for (int version : {1, 2, 3}) {
    Tensor t = load_npy(data_file(fmt::format("version{}.npy", version)));
    EXPECT_EQ(describe(t), "i32[4]");
    EXPECT_EQ(t.to_int64s(), (std::vector<int64_t>{0, 1, 2, 3}));
  }
}

TEST(Npy, ReadsHeadersAsPythonDoes) {
  std::string two("\1\0\0\0\2\0\0\0", 8);
  for (const char* text : {
           "{'shape': (2,), 'descr': '<i4', 'fortran_order': False}",
           "{\"descr\": \"<i4\",\"fortran_order\":False,\"shape\":(2,)}      \n",
           " { 'descr' : '=i4' , 'fortran_order' : True , 'shape' : ( 2 , ) , } ",
           "{'descr': '|i4', 'fortran_order': False, 'shape': (2L,), }\n",
           "{'descr': '<i4', 'fortran_order': False, 'shape': (2), }\n",
           "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2, 1), }\n",
       })
    EXPECT_EQ(parse(npy(text, two)).to_int64s(), (std::vector<int64_t>{1, 2})) << text;
}

TEST(Npy, AnyByteButZeroIsTrue) {
  Tensor t = parse(npy(header("|b1", "(4,)"), std::string("\0\1\2\xff", 4)));
  EXPECT_EQ(write_npy(t).back(), std::byte{1});
  EXPECT_EQ(t.data_as<uint8_t>()[2], 1);
  EXPECT_EQ(t.to_int64s(), (std::vector<int64_t>{0, 1, 1, 1}));
}

TEST(Npy, TakesBfloat16ByNameToo) {
  std::string one("\x80\x3f", 2), big("\x3f\x80", 2);
  EXPECT_EQ(describe(parse(npy(header("bfloat16", "(1,)"), one))), "bf16[1]");
  for (const char* descr : {"bfloat16", "<V2", "|V2"})
    EXPECT_EQ(parse(npy(header(descr, "(1,)"), one)).item(), 1.0) << descr;
  EXPECT_EQ(parse(npy(header(">V2", "(1,)"), big)).item(), 1.0);
}

struct Bad {
  std::string bytes, says;
};

std::vector<Bad> bad_files() {
  auto text = [](std::string_view t) { return npy(t, "12345678"); };
  std::string deep(30000, '('), digits(60000, '9');
  std::vector<Bad> bad = {
      {"", "cannot hold a header"},
      {"\x93NUMPY", "cannot hold a header"},
      {"PK\3\4 something else", "does not begin with"},
      {npy("{}", "", 4), "version 4.0"},
      {npy("{}", "", 0), "version 0.0"},
      {std::string("\x93NUMPY\1\0\xff\xff{'descr'", 18), "header claims 65535 bytes"},
      {std::string("\x93NUMPY\2\0\xff\xff\xff\xff{'descr'", 20), "header claims 4294967295 bytes"},
      {std::string("\x93NUMPY\2\0\x01", 9), "cannot hold"},
      {std::string("\x93NUMPY\2\0\x01\x00", 10), "cut short"},
      {text(""), "malformed"},
      {text("{}"), "lacks"},
      {text("{'descr': '<f8', 'fortran_order': False}"), "lacks"},
      {text("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': ()}"), "twice"},
      {text("{'extra': '<f8', 'fortran_order': False, 'shape': ()}"), "unknown"},
      {text(header("<f8", "()") + "x"), "follows the closing brace"},
      {text("{'descr': '<f8', 'fortran_order': 1, 'shape': ()}"), "neither True nor False"},
      {text("{'descr': '<f8"), "does not end"},
      {text("{'descr': <f8, 'fortran_order': False, 'shape': ()}"), "string is expected"},
      {text(header("<f8", "(-1,)")), "negative"},
      {text(header("<f8", "(1.5,)")), "malformed"},
      {text(header("<f8", "(1 1)")), "malformed"},
      {text(header("<f8", "(,)")), "a size is expected"},
      {text(header("<f8", "[1]")), "malformed"},
      {text(header("<f8", "1")), "malformed"},
      {text(header("<f8", "(9223372036854775808,)")), "does not fit 64 bits"},
      {text(header("<f8", "(99999999999999999999999999,)")), "does not fit 64 bits"},
      {text(header("<f8", digits)), "malformed"},
      {text(header("<f8", "(" + digits + ",)")), "does not fit 64 bits"},
      {text(header("<f8", deep)), "malformed"},
      {text(std::string(30000, '{')), "malformed"},
      {text(header("<f8", "(9223372036854775807, 2)")), "more elements than can be counted"},
      {text(header("<f8", "(4294967296, 4294967296)")), "more elements than can be counted"},
      {text(header("<f8", "(2305843009213693952,)")), "more elements than can be counted"},
      {text(header("<u4", "(4611686018427387904,)")), "more elements than can be counted"},
      {text(header("<f8", "(0, 9223372036854775807, 9)")), "more elements than can be counted"},
      {text(header("<f8", "(1000000000000,)")), "takes 8000000000000 bytes and 8 follow"},
      {text(header("<f8", "(0,)")), "takes 0 bytes and 8 follow"},
      {text(header("<f8", "(2,)")), "cut short or holds more"},
      {text(header("<f4", "(1,)")), "cut short or holds more"},
      {text(header("|O", "(1,)")), "Python objects"},
      {text(header("<c8", "(1,)")), "x.real and x.imag"},
      {text(header("<U2", "(1,)")), "strings"},
      {text(header("|S8", "(1,)")), "strings"},
      {text(header("<M8[ns]", "(1,)")), "dates"},
      {text(header("<f16", "(1,)")), "floats of another size"},
      {text(header("|V1", "(8,)")), "raw bytes"},
      {text(header("|V8", "(1,)")), "raw bytes"},
      {text(header("f8", "(1,)")), "not supported"},
      {text(header("", "(1,)")), "not supported"},
      {text(header("<", "(1,)")), "not supported"},
      {text(header("<f88", "(1,)")), "not supported"},
      {text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), "structured"},
  };
  std::string dimensions = "(";
  for (int i = 0; i < 65; ++i) dimensions += "1,";
  bad.push_back({text(header("<f8", dimensions + ")")), "more than 64 dimensions"});
  return bad;
}

TEST(Npy, RefusesWhatIsMalformedAndSaysWhy) {
  for (const Bad& bad : bad_files()) {
    Counted counted;
    std::string error = error_of([&] { parse(bad.bytes, counted.context); });
    EXPECT_NE(error.find(bad.says), std::string::npos)
        << "expected: " << bad.says << "\nis: " << error;
    EXPECT_LT(error.size(), 400u);
    EXPECT_LE(counted.heap->peak_bytes(), 8u) << bad.says;
  }
}

TEST(Npy, ErrorsShowNoForeignControlCharacters) {
  std::string error = error_of([] { parse(npy(header("<\x1b[2J\n", "(1,)"), "12345678")); });
  EXPECT_NE(error.find("'<?[2J?'"), std::string::npos) << error;
}

TEST(Npy, RefusesToWriteWhatCannotBe) {
  EXPECT_THROW(write_npy(Tensor()), Error);
  EXPECT_THROW(write_npy(Tensor::zeros(DType::f32, Sizes(65, 1))), Error);
  float x = 0;
  Tensor device(make_ref<Storage>(&x, 4, Device{DeviceKind::cuda, 1}, nullptr),
                Layout(DType::f32, Sizes{1}));
  EXPECT_NE(error_of([&] { write_npy(device); }).find("cuda:1"), std::string::npos);
}

TEST(Npy, DamageIsAnErrorOrAnotherTensorButNeverACrash) {
  std::mt19937 random(21);
  Tensor t = Tensor::from(DType::i32, Sizes{2, 3}, std::vector<double>{0, 1, 2, 3, 4, 5});
  auto valid = write_npy(t);
  Counted counted;
  int fine = 0, refused = 0;
  for (int round = 0; round < 40000; ++round) {
    auto bytes = valid;
    for (auto flips = 1 + random() % 3; flips > 0; --flips)
      bytes[random() % (round % 2 ? 70 : bytes.size())] ^=
          std::byte{static_cast<uint8_t>(1 << random() % 8)};
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    try {
      EXPECT_EQ(read_npy(bytes, counted.context).rank() < 65, true);
      ++fine;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(fine, 1000);
  EXPECT_GT(refused, 10000);
  EXPECT_LE(counted.heap->peak_bytes(), 1024u);
  EXPECT_EQ(counted.heap->live_bytes(), 0u);
}

class NpyFiles : public FolderTest {};

TEST_F(NpyFiles, AreWrittenAndReadBack) {
  Counted counted;
  Tensor t = Tensor::from(DType::f16, Sizes{3}, std::vector<double>{1, 2, 3});
  save_npy(at("x.npy"), t);
  Tensor back = load_npy(at("x.npy"), counted.context);
  EXPECT_TRUE(bitwise_equal(back, t));
  EXPECT_EQ(counted.heap->live_bytes(), 6u);
}

TEST_F(NpyFiles, ErrorsNameTheFile) {
  put(at("x.npy"), "not that");
  for (const char* name : {"x.npy", "missing.npy", ""}) {
    std::string path = at(name);
    EXPECT_TRUE(error_of([&] { load_npy(path); }).starts_with(path + ": "));
  }
  std::string path = at("y.npy");
  EXPECT_TRUE(error_of([&] { save_npy(path, Tensor()); }).starts_with(path + ": "));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(NpyFiles, LeaveNothingHalfWrittenWhenTheDiskIsFull) {
  put(at("x.npy"), "old");
  // The large one fails when it is written, the small one when the buffer is.
  for (auto [elements, limit] : {std::pair{100000, 4096}, std::pair{1, 100}}) {
    Tensor t = Tensor::zeros(DType::f64, Sizes{elements});
    rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = static_cast<rlim_t>(limit);
    auto handler = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    std::string failure;
    try {
      save_npy(at("x.npy"), t);
    } catch (const ResourceError& e) {
      failure = e.message();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(failure, at("x.npy") + ": cannot be written: File too large");
    EXPECT_EQ(get(at("x.npy")), "old");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  }
}

}  // namespace
