// SPEC P9
#include <cmath>

#include "gradus/dlpack.h"
#include "gradus/files.h"
#include "tests/tensor/bytes.h"

namespace gradus::test {
namespace {

class Safetensors : public FolderTest {
 protected:
  // A file of this header and data.
  std::string file(std::string_view header, std::string_view data = {}) {
    std::string bytes;
    append_number(bytes, header.size(), 8);
    put(at("f.safetensors"), bytes + std::string(header) + std::string(data));
    return at("f.safetensors");
  }
  std::string refused(std::string_view header, std::string_view data = {}) {
    return error_of([&] { SafetensorsFile f(file(header, data)); });
  }
};
#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

std::string bytes_of(std::initializer_list<double> values, DType dtype) {
  std::vector<double> list(values);
  Tensor t = Tensor::from(dtype, Sizes{static_cast<int64_t>(list.size())}, list);
  return {reinterpret_cast<const char*>(t.data()), list.size() * size_of(dtype)};
}

TEST_F(Safetensors, ReadsWhatOthersWrite) {
  // As the reference implementation lays it out: spaces up to a multiple of 8, no order of keys.
  std::string path =
      file(R"( {"__metadata__":{"format":"pt"}, "w\u00e9":{"data_offsets":[0,24],"dtype":"F64",)"
           R"("shape":[3,1]}, "b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]}, "e":)"
           R"({"dtype":"F32","shape":[0,4],"data_offsets":[28,28]},)"
           R"("s":{"dtype":"I8","shape":[],"data_offsets":[28,29]}}    )",
           bytes_of({1.5, -2, HUGE_VAL}, DType::f64) + bytes_of({0.5, -3}, DType::bf16) + "\x7f");
  SafetensorsFile f(path);
  EXPECT_EQ(f.names(), (std::vector<std::string>{"wé", "b", "e", "s"}));
  EXPECT_EQ(f.metadata().at("format"), "pt");
  EXPECT_EQ(f.read("wé").to_doubles(), (std::vector<double>{1.5, -2, HUGE_VAL}));
  EXPECT_EQ(describe(f.read("wé")), "f64[3, 1]");
  EXPECT_EQ(f.read("b").to_doubles(), (std::vector<double>{0.5, -3}));
  EXPECT_EQ(describe(f.read("e")), "f32[0, 4]");
  EXPECT_EQ(f.read("s").item(), 127);
  EXPECT_TRUE(f.contains("b"));
  EXPECT_SAYS(error_of([&] { f.read("bb"); }), "there is no tensor 'bb'; did you mean 'b'?");
}

TEST_F(Safetensors, ReadsIntegersOfEverySize) {
  const std::string data("\x05\x00\xff\xff\x01\x02\x03\xf4\xff\xff\xff\xff\xff\xff\xff\x7f\x02\x00",
                         18);
  SafetensorsFile f(file(R"({"i":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},)"
                         R"("v":{"dtype":"U32","shape":[1],"data_offsets":[4,8]},)"
                         R"("w":{"dtype":"U64","shape":[1],"data_offsets":[8,16]},)"
                         R"("b":{"dtype":"BOOL","shape":[2],"data_offsets":[16,18]}})",
                         data));
  EXPECT_EQ(describe(f.read("i")), "i16[2]");
  EXPECT_EQ(f.read("i").to_int64s(), (std::vector<int64_t>{5, -1}));
  EXPECT_EQ(f.read("v").to_int64s(), (std::vector<int64_t>{0xf4030201}));
  EXPECT_EQ(f.read("w").to_int64s(), (std::vector<int64_t>{INT64_MAX}));
  EXPECT_EQ(f.read("b").to_int64s(), (std::vector<int64_t>{1, 0}));
  SafetensorsFile u(
      file(R"({"u":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}})", data.substr(0, 4)));
  EXPECT_EQ(u.read("u").to_int64s(), (std::vector<int64_t>{5, 65535}));
}

