#include "io/onnx/later_fields.h"

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include "gradus/error.h"

namespace gradus::onnx {

namespace pb = ::onnx;
namespace wire = ::google::protobuf;

namespace {

// The bytes of all fields of that number. A newer libonnx, which knows the field by its name, gives
// them as well.
std::vector<std::string> later_bytes(const wire::Message& message, int number) {
  std::vector<std::string> out;
  const wire::UnknownFieldSet& unread = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unread.field_count(); ++i) {
    const wire::UnknownField& f = unread.field(i);
    if (f.number() == number && f.type() == wire::UnknownField::TYPE_LENGTH_DELIMITED)
      out.push_back(f.length_delimited());
  }
  const wire::FieldDescriptor* known = message.GetDescriptor()->FindFieldByNumber(number);
  if (!known) return out;
  const wire::Reflection& read = *message.GetReflection();
  if (known->cpp_type() == wire::FieldDescriptor::CPPTYPE_STRING && !known->is_repeated()) {
    out.push_back(read.GetString(message, known));
  } else if (known->cpp_type() == wire::FieldDescriptor::CPPTYPE_MESSAGE && known->is_repeated()) {
    for (int i = 0; i < read.FieldSize(message, known); ++i)
      out.push_back(read.GetRepeatedMessage(message, known, i).SerializeAsString());
  }
  return out;
}

std::string later_text(const wire::Message& message, int number) {
  std::vector<std::string> all = later_bytes(message, number);
  return all.empty() ? std::string() : std::move(all.back());
}

// The texts of a list in Python's notation: "['', 'encoder', 'linear']".
std::vector<std::string> texts_in(std::string_view list) {
  std::vector<std::string> out;
  for (size_t at = list.find_first_of("'\""); at != list.npos;) {
    const size_t end = list.find(list[at], at + 1);
    if (end == list.npos) break;
    out.emplace_back(list.substr(at + 1, end - at - 1));
    at = list.find_first_of("'\"", end + 1);
  }
  return out;
}

}  // namespace

std::string overload_of(const pb::NodeProto& node) { return later_text(node, 8); }
std::string overload_of(const pb::FunctionProto& function) { return later_text(function, 13); }

std::vector<std::string> scopes_of(const pb::NodeProto& node) {
  for (const std::string& bytes : later_bytes(node, 9)) {
    pb::StringStringEntryProto entry;
    if (entry.ParseFromString(bytes) && entry.key() == "pkg.torch.onnx.name_scopes")
      return texts_in(entry.value());
  }
  return {};
}

std::vector<pb::AttributeProto> default_attributes(const pb::FunctionProto& function) {
  std::vector<pb::AttributeProto> out;
  for (const std::string& bytes : later_bytes(function, 11))
    if (!out.emplace_back().ParseFromString(bytes))
      throw Error("a default of the function's attributes is damaged");
  return out;
}

}  // namespace gradus::onnx
