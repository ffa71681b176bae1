// The style and the script of the page, as they are in page.css and page.js.
#pragma once

namespace gradus::view {

extern const char page_style[];
extern const char page_script[];

}  // namespace gradus::view
