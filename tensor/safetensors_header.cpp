// Reading the header: the JSON that the format allows, no more. Nothing recurses.
#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "gradus/files.h"
#include "gradus/messages.h"

namespace gradus {

namespace {

constexpr uint64_t longest_safetensors_header = 100'000'000;
constexpr size_t largest_safetensors_rank = 64;

// Bytes of an element; 0 for a dtype that the format does not have.
uint64_t item_size(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, uint64_t>, 16> sizes{{{"F64", 8},
                                                                         {"F32", 4},
                                                                         {"F16", 2},
                                                                         {"BF16", 2},
                                                                         {"I64", 8},
                                                                         {"I32", 4},
                                                                         {"I16", 2},
                                                                         {"I8", 1},
                                                                         {"U64", 8},
                                                                         {"U32", 4},
                                                                         {"U16", 2},
                                                                         {"U8", 1},
                                                                         {"BOOL", 1},
                                                                         {"F8_E5M2", 1},
                                                                         {"F8_E4M3", 1},
                                                                         {"F8_E8M0", 1}}};
  for (auto [name, size] : sizes)
    if (name == dtype) return size;
  return 0;
}

class SafetensorsHeaderParser {
 public:
  SafetensorsHeaderParser(std::string_view text, uint64_t data, uint64_t file)
      : text_(text), data_(data), file_(file) {}

  SafetensorsHeader parse() {
    SafetensorsHeader header;
    std::set<std::string, std::less<>> seen;
    object([&](std::string name) {
      if (!seen.insert(name).second) fail("the name '{}' is given twice", printable(name));
      if (name == "__metadata__")
        header.metadata = metadata();
      else
        header.entries.emplace_back(name, entry(name));
    });
    skip_space();
    if (at_ != text_.size()) fail("something follows its last brace");
    return header;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("its header is damaged at byte {}: {}; write the file again", at_,
                fmt::format(format, std::forward<Args>(args)...));
  }
  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail("'{}' was expected", c);
  }

  // Calls `member` for each name, behind its colon.
  template <class F>
  void object(F member) {
    expect('{');
    if (take('}')) return;
    do {
      std::string name = string();
      expect(':');
      member(std::move(name));
    } while (take(','));
    expect('}');
  }
  template <class F>
  void list(F item) {
    expect('[');
    if (take(']')) return;
    do item();
    while (take(','));
    expect(']');
  }

  uint64_t whole_number() {
    skip_space();
    uint64_t value = 0;
    const char* first = text_.data() + at_;
    auto [end, fault] = std::from_chars(first, text_.data() + text_.size(), value);
    if (fault != std::errc()) fail("a whole number below 2^64 was expected");
    at_ += static_cast<size_t>(end - first);
    return value;
  }

