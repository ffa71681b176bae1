// Sources from texts with gaps.
#pragma once

#include <string>
#include <string_view>

#include "fusion/cuda/prelude.h"
#include "fusion/cuda/source.h"

namespace gradus::fusion::cuda {

// A translation unit: the text with $NAME$ filled in, behind what it calls.
class StockText {
 public:
  explicit StockText(std::string_view text) : text_(text) {}
  StockText& with(std::string_view name, std::string_view value) {
    const std::string mark = '$' + std::string(name) + '$';
    for (size_t at = 0; (at = text_.find(mark, at)) != std::string::npos; at += value.size())
      text_.replace(at, mark.size(), value);
    return *this;
  }
  StockText& with(std::string_view name, int value) { return with(name, std::to_string(value)); }
  Source source() const { return {prelude_for(text_) + text_, {}}; }

 private:
  std::string text_;
};

}  // namespace gradus::fusion::cuda
