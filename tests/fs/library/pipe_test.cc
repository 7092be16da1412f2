// rdfs_pipe_*: both ends in one process, and against rdsend and rdrecv.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fs/library/rdfs.h"
#include "fs/library/rdfs.hpp"
#include "tests/fs/library/fixture.h"

namespace rdfs::fs::library {
namespace {

constexpr const char* kKey = "sesame";

std::string Options(const char* transport, const std::string& more = "") {
  return std::string("require=") + transport + ",wait=20" + more;
}

// What came until the end, and how that was told.
struct Came {
  std::string bytes;
  ssize_t end = -1;
  std::string sentence;
};

Came ReadAll(const rdfs::Pipe& pipe, std::size_t room) {
  Came came;
  std::string piece(room, '\0');
  while ((came.end = pipe.Read(piece.data(), piece.size())) > 0) {
    came.bytes.append(piece, 0, static_cast<std::size_t>(came.end));
  }
  if (came.end < 0) came.sentence = pipe.sentence();
  return came;
}

class Pipes : public testing::TestWithParam<const char*> {
 protected:
  rdfs::Pipe Listen(const std::string& more = "") {
    rdfs::Pipe pipe;
    rdfs_error error{};
    EXPECT_EQ(rdfs::Pipe::Listen(0, kKey,
                                 Options(GetParam(), ",listen=" + transport::TestAddress() + more),
                                 pipe, &error),
              0)
        << error.sentence;
    return pipe;
  }
  rdfs::Pipe Send(int port, const std::string& more = "") {
    rdfs::Pipe pipe;
    rdfs_error error{};
    EXPECT_EQ(rdfs::Pipe::Send(transport::TestAddress().c_str(), static_cast<std::uint16_t>(port),
                               kKey, Options(GetParam(), more), pipe, &error),
              0)
        << error.sentence;
    return pipe;
  }
};

TEST_P(Pipes, EveryByteComesInPiecesOfAnySize) {
  const std::string data = RandomText(9'000'001, 1);
  for (const std::size_t room : {std::size_t{1} << 20U, std::size_t{4097}}) {
    const rdfs::Pipe receiver = Listen();
    auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, room); });
    const rdfs::Pipe sender = Send(receiver.port());
    std::size_t at = 0;
    for (std::size_t size = 1; at < data.size(); size = size * 3 + 1) {
      const std::size_t length = std::min(size, data.size() - at);
      ASSERT_EQ(sender.Write(&data[at], length), static_cast<ssize_t>(length)) << sender.sentence();
      at += length;
    }
    EXPECT_EQ(sender.Finish(), 0) << sender.sentence();
    const Came whole = came.get();
    EXPECT_EQ(whole.end, 0) << whole.sentence;
    EXPECT_TRUE(whole.bytes == data);
    EXPECT_EQ(receiver.Finish(), 0) << receiver.sentence();
  }
}

TEST_P(Pipes, SealedAndCompressed) {
  const std::string data = RandomText(300'000, 2) + std::string(3'000'000, 'a');
  const rdfs::Pipe receiver = Listen(",encrypt");
  auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, 1U << 20U); });
  const rdfs::Pipe sender = Send(receiver.port(), ",encrypt,compress=1");
  EXPECT_EQ(sender.Write(data.data(), data.size()), static_cast<ssize_t>(data.size()));
  EXPECT_EQ(sender.Finish(), 0) << sender.sentence();
  EXPECT_TRUE(came.get().bytes == data);
}

TEST_P(Pipes, AnEmptyStreamIsWhole) {
  const rdfs::Pipe receiver = Listen();
  auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, 100); });
  const rdfs::Pipe sender = Send(receiver.port());
  EXPECT_EQ(sender.Finish(), 0) << sender.sentence();
  EXPECT_EQ(sender.Write("x", 1), -EPIPE);
  EXPECT_EQ(came.get().end, 0);
}

TEST_P(Pipes, WhatTheSenderBreaksOffIsNoEnd) {
  const rdfs::Pipe receiver = Listen();
  auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, 100); });
  {
    const rdfs::Pipe sender = Send(receiver.port());
    EXPECT_EQ(sender.Write("part", 4), 4);
  }
  const Came part = came.get();
  EXPECT_LT(part.end, 0);
  EXPECT_NE(part.sentence, "");
}

TEST_P(Pipes, AReceiverThatGoesIsTold) {
  rdfs::Pipe receiver = Listen();
  std::array<char, 4> some{};
  auto first = std::async(std::launch::async, [&] { return receiver.Read(some.data(), 4); });
  const rdfs::Pipe sender = Send(receiver.port());
  const std::string data(1U << 20U, 'x');
  EXPECT_GT(sender.Write(data.data(), data.size()), 0);
  EXPECT_EQ(first.get(), 4);
  EXPECT_EQ(receiver.Finish(), -EINVAL);  // it has not read all
  receiver = rdfs::Pipe();
  ssize_t written = 0;
  for (int i = 0; i < 1000 && written >= 0; ++i) written = sender.Write(data.data(), data.size());
  EXPECT_LT(written, 0);
  EXPECT_LT(sender.Finish(), 0);
  EXPECT_NE(std::string(sender.sentence()), "");
}

