// The proof that the two ends of a connection know the secret of a job.
#pragma once

#include <array>
#include <string>

namespace lmx_gloo {

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

Nonce random_nonce();
// HMAC-SHA256 with the secret as its key. `role` separates the proofs of the two ends.
Proof prove(const std::string& secret, const std::string& role, const Nonce& of_store, const Nonce& of_rank);
bool equal(const Proof& a, const Proof& b);  // in constant time

}  // namespace lmx_gloo
