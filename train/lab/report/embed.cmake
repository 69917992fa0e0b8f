# cmake -D OUT=report_assets.cpp -D "FILES=page.js;page.css" -P embed.cmake
# Writes the functions of page.h that return the contents of both files.
set(names page_js page_css)
set(text "#include \"longhand/train/lab/report/page.h\"\n\nnamespace longhand::train {\n")
foreach(file name IN ZIP_LISTS FILES names)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND text "static constexpr unsigned char bytes_of_${name}[] = {${bytes}};\n"
         "std::string_view ${name}() {\n"
         "  return {reinterpret_cast<const char*>(bytes_of_${name}), sizeof bytes_of_${name}};\n}\n")
endforeach()
file(WRITE "${OUT}" "${text}}  // namespace longhand::train\n")
