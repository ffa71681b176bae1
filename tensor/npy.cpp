#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "base/file.h"
#include "gradus/files.h"
#include "gradus/messages.h"

namespace gradus {

static_assert(std::endian::native == std::endian::little, "the formats here are little-endian");

namespace {

constexpr std::string_view magic = "\x93NUMPY";
// NumPy's own headers take 128 bytes, those of the longest shapes about 1,500.
constexpr uint32_t longest_npy_header = 65536;
constexpr size_t largest_npy_rank = 64;  // NumPy's limit

// The header's text: a Python dictionary of three known keys. Only what NumPy writes is understood,
// so there is nothing to nest and nothing to evaluate.
class NpyHeaderParser {
 public:
  explicit NpyHeaderParser(std::string_view text) : text_(text) {}

  NpyHeader parse() {
    expect('{');
    bool order = false, shape = false;
    std::optional<std::string_view> descr;
    while (!accept('}')) {
      std::string_view key = string();
      expect(':');
      if (key == "descr" && !descr) {
        descr = dtype_string();
      } else if (key == "fortran_order" && !order) {
        order = true;
        header_.fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = true;
        parse_shape();
      } else {
        malformed(fmt::format("the key '{}' is unknown or stands twice", printable(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) malformed("text follows the closing brace");
    if (!descr || !order || !shape) malformed("it lacks descr, fortran_order or shape");
    set_dtype(*descr);
    return std::move(header_);
  }

 private:
  [[noreturn]] static void malformed(std::string_view why) {
    throw Error("the .npy header is malformed: {}; write the file again with np.save", why);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool accept(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) malformed(fmt::format("'{}' is expected at character {}", c, at_));
  }
  std::string_view string() {
    char quote = accept('\'') ? '\'' : accept('"') ? '"' : '\0';
    if (!quote) malformed(fmt::format("a string is expected at character {}", at_));
    size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) malformed("a string does not end");
    std::string_view s = text_.substr(at_, end - at_);
    at_ = end + 1;
    return s;
  }
  std::string_view dtype_string() {
    if (accept('['))
      throw Error(
          "it is a structured array, and tensors have one dtype; save each field as an array of "
          "its own");
    return string();
  }
  bool boolean() {
    if (accept("True")) return true;
    if (accept("False")) return false;
    malformed("fortran_order is neither True nor False");
  }
  int64_t integer() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '-') malformed("a size is negative");
    size_t first = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value))
        malformed("a size does not fit 64 bits");
    if (at_ == first) malformed(fmt::format("a size is expected at character {}", at_));
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote 3L
    return value;
  }
  void parse_shape() {
    expect('(');
    while (!accept(')')) {
      if (header_.shape.size() == largest_npy_rank)
        malformed(fmt::format("it has more than {} dimensions", largest_npy_rank));
      header_.shape.push_back(integer());
      if (!accept(',')) {
        // (3) is a number in Python, but what it means is plain.
        expect(')');
        break;
      }
    }
  }

  // "<f8": byte order, kind, bytes.
  void set_dtype(std::string_view descr) {
    if (descr == "bfloat16") descr = "<V2";
    struct Known {
      std::string_view code;
      DType dtype;
    };
    static constexpr Known known[] = {{"f8", DType::f64},    {"f4", DType::f32}, {"f2", DType::f16},
                                      {"V2", DType::bf16},   {"i8", DType::i64}, {"i4", DType::i32},
                                      {"i2", DType::i16},    {"i1", DType::i8},  {"u8", DType::u64},
                                      {"u4", DType::u32},    {"u2", DType::u16}, {"u1", DType::u8},
                                      {"b1", DType::boolean}};
    std::string_view code = descr.substr(descr.empty() ? 0 : 1);
    if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos)
      for (const Known& k : known)
        if (k.code == code) {
          header_.big_endian = descr[0] == '>';
          header_.dtype = k.dtype;
          header_.kind = code[0];
          header_.item_size = code[1] - '0';
          return;
        }
    throw Error("its dtype '{}' ({}) is not supported; {}", printable(descr), describe_kind(code),
                advice(code));
  }
  static std::string_view describe_kind(std::string_view code) {
    switch (code.empty() ? '\0' : code[0]) {
      case 'O':
        return "Python objects";
      case 'c':
        return "complex numbers";
      case 'S':
      case 'a':
      case 'U':
        return "strings";
      case 'M':
      case 'm':
        return "dates or times";
      case 'f':
        return "floats of another size";
      case 'V':
        return "raw bytes or a foreign type";
      default:
        return "unknown";
    }
  }
  static std::string_view advice(std::string_view code) {
    return code.starts_with('c') ? "save x.real and x.imag as two arrays"
                                 : "save x.astype(np.float32), float64, int64 or bool instead, or "
                                   "leave it out";
  }

