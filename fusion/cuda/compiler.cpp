#include "fusion/cuda/compiler.h"

#include <optional>

namespace gradus::fusion::cuda {

namespace {

// An entry of the store: what ptxas said, PTX and machine code, each behind its length.
std::string entry_of(const Compiled& compiled) {
  std::string entry;
  for (const std::string* part : {&compiled.log, &compiled.ptx, &compiled.cubin})
    entry += fmt::format("{} {}", part->size(), *part);
  return entry;
}

std::optional<Compiled> read_entry(std::string_view entry) {
  Compiled compiled;
  for (std::string* part : {&compiled.log, &compiled.ptx, &compiled.cubin}) {
    const size_t space = entry.find(' ');
    if (space == 0 || space > 18 || space == std::string_view::npos) return std::nullopt;
    size_t n = 0;
    for (char c : entry.substr(0, space)) {
      if (c < '0' || c > '9') return std::nullopt;
      n = n * 10 + static_cast<size_t>(c - '0');
    }
    entry.remove_prefix(space + 1);
    if (n > entry.size()) return std::nullopt;
    *part = entry.substr(0, n);
    entry.remove_prefix(n);
  }
  if (!entry.empty()) return std::nullopt;
  return compiled;
}

}  // namespace

Compiler::Compiler(std::string architecture, std::shared_ptr<const ObjectStore> store)
    : architecture_(std::move(architecture)), store_(std::move(store)) {}

std::string Compiler::key(const Source& source) const {
  const Nvrtc& nvrtc = Nvrtc::get();
  std::string key = fmt::format("cuda {}.{} {}", nvrtc.major(), nvrtc.minor(), architecture_);
  for (const std::string& o : Nvrtc::options()) key += ' ' + o;
  return key + '\n' + source.text;
}

std::shared_ptr<const Code> Compiler::load_or_compile(const Source& source) const {
  if (architecture_.empty()) {
    auto code = std::make_shared<Code>();
    code->shape = source.shape;
    return code;
  }
  std::optional<Compiled> compiled;
  std::string key;
  if (store_) {
    key = this->key(source);
    if (auto entry = store_->find(key)) compiled = read_entry(*entry);
  }
  if (!compiled) {
    compiled = Nvrtc::get().compile(source.text, architecture_);
    if (store_) store_->put(key, entry_of(*compiled));
  }
  auto code = std::make_shared<Code>();
  code->shape = source.shape;
  code->resources = resources_in(compiled->log);
  code->ptx = std::move(compiled->ptx);
  code->cubin = std::move(compiled->cubin);
  code->seconds = compiled->seconds;
  return code;
}

std::shared_ptr<const Code> Compiler::compile(const Nest& nest) {
  return std::static_pointer_cast<const Code>(
      codes_.get(print(nest), [&] { return load_or_compile(write_source(nest)); }));
}

std::shared_ptr<const Code> Compiler::compile(const Source& source) {
  return std::static_pointer_cast<const Code>(
      codes_.get(source.text, [&] { return load_or_compile(source); }));
}

}  // namespace gradus::fusion::cuda
