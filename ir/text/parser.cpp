#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "base/file.h"
#include "gradus/messages.h"
#include "gradus/text.h"
#include "ir/text/cases.h"
#include "ir/text/cursor.h"
#include "ir/text/graph_parser.h"

namespace gradus::ir {

namespace {

class FileParser final : public GraphFile {
 public:
  FileParser(std::string text, std::string file_name)
      : source_(std::make_shared<Source>(Source{std::move(file_name), std::move(text)})) {}

  Fixture run() {
    check_text(*source_);
    Cursor cursor(*source_);
    Fixture fixture;
    fixture.module.version = version(cursor);
    if (!cursor.at("graph")) cursor.fail_expected("'graph'; a program has at least one");
    index(cursor);
    for (Entry& entry : entries_) {
      // What the index took for the graph's end is where the parser comes to, or it has thrown.
      parse_entry(entry);
      fixture.module.graphs.push_back(entry.graph);
      cursor = *entry.end;
    }
    if (!cursor.at(TokenKind::end) && !cursor.at("case"))
      cursor.fail_expected("'graph', 'case' or the end of the text");
    choose_main(fixture.module);
    fixture.cases = parse_cases(cursor, fixture.module);
    return fixture;
  }

  std::shared_ptr<const Graph> resolve(const std::string& name, const Cursor& caller,
                                       SourceLocation where) override {
    auto it = by_name_.find(name);
    if (it == by_name_.end()) {
      std::vector<std::string_view> names;
      for (const Entry& e : entries_) names.push_back(e.name);
      caller.fail(where, "there is no graph '{}' in this file{} [V14]", printable(name),
                  did_you_mean(name, names));
    }
    Entry& entry = entries_[it->second];
    entry.called = true;
    if (entry.open)
      caller.fail(where, "graph '{}' calls itself{} [V14]", printable(name), chain(entry));
    if (!entry.graph && open_.size() > deepest_call)  // before the parser nests as deep
      caller.fail(where, "calls are nested more than {} deep [V14]", deepest_call);
    parse_entry(entry);
    count_depth(entry, caller, where);
    return entry.graph;
  }

  ParsedGraph inline_graph(const std::string& attribute, const Cursor& cursor) override {
    const SourceLocation where = cursor.where();
    if (open_.size() > deepest_call)
      cursor.fail(where, "calls are nested more than {} deep [V14]", deepest_call);
    Entry entry{attribute, cursor, true, true, 0, nullptr, {}};
    open_.push_back(&entry);
    ParsedGraph parsed = parse_inline_graph(source_, cursor, *this, attribute);
    open_.pop_back();
    count_depth(entry, cursor, where);
    return parsed;
  }

  bool mentions(const std::string& name) override {
    if (!mentioned_) {
      mentioned_.emplace();
      std::string_view text = source_->text;
      for (size_t at = 0; at < text.size();) {
        size_t end = at;
        while (end < text.size() && is_name_character(text[end])) ++end;
        std::string_view word = text.substr(at, end - at);
        if (word.size() > 1 && word.size() < 20 && word[0] == 's' &&
            word.find_first_not_of("0123456789", 1) == word.npos)
          mentioned_->emplace(word);
        at = end + 1;
      }
    }
    return mentioned_->contains(name);
  }

 private:
  struct Entry {
    std::string name;
    Cursor start;
    bool open = false;    // being parsed
    bool called = false;  // by another graph
    size_t depth = 0;     // of the calls in it
    std::shared_ptr<const Graph> graph;
    std::optional<Cursor> end;
  };

  // Of the graph that is open, which runs this one.
  void count_depth(const Entry& entry, const Cursor& caller, SourceLocation where) {
    size_t& depth = open_.back()->depth;
    depth = std::max(depth, entry.depth + 1);
    if (depth > deepest_call)
      caller.fail(where, "calls are nested more than {} deep [V14]", deepest_call);
  }

  int version(Cursor& cursor) const {
    if (!cursor.accept("gradus")) return text_version;
    SourceLocation start = cursor.where();
    uint64_t version = cursor.count(INT32_MAX, "the language's version");
    if (version == 0) cursor.fail(start, "versions are counted from 1");
    if (version > text_version)
      cursor.fail(start,
                  "this text is of version {} of the language; this release of Gradus reads "
                  "versions up to {}: a newer release is needed",
                  version, text_version);
    return static_cast<int>(version);
  }

  // Where the graphs are: a call may name one that stands further on. Blocks are only skipped.
  void index(Cursor cursor) {
    while (cursor.at("graph")) {
      Entry entry{{}, cursor, false, false, 0, nullptr, {}};
      cursor.take();
      SourceLocation where = cursor.where();
      bool named = cursor.at(TokenKind::name) || cursor.at(TokenKind::string);
      if (named) entry.name = cursor.take().content();
      bool whole = named && cursor.at(TokenKind::left_brace);
      if (named)
        if (auto [known, fresh] = by_name_.emplace(entry.name, entries_.size()); !fresh)
          cursor.fail(where, "a graph '{}' is defined already, in line {}; give one another name",
                      printable(entry.name), entries_[known->second].start.where().line);
      entries_.push_back(std::move(entry));
      // Broken text: the parser will say what is wrong with this graph, or with one before it.
      if (!whole || !cursor.skip_block()) return;
    }
  }

  void parse_entry(Entry& entry) {
    if (entry.graph) return;
    entry.open = true;
    open_.push_back(&entry);
    ParsedGraph parsed = parse_graph(source_, entry.start, *this);
    entry.graph = std::move(parsed.graph);
    entry.end = parsed.behind;
    open_.pop_back();
    entry.open = false;
  }

  // ": f calls g, g calls f"
  std::string chain(const Entry& first) const {
    auto it = std::find(open_.begin(), open_.end(), &first);
    std::string s;
    for (size_t shown = 0; it != open_.end(); ++it, ++shown) {
      if (shown == 10) return s + ", …";
      const Entry& next = it + 1 == open_.end() ? first : **(it + 1);
      s += fmt::format("{}'{}' calls '{}'", s.empty() ? ": " : ", ", printable((*it)->name),
                       printable(next.name));
    }
    return s;
  }

  void choose_main(Module& module) const {
    for (size_t i = entries_.size(); i-- > 0;)
      if (!entries_[i].called) module.main = i;
  }

  std::shared_ptr<const Source> source_;
  std::deque<Entry> entries_;  // in the order of the text
  std::unordered_map<std::string, size_t> by_name_;
  std::optional<std::unordered_set<std::string>> mentioned_;
  std::vector<Entry*> open_;  // graphs that are being parsed, each called by the one before
};

}  // namespace

Module parse(std::string text, std::string file) {
  return parse_fixture(std::move(text), std::move(file)).module;
}

Fixture parse_fixture(std::string text, std::string file) {
  return FileParser(std::move(text), std::move(file)).run();
}

Fixture parse_file(const std::string& path) {
  if (regular_file_size(path) >= UINT32_MAX)
    throw Error("{}: the text is too long: 4 GiB are the limit", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_file_error(path, "cannot be read", errno);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) throw_file_error(path, "cannot be read", errno);
  return parse_fixture(std::move(text), path);
}

}  // namespace gradus::ir
