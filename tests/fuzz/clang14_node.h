// Included before everything else. A Node holds a vector of pairs of Nodes. With libstdc++ 12, whose std::vector is
// constexpr, clang 14 asks whether a Node has a default constructor while it is still working out that pair, and refuses
// it as incomplete. Here is the answer.
#pragma once

#include <type_traits>

namespace lmx {
class Node;
}
template <>
struct std::__is_implicitly_default_constructible<lmx::Node> : std::true_type {};
