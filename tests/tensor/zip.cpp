#include <numeric>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/zip_reader.h"
#include "tensor/zip_writer.h"
#include "tests/tensor/bytes.h"

using namespace gradus;
using namespace gradus::test;

namespace {

constexpr uint64_t gibibyte = uint64_t{1} << 30;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string number(uint64_t value, int bytes) {
  std::string text;
  append_number(text, value, bytes);
  return text;
}

// A file with holes: bytes at places that may be far apart.
class SparseFile {
 public:
  explicit SparseFile(const std::string& path)
      : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600)) {
    EXPECT_GE(file_, 0);
  }
  ~SparseFile() { close(file_); }
  void put(uint64_t at, std::string_view bytes) {
    EXPECT_EQ(pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  int file_;
};

class ZipFiles : public FolderTest {
 protected:
  ZipReader reader(const std::string& bytes) {
    put(at("x.zip"), bytes);
    return ZipReader(at("x.zip"));
  }
  std::string refusal(const std::string& bytes) {
    return error_of([&] { reader(bytes); });
  }
  std::string write(std::span<const std::pair<std::string, std::string>> members) {
    ZipWriter writer(at("x.zip"), at("x.zip"));
    for (const auto& [name, text] : members) {
      const std::array parts{std::as_bytes(std::span(text)).first(text.size() / 3),
                             std::as_bytes(std::span(text)).subspan(text.size() / 3)};
      writer.add(name, parts);
    }
    writer.close();
    return get(at("x.zip"));
  }
};

TEST_F(ZipFiles, RoundTripNamesAndBytes) {
  const std::vector<std::pair<std::string, std::string>> members{
      {"model/data/0", std::string(1000, 'x')}, {"\u00e4\u20ac", ""}, {"", "no name"}};
  write(members);
  const ZipReader zip(at("x.zip"));
  ASSERT_EQ(zip.members().size(), members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    EXPECT_EQ(zip.members()[i].name, members[i].first);
    EXPECT_EQ(text_of(zip.contents(zip.members()[i])), members[i].second);
  }
}

TEST_F(ZipFiles, SayWhereStoredBytesLie) {
  ZipBytes z;
  z.add(ZipBytes::stored("a", "some text"));
  z.add(ZipBytes::deflated("b", "more text"));
  const std::string bytes = z.bytes();
  const ZipReader zip = reader(bytes);
  const ZipMember &a = zip.members()[0], &b = zip.members()[1];
  EXPECT_EQ(zip.place(a), bytes.find("some text"));
  EXPECT_TRUE(a.is(ZipMethod::stored));
  std::string part(4, ' ');
  zip.read(a, 5, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "text");
  zip.read(a, 9, {});
  EXPECT_EQ(error_of([&] { zip.read(a, 6, std::as_writable_bytes(std::span(part))); }),
            "bytes 6 to 10 are asked for, and it has 9");
  EXPECT_NE(error_of([&] { zip.read(a, UINT64_MAX, std::as_writable_bytes(std::span(part))); }),
            "");
  EXPECT_EQ(error_of([&] { zip.read(b, 0, std::as_writable_bytes(std::span(part))); }),
            "it is compressed; only a stored member has ranges");
  EXPECT_EQ(text_of(zip.contents(b)), "more text");
}

// torch.save fills the extra field of a local record so that elements lie aligned.
TEST_F(ZipFiles, MayHaveOtherExtraFieldsBeforeTheBytes) {
  ZipMember m{.name = "a", .size = 4, .packed = 4, .checksum = test::crc32("text")};
  const std::string padding = "FB" + number(60, 2) + std::string(60, 'Z');
  std::string local = zip_local_header(m);
  local.replace(28, 2, number(padding.size(), 2));
  const std::string entry = zip_directory_entry(m), front = local + padding + "text";
  const ZipReader zip = reader(front + entry + zip_directory_end(1, front.size(), entry.size()));
  EXPECT_EQ(zip.place(zip.members()[0]), local.size() + padding.size());
  EXPECT_EQ(text_of(zip.contents(zip.members()[0])), "text");
}

// Members, a directory and its end beyond 4 GiB, in a file with holes.
TEST_F(ZipFiles, OfMoreThanFourGibibytesAreRead) {
  const std::string text = "beyond", again(5000, 'z');
  ZipMember large{.name = "large", .size = 5 * gibibyte, .packed = 5 * gibibyte};
  ZipMember small{
      .name = "small", .size = text.size(), .packed = text.size(), .checksum = test::crc32(text)};
  const std::string packed = deflate_plain(again);
  ZipMember deflated{.name = "deflated",
                     .size = again.size(),
                     .packed = packed.size(),
                     .checksum = test::crc32(again),
                     .method = static_cast<uint16_t>(ZipMethod::deflated)};
  {
    SparseFile file(at("x.zip"));
    uint64_t end = 0;
    auto put = [&](ZipMember& m, std::string_view bytes) {
      m.header = end;
      file.put(end, zip_local_header(m));
      end += zip_local_header(m).size();
      file.put(end, bytes);
      end += m.packed;
    };
    put(large, "begins");
    file.put(end - 4, "ends");
    put(small, text);
    put(deflated, packed);
    std::string directory;
    for (const ZipMember& m : {large, small, deflated}) directory += zip_directory_entry(m);
    file.put(end, directory + zip_directory_end(3, end, directory.size()));
  }
  struct stat info;
  ASSERT_EQ(stat(at("x.zip").c_str(), &info), 0);
  EXPECT_LT(info.st_blocks, 1000);
  const ZipReader zip(at("x.zip"));
  ASSERT_EQ(zip.members().size(), 3u);
  EXPECT_EQ(zip.members()[0].size, 5 * gibibyte);
  EXPECT_EQ(zip.members()[1].header, small.header);
  EXPECT_GT(zip.place(zip.members()[1]), 5 * gibibyte);
  EXPECT_EQ(text_of(zip.contents(zip.members()[1])), text);
  EXPECT_EQ(text_of(zip.contents(zip.members()[2])), again);
  std::string part(6, ' ');
  zip.read(zip.members()[0], 0, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "begins");
  zip.read(zip.members()[0], 5 * gibibyte - 6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, std::string(2, '\0') + "ends");
}

// What the format asks for where 32 bits hold a number, and where they do not.
TEST(ZipRecords, HaveWideNumbersWhereTheyAreNeeded) {
  const ZipMember small{.name = "ab", .size = 7, .packed = 7, .header = 9, .checksum = 0x01020304};
  const std::string day("\0\0\x21\0", 4), checksum = number(small.checksum, 4);
  const std::string facts = number(20, 2) + number(0x800, 2) + number(0, 2) + day + checksum;
  EXPECT_EQ(zip_local_header(small),
            "PK\3\4" + facts + number(7, 4) + number(7, 4) + number(2, 2) + number(0, 2) + "ab");
  EXPECT_EQ(zip_directory_entry(small), "PK\1\2" + number(20, 2) + facts + number(7, 4) +
                                            number(7, 4) + number(2, 2) + std::string(12, 0) +
                                            number(9, 4) + "ab");
  EXPECT_EQ(zip_directory_end(3, 100, 50), "PK\5\6" + number(0, 4) + number(3, 2) + number(3, 2) +
                                               number(50, 4) + number(100, 4) + number(0, 2));

  ZipMember wide = small;
  wide.size = wide.packed = wide.header = 6 * gibibyte;
  const std::string wide_facts = number(45, 2) + number(0x800, 2) + number(0, 2) + day + checksum;
  const std::string six = number(6 * gibibyte, 8), elsewhere = number(UINT32_MAX, 4);
  EXPECT_EQ(zip_local_header(wide), "PK\3\4" + wide_facts + elsewhere + elsewhere + number(2, 2) +
                                        number(20, 2) + "ab" + number(1, 2) + number(16, 2) + six +
                                        six);
  EXPECT_EQ(zip_directory_entry(wide), "PK\1\2" + number(45, 2) + wide_facts + elsewhere +
                                           elsewhere + number(2, 2) + number(28, 2) +
                                           std::string(10, 0) + elsewhere + "ab" + number(1, 2) +
                                           number(24, 2) + six + six + six);
  ZipMember far = small;
  far.header = 6 * gibibyte;  // the place alone
  EXPECT_EQ(zip_directory_entry(far), "PK\1\2" + number(45, 2) + wide_facts + number(7, 4) +
                                          number(7, 4) + number(2, 2) + number(12, 2) +
                                          std::string(10, 0) + elsewhere + "ab" + number(1, 2) +
                                          number(8, 2) + six);
  EXPECT_EQ(zip_local_header(far), zip_local_header(small));
  EXPECT_EQ(zip_directory_end(3, 6 * gibibyte, 50),
            "PK\6\6" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) + number(3, 8) +
                number(3, 8) + number(50, 8) + six + "PK\6\7" + number(0, 4) +
                number(6 * gibibyte + 50, 8) + number(1, 4) + "PK\5\6" + number(0, 4) +
                number(3, 2) + number(3, 2) + number(50, 4) + elsewhere + number(0, 2));
  // The first numbers that mean "elsewhere".
  for (uint64_t n : {uint64_t{UINT32_MAX} - 1, uint64_t{UINT32_MAX}, uint64_t{UINT32_MAX} + 1}) {
    const bool fits = n < UINT32_MAX;
    ZipMember m = small;
    m.header = n;
    EXPECT_EQ(zip_directory_entry(m).size(), zip_directory_entry(small).size() + (fits ? 0 : 12));
    EXPECT_EQ(zip_directory_end(1, n, 50).size(), fits ? 22u : 98u);
  }
  EXPECT_EQ(zip_directory_end(65534, 100, 50).size(), 22u);
  EXPECT_EQ(zip_directory_end(65535, 100, 50).size(), 98u);
}