  std::string string() {
    expect('"');
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) fail("a string does not end");
      char c = text_[at_];
      if (c == '"') break;
      if (c == '\\') {
        ++at_;
        escape(out);
        continue;
      }
      size_t length = utf8_length(text_, at_);
      if (length == 0 || static_cast<unsigned char>(c) < 0x20)
        fail("a string holds a byte that is not allowed there");
      out.append(text_, at_, length);
      at_ += length;
    }
    ++at_;
    return out;
  }
  void escape(std::string& out) {
    char c = at_ < text_.size() ? text_[at_++] : '\0';
    constexpr std::string_view plain = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    if (size_t i = plain.find(c); i != plain.npos && c != '\0') {
      out += meant[i];
      return;
    }
    if (c != 'u') fail("an escape that JSON does not have");
    uint32_t point = unit();
    if (point >= 0xd800 && point < 0xdc00) {
      if (text_.substr(at_, 2) != "\\u") fail("half of a character");
      at_ += 2;
      uint32_t low = unit();
      if (low < 0xdc00 || low >= 0xe000) fail("half of a character");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    } else if (point >= 0xdc00 && point < 0xe000) {
      fail("half of a character");
    }
    append(out, point);
  }
  uint32_t unit() {
    uint32_t value = 0;
    if (text_.size() - at_ < 4) fail("an escape is cut short");
    const char* first = text_.data() + at_;
    auto [end, fault] = std::from_chars(first, first + 4, value, 16);
    if (fault != std::errc() || end != first + 4) fail("an escape that JSON does not have");
    at_ += 4;
    return value;
  }
  static void append(std::string& out, uint32_t point) {
    auto byte = [&](uint32_t b) { out += static_cast<char>(b); };
    if (point < 0x80) return byte(point);
    if (point < 0x800) {
      byte(0xc0 | point >> 6);
    } else {
      if (point < 0x10000) {
        byte(0xe0 | point >> 12);
      } else {
        byte(0xf0 | point >> 18);
        byte(0x80 | (point >> 12 & 0x3f));
      }
      byte(0x80 | (point >> 6 & 0x3f));
    }
    byte(0x80 | (point & 0x3f));
  }

  std::map<std::string, std::string, std::less<>> metadata() {
    std::map<std::string, std::string, std::less<>> found;
    object([&](std::string name) {
      if (!found.emplace(name, string()).second)
        fail("the metadata '{}' is given twice", printable(name));
    });
    return found;
  }

  SafetensorsEntry entry(const std::string& tensor) {
    SafetensorsEntry e;
    bool dtype = false, shape = false, offsets = false;
    auto once = [&](bool& seen, const char* what) {
      if (std::exchange(seen, true)) fail("'{}' has two {}", printable(tensor), what);
    };
    object([&](const std::string& key) {
      if (key == "dtype") {
        once(dtype, "dtypes");
        e.dtype = string();
      } else if (key == "shape") {
        once(shape, "shapes");
        read_shape(e);
      } else if (key == "data_offsets") {
        once(offsets, "pairs of offsets");
        expect('[');
        e.begin = whole_number();
        expect(',');
        e.end = whole_number();
        expect(']');
      } else {
        fail("'{}' has the key '{}'; dtype, shape and data_offsets are known", printable(tensor),
             printable(key));
      }
    });
    if (!dtype || !shape || !offsets)
      fail("'{}' lacks its {}", printable(tensor),
           !dtype   ? "dtype"
           : !shape ? "shape"
                    : "data_offsets");
    check(tensor, e);
    return e;
  }
  void read_shape(SafetensorsEntry& e) {
    list([&] {
      uint64_t n = whole_number();
      if (n > static_cast<uint64_t>(INT64_MAX)) fail("a size does not fit 63 bits");
      if (e.shape.size() == largest_safetensors_rank)
        fail("a tensor has more than {} dimensions", largest_safetensors_rank);
      e.shape.push_back(static_cast<int64_t>(n));
    });
  }
  // Offsets become those of the file.
  void check(const std::string& tensor, SafetensorsEntry& e) const {
    std::string name = printable(tensor);
    uint64_t item = item_size(e.dtype), bytes = 0, there = file_ - data_;
    if (item == 0) fail("'{}' is of the dtype '{}', which is not known", name, printable(e.dtype));
    auto count = checked_numel(e.shape);
    if (!count || __builtin_mul_overflow(static_cast<uint64_t>(*count), item, &bytes))
      fail("'{}' has more elements than can be counted", name);
    if (e.begin > e.end || e.end > there)
      fail("'{}' lies at {} to {} of {} bytes", name, e.begin, e.end, there);
    if (e.end - e.begin != bytes)
      fail("'{}' takes {} bytes by its shape and {} by its offsets", name, bytes, e.end - e.begin);
    e.begin += data_;
    e.end += data_;
  }

  std::string_view text_;
  uint64_t data_, file_;
  size_t at_ = 0;
};

void check_overlaps(const SafetensorsHeader& header) {
  std::vector<const std::pair<std::string, SafetensorsEntry>*> order;
  for (const auto& e : header.entries)
    if (e.second.begin < e.second.end) order.push_back(&e);
  std::ranges::sort(order, {}, [](const auto* e) { return e->second.begin; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->second.begin < order[i - 1]->second.end)
      throw Error("its header is damaged: '{}' and '{}' overlap; write the file again",
                  printable(order[i - 1]->first), printable(order[i]->first));
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file) {
  if (file.size() < 8)
    throw Error("it is no .safetensors file: {} bytes hold no header", file.size());
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= static_cast<uint64_t>(file[i]) << 8 * i;
  if (length > longest_safetensors_header || length > file.size() - 8)
    throw Error(
        "its header claims {} bytes; {} are there and {} are allowed: it is no .safetensors file, "
        "or cut short",
        length, file.size() - 8, longest_safetensors_header);
  std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  SafetensorsHeader header = SafetensorsHeaderParser(text, 8 + length, file.size()).parse();
  check_overlaps(header);
  return header;
}

}  // namespace gradus
