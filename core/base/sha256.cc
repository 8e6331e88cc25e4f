#include "base/sha256.h"

#include <openssl/evp.h>

#include "lmx/error.h"

namespace lmx {

std::string hexadecimal(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  LMX_CHECK(context_->md && EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

Sha256& Sha256::add(std::string_view bytes) {
  LMX_CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1);
  return *this;
}

std::string Sha256::digest() {
  unsigned char digest[32];
  LMX_CHECK(EVP_DigestFinal_ex(context_->md, digest, nullptr) == 1);
  return hexadecimal({reinterpret_cast<const char*>(digest), sizeof digest});
}

}  // namespace lmx