TEST_F(ZipFiles, OfManyMembersAreWrittenAndRead) {
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 65540; ++i) members.emplace_back(std::to_string(i), std::to_string(i * 7));
  write(members);
  const ZipReader zip(at("x.zip"));
  ASSERT_EQ(zip.members().size(), members.size());
  for (size_t i : {size_t{0}, size_t{65534}, size_t{65535}, members.size() - 1})
    EXPECT_EQ(text_of(zip.contents(zip.members()[i])), members[i].second);
}

TEST_F(ZipFiles, RefuseDamagedDirectories) {
  const std::vector<std::pair<std::string, std::string>> members{{"a", "text"}, {"b", "more"}};
  const std::string bytes = write(members);
  const size_t end = bytes.size() - 22, directory = bytes.find("PK\1\2");
  EXPECT_EQ(refusal(bytes.substr(0, end)),
            at("x.zip") + ": is no zip archive, or is cut short; write it with zip");
  auto changed = [&](size_t at, uint64_t value, int width) {
    std::string other = bytes;
    other.replace(at, static_cast<size_t>(width), number(value, width));
    return other;
  };
  const std::string damaged = at("x.zip") + ": is a damaged zip archive: its directory cannot be";
  for (const std::string& other : {
           changed(end + 8, 0x00030003, 4),      // more entries than there are
           changed(end + 8, 0x00010001, 4),      // fewer
           changed(end + 12, 1000, 4),           // longer than the file
           changed(end + 16, bytes.size(), 4),   // behind its end
           changed(end + 16, directory + 1, 4),  // between two records
           changed(directory + 28, 60000, 2),    // a name longer than the directory
           changed(directory, 0x02014b51, 4),    // no entry
       })
    EXPECT_NE(refusal(other).find(damaged), std::string::npos) << refusal(other);
  for (size_t at : {end + 4, end + 6, end + 8})  // a part of several files
    EXPECT_NE(refusal(changed(at, 1, 2)), "");
  EXPECT_NE(refusal(changed(directory + 20, 5000, 4)).find("claim more bytes than the archive has"),
            std::string::npos);
  EXPECT_EQ(refusal(bytes), "");
}

