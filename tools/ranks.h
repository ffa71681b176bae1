// The ranks that run a program together.
#pragma once

#include <memory>
#include <string>

#include "gradus/communicator.h"
#include "gradus/inputs.h"

namespace gradus::cli {

// What --ranks says: this process is one of several that run the program, or (null) it is alone.
std::shared_ptr<Communicator> ranks_of(const std::string& how);

// Binds every group of the program to these ranks, or to this one alone.
void bind_ranks(Context& context, const ir::Graph& program,
                const std::shared_ptr<Communicator>& ranks);

// A file of this rank: "%r" in the name is the rank's number.
std::string file_of_rank(std::string path, const std::shared_ptr<Communicator>& ranks);

// A file that this rank writes; empty: the name has no "%r", and another rank writes it.
std::string written_by_rank(const std::string& path, const std::shared_ptr<Communicator>& ranks);

// Sizes that count ranks; and what is filled at random is each rank's own where the program says
// that it varies.
void share_inputs(InputSources& sources, const ir::Graph& program,
                  const std::shared_ptr<Communicator>& ranks);

}  // namespace gradus::cli
