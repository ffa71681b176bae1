// Any bytes are an archive whose entries can be read, or are refused with an Error.
#include <array>

#include "gradus/files.h"
#include "tensor/zip_reader.h"
#include "tests/fuzz/file.h"

using namespace gradus;

namespace {

template <class F>
void refused_or(F&& f) {
  try {
    f();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& path = file_of(data, size);
  refused_or([&] {
    NpzFile file(path);
    for (const std::string& name : file.names())
      refused_or([&] {
        file.header(name);
        Tensor t = file.read(name);
        if (t.numel() > 0) t.item(t.numel() - 1);
      });
  });
  refused_or([&] {
    const ZipReader zip(path);
    for (const ZipMember& m : zip.members()) {
      refused_or([&] { zip.contents(m); });
      refused_or([&] {
        std::array<std::byte, 7> range;
        zip.read(m, m.size / 2, range);
        if (!zip.file().holds(zip.place(m), m.size)) std::abort();
      });
    }
  });
  return 0;
}
