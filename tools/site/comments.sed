# Turns the comments of the headers into ones that Doxygen reads: /// before a declaration, ///< behind one.
# The first comment is that of the file.
1s|^// |/// \\file\n/// |
# The end of a namespace has no comment of its own, and "et al." ends no sentence.
s|^\} +// namespace .*|}|
s|et al[.] |et al.\\ |
s|^( *)//([^/]\|$)|\1///\2|
s|([;,{}] +)//([^/])|\1///<\2|
# A < begins no tag. Doxygen knows this within quotes.
:more
s#(^ *///|///<)(([^"`<]|"[^"]*"|`[^`]*`)*)<#\1\2\&lt;#
t more
