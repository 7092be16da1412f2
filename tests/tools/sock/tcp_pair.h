// TCP sockets on the loopback interface: a connected pair, and its parts.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "transport/base/fd.h"

namespace rdfs::sock {

inline Fd ListenOnLoopback() {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  return listener;
}

inline Fd ConnectTo(int listener) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  return client;
}

// `client` has called connect.
inline void MakeTcpPair(Fd& client, Fd& server) {
  const Fd listener = ListenOnLoopback();
  client = ConnectTo(listener.get());
  server.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(server.valid());
}

}  // namespace rdfs::sock
