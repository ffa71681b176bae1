// The table that `gradus run --profile` prints.
#pragma once

#include <string>
#include <vector>

#include "gradus/code.h"
#include "tools/json.h"

namespace gradus::cli {

// What one instruction of a graph that loops or branches ran took in all steps.
struct StepTime {
  const Code* body = nullptr;
  size_t instruction = 0;
  double time = 0;  // in microseconds
  size_t calls = 0;
};

// Where the time of these events went: by operator, and by line of the program (of a model, whose
// nodes are the lines). A kernel is one row that names what it computes, and its lines: nobody
// knows how its time falls on them. Steps of loops have a table of their own: their time is a part
// of their loop's.
std::string profile_report(const std::vector<TraceEvent>& events, const Code& code,
                           const std::vector<StepTime>& steps);

}  // namespace gradus::cli
