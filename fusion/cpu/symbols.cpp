#include "fusion/cpu/symbols.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gradus::fusion::cpu {

namespace {

// FNV-1a (Fowler, Noll, Vo), 32 bits.
uint32_t hash_of(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (unsigned char c : text) hash = (hash ^ c) * 16777619u;
  return hash;
}

}  // namespace

std::string kernel_name(const Nest& nest) {
  constexpr size_t most_named = 4;
  std::string name = "gradus";
  size_t operators = 0;
  for (const Step& s : nest.steps)
    if (s.call.op && ++operators <= most_named) name += fmt::format("_{}", s.call.op->name);
  if (operators > most_named) name += fmt::format("_and_{}_more", operators - most_named);
  if (nest.reduces()) name += "_by_rows";
  return fmt::format("{}_{:08x}", name, hash_of(print(nest)));
}

std::string kernel_name(const StageProgram& stage) {
  return fmt::format("gradus_stage_of_{}_{:08x}", stage.items.size(), hash_of(print(stage)));
}

void add_to_perf_map(uint64_t address, uint64_t bytes, const std::string& name) {
  const std::string path = fmt::format("/tmp/perf-{}.map", getpid());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  // Anybody may have made it before, in a folder that is everybody's.
  struct stat status;
  const bool own = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                   status.st_uid == geteuid() && status.st_nlink == 1;
  const std::string line = fmt::format("{:x} {:x} {}\n", address, bytes, name);
  // One write, so that lines of several threads do not mix; a lost line is a name less.
  if (own && write(file, line.data(), line.size()) < 0) static_cast<void>(errno);
  close(file);
}

}  // namespace gradus::fusion::cpu
