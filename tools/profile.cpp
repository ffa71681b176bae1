#include "tools/profile.h"

#include <algorithm>
#include <map>
#include <set>

#include "gradus/messages.h"
#include "gradus/text.h"

namespace gradus::cli {

namespace {

constexpr size_t most_rows = 20;

struct Row {
  std::string what, text;
  double time = 0;
  size_t calls = 0;
};

class Table {
 public:
  void add(std::string what, std::string text, double time, size_t calls = 1) {
    auto [it, fresh] = index_.emplace(what + '\n' + text, rows_.size());
    if (fresh) rows_.push_back({std::move(what), std::move(text)});
    rows_[it->second].time += time;
    rows_[it->second].calls += calls;
  }
  // The slowest first; of many rows the others are summed up.
  std::string print(std::string_view title, double all) {
    std::ranges::stable_sort(rows_, std::greater<>(), &Row::time);
    std::string out = fmt::format("{}\n        time/us  share  calls\n", title);
    size_t widest = 0;
    for (size_t i = 0; i < std::min(rows_.size(), most_rows); ++i)
      widest = std::max(widest, rows_[i].what.size());
    Row others;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (i >= most_rows) {
        others.time += rows_[i].time;
        others.calls += rows_[i].calls;
        continue;
      }
      out += line(rows_[i], widest, all);
    }
    if (others.calls) {
      others.what = fmt::format("({} others)", rows_.size() - most_rows);
      out += line(others, 0, all);
    }
    return out;
  }

 private:
  static std::string line(const Row& row, size_t widest, double all) {
    std::string s = fmt::format("  {:13.3f} {:5.1f}% {:6}  {:{}}", row.time,
                                all > 0 ? 100 * row.time / all : 0.0, row.calls, row.what,
                                row.text.empty() ? 0 : widest);
    return row.text.empty() ? s + "\n" : s + "  " + row.text + "\n";
  }
  std::map<std::string, size_t> index_;
  std::vector<Row> rows_;
};

// "kernel of mul x2, tanh"
std::string kernel_name(const StageCode& stage, const TraceEvent& e) {
  std::map<std::string_view, size_t> counts;
  for (size_t n : e.group) ++counts[stage.instructions[n].op->name];
  std::string s;
  for (auto [name, count] : counts) {
    s += fmt::format("{}{}", s.empty() ? "kernel of " : ", ", name);
    if (count > 1) s += fmt::format(" x{}", count);
  }
  return s;
}

std::string kernel_lines(const StageCode& stage, const TraceEvent& e) {
  std::set<uint32_t> lines;
  for (size_t n : e.group)
    if (stage.instructions[n].where.known()) lines.insert(stage.instructions[n].where.line);
  return lines.empty() ? fmt::format("stage {}", e.stage)
                       : fmt::format("{}", fmt::join(lines, ", "));
}

std::string steps_report(const std::vector<StepTime>& steps, double all) {
  Table table;
  for (const StepTime& s : steps) {
    const ir::Graph& graph = s.body->graph();
    const Instruction& i = s.body->stage(0).instructions[s.instruction];
    const bool known = graph.source && i.where.known();
    std::string what = known ? fmt::format("{} {}", graph.name, i.where.line) : graph.name;
    std::string text = known
                           ? std::string(trimmed(graph.source->line(i.where)))
                           : ir::print(graph.stages[0].nodes[i.node], graph, ir::NameTable(graph));
    table.add(printable(std::move(what)), printable(text, 80), s.time, s.calls);
  }
  return table.print("profile of the steps of loops, by graph and line", all);
}

}  // namespace

std::string profile_report(const std::vector<TraceEvent>& events, const Code& code,
                           const std::vector<StepTime>& steps) {
  const ir::Graph& graph = code.graph();
  const ir::NameTable names(graph);
  // Members of a kernel are told of, too: only its last one did anything.
  std::set<std::pair<size_t, size_t>> idle;
  for (const TraceEvent& e : events)
    for (size_t n : e.group)
      if (n != e.instruction) idle.emplace(e.stage, n);
  Table operators, lines;
  double all = 0;
  for (const TraceEvent& e : events) {
    if (!e.body.empty() || idle.contains({e.stage, e.instruction})) continue;
    const StageCode& stage = code.stage(e.stage);
    all += e.duration;
    if (!e.group.empty()) {
      std::string name = kernel_name(stage, e);
      operators.add(name, "", e.duration);
      lines.add(kernel_lines(stage, e), std::move(name), e.duration);
      continue;
    }
    // What a device has no code for goes by way of the host: nobody shall have to guess it.
    operators.add(e.host ? e.op + " (host)" : e.op, "", e.duration);
    if (e.where.known()) {
      lines.add(std::to_string(e.where.line), printable(trimmed(graph.source->line(e.where)), 80),
                e.duration);
    } else {
      const ir::Node& node = graph.stages[e.stage].nodes[stage.instructions[e.instruction].node];
      lines.add(fmt::format("stage {}", e.stage), printable(ir::print(node, graph, names), 80),
                e.duration);
    }
  }
  return operators.print("profile by operator", all) +
         lines.print("profile by line of " + printable(graph.source->file), all) +
         (steps.empty() ? "" : steps_report(steps, all));
}

}  // namespace gradus::cli
