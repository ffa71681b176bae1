// Archives of torch.export, as files are imported.
#include "gradus/pt2.h"
#include "io/importers.h"
#include "io/pt2/importer.h"

namespace gradus {

namespace {

pt2::ExportedProgram program_of(const pt2::Archive& archive) {
  const std::string text = archive.model_json();
  try {
    return pt2::read_exported_program(text);
  } catch (const Error& e) {
    throw Error("{}: {}", archive.model_member(), e.bare());
  }
}

ImportedProgram import_archive(const pt2::Archive& archive,
                               pt2::OtherGuards other = pt2::OtherGuards::rejected) try {
  const pt2::ExportedProgram program = program_of(archive);
  NodeLines lines(archive.name());
  return pt2::Importer(program, archive, lines).run(other);
} catch (const Error& e) {
  if (e.bare().starts_with(archive.name() + ": ")) throw;
  throw Error("{}: {}", archive.name(), e.bare());
}

// A zip archive that has no other ending: .npz is found by its own.
bool is_archive(std::string_view head) { return head.starts_with("PK\3\4"); }

ImportedProgram read_archive(const std::string& path, const ImportOptions&) {
  return import_archive(pt2::Archive(path));
}

}  // namespace

namespace pt2 {

ImportedProgram import_bytes(std::span<const std::byte> bytes, const std::string& name,
                             OtherGuards other) {
  return import_archive(Archive(name, bytes), other);
}

}  // namespace pt2

constinit const Importer pt2_importer{.ending = ".pt2",
                                      .what = "an archive of torch.export",
                                      .model = true,
                                      .recognises = is_archive,
                                      .read = read_archive};

}  // namespace gradus
