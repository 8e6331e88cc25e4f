# Writes text files as C++ constants: cmake -DOUTPUT=x.cc -DHEADER=page.h -DNAMESPACE=a::b "-DFILES=f.js;g.css" -P
# LmxEmbed.cmake The content of f.js becomes the value of a::b::f_js, which the header must declare.
cmake_minimum_required(VERSION 3.25)
set(source "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  string(REPLACE "." "_" name ${name})
  file(READ ${file} text)
  string(APPEND source "const char* const ${name} = R\"lmx~(${text})lmx~\";\n\n")
endforeach()
file(WRITE ${OUTPUT} "${source}}\n")
