// Any bytes are an archive whose entries can be read, or are refused with an Error.
#include "tensor/npz.h"

#include "tests/fuzz/file.h"

using namespace gradus;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    NpzFile file(file_of(data, size));
    for (const std::string& name : file.names()) {
      try {
        file.header(name);
        Tensor t = file.read(name);
        if (t.numel() > 0) t.item(t.numel() - 1);
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
