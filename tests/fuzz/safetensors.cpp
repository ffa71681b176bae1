// Any bytes are a file whose tensors can be read to the last element, or are refused with an Error.
#include "gradus/files.h"
#include "tests/fuzz/file.h"

using namespace gradus;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    SafetensorsFile file(file_of(data, size));
    for (const std::string& name : file.names()) {
      try {
        Tensor t = file.read(name);
        t.to_doubles();
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