TEST_P(Pipes, AReadMayHaveALimit) {
  const rdfs::Pipe receiver = Listen();
  std::array<char, 10> room{};
  EXPECT_EQ(receiver.ReadWithin(room.data(), room.size(), 1), -EAGAIN);  // nobody has come
  EXPECT_EQ(std::string(receiver.sentence()), "nothing has come yet");
  const rdfs::Pipe sender = Send(receiver.port());
  EXPECT_EQ(receiver.ReadWithin(room.data(), room.size(), 0), -EAGAIN);
  std::string came;
  auto read = std::async(std::launch::async, [&] {
    ssize_t got = -EAGAIN;
    while (got == -EAGAIN || got > 0) {
      got = receiver.ReadWithin(room.data(), room.size(), 20);
      if (got > 0) came.append(room.data(), static_cast<std::size_t>(got));
    }
    return got;
  });
  EXPECT_EQ(sender.Write("whole", 5), 5);
  EXPECT_EQ(sender.Finish(), 0) << sender.sentence();
  EXPECT_EQ(read.get(), 0) << receiver.sentence();
  EXPECT_EQ(came, "whole");
  EXPECT_EQ(receiver.ReadWithin(room.data(), room.size(), -1), 0);
}

TEST_P(Pipes, ClosedWhileOneWaits) {
  rdfs::Pipe receiver = Listen();  // nobody comes
  receiver = rdfs::Pipe();
  rdfs::Pipe other = Listen();
  const rdfs::Pipe sender = Send(other.port());  // nobody reads
  other = rdfs::Pipe();
  EXPECT_LT(sender.Finish(), 0);
}

// In a child after a fork closing is nobody's end; both ends go on.
TEST_P(Pipes, AChildClosesNothingOfItsParents) {
  const rdfs::Pipe receiver = Listen();
  auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, 100); });
  const rdfs::Pipe sender = Send(receiver.port());
  EXPECT_EQ(sender.Write("whole", 5), 5);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rdfs_pipe_close(sender.get());
    rdfs_pipe_close(receiver.get());
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sender.Finish(), 0) << sender.sentence();
  EXPECT_EQ(came.get().bytes, "whole");
}

