# Text files as constants of a C++ source: cmake -DOUTPUT=F -DNAMESPACE=a::b -DFILES=x.js;y.css -P LmxEmbed.cmake
# x.js becomes `extern const char* const x_js` in a header beside the source.
cmake_minimum_required(VERSION 3.25)
set(source "#include \"assets.h\"\n\nnamespace ${NAMESPACE} {\n\n")
set(header "#pragma once\n\nnamespace ${NAMESPACE} {\n\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  string(REPLACE "." "_" name ${name})
  file(READ ${file} text)
  string(APPEND source "const char* const ${name} = R\"lmx~(${text})lmx~\";\n\n")
  string(APPEND header "extern const char* const ${name};\n")
endforeach()
file(WRITE ${OUTPUT}/assets.h "${header}\n}\n")
file(WRITE ${OUTPUT}/assets.cc "${source}}\n")