// A record with 64-bit numbers that lies.
TEST_F(ZipFiles, RefuseDamagedWideDirectories) {
  const ZipMember m{.name = "a", .size = 4, .packed = 4, .checksum = test::crc32("text")};
  const std::string entry = zip_directory_entry(m), front = zip_local_header(m) + "text";
  std::string end = zip_directory_end(65535, front.size(), entry.size());
  end.replace(24, 16, number(1, 8) + number(1, 8));  // one entry in truth
  const std::string bytes = front + entry + end;
  EXPECT_EQ(text_of(reader(bytes).contents(reader(bytes).members()[0])), "text");
  const size_t wide = front.size() + entry.size();
  for (size_t at : {wide, wide + 16, wide + 20, wide + 32, wide + 40, wide + 48, wide + 64})
    for (uint64_t value : {uint64_t{1} << 63, UINT64_MAX, uint64_t{7}}) {
      std::string other = bytes;
      other.replace(at, 8, number(value, 8));
      EXPECT_NE(refusal(other), "") << at - wide << " " << value;
    }
  // An extra field that is cut short.
  ZipMember far = m;
  far.header = UINT64_MAX;
  std::string odd = zip_directory_entry(far);
  odd.replace(odd.size() - 10, 2, number(4, 2));
  EXPECT_NE(refusal(front + odd + zip_directory_end(1, front.size(), odd.size())), "");
  odd = zip_directory_entry(far);
  const ZipReader zip = reader(front + odd + zip_directory_end(1, front.size(), odd.size()));
  EXPECT_NE(error_of([&] { zip.contents(zip.members()[0]); }).find("its place is not in the"),
            std::string::npos);
}