TEST_F(Safetensors, MapsAndCopies) {
  Tensor a = Tensor::from(DType::f64, Sizes{2}, std::vector<double>{1, 2});
  write_safetensors(at("m.safetensors"), NamedTensors{{"a", a}});
  Counted counted;
  Tensor mapped;
  {
    SafetensorsFile f(at("m.safetensors"));
    mapped = f.read("a", counted.context);
    EXPECT_EQ(counted.heap->calls(), 0u);  // no copy
    EXPECT_EQ(f.read("a").storage(), mapped.storage());
  }
  std::filesystem::remove(at("m.safetensors"));
  EXPECT_EQ(mapped.to_doubles(), (std::vector<double>{1, 2}));  // the mapping lives on
  // What is written does not reach the file.
  write_safetensors(at("m.safetensors"), NamedTensors{{"a", a}});
  std::string before = get(at("m.safetensors"));
  SafetensorsFile f(at("m.safetensors"));
  Tensor t = f.read("a");
  t.mutable_data_as<double>()[0] = 7;
  EXPECT_EQ(get(at("m.safetensors")), before);
  // Unaligned elements are copied.
  SafetensorsFile odd(file(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})",
                           "x" + bytes_of({2.5}, DType::f64)));
  EXPECT_EQ(odd.read("a", counted.context).item(), 2.5);
  EXPECT_EQ(counted.heap->calls(), 1u);
}

TEST_F(Safetensors, WritesWhatItReads) {
  std::vector<std::pair<std::string, Tensor>> all;
  for (int d = 0; d < dtype_count; ++d) {
    auto dtype = static_cast<DType>(d);
    all.emplace_back(fmt::format("t\"{}\\\n\x01é", name_of(dtype)),
                     Tensor::from(dtype, Sizes{3}, std::vector<double>{0, 1, 1}));
  }
  Tensor wide = Tensor::from(DType::f32, Sizes{2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  all.emplace_back("transposed", wide.view(Layout(DType::f32, {3, 2}, {1, 3}), 0));
  all.emplace_back("none", Tensor::zeros(DType::i64, Sizes{0}));
  write_safetensors(at("w.safetensors"), all, {{"who", "\"us\""}});
  SafetensorsFile f(at("w.safetensors"));
  EXPECT_EQ(f.metadata().at("who"), "\"us\"");
  EXPECT_EQ(f.names().size(), all.size());
  for (const auto& [name, tensor] : all) {
    EXPECT_TRUE(bitwise_equal(f.read(name), tensor)) << name;
    EXPECT_EQ(f.entry(name).begin % size_of(tensor.dtype()), 0u) << name;
  }
  write_safetensors(at("again.safetensors"), all, {{"who", "\"us\""}});
  EXPECT_EQ(get(at("w.safetensors")), get(at("again.safetensors")));
  write_safetensors(at("nothing.safetensors"), NamedTensors{});
  EXPECT_TRUE(SafetensorsFile(at("nothing.safetensors")).names().empty());
}

TEST_F(Safetensors, RefusesHostileHeaders) {
  EXPECT_SAYS(error_of([&] { SafetensorsFile f(at("nowhere.safetensors")); }), "nowhere");
  put(at("short"), "abc");
  EXPECT_SAYS(error_of([&] { SafetensorsFile f(at("short")); }), "3 bytes hold no header");
  std::string claims;
  append_number(claims, UINT64_MAX, 8);
  put(at("claims"), claims + "{}");
  EXPECT_SAYS(error_of([&] { SafetensorsFile f(at("claims")); }),
              "claims 18446744073709551615 bytes");
  EXPECT_SAYS(refused("[]"), "at byte 0: '{' was expected");
  EXPECT_SAYS(refused("{} x"), "something follows");
  EXPECT_SAYS(refused(R"({"a)"), "a string does not end");
  EXPECT_SAYS(refused("{\"a\xff\":"), "a byte that is not allowed");
  EXPECT_SAYS(refused("{\"a\n\":"), "a byte that is not allowed");
  EXPECT_SAYS(refused(R"({"\ud800":)"), "half of a character");
  EXPECT_SAYS(refused(R"({"\u12":)"), "an escape");
  EXPECT_SAYS(refused(R"({"\x":)"), "an escape");
  auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"a":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}}}})", dtype, shape,
                       offsets);
  };
  EXPECT_SAYS(refused(entry("F33", "1", "0,4"), "1234"), "dtype 'F33', which is not known");
  EXPECT_SAYS(refused(entry("F32", "-1", "0,4"), "1234"), "a whole number below 2^64");
  EXPECT_SAYS(refused(entry("F32", "1.5", "0,4"), "1234"), "']' was expected");
  EXPECT_SAYS(refused(entry("F32", "2", "0,4"), "1234"), "8 bytes by its shape and 4");
  EXPECT_SAYS(refused(entry("F32", "1", "0,8"), "1234"), "lies at 0 to 8 of 4 bytes");
  EXPECT_SAYS(refused(entry("F32", "1", "4,0"), "1234"), "lies at 4 to 0");
  EXPECT_SAYS(refused(entry("F32", "9223372036854775807,9223372036854775807", "0,4"), "1234"),
              "more elements than can be counted");
  EXPECT_SAYS(refused(entry("F32", "9223372036854775808", "0,4"), "1234"), "does not fit 63 bits");
  EXPECT_SAYS(refused(entry("F32", "99999999999999999999", "0,4"), "1234"), "below 2^64");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_SAYS(refused(entry("F32", ones, "0,4"), "1234"), "more than 64 dimensions");
  EXPECT_SAYS(refused(R"({"a":{"dtype":"F32"}})"), "'a' lacks its shape");
  EXPECT_SAYS(refused(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "two dtypes");
  EXPECT_SAYS(refused(R"({"a":{"kind":1}})"), "the key 'kind'");
  EXPECT_SAYS(refused(R"({"__metadata__":{"k":1}})"), "'\"' was expected");
  EXPECT_SAYS(refused(R"({"__metadata__":{"k":"1","k":"2"}})"), "'k' is given twice");
  const std::string one = R"({"dtype":"I8","shape":[2],"data_offsets":[0,2]})",
                    two = R"({"dtype":"I8","shape":[2],"data_offsets":[1,3]})";
  EXPECT_SAYS(refused("{\"a\":" + one + ",\"a\":" + two + "}", "123"), "'a' is given twice");
  EXPECT_SAYS(refused("{\"a\":" + one + ",\"b\":" + two + "}", "123"), "'a' and 'b' overlap");
  // Only what cannot be held is refused when it is read.
  SafetensorsFile f(file(R"({"f":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]},)"
                         R"("u":{"dtype":"U64","shape":[1],"data_offsets":[1,9]}})",
                         "x\xff\xff\xff\xff\xff\xff\xff\xff"));
  EXPECT_SAYS(error_of([&] { f.read("f"); }), "tensor 'f': its dtype F8_E5M2 has no counterpart");
  EXPECT_EQ(*f.read("u").data_as<uint64_t>(), UINT64_MAX);
}

