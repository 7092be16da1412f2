#include "transport/metrics/request.h"

#include <gtest/gtest.h>

namespace rdfs::metrics {
namespace {

// The status of a whole request; 0: more must come.
unsigned StatusOf(std::string_view received, Names names = Names::kAny) {
  const auto request = Judge(received, names);
  return request ? request->status : 0;
}

std::string Get(std::string_view target) {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: here\r\n\r\n";
}

TEST(MetricsRequest, WhatScrapersSendIsUnderstood) {
  EXPECT_EQ(StatusOf("GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\nUser-Agent: "
                     "Prometheus/2.42.0\r\nAccept: application/openmetrics-text;version=1.0.0,"
                     "*/*;q=0.1\r\nAccept-Encoding: gzip\r\n"
                     "X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n"),
            200U);
  EXPECT_EQ(StatusOf(Get("/metrics?a=b")), 200U);
  EXPECT_EQ(StatusOf(Get("http://here:9464/metrics")), 200U);
  EXPECT_EQ(StatusOf(Get("HTTP://here/metrics?x")), 200U);
  EXPECT_EQ(StatusOf("GET /metrics HTTP/1.0\r\n\r\n"), 200U);
  EXPECT_EQ(StatusOf("GET /metrics HTTP/1.1\nhOST:x\n\n"), 200U) << "lines of LF alone";
  const auto head = Judge("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Names::kAny);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200U);
  EXPECT_TRUE(head->head);
  EXPECT_FALSE(Judge(Get("/metrics"), Names::kAny)->head);
}

TEST(MetricsRequest, BehindALoopbackAddressOnlyNamesOfThisHostAreAnswered) {
  const auto status = [](const std::string& host) {
    return StatusOf("GET /metrics HTTP/1.1\r\nHost:" + host + "\r\n\r\n", Names::kLocal);
  };
  for (const char* host : {"localhost", " LocalHost:9464 ", "127.0.0.1", "127.0.0.1:9464",
                           "10.0.0.7:80", "[::1]", "[::1]:9464"}) {
    EXPECT_EQ(status(host), 200U) << host;
  }
  for (const char* host :
       {"", "here", "here:9464", "localhost.here", "here.localhost", "127.0.0.1.here", "[here]",
        "[::1.here]", "[", "]", "::1", "1", "127.1"}) {
    EXPECT_EQ(status(host), 421U) << host;
  }
  EXPECT_EQ(StatusOf("GET /metrics HTTP/1.0\r\n\r\n", Names::kLocal), 200U) << "no browser";
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: here\r\n\r\n", Names::kLocal), 421U);
}

TEST(MetricsRequest, WhatIsNotThereIsSaidProperly) {
  EXPECT_EQ(StatusOf(Get("/")), 404U);
  EXPECT_EQ(StatusOf(Get("/metrics/")), 404U);
  EXPECT_EQ(StatusOf(Get("/../metrics")), 404U);
  EXPECT_EQ(StatusOf(Get("*")), 404U);
  EXPECT_EQ(StatusOf(Get("http://here")), 404U);
  EXPECT_EQ(StatusOf("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"), 405U);
  EXPECT_EQ(StatusOf("get /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), 405U) << "methods have a case";
  EXPECT_EQ(StatusOf("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), 405U);
  EXPECT_EQ(StatusOf("GET /metrics HTTP/2.0\r\nHost: x\r\n\r\n"), 505U);
}

TEST(MetricsRequest, WhatIsNoRequestIsMalformed) {
  for (const std::string_view text :
       {"\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "GET  HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /metrics  HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /metrics HTTP/1.1x\r\nHost: x\r\n\r\n", "GET /metrics http/1.1\r\nHost: x\r\n\r\n",
        "GET /metrics HTTP/1.\r\nHost: x\r\n\r\n", "G(T /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost x\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: x\ry: z\r\n\r\n",
        "GET /met\rrics HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02", "GET /metrics\x7f"}) {
    EXPECT_EQ(StatusOf(text), 400U) << text;
  }
  EXPECT_EQ(StatusOf(std::string_view("GET /\0", 6)), 400U);
}

TEST(MetricsRequest, ItsEndIsWaitedForUpToALimit) {
  const std::string request = Get("/metrics");
  for (std::size_t size = 0; size < request.size(); ++size) {
    EXPECT_EQ(StatusOf(std::string_view(request).substr(0, size)), 0U) << size;
  }
  EXPECT_EQ(StatusOf(request + "what follows\0"), 200U);
  std::string longest = "GET /metrics HTTP/1.1\r\nHost: x\r\nA: ";
  longest += std::string(kMostRequestBytes - longest.size() - 4, 'a') + "\r\n\r\n";
  EXPECT_EQ(longest.size(), kMostRequestBytes);
  EXPECT_EQ(StatusOf(longest), 200U);
  longest.insert(longest.size() - 4, "a");
  EXPECT_EQ(StatusOf(longest), 431U);
  EXPECT_EQ(StatusOf(std::string(kMostRequestBytes - 1, 'a')), 0U);
  EXPECT_EQ(StatusOf(std::string(kMostRequestBytes, 'a')), 431U);
}

TEST(MetricsRequest, AnswersAreWhole) {
  constexpr std::time_t kThen = 784111777;  // the example of RFC 9110, section 5.6.7
  EXPECT_EQ(MakeAnswer({}, "a 1\n", kThen),
            "HTTP/1.1 200 OK\r\n"
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 4\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n"
            "\r\n"
            "a 1\n");
  const std::string head = MakeAnswer({.head = true}, "a 1\n", kThen);
  EXPECT_NE(head.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  const std::string refused = MakeAnswer({.status = 405}, "a 1\n", kThen);
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
  EXPECT_NE(refused.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_EQ(refused.find("a 1"), std::string::npos) << "nothing is said to who asks wrongly";
  EXPECT_TRUE(MakeAnswer(kTooSlow, "", kThen).starts_with("HTTP/1.1 408 Request Timeout\r\n"));
}

}  // namespace
}  // namespace rdfs::metrics