TEST_P(Pipes, SeveralThreadsWriteWholePieces) {
  const rdfs::Pipe receiver = Listen();
  auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, 1U << 16U); });
  const rdfs::Pipe sender = Send(receiver.port());
  {
    std::vector<std::jthread> writers;
    for (const char letter : {'a', 'b', 'c'}) {
      writers.emplace_back([&sender, letter] {
        const std::string piece(10'000, letter);
        for (int i = 0; i < 50; ++i) EXPECT_EQ(sender.Write(piece.data(), piece.size()), 10'000);
      });
    }
  }
  EXPECT_EQ(sender.Finish(), 0);
  const std::string bytes = came.get().bytes;
  ASSERT_EQ(bytes.size(), 1'500'000U);
  for (std::size_t at = 0; at < bytes.size(); at += 10'000) {
    EXPECT_EQ(bytes.substr(at, 10'000), std::string(10'000, bytes[at])) << at;
  }
}

// The words of a shell, run beside.
std::future<int> Shell(const std::string& command) {
  return std::async(std::launch::async, [command] {
    const int status = ::system(command.c_str());  // NOLINT: our own words
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  });
}

TEST_P(Pipes, ToAndFromTheTools) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("pipe-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string data = RandomText(2'000'003, 3);
  const std::string from = folder / "from";
  const std::string to = folder / "to";
  std::ofstream(from, std::ios::binary) << data;
  const std::string words = std::string("RDFS_KEY=") + kKey + " " + TOOLS;
  {
    const rdfs::Pipe receiver = Listen();
    auto tool = Shell(words + "/rdsend --require " + GetParam() + " " + transport::TestAddress() +
                      " " + std::to_string(receiver.port()) + " " + from);
    EXPECT_TRUE(ReadAll(receiver, 1U << 20U).bytes == data);
    EXPECT_EQ(tool.get(), 0);
  }
  {
    const std::string said = folder / "said";
    auto tool = Shell(words + "/rdrecv --wait 20 --listen " + transport::TestAddress() + " 0 " +
                      to + " 2>" + said);
    const std::string_view start = "rdrecv: listening on port ";
    std::string line;
    for (int i = 0; i < 1000 && !line.starts_with(start); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::ifstream file(said);
      std::getline(file, line);
    }
    ASSERT_TRUE(line.starts_with(start)) << line;
    const int port = std::stoi(line.substr(start.size()));
    const rdfs::Pipe sender = Send(port);
    EXPECT_GT(sender.Write(data.data(), data.size()), 0) << sender.sentence();
    EXPECT_EQ(sender.Finish(), 0) << sender.sentence();
    EXPECT_EQ(tool.get(), 0);
    std::ifstream file(to, std::ios::binary);
    EXPECT_TRUE((std::string(std::istreambuf_iterator<char>(file), {})) == data);
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Over, Pipes, testing::ValuesIn(Transports()), NameOf);

TEST(PipeRefusals, SayWhatIsWrong) {
  rdfs::Pipe pipe;
  rdfs_error error{};
  EXPECT_EQ(rdfs::Pipe::Listen(0, kKey, "nonsense", pipe, &error), -EINVAL);
  EXPECT_NE(std::string(error.sentence).find("'nonsense' is no option of a stream"),
            std::string::npos);
  EXPECT_EQ(rdfs::Pipe::Listen(0, kKey, "compress", pipe, &error), -EINVAL);  // a sender's
  EXPECT_EQ(rdfs::Pipe::Send("127.0.0.1", 1, kKey, "timeout=x", pipe, &error), -EINVAL);
  EXPECT_EQ(rdfs::Pipe::Send("127.0.0.1", 1, "", "", pipe, &error), -EINVAL);
  EXPECT_EQ(rdfs_pipe_listen(0, nullptr, "", nullptr, &error), -EINVAL);
  rdfs_pipe* made = nullptr;
  EXPECT_EQ(rdfs_pipe_listen(0, nullptr, "", &made, &error), -EINVAL);
  EXPECT_EQ(std::string(error.sentence),
            "give a key, or key_file=FILE among the options, not both");
  EXPECT_EQ(rdfs::Pipe::Send("127.0.0.1", 1, kKey, "wait=0", pipe, &error), -ENOTCONN);
  EXPECT_NE(std::string(error.sentence).find("does not answer"), std::string::npos);

  rdfs::Pipe taken;
  ASSERT_EQ(rdfs::Pipe::Listen(0, kKey, "listen=127.0.0.1,wait=0", taken, &error), 0);
  char room = 0;
  EXPECT_EQ(rdfs_pipe_write(taken.get(), &room, 1), -EINVAL);
  EXPECT_EQ(taken.Read(&room, 0), -EINVAL);
  EXPECT_EQ(taken.Read(&room, 1), -ETIMEDOUT);
  EXPECT_NE(std::string(taken.sentence()).find("no sender came"), std::string::npos);
}

TEST(PipeOptions, SecondsMayHaveAFraction) {
  rdfs::Pipe pipe;
  rdfs_error error{};
  for (const char* wrong : {"wait=", "wait=-1", "wait=nan", "wait=inf", "wait=0.5s", "wait=1e9"}) {
    EXPECT_EQ(rdfs::Pipe::Listen(0, kKey, wrong, pipe, &error), -EINVAL) << wrong;
  }
  ASSERT_EQ(rdfs::Pipe::Listen(0, kKey, "listen=127.0.0.1,wait=0.05,timeout=2.5", pipe, &error), 0)
      << error.sentence;
  char room = 0;
  EXPECT_EQ(pipe.Read(&room, 1), -ETIMEDOUT);
}

TEST(PipeKeys, AnEmptyOneIsThatOfTheFile) {
  const auto file =
      std::filesystem::path(testing::TempDir()) / ("pipe-key-" + std::to_string(getpid()));
  std::ofstream(file) << kKey << '\n';
  std::filesystem::permissions(
      file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::string option = "key_file=" + file.string();
  rdfs::Pipe receiver;
  rdfs::Pipe sender;
  rdfs_error error{};
  ASSERT_EQ(rdfs::Pipe::Listen(0, "", option + ",listen=127.0.0.1", receiver, &error), 0)
      << error.sentence;
  auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, 100); });
  ASSERT_EQ(rdfs::Pipe::Send("127.0.0.1", static_cast<std::uint16_t>(receiver.port()), "", option,
                             sender, &error),
            0)
      << error.sentence;
  EXPECT_EQ(sender.Write("whole", 5), 5);
  EXPECT_EQ(sender.Finish(), 0) << sender.sentence();
  EXPECT_EQ(came.get().bytes, "whole");
  std::filesystem::remove(file);
}

TEST(PipeRefusals, AWrongKeyEndsOnlyTheOneWhoHadIt) {
  rdfs::Pipe receiver;
  rdfs_error error{};
  ASSERT_EQ(rdfs::Pipe::Listen(0, kKey, "listen=127.0.0.1", receiver, &error), 0);
  const auto port = static_cast<std::uint16_t>(receiver.port());
  rdfs::Pipe sender;
  EXPECT_EQ(rdfs::Pipe::Send("127.0.0.1", port, "open", "", sender, &error), -EACCES);
  // Nor does one that wants its stream to go further.
  EXPECT_LT(rdfs::Pipe::Send("127.0.0.1,127.0.0.1:1", port, kKey, "wait=0", sender, &error), 0);
  auto came = std::async(std::launch::async, [&] { return ReadAll(receiver, 100); });
  ASSERT_EQ(rdfs::Pipe::Send("127.0.0.1", port, kKey, "", sender, &error), 0) << error.sentence;
  EXPECT_EQ(sender.Write("whole", 5), 5);
  EXPECT_EQ(sender.Finish(), 0);
  EXPECT_EQ(came.get().bytes, "whole");
}

}  // namespace
}  // namespace rdfs::fs::library
