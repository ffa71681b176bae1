#include "tools/ranks.h"

#include <set>

#include "gradus/inspect.h"
#include "tools/cli.h"

namespace gradus::cli {

std::shared_ptr<Communicator> ranks_of(const std::string& how) {
  return how == "mpi" ? mpi_ranks() : nullptr;
}

void bind_ranks(Context& context, const ir::Graph& program,
                const std::shared_ptr<Communicator>& ranks) {
  for (const std::string& group : groups_of(program))
    rank_groups(context).bind(group, ranks ? ranks : single_rank());
}

std::string file_of_rank(std::string path, const std::shared_ptr<Communicator>& ranks) {
  const std::string number = std::to_string(ranks ? ranks->rank() : 0);
  for (size_t at; (at = path.find("%r")) != std::string::npos;) path.replace(at, 2, number);
  return path;
}

std::string written_by_rank(const std::string& path, const std::shared_ptr<Communicator>& ranks) {
  if (ranks && ranks->rank() > 0 && path.find("%r") == path.npos) return {};
  return file_of_rank(path, ranks);
}

void share_inputs(InputSources& sources, const ir::Graph& program,
                  const std::shared_ptr<Communicator>& ranks) {
  for (const ir::SizeRange& r : program.ranges)
    if (!r.group.empty()) sources.sizes[r.name] = ranks ? ranks->size() : 1;
  if (!ranks || !sources.fill) return;
  std::set<std::string, std::less<>> own;
  for (const ir::Stage& stage : program.stages)
    for (const ir::ValueId v : stage.inputs)
      if (program[v].type.placement) own.insert(program[v].name);
  sources.fill = [own, fill = sources.fill, rank = ranks->rank()](
                     std::string_view name, DType dtype, std::span<const int64_t> shape) {
    return own.contains(name) ? fill(fmt::format("{} of rank {}", name, rank), dtype, shape)
                              : fill(name, dtype, shape);
  };
}

}  // namespace gradus::cli
