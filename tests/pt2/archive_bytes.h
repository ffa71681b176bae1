// Archives of torch.export made of members, in memory.
#pragma once

#include <map>
#include <span>
#include <string>

#include <zlib.h>

#include "tensor/zip_writer.h"

namespace gradus::test {

// A zip archive of stored members.
inline std::string zip_of(const std::map<std::string, std::string>& members) {
  std::string bytes, directory;
  for (const auto& [name, content] : members) {
    ZipMember m;
    m.name = name;
    m.size = m.packed = content.size();
    m.header = bytes.size();
    m.checksum = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(content.data()),
                                             static_cast<uInt>(content.size())));
    bytes += zip_local_header(m) + content;
    directory += zip_directory_entry(m);
  }
  const uint64_t at = bytes.size();
  return bytes + directory + zip_directory_end(members.size(), at, directory.size());
}

// An archive with this model.json, and a parameter "w" of f64[2, 2], which the graph calls p_w.
inline std::string archive_of(const std::string& model,
                              const std::string& weights_config = R"({"config": {"w": {
                                "path_name": "weight_0", "is_param": true, "use_pickle": false,
                                "tensor_meta": {"dtype": 8, "sizes": [{"as_int": 2}, {"as_int": 2}],
                                                "requires_grad": true,
                                                "strides": [{"as_int": 2}, {"as_int": 1}],
                                                "storage_offset": {"as_int": 0}}}}})") {
  return zip_of({{"m/byteorder", "little"},
                 {"m/models/model.json", model},
                 {"m/data/weights/model_weights_config.json", weights_config},
                 {"m/data/weights/weight_0", std::string(32, '\0')},
                 {"m/data/constants/model_constants_config.json", R"({"config": {}})"}});
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace gradus::test
