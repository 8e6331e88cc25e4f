// lmx data fetch against a server of the test's own that breaks off, lies about sizes, ignores ranges and is not there.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "app/corpora/corpora.h"
#include "app/corpora/fetch.h"
#include "app/corpora/sources.h"
#include "base/files.h"
#include "fixture.h"
#include "process/free_port.h"

namespace lmx_test {
namespace {

// A web server on the loopback interface whose answers a test scripts, request by request.

// The first line and the headers of a request, unchanged.
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

std::string http_answer(const std::string& status, const std::string& headers, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\n" + headers + "Connection: close\r\n\r\n" + body;
}

// All of `body`, or what a Range asks of it, as a well-behaved server sends it.
std::string http_file(const HttpRequest& request, const std::string& body, const std::string& etag = "\"v1\"") {
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

using lmx::app::Download;
using lmx::app::FetchOptions;

std::string made_up(size_t bytes) {
  std::string text(bytes, ' ');
  uint32_t x = 1;
  for (char& c : text) c = static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  return text;
}

class Fetch : public DataTest {
 protected:
  Fetch() {
    options_.directory = path("corpus");
    options_.attempts = 3;
    options_.wait_s = 0.001;
    fs::create_directories(options_.directory);
  }
  int64_t download(const Download& what) { return lmx::app::download(what, target_, options_); }
  Download from(const HttpServer& server) { return {server.url("/data.bin"), "data.bin"}; }
  std::string sha256(const std::string& text) { return lmx::sha256_of_file(write("sum", text)); }
  std::string got() const { return read("corpus/data.bin"); }
  bool part_left() const { return fs::exists(target_ + ".part"); }

  FetchOptions options_;
  const std::string target_ = path("corpus/data.bin");
  const std::string body_ = made_up(300'000);
};

TEST_F(Fetch, Downloads) {
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, body_); });
  EXPECT_EQ(download(from(server)), 300'000);
  EXPECT_EQ(got(), body_);
  EXPECT_FALSE(part_left());
  EXPECT_FALSE(fs::exists(target_ + ".part.from"));
  EXPECT_EQ(server.requests()[0].path(), "/data.bin");
}

TEST_F(Fetch, ConnectionsThatBreakGoOnWhereTheyEnded) {
  HttpServer server([&](const HttpRequest& r, int64_t number) {
    const std::string whole = http_file(r, body_);
    return number < 5 ? whole.substr(0, whole.find("\r\n\r\n") + 4 + 40'000) : whole;
  });
  EXPECT_EQ(download(from(server)), 300'000);  // each byte once
  EXPECT_EQ(got(), body_);
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 6u);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(requests[i].range(), i ? static_cast<int64_t>(i) * 40'000 : -1);
  EXPECT_THAT(requests[1].text, HasSubstr("If-Range: \"v1\""));
}

TEST_F(Fetch, ALaterCallGoesOnToo) {
  std::atomic<bool> broken = true;
  HttpServer server([&](const HttpRequest& r, int64_t number) {
    const std::string whole = http_file(r, body_);
    if (!broken) return whole;
    return number == 0 ? whole.substr(0, 100'000) : std::string();
  });
  const std::string message = run_error([&] { download(from(server)); });
  EXPECT_THAT(message, Names("3 attempts", "kept"));
  EXPECT_TRUE(part_left());
  EXPECT_FALSE(fs::exists(target_));
  broken = false;
  EXPECT_LT(download(from(server)), 300'000);
  EXPECT_EQ(got(), body_);
}

TEST_F(Fetch, AServerThatIgnoresRangesSendsAllAgain) {
  HttpServer server([&](const HttpRequest&, int64_t number) {
    const std::string whole = http_file(HttpRequest(), body_);
    return number == 0 ? whole.substr(0, 150'000) : whole;
  });
  EXPECT_GT(download(from(server)), 300'000);
  EXPECT_EQ(got(), body_);
  EXPECT_GE(server.requests()[1].range(), 0);
}

TEST_F(Fetch, AFileThatChangedMeanwhileIsReadFromItsBeginning) {
  const std::string other = made_up(200'001);
  HttpServer server([&](const HttpRequest& r, int64_t number) {
    if (number == 0) return http_file(r, body_).substr(0, 90'000);
    return http_file(r, other, "\"v2\"");
  });
  download(from(server));
  EXPECT_EQ(got(), other);
}

TEST_F(Fetch, APartThatIsWholeIsNotSentAgain) {
  write("corpus/data.bin.part", body_);
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, body_); });
  EXPECT_EQ(download(from(server)), 0);
  EXPECT_EQ(got(), body_);
}

TEST_F(Fetch, APartThatIsLongerThanTheFileIsThrownAway) {
  write("corpus/data.bin.part", body_ + "more");
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, body_); });
  EXPECT_EQ(download(from(server)), 300'000);
  EXPECT_EQ(got(), body_);
}

TEST_F(Fetch, ServersThatLieAboutSizes) {
  // More promised than sent.
  HttpServer long_words([&](const HttpRequest& r, int64_t) {
    if (r.range() >= 1000) return std::string();
    return http_answer("200 OK", "Content-Length: 500000\r\n", body_.substr(0, 1000));
  });
  std::string message = run_error([&] { download(from(long_words)); });
  EXPECT_THAT(message, Names("attempts", "1000 bytes"));
  fs::remove(target_ + ".part");
  // Another size than the registry's: refused at the first byte, and afterwards where the server says none.
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, body_); });
  Download stated = from(server);
  stated.bytes = 299'999;
  EXPECT_THAT(run_error([&] { download(stated); }), Names("300000", "299999"));
  HttpServer silent([&](const HttpRequest&, int64_t) { return http_answer("200 OK", "", body_); });
  EXPECT_FALSE(part_left());
  stated.url = silent.url("/data.bin");
  EXPECT_THAT(run_error([&] { download(stated); }), Names("300000", "299999"));
  EXPECT_FALSE(part_left());
  EXPECT_FALSE(fs::exists(target_));
  // A part of an earlier call is removed as well, because it may be of the wrong file.
  write("corpus/data.bin.part", body_.substr(0, 1000));
  stated.url = server.url("/data.bin");
  EXPECT_THAT(run_error([&] { download(stated); }), Names("300000", "299999"));
  EXPECT_FALSE(part_left());
  stated.url = silent.url("/data.bin");
  stated.bytes = 300'000;
  EXPECT_EQ(download(stated), 300'000);
  // The rest of the file, but from another place than was asked for.
  fs::remove(target_);
  write("corpus/data.bin.part", body_.substr(0, 100));
  HttpServer elsewhere([&](const HttpRequest&, int64_t) {
    return http_answer("206 Partial Content", "Content-Range: bytes 50-299999/300000\r\n", body_.substr(50));
  });
  EXPECT_THAT(run_error([&] { download(from(elsewhere)); }), Names("byte 100", "50"));
}

TEST_F(Fetch, ChecksumsAreCompared) {
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, body_); });
  Download stated = from(server);
  stated.sha256 = std::string(64, 'a');
  EXPECT_THAT(run_error([&] { download(stated); }), Names(sha256(body_), stated.sha256));
  EXPECT_FALSE(fs::exists(target_));
  EXPECT_FALSE(part_left());
  stated.sha256 = sha256(body_);
  download(stated);
  EXPECT_EQ(got(), body_);
}

