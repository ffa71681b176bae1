# cmake -D FILES=LIST -D OUT=FILE -P GradusHash.cmake: writes a C++ file whose variable kernel_sources
# is a hash of what the files hold.
set(all)
foreach(file IN LISTS FILES)
  file(SHA256 ${file} one)
  string(APPEND all ${one})
endforeach()
string(SHA256 hash "${all}")
file(WRITE ${OUT} "#include \"fusion/cpu/kernel_sources.h\"

namespace gradus::fusion::cpu {
const std::string_view kernel_sources = \"${hash}\";
}
")
