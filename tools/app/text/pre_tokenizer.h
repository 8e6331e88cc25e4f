// Cuts a text into the pieces that a byte-level BPE encodes one by one, as the `pre_tokenizer` of a tokenizer.json
// says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

// A regular expression of a tokenizer.json, which is written for Oniguruma, matched by PCRE2 with JIT. Thread-safe.
class Pattern {
 public:
  // UserError, beginning with `place`: no regular expression, one that matches nothing at some place (the empty text),
  // or one with a part that PCRE2 reads differently.
  Pattern(const std::string& pattern, bool literal, const std::string& place);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Memory of a thread for matching.
  class Matcher {
   public:
    explicit Matcher(const Pattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;
    // Finds the first match at or after `from`; false if there is none. UserError: the pattern needs more steps than
    // the limit. REQUIRES: `text` is UTF-8.
    bool find(std::string_view text, size_t from, size_t& begin, size_t& end);

   private:
    const Pattern* pattern_;
    void* data_;
  };

  // `pattern` in the syntax of PCRE2; UserError as above.
  static std::string translated(const std::string& pattern, const std::string& place);

 private:
  friend class Matcher;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One step of a pre-tokenizer.
struct PreTokenizerStep {
  enum class Behaviour { isolated, removed, with_previous, with_next };
  std::shared_ptr<const Pattern> pattern;  // null: cuts nothing
  Behaviour behaviour = Behaviour::isolated;
  bool prefix_space = false;  // puts a space before each piece that has none
};

// The memory of a thread.
class PreTokenizer {
 public:
  explicit PreTokenizer(const std::vector<PreTokenizerStep>& steps);
  // Calls piece(text) for each piece of `text`, in order.
  using Visit = std::function<void(std::string_view)>;
  void cut(std::string_view text, const Visit& piece) { cut_from(0, text, piece); }

 private:
  void cut_from(size_t index, std::string_view text, const Visit& piece);
  struct Step {
    PreTokenizerStep rule;
    std::vector<Pattern::Matcher> matcher;  // one, or none
    std::string prefixed;
  };
  std::vector<Step> steps_;
};

// The Unicode version of PCRE2's tables: "14.0.0".
std::string pattern_unicode_version();

}  // namespace lmx::data
