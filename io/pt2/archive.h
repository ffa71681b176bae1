// An archive of torch.export.save: a zip of JSON documents and raw storages.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "io/pt2/schema.h"
#include "tensor/zip_reader.h"

namespace gradus::pt2 {

class Archive {
 public:
  // Documents are read from the file at their offsets, and tensors view a mapping of it. Bytes in
  // memory are borrowed by the archive and copied by tensors. Throws Error for what is no such
  // archive, has several models, or is of another version.
  explicit Archive(const std::string& path);
  Archive(std::string name, std::span<const std::byte> bytes);

  const std::string& name() const { return zip_.file().path(); }
  std::string model_member() const { return "models/" + model_ + ".json"; }
  std::string model_json() const;
  // A parameter, buffer or constant by its name; null if the archive has none.
  const StoredTensor* find(const std::string& name) const;
  // The parameters and persistent buffers.
  std::vector<const StoredTensor*> state() const;
  // The files that torch.export.save was given beside the model, by their names there; but for
  // those of more than a megabyte.
  std::map<std::string, std::string, std::less<>> extra_files() const;
  // Its values. Throws Error for what is pickled, does not lie in its storage, or is damaged.
  Tensor read(const StoredTensor& tensor) const;

 private:
  void open();
  std::string text(const std::string& member) const;
  const ZipMember* member(const std::string& name) const;
  Ref<Storage> storage(const std::string& member) const;

  ZipReader zip_;
  std::shared_ptr<const MappedFile> mapping_;  // null: bytes in memory
  std::span<const std::byte> bytes_;
  std::string folder_, model_;  // "mlp/", "model"
  std::map<std::string, const ZipMember*, std::less<>> members_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  mutable std::map<std::string, Ref<Storage>, std::less<>> storages_;
};

}  // namespace gradus::pt2
