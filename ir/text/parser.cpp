#include "ir/text/parser.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <unordered_map>

#include "base/file.h"
#include "ir/text/cases.h"
#include "ir/text/graph_parser.h"
#include "ir/text/printer.h"
#include "ir/text/verifier.h"

namespace gradus::ir {

namespace {

// A graph of the file: where it stands, and what has become of it.
struct Entry {
  std::string name;
  SourceLocation where;
  Cursor body;  // at its '{'
  enum class Progress { untouched, open, done } progress = Progress::untouched;
  std::shared_ptr<const Graph> graph;
};

// Graphs are read when they are first called, so that a call finds its graph complete.
class FileParser final : public GraphFinder {
 public:
  FileParser(std::string text, std::string file)
      : source_(std::make_shared<Source>(Source{std::move(file), std::move(text)})) {}

  Fixture run() {
    check_text(*source_);
    Fixture fixture;
    Cursor c(*source_);
    fixture.module.version = version(c);
    find_graphs(c);
    if (entries_.empty()) c.fail_expected("graph");
    if (!c.at(TokenKind::end) && !c.at("case"))
      c.fail_expected("graph, case or the end of the text");
    called_.assign(entries_.size(), false);
    for (size_t i = 0; i < entries_.size(); ++i) read(i);
    for (Entry& e : entries_) fixture.module.graphs.push_back(e.graph);
    auto main = std::find(called_.begin(), called_.end(), false);
    fixture.module.main = static_cast<size_t>(main - called_.begin());
    fixture.cases = parse_cases(c, fixture.module);
    return fixture;
  }

  std::shared_ptr<const Graph> find(const std::string& name, SourceLocation where) override {
    auto it = index_.find(name);
    if (it == index_.end()) {
      std::vector<std::string_view> names;
      for (const Entry& e : entries_) names.push_back(e.name);
      fail_at(*source_, where,
              fmt::format("there is no graph '{}' in this file{}", name, did_you_mean(name, names)));
    }
    Entry& entry = entries_[it->second];
    called_[it->second] = true;
    if (entry.progress == Entry::Progress::open) {
      std::string cycle;
      for (size_t i : open_) cycle += "'" + entries_[i].name + "' -> ";
      fail_at(*source_, where,
              fmt::format("graphs must not call themselves: {}'{}' [V14]", cycle, name));
    }
    if (open_.size() >= deepest_call)
      fail_at(*source_, where, fmt::format("calls are nested more than {} deep [V14]", deepest_call));
    read(it->second);
    if (entry.graph->stages.size() != 1)
      fail_at(*source_, where,
              fmt::format("only a graph of one stage can be called; '{}' has {} [V14]", name,
                          entry.graph->stages.size()));
    return entry.graph;
  }

 private:
  int version(Cursor& c) {
    if (!c.at("gradus")) return text_version;
    c.take();
    SourceLocation where = c.where();
    uint64_t v = c.count(1'000'000, "a version");
    if (v > text_version)
      c.fail(where, "this text is of version {}, and this build reads versions up to {}; use a newer "
                    "release of Gradus",
             v, text_version);
    if (v == 0) c.fail(where, "there is no version 0; the first is 1");
    return static_cast<int>(v);
  }

  // Names and places of all graphs, before any is read.
  void find_graphs(Cursor& c) {
    while (c.at("graph")) {
      c.take();
      SourceLocation where = c.where();
      std::string name = c.name("a graph's name");
      if (!c.at(TokenKind::left_brace)) c.fail_expected("'{' after the graph's name");
      if (!index_.emplace(name, entries_.size()).second)
        c.fail(where, "there are two graphs named '{}'; rename one", name);
      entries_.push_back({name, where, c, Entry::Progress::untouched, nullptr});
      if (!c.skip_block()) {
        // Reading it tells what is missing where.
        called_.assign(entries_.size(), false);
        read(entries_.size() - 1);
        c.fail(where, "the graph '{}' has no end", name);
      }
    }
  }

  void read(size_t i) {
    if (entries_[i].progress == Entry::Progress::done) return;
    entries_[i].progress = Entry::Progress::open;
    open_.push_back(i);
    Cursor body = entries_[i].body;
    auto graph = std::make_shared<const Graph>(
        parse_graph(body, entries_[i].name, source_, *this));
    open_.pop_back();
    entries_[i].graph = std::move(graph);
    entries_[i].progress = Entry::Progress::done;
  }

  std::shared_ptr<const Source> source_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<size_t> open_;   // the calls that are being followed
  std::vector<bool> called_;
};

}  // namespace

Fixture parse_fixture(std::string text, std::string file) {
  return FileParser(std::move(text), std::move(file)).run();
}

Module parse(std::string text, std::string file) {
  return parse_fixture(std::move(text), std::move(file)).module;
}

Fixture parse_file(const std::string& path) {
  regular_file_size(path);  // an Error for a folder or a missing file
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("{}: cannot be read", path);
  std::string text(std::istreambuf_iterator<char>(in), {});
  return parse_fixture(std::move(text), path);
}

}  // namespace gradus::ir