TEST_F(Fetch, AnswersThatAreNoFile) {
  for (const auto& [status, means] : {std::pair{"404 Not Found", "404 (not found)"}, std::pair{"403 Forbidden", "403"},
                                      std::pair{"410 Gone", "410"}}) {
    HttpServer server(
        [&](const HttpRequest&, int64_t) { return http_answer(status, "Content-Length: 5\r\n", "sorry"); });
    EXPECT_THAT(run_error([&] { download(from(server)); }), Names(means));
    EXPECT_EQ(server.requests().size(), 1u);  // asking again would not help
    EXPECT_FALSE(fs::exists(target_));
  }
  HttpServer busy([&](const HttpRequest& r, int64_t number) {
    return number < 2 ? http_answer("503 Service Unavailable", "Content-Length: 4\r\n", "busy") : http_file(r, body_);
  });
  EXPECT_EQ(download(from(busy)), 300'000);
  EXPECT_EQ(got(), body_);
  fs::remove(target_);
  const FreePort silent;
  EXPECT_THAT(run_error([&] {
                download({lmx::str("http://127.0.0.1:", silent.number(), "/x"), "x"});
              }),
              HasSubstr("127.0.0.1"));
  EXPECT_THAT(run_error([&] { download({"file:///etc/hostname", "x"}); }), HasSubstr("rotocol"));
}

TEST_F(Fetch, RedirectionsAndEmptyFiles) {
  HttpServer server([&](const HttpRequest& r, int64_t) {
    if (r.path() == "/data.bin") return http_answer("302 Found", "Location: /there\r\nContent-Length: 3\r\n", "see");
    return http_file(r, r.path() == "/there" ? body_ : "");
  });
  download(from(server));
  EXPECT_EQ(got(), body_);
  EXPECT_EQ(lmx::app::download({server.url("/empty"), "empty"}, path("corpus/empty"), options_), 0);
  EXPECT_EQ(read("corpus/empty"), "");
  EXPECT_TRUE(fs::exists(path("corpus/empty")));
}

// A file-size limit stands for a full disk: the write fails in the same place.
TEST_F(Fetch, CertificatesAreThoseOfTheMachine) {
  EXPECT_EQ(lmx::app::certificates(path("root")), "");
  for (const char* file :
       {"root/etc/ssl/cert.pem", "root/etc/pki/tls/certs/ca-bundle.crt", "root/etc/ssl/certs/ca-certificates.crt"})
    EXPECT_EQ(lmx::app::certificates(path("root")), write(file, "certificates"));
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, body_); });
  setenv("SSL_CERT_FILE", path("none.pem").c_str(), 1);
  const std::string url = server.url("/data.bin");
  EXPECT_THAT(run_error([&] {
                download({"https" + url.substr(4), "data.bin"});
              }),
              Names("none.pem", "SSL_CERT_FILE names"));
  unsetenv("SSL_CERT_FILE");
  EXPECT_LE(server.requests().size(), 1u);  // no further attempt
}

