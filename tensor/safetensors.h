// The .safetensors format: tensors by name behind a header of JSON.
// Specification: github.com/huggingface/safetensors, "Format".
//
//   stored           read as          written as
//   F64 F32 F16 BF16 f64 f32 f16 bf16 the same
//   I64 I32 I8 U8    i64 i32 i8 u8    the same
//   BOOL             bool (any byte but 0 is true)   BOOL
//   I16 U16          i32
//   U32 U64          i64; a U64 element of 2^63 or more is an error
//
// Other dtypes (F8_E5M2, …) are refused when such a tensor is read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/npz.h"

#pragma GCC visibility push(default)

namespace gradus {

struct SafetensorsEntry {
  std::string dtype;  // as stored
  Sizes shape;
  uint64_t begin = 0, end = 0;  // of its bytes, counted from the start of the file
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;  // in the header's order
  std::map<std::string, std::string, std::less<>> metadata;
};

// What the header of a file says, held against the file's size: names are given once, ranges lie
// within the file, each is as long as its shape says, and no two overlap. Memory stays proportional
// to the header, which is at most 100 MB. Throws Error for anything else.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file);

// A mapped file. Tensors view the mapping where elements are stored as they are used and lie
// aligned (in other cases they are copied): reading costs nothing before elements are looked at,
// and writing to one (Tensor::mutable_data) does not reach the file. They keep the mapping alive.
// Not to be used for a file that others shorten in place (see MappedFile). Thread-safe.
//
// Throws Error, "path: tensor 'x': what is wrong".
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  // In the header's order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& metadata() const {
    return header_.metadata;
  }
  // Throw Error for an unknown name.
  const SafetensorsEntry& entry(std::string_view name) const;
  Tensor read(std::string_view name, Context& context = *Context::default_context()) const;

 private:
  std::string path_;
  Ref<Storage> storage_;  // the whole file
  SafetensorsHeader header_;
  std::vector<std::string> names_;
  std::map<std::string, size_t, std::less<>> index_;  // name -> place among the entries
};

NamedTensors read_safetensors(const std::string& path,
                              Context& context = *Context::default_context());

// Writes the tensors, those of the widest elements first so that all are aligned, otherwise in this
// order; equal tensors give equal bytes. Atomic (see AtomicFile). Names are UTF-8, not empty, not
// "__metadata__", and each given once.
void write_safetensors(const std::string& path,
                       std::span<const std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata = {});
void write_safetensors(const std::string& path, const NamedTensors& tensors);

}  // namespace gradus

#pragma GCC visibility pop
