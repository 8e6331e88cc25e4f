// Texts of types and functions, to compare two headers that declare the same names.
#pragma once

#include <map>
#include <string>
#include <type_traits>

namespace cuda_drift {

using Table = std::map<std::string, std::string>;

namespace {  // a table for each file

template <class T>
std::string kind() {
  const std::string size = std::to_string(sizeof(T));
  return std::is_pointer_v<T> ? "pointer" : std::is_enum_v<T> ? "enum " + size : "number " + size;
}

template <class Function>
struct Parameters;
template <class Result, class... Types>
struct Parameters<Result (*)(Types...)> {
  static std::string text() {
    std::string text = kind<Result>() + " (";
    ((text += kind<Types>() + ","), ...);
    return text + ")";
  }
};

}  // namespace
}  // namespace cuda_drift