TEST_F(Fetch, AFullDiskKeepsThePart) {
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, body_); });
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 100'000;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = run_error([&] { download(from(server)); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, Names("data.bin.part"));
  EXPECT_EQ(download(from(server)), 200'000);
  EXPECT_EQ(got(), body_);
}

// A tar archive of these files, as tar writes them.
std::string tar_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, content] : files) {
    std::string head(512, '\0');
    const auto put = [&](size_t at, const std::string& text) { head.replace(at, text.size(), text); };
    char number[16];
    put(0, name);
    put(100, "0000644");
    std::snprintf(number, sizeof number, "%011zo", content.size());
    put(124, number);
    put(148, "        ");
    put(156, name.ends_with('/') ? "5" : "0");
    put(257, "ustar");
    unsigned sum = 0;
    for (const char c : head) sum += static_cast<unsigned char>(c);
    std::snprintf(number, sizeof number, "%06o", sum);
    put(148, std::string(number) + '\0');
    out += head + content + std::string((512 - content.size() % 512) % 512, '\0');
  }
  return out + std::string(1024, '\0');
}

TEST_F(Fetch, UnpacksAndRecordsChecksums) {
  const std::string archive = tar_of({{"top/", ""}, {"top/a.txt", "one\n"}, {"top/deep/b.txt", made_up(5000)}});
  write_gz("made.gz", archive);
  write_gz("c.gz", "three\n");
  HttpServer server([&](const HttpRequest& r, int64_t) {
    return http_file(r, r.path() == "/set.tar.gz" ? read("made.gz") : r.path() == "/set.tar" ? archive : read("c.gz"));
  });
  const std::vector<Download> files{{server.url("/set.tar.gz"), "set.tar.gz", "tar", 1},
                                    {server.url("/set.tar"), "set.tar", "tar", 0},
                                    {server.url("/c.gz"), "c.txt.gz", "gz"}};
  lmx::app::FetchReport report = lmx::app::fetch_files(files, options_);
  EXPECT_EQ(read("corpus/a.txt"), "one\n");
  EXPECT_EQ(read("corpus/deep/b.txt"), made_up(5000));
  EXPECT_EQ(read("corpus/top/a.txt"), "one\n");
  EXPECT_EQ(read("corpus/c.txt"), "three\n");
  EXPECT_FALSE(fs::exists(path("corpus/set.tar.gz")));
  EXPECT_THAT(report.files[2], Names("c.txt.gz", sha256(read("c.gz")), "recorded"));
  const size_t before = server.requests().size();
  report = lmx::app::fetch_files(files, options_);
  EXPECT_EQ(report.bytes, 0);
  EXPECT_EQ(server.requests().size(), before);
  EXPECT_THAT(report.files[0], HasSubstr("there already"));
  // What was recorded at the first download holds from then on.
  fs::remove(path("corpus/c.txt"));
  write_gz("c.gz", "another\n");
  EXPECT_THAT(run_error([&] { lmx::app::fetch_files(files, options_); }), Names(sha256(read("c.gz")), "expected"));
}