  std::string_view text_;
  size_t at_ = 0;
  NpyHeader header_;
};

void read_exactly(ReadBytes read, std::span<std::byte> target) {
  if (target.empty()) return;
  size_t got = read(target);
  if (got != target.size())
    throw Error("it is cut short: {} more bytes are expected; copy or write the file again",
                target.size() - got);
}

template <class U>
void swap_bytes(std::byte* data, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    U x;
    std::memcpy(&x, data + i * sizeof(U), sizeof(U));
    if constexpr (sizeof(U) == 2) x = __builtin_bswap16(x);
    if constexpr (sizeof(U) == 4) x = __builtin_bswap32(x);
    if constexpr (sizeof(U) == 8) x = __builtin_bswap64(x);
    std::memcpy(data + i * sizeof(U), &x, sizeof(U));
  }
}

void swap_bytes(std::byte* data, size_t count, int item_size) {
  if (item_size == 2) swap_bytes<uint16_t>(data, count);
  if (item_size == 4) swap_bytes<uint32_t>(data, count);
  if (item_size == 8) swap_bytes<uint64_t>(data, count);
}

void read_elements(const NpyHeader& h, ReadBytes read, std::byte* target, size_t count) {
  read_exactly(read, {target, count * static_cast<size_t>(h.item_size)});
  if (h.big_endian) swap_bytes(target, count, h.item_size);
  if (h.kind == 'b')
    for (size_t i = 0; i < count; ++i) target[i] = std::byte{target[i] != std::byte{0}};
}

Sizes fortran_strides(std::span<const int64_t> shape) {
  Sizes strides(shape.size());
  int64_t step = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

}  // namespace

NpyHeader read_npy_header(ReadBytes read, uint64_t size) {
  std::array<std::byte, 12> start;
  auto byte = [&](size_t i) { return static_cast<uint32_t>(start[i]); };
  if (size < 10) throw Error("it is no .npy file: {} bytes cannot hold a header", size);
  read_exactly(read, std::span(start).first(10));
  if (std::memcmp(start.data(), magic.data(), magic.size()) != 0)
    throw Error("it is no .npy file: it does not begin with \\x93NUMPY; write it with np.save");
  uint32_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    throw Error("it is written in version {}.{} of the .npy format; 1.0 to 3.0 are read", major,
                minor);
  uint64_t prefix = major == 1 ? 10 : 12;
  uint32_t length = byte(8) | byte(9) << 8;
  if (major > 1) {
    read_exactly(read, std::span(start).subspan(10, 2));
    length |= byte(10) << 16 | byte(11) << 24;
  }
  if (length > longest_npy_header || prefix + length > size)
    throw Error("its header claims {} bytes; at most {} are there and {} are allowed", length,
                size - std::min(size, prefix), longest_npy_header);
  std::string text(length, '\0');
  read_exactly(read, std::as_writable_bytes(std::span(text)));
  NpyHeader header = NpyHeaderParser(text).parse();

  uint64_t bytes = 0;
  auto count = checked_numel(header.shape);
  auto wide = static_cast<int64_t>(std::max<size_t>(size_of(header.dtype), 1));
  int64_t memory = 0;
  if (!count || __builtin_mul_overflow(*count, wide, &memory) ||
      __builtin_mul_overflow(static_cast<uint64_t>(*count), static_cast<uint64_t>(header.item_size),
                             &bytes))
    throw Error("its shape {} has more elements than can be counted", to_string(header.shape));
  uint64_t there = size - prefix - length;
  if (bytes != there)
    throw Error(
        "its shape {} takes {} bytes and {} follow the header: it is cut short or holds more than "
        "one array; write it again",
        to_string(header.shape), bytes, there);
  return header;
}

