#include "proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "lmx/error.h"

namespace lmx_gloo {

Nonce random_nonce() {
  Nonce nonce;
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1)
    throw lmx::RunError("[gloo] the system provides no random numbers");
  return nonce;
}

Proof prove(const std::string& secret, const std::string& role, const Nonce& of_store, const Nonce& of_rank) {
  std::string text = "lmx gloo store 1, " + role + ": ";
  text.append(of_store.begin(), of_store.end()).append(of_rank.begin(), of_rank.end());
  Proof proof;
  if (!HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
            reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), nullptr))
    throw lmx::InternalError("[gloo] HMAC-SHA256 failed");
  return proof;
}

bool equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lmx_gloo
