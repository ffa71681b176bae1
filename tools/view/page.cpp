// The drawing as a page that searches, folds and selects.
#include <fmt/format.h>

#include "tools/view/page_files.h"
#include "tools/view/picture.h"

namespace gradus::view {

// Nothing is fetched from anywhere: the page forbids it to itself.
std::string to_page(const Picture& p) {
  std::string notes;
  for (const std::string& note : p.notes) notes += (notes.empty() ? "" : "; ") + escaped(note, 400);
  std::string s = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>{0}</title>\n<style>{1}</style>"
      "</head>\n<body>\n<header><h1>{0}</h1>\n"
      "<input id=\"search\" type=\"search\" placeholder=\"Search ( / )\" autocomplete=\"off\">"
      "<span id=\"found\"></span>\n<button id=\"fold\">Fold kernels</button>"
      "<button id=\"fit\">Fit</button><button id=\"begin\">Begin</button>"
      "<button id=\"larger\">+</button><button id=\"smaller\">&#8722;</button>\n"
      "<span class=\"notes\">{2}</span></header>\n<div id=\"paper\">\n",
      escaped(p.title), page_style, notes);
  s += to_svg(p);
  s += "</div>\n<aside><h2>Nothing selected</h2>\n"
       "<p>Click a box to see what it is, where its operands come from (blue) and who reads it "
       "(orange). Click a kernel to see what it computes, the title of a kernel or of a column to "
       "fold it. A loop's body is a column of its own: click the loop twice to unfold it.</p>\n"
       "<p>Drag to move, turn the wheel to zoom.</p>\n"
       "<p><kbd>/</kbd> search, <kbd>Enter</kbd> or <kbd>n</kbd> next, <kbd>N</kbd> previous,<br>"
       "<kbd>&#8593;</kbd> to a definition, <kbd>&#8595;</kbd> to a use,<br>"
       "<kbd>g</kbd> fold kernels, <kbd>f</kbd> fit, <kbd>b</kbd> begin, <kbd>+</kbd> "
       "<kbd>&#8722;</kbd> zoom, <kbd>Esc</kbd> nothing selected</p></aside>\n";
  s += fmt::format("<script id=\"model\" type=\"application/json\">{}</script>\n", model_json(p));
  s += fmt::format("<script>{}</script>\n</body></html>\n", page_script);
  return s;
}

}  // namespace gradus::view
