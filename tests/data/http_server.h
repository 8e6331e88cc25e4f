// A web server on the loopback interface whose answers a test scripts, request by request.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lmx_test {

// What a request asked for: its first line and headers, as they came.
struct HttpRequest {
  std::string text;
  std::string path() const { return text.substr(4, text.find(' ', 4) - 4); }
  // The first byte of its Range header, -1 without one.
  int64_t range() const {
    const size_t at = text.find("Range: bytes=");
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + 13));
  }
};

class HttpServer {
 public:
  // Returns the bytes to send, after which the connection is closed.
  using Answer = std::function<std::string(const HttpRequest& request, int64_t number)>;

  explicit HttpServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 16) != 0 || getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no server socket");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  std::vector<HttpRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stopping_) {
      const int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) continue;
      HttpRequest request;
      char buffer[4096];
      while (request.text.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = recv(peer, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        request.text.append(buffer, static_cast<size_t>(n));
      }
      int64_t number = 0;
      {
        const std::lock_guard lock(mutex_);
        number = static_cast<int64_t>(requests_.size());
        requests_.push_back(request);
      }
      const std::string answer = answer_(request, number);
      for (size_t done = 0; done < answer.size();) {
        const ssize_t n = send(peer, answer.data() + done, answer.size() - done, MSG_NOSIGNAL);
        if (n <= 0) break;
        done += static_cast<size_t>(n);
      }
      shutdown(peer, SHUT_WR);
      while (recv(peer, buffer, sizeof buffer, 0) > 0) {
      }
      close(peer);
    }
  }

  Answer answer_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::thread thread_;
};

inline std::string http_answer(const std::string& status, const std::string& headers, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\n" + headers + "Connection: close\r\n\r\n" + body;
}

// All of `body`, or what a Range asks of it, as a well-behaved server sends it.
inline std::string http_file(const HttpRequest& request, const std::string& body, const std::string& etag = "\"v1\"") {
  const int64_t first = request.range();
  const std::string tag = "ETag: " + etag + "\r\n", size = std::to_string(body.size());
  const bool changed =
      request.text.find("If-Range: ") != std::string::npos && request.text.find(etag) == std::string::npos;
  if (first < 0 || changed) return http_answer("200 OK", tag + "Content-Length: " + size + "\r\n", body);
  if (first >= static_cast<int64_t>(body.size()))
    return http_answer("416 Range Not Satisfiable", "Content-Range: bytes */" + size + "\r\nContent-Length: 0\r\n", "");
  const std::string rest = body.substr(static_cast<size_t>(first));
  return http_answer("206 Partial Content",
                     tag + "Content-Range: bytes " + std::to_string(first) + "-" + std::to_string(body.size() - 1) +
                         "/" + size + "\r\nContent-Length: " + std::to_string(rest.size()) + "\r\n",
                     rest);
}

}  // namespace lmx_test