// A header of 100 MB that opens braces, brackets and strings without end, or lists names.
TEST_F(Safetensors, TakesMemoryInProportionToTheHeader) {
  for (char c : {'{', '[', '"', '\\', ' '}) EXPECT_FALSE(refused(std::string(1 << 20, c)).empty());
  std::string deep = R"({"a":{"shape":)" + std::string(1 << 20, '[');
  EXPECT_SAYS(refused(deep), "a whole number");
}

TEST_F(Safetensors, RefusesToWriteWhatCannotBeRead) {
  Tensor t = Tensor::scalar(DType::f32, 1);
  auto refused = [&](std::vector<std::pair<std::string, Tensor>> tensors) {
    return error_of([&] { write_safetensors(at("x.safetensors"), tensors); });
  };
  EXPECT_SAYS(refused({{"", t}}), "not to be empty");
  EXPECT_SAYS(refused({{"a", t}, {"a", t}}), "given twice");
  EXPECT_SAYS(refused({{"__metadata__", t}}), "keeps this name");
  EXPECT_SAYS(refused({{"a", Tensor()}}), "undefined tensor");
  EXPECT_SAYS(refused({{"\xff", t}}), "not valid UTF-8");
  EXPECT_FALSE(std::filesystem::exists(at("x.safetensors")));
}

TEST_F(Safetensors, IsOneOfTheFilesOfTensors) {
  std::vector<std::pair<std::string, Tensor>> tensors{{"a", Tensor::scalar(DType::f32, 2)}};
  for (std::string name : {"t.npz", "t.safetensors"}) {
    write_tensors(at(name), tensors);
    TensorFile f(at(name));
    EXPECT_EQ(f.names(), (std::vector<std::string>{"a"})) << name;
    EXPECT_TRUE(f.contains("a"));
    EXPECT_EQ(f.read("a").item(), 2) << name;
    EXPECT_EQ(f.path(), at(name));
  }
}

// SPEC W3
// A mapped tensor goes out and comes back in without a copy.
TEST_F(Safetensors, HandsMappedMemoryToDlpack) {
  write_safetensors(at("d.safetensors"), NamedTensors{{"a", Tensor::scalar(DType::f32, 2)}});
  Tensor mapped = SafetensorsFile(at("d.safetensors")).read("a");
  Tensor back = from_dlpack(to_dlpack(mapped, true));
  EXPECT_EQ(back.data(), mapped.data());
  mapped = Tensor();
  EXPECT_EQ(back.item(), 2);
}

}  // namespace
}  // namespace gradus::test
