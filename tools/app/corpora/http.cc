#include "app/corpora/fetch.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>

#include "lmx/api.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

struct Headers {
  int64_t range_first = -1, range_total = -1, length = -1;
};

struct State {
  const Request* request = nullptr;
  Transfer result;
  Headers headers;
  CURL* curl = nullptr;
  int descriptor = -1;
  int64_t position = 0;       // in the file, of the next byte
  bool begun = false;         // the first byte of the body was received
  std::exception_ptr thrown;  // by `progress`; exceptions must not pass through libcurl
  ~State() {
    if (descriptor >= 0) close(descriptor);
  }
};

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

bool names(std::string_view header, std::string_view name) {
  return header.size() > name.size() && header[name.size()] == ':' &&
         strncasecmp(header.data(), name.data(), name.size()) == 0;
}

// Reads "bytes 100-299/300": the number before the dash, and the one after the slash, if it is a number.
void read_range(std::string_view value, int64_t& first, int64_t& total) {
  const size_t digits = value.find_first_of("0123456789*"), slash = value.find('/');
  if (digits != std::string_view::npos) std::from_chars(value.data() + digits, value.data() + value.size(), first);
  if (slash != std::string_view::npos) std::from_chars(value.data() + slash + 1, value.data() + value.size(), total);
}

size_t on_header(char* text, size_t size, size_t count, void* user) {
  auto& s = *static_cast<State*>(user);
  const std::string_view line(text, size * count);
  const auto value = [&] { return trimmed(line.substr(line.find(':') + 1)); };
  if (line.starts_with("HTTP/")) {  // headers of redirections precede those of the file; only the last count
    s.headers = {};
    s.result.validator.clear();
  } else if (names(line, "content-range")) {
    read_range(value(), s.headers.range_first, s.headers.range_total);
  } else if (names(line, "content-length")) {
    const std::string_view v = value();
    std::from_chars(v.data(), v.data() + v.size(), s.headers.length);
  } else if (names(line, "etag")) {
    s.result.validator = value();
  } else if (names(line, "last-modified") && s.result.validator.empty()) {
    s.result.validator = value();
  }
  return size * count;
}

// Sets the file position for the data: at the offset, or at the beginning. Returns false if the answer does not contain
// the file.
bool begin_body(State& s) {
  curl_easy_getinfo(s.curl, CURLINFO_RESPONSE_CODE, &s.result.status);
  if (s.result.status == 206) {
    s.result.total = s.headers.range_total;
    if (s.headers.range_first != s.request->offset) {
      s.result.error = str("the server was asked to continue at byte ", s.request->offset, ", but sent byte ",
                           s.headers.range_first);
      return false;
    }
    s.position = s.request->offset;
  } else if (s.result.status == 200) {
    s.result.total = s.headers.length;
    s.position = 0;
    if (ftruncate(s.descriptor, 0) != 0) return false;
  } else {
    return false;
  }
  s.begun = true;
  return true;
}

size_t on_body(char* bytes, size_t size, size_t count, void* user) {
  auto& s = *static_cast<State*>(user);
  const size_t n = size * count;
  if (!s.begun && !begin_body(s)) return s.result.status >= 400 ? n : 0;  // an error page is read and ignored
  if (!s.begun) return n;
  for (size_t done = 0; done < n;) {
    const ssize_t written = pwrite(s.descriptor, bytes + done, n - done, s.position);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      s.result.write_error = std::strerror(errno);
      return 0;
    }
    done += static_cast<size_t>(written);
    s.position += written;
    s.result.received += written;
  }
  try {
    if (s.request->progress) s.request->progress(s.position, s.result.total);
  } catch (...) {
    s.thrown = std::current_exception();
    return 0;
  }
  return n;
}

using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

void configure(CURL* curl, const Request& request, State& state, const curl_slist* headers, char* why) {
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, (std::string("lmx/") + kVersion).c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_s < 1 ? 1 : request.stall_s));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
  if (const std::string file = certificates(); !file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, file.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &state);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &state);
}

}  // namespace

std::string certificates(const std::string& root) {
  if (const char* chosen = std::getenv("SSL_CERT_FILE"); chosen && *chosen) return chosen;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"})
    if (access((root + file).c_str(), R_OK) == 0) return root + file;
  return "";
}

Transfer transfer(const Request& request) {
  State s;
  s.request = &request;
  s.descriptor = open(request.path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (s.descriptor < 0) {
    s.result.write_error = std::strerror(errno);
    return s.result;
  }
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), curl_easy_cleanup);
  LMX_CHECK(curl != nullptr, "libcurl");
  s.curl = curl.get();
  List headers(nullptr, curl_slist_free_all);
  const auto add = [&](const std::string& line) { headers.reset(curl_slist_append(headers.release(), line.c_str())); };
  if (request.offset > 0) {
    add(str("Range: bytes=", request.offset, "-"));
    if (!request.validator.empty() && !request.validator.starts_with("W/")) add("If-Range: " + request.validator);
  }
  char why[CURL_ERROR_SIZE] = "";
  configure(curl.get(), request, s, headers.get(), why);
  const CURLcode code = curl_easy_perform(curl.get());
  if (s.thrown) std::rethrow_exception(s.thrown);
  if (code == CURLE_SSL_CACERT_BADFILE || code == CURLE_PEER_FAILED_VERIFICATION)
    throw RunError(str("[fetch] ", request.url, ": ", why,
                       "; SSL_CERT_FILE names the file of trusted certificates "
                       "(Debian: apt-get install ca-certificates)"));
  Transfer& r = s.result;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &r.status);
  // An empty file has no body. If the file was already complete, the answer is 416 with its length.
  if (code == CURLE_OK && !s.begun && r.status == 200 && ftruncate(s.descriptor, 0) == 0) r.total = 0;
  if (r.status == 416) r.total = s.headers.range_total;
  if (code != CURLE_OK && r.error.empty() && r.write_error.empty()) r.error = *why ? why : curl_easy_strerror(code);
  return r;
}

}  // namespace lmx::app