Tensor read_npy_elements(const NpyHeader& h, ReadBytes read, Context& context) {
  Tensor t = Tensor::empty(h.dtype, h.shape, context);
  std::byte* target = t.mutable_data();
  auto count = static_cast<size_t>(t.numel());
  read_elements(h, read, target, count);
  if (!h.fortran_order || t.rank() < 2 || count == 0) return t;
  Tensor rows = Tensor::empty(h.dtype, h.shape, context);
  copy_elements(Layout(h.dtype, h.shape, fortran_strides(h.shape)), t.data(), rows.layout(),
                rows.mutable_data());
  return rows;
}

Tensor read_npy(std::span<const std::byte> bytes, Context& context) {
  size_t at = 0;
  auto read = [&](std::span<std::byte> target) {
    size_t n = std::min(target.size(), bytes.size() - at);
    if (n > 0) std::memcpy(target.data(), bytes.data() + at, n);
    at += n;
    return n;
  };
  NpyHeader header = read_npy_header(read, bytes.size());
  return read_npy_elements(header, read, context);
}

std::string npy_header(const Tensor& t) {
  if (!t.defined()) throw Error("an undefined tensor cannot be written; leave it out");
  if (t.device().kind != DeviceKind::cpu)
    throw Error("a tensor on {} cannot be written; copy it to the cpu first",
                to_string(t.device()));
  if (t.shape().size() > largest_npy_rank)
    throw Error("a tensor of {} dimensions cannot be written: NumPy reads {} at most", t.rank(),
                largest_npy_rank);
  static constexpr std::string_view codes[dtype_count] = {
      "<f8", "<f4", "<f2", "<V2", "<i8", "<i4", "|i1", "|u1", "|b1", "<i2", "<u2", "<u4", "<u8"};
  std::string shape;
  for (int64_t d : t.shape()) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", d);
  if (t.rank() == 1) shape += ",";
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 codes[static_cast<int>(t.dtype())], shape);
  // Elements begin at a multiple of 64, so that a mapped file is aligned.
  constexpr size_t prefix = 10;
  size_t total = (prefix + text.size() + 1 + 63) / 64 * 64;
  text.resize(total - prefix - 1, ' ');
  text += '\n';
  std::string header(magic);
  header +=
      {'\1', '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

std::vector<std::byte> write_npy(const Tensor& tensor) {
  std::string header = npy_header(tensor);
  Tensor t = tensor.contiguous();
  size_t bytes = static_cast<size_t>(t.numel()) * size_of(t.dtype());
  std::vector<std::byte> out(header.size() + bytes);
  std::memcpy(out.data(), header.data(), header.size());
  if (bytes > 0) std::memcpy(out.data() + header.size(), t.data(), bytes);
  return out;
}

namespace {

using File = std::unique_ptr<std::FILE, decltype([](std::FILE* f) { std::fclose(f); })>;

}  // namespace

Tensor load_npy(const std::string& path, Context& context) {
  uint64_t size = regular_file_size(path);
  File file(std::fopen(path.c_str(), "rbe"));
  if (!file) throw_file_error(path, "cannot be read", errno);
  auto read = [&](std::span<std::byte> target) {
    size_t n = std::fread(target.data(), 1, target.size(), file.get());
    if (std::ferror(file.get()))
      throw ResourceError("{}: cannot be read: {}", path, std::strerror(errno));
    return n;
  };
  try {
    NpyHeader header = read_npy_header(read, size);
    return read_npy_elements(header, read, context);
  } catch (const Error& e) {
    throw Error("{}: {}", path, e.bare());
  }
}

void save_npy(const std::string& path, const Tensor& tensor) {
  std::string header;
  try {
    header = npy_header(tensor);
  } catch (const Error& e) {
    throw Error("{}: {}", path, e.bare());
  }
  Tensor t = tensor.contiguous();
  size_t bytes = static_cast<size_t>(t.numel()) * size_of(t.dtype());
  AtomicFile target(path);
  File file(std::fopen(target.temporary().c_str(), "wbe"));
  if (!file) throw_file_error(path, "cannot be written", errno);
  bool fine = std::fwrite(header.data(), 1, header.size(), file.get()) == header.size() &&
              std::fwrite(t.data(), 1, bytes, file.get()) == bytes;
  // Closing writes what is buffered, so it can fail for a full disk too.
  fine = std::fclose(file.release()) == 0 && fine;
  if (!fine) throw_file_error(path, "cannot be written", errno);
  target.commit();
}

}  // namespace gradus
