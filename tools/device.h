// Which device a command is about.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradus/graph.h"
#include "gradus/state.h"

namespace gradus::cli {

// The number of cuda:0; nothing for cpu and where none is named. UsageError for other words, with
// the command's name.
std::optional<int> device_number(std::string_view command, const std::string& device);

// Where --device or else the program's types say that it runs.
std::optional<int> device_number(std::string_view command, const std::string& device,
                                 const ir::Graph& program);

// cuda:`number`.
Device cuda_device(int number);

// Opens the compiler of kernels for the CPU. Error, with what to do otherwise, where there is none.
void open_compiler(std::string_view otherwise);

// What a device leaves to the host, an instruction in a line.
std::string host_report(const State& state);

}  // namespace gradus::cli
