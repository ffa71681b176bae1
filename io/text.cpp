// Program texts, as files are imported.
#include "gradus/text.h"

#include <algorithm>

#include "io/importers.h"

namespace gradus {

namespace {

// Behind a byte order mark, blanks and comments stands the version or the first graph.
bool is_program_text(std::string_view head) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  while (true) {
    head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
    if (!head.starts_with('#')) break;
    head.remove_prefix(std::min(head.find('\n'), head.size()));
  }
  return head.starts_with("graph") || head.starts_with("gradus");
}

ImportedProgram read_text(const std::string& path, const ImportOptions&) {
  ir::Fixture fixture = ir::parse_file(path);
  return {std::move(fixture.module), {}, std::move(fixture.cases)};
}

}  // namespace

constinit const Importer text_importer{.ending = ".ir",
                                       .what = "a program text",
                                       .model = false,
                                       .recognises = is_program_text,
                                       .read = read_text};

}  // namespace gradus