TEST_F(Fetch, SegmentsOfSgmlAreLines) {
  const std::string sgml =
      "<srcset setid=\"made up\" srclang=\"any\">\n<doc docid=\"a\">\n<p>\n<seg id=\"1\"> R&amp;D  costs\n5 &lt; 6 "
      "</seg>\n"
      "<seg id=\"2\"></seg>\n</p>\n<hl><SEG ID=3>caf\u00e9 "
      "&quot;x&quot;</SEG></hl>\n<segment>no</segment>\n</doc>\n</srcset>\n";
  EXPECT_EQ(lmx::app::lines_of_segments(sgml, "a.sgm"), "R&D costs 5 < 6\n\ncaf\u00e9 \"x\"\n");
  EXPECT_THAT(user_error([&] { lmx::app::lines_of_segments("<seg id=1>a\n<seg id=2>b</seg>", "a.sgm"); }),
              Names("a.sgm", "segment 1"));
  EXPECT_THAT(user_error([&] { lmx::app::lines_of_segments("a\nb\n", "a.sgm"); }), Names("a.sgm", "<seg"));

  const std::string archive = tar_of({{"dev/x-src.en.sgm", sgml}});
  HttpServer server([&](const HttpRequest& r, int64_t) { return http_file(r, archive); });
  Download d{
      .url = server.url("/dev.tar"), .file = "dev.tar", .unpack = "tar", .segments = {{"dev/x-src.en.sgm", "x.en"}}};
  lmx::app::fetch_files(std::vector<Download>{d}, options_);
  EXPECT_EQ(read("corpus/x.en"), "R&D costs 5 < 6\n\ncaf\u00e9 \"x\"\n");
  d.file = "other.tar";
  d.segments = {{"dev/y.sgm", "y.en"}};
  EXPECT_THAT(run_error([&] { lmx::app::fetch_files(std::vector<Download>{d}, options_); }), Names("dev/y.sgm"));
}

// What `lmx data fetch` brings of a corpus are all the files that it needs.
TEST_F(Fetch, Wmt14IsCompleteWithItsTestSets) {
  std::set<std::string> made;
  for (const Download& d : lmx::app::downloads_of("wmt14_en_fr"))
    for (const auto& [sgml, lines] : d.segments) made.insert(lines);
  for (const lmx::app::CorpusSide& side : lmx::app::find_corpus("wmt14_en_fr").sides)
    for (const auto& files : {side.valid, side.test})
      for (const std::string& file : files) EXPECT_TRUE(made.contains(file)) << file;
}

TEST_F(Fetch, ArchivesThatAreDamagedOrReachOut) {
  const auto refused = [&](const std::string& content) {
    write("x.tar", content);
    return user_error([&] { lmx::app::unpack_tar(path("x.tar"), path("corpus"), 0); });
  };
  EXPECT_THAT(refused(tar_of({{"../out.txt", "x"}})), Names("../out.txt"));
  EXPECT_FALSE(fs::exists(path("out.txt")));
  write("abs.tar", tar_of({{"/abs.txt", "x"}}));
  lmx::app::unpack_tar(path("abs.tar"), path("corpus"), 0);
  EXPECT_EQ(read("corpus/abs.txt"), "x");  // below the folder, wherever it says it lies
  std::string damaged = tar_of({{"a.txt", made_up(3000)}});
  EXPECT_THAT(refused(damaged.substr(0, 2000)), Names("tar archive"));
  EXPECT_FALSE(fs::exists(path("corpus/a.txt")));
  EXPECT_THAT(refused(damaged.substr(0, 3584)), Names("zeros"));
  damaged[0] = 'b';
  EXPECT_THAT(refused(damaged), Names("tar archive"));
  EXPECT_THAT(refused(std::string(512, 'x')), Names("tar archive"));
}

TEST_F(Fetch, CorporaByHandSayHow) {
  EXPECT_THAT(user_error([&] { lmx::app::fetch_corpus("ptb", options_); }), Names("'ptb'", "LDC", "ptb.train.txt"));
  EXPECT_THAT(user_error([&] { lmx::app::fetch_corpus("multi30", options_); }), Names("'multi30k'?"));
  for (const char* corpus :
       {"multi30k", "one_billion_word", "news_commentary", "paracrawl", "wmt14_en_fr", "wmt16_en_de"})
    EXPECT_FALSE(lmx::app::downloads_of(corpus).empty()) << corpus;
}

}  // namespace

}  // namespace lmx_test
