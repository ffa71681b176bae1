// What an object file of a kernel says of itself, read byte by byte.
#pragma once

#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <elf.h>

#include "gradus/error.h"

namespace gradus::fusion::test {

struct ElfObject {
  int machine = 0;                  // EM_AARCH64, EM_X86_64
  std::set<std::string> functions;  // defined
  std::set<std::string> undefined;  // symbols of others
  uint64_t code_bytes = 0;          // of all functions
};

// Throws Error for what is no relocatable 64-bit little-endian ELF file.
inline ElfObject read_elf(std::string_view bytes) {
  auto at = [&]<class T>(uint64_t offset, T) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof(T))
      throw Error("an ELF file ends at {} of {} bytes", offset, bytes.size());
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  const auto head = at(0, Elf64_Ehdr{});
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_type != ET_REL)
    throw Error("no relocatable ELF file of 64 bits");
  ElfObject object;
  object.machine = head.e_machine;
  auto section = [&](uint64_t i) { return at(head.e_shoff + i * head.e_shentsize, Elf64_Shdr{}); };
  for (uint64_t i = 0; i < head.e_shnum; ++i) {
    const Elf64_Shdr symbols = section(i);
    if (symbols.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr names = section(symbols.sh_link);
    for (uint64_t k = 1; k < symbols.sh_size / sizeof(Elf64_Sym); ++k) {
      const auto symbol = at(symbols.sh_offset + k * sizeof(Elf64_Sym), Elf64_Sym{});
      const uint64_t first = names.sh_offset + symbol.st_name;
      const std::string name(bytes.substr(first, bytes.find('\0', first) - first));
      if (symbol.st_shndx == SHN_UNDEF) object.undefined.insert(name);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      object.functions.insert(name);
      object.code_bytes += symbol.st_size;
    }
  }
  return object;
}

}  // namespace gradus::fusion::test
