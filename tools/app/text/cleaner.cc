#include "app/text/cleaner.h"

#include "app/text/html.h"
#include "app/text/utf8.h"

namespace lmx::data {

Cleaner::Cleaner(bool puri) {
  if (puri) ascii_.emplace();
}

std::string_view Cleaner::clean(std::string_view text) {
  if (!ascii_) return text;
  const std::string plain = unescape_html(ascii_->fold(without_tags(text)));
  out_ = "\n ";
  for (const std::string& word : split_words(plain)) {
    out_ += word;
    out_ += ' ';
  }
  return out_.size() == 2 ? std::string_view() : std::string_view(out_);
}

}  // namespace lmx::data