TEST_F(ZipFiles, RefuseMembersThatCannotBeRead) {
  auto says = [&](const ZipBytes::Member& m, std::string_view text) {
    ZipBytes z;
    z.add(m);
    const ZipReader zip = reader(z.bytes());
    const std::string error = error_of([&] { zip.contents(zip.members()[0]); });
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  ZipBytes::Member m = ZipBytes::stored("a", "text");
  m.crc ^= 1;
  says(m, "the checksum does not match");
  m = ZipBytes::deflated("a", "text");
  m.crc ^= 1;
  says(m, "the checksum does not match");
  m = ZipBytes::deflated("a", "text");
  m.size += 1;
  says(m, "there are more or fewer than the archive says");
  m.size -= 2;
  says(m, "there are more or fewer than the archive says");
  m = ZipBytes::stored("a", "text");
  m.flags = 1;
  says(m, "it is encrypted");
  m.flags = 0;
  m.method = 93;
  says(m, "it is compressed by method 93");
  // Too large for the bytes that are there, before memory is taken.
  m = ZipBytes::deflated("a", "text");
  m.zip64 = true;
  m.size = uint64_t{1} << 50;
  says(m, "claims 1125899906842624 bytes");
  m.size = 9000;
  says(m, "there are more or fewer than the archive says");
}

TEST_F(ZipFiles, ThatBecomeShorterAreErrors) {
  const std::vector<std::pair<std::string, std::string>> members{{"a", std::string(1000, 'x')}};
  write(members);
  const ZipReader zip(at("x.zip"));
  ASSERT_EQ(truncate(at("x.zip").c_str(), 500), 0);
  EXPECT_THROW(zip.contents(zip.members()[0]), ResourceError);
}

}  // namespace
