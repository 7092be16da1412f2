// Operations under way in a queue: completions, descriptors, threads, memory, and who answers the
// server while the program does something else.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "fs/library/rdfs.hpp"
#include "tests/fs/library/fixture.h"

namespace rdfs::fs::library {
namespace {

class Queues : public Library {
 protected:
  // The next completion; every one has to come within the deadline of a call.
  rdfs_completion Take() {
    rdfs_completion completion{};
    EXPECT_EQ(rdfs_poll(queue_, &completion, 1, 30'000), 1);
    return completion;
  }
  void* Number(std::uintptr_t number) { return reinterpret_cast<void*>(number); }
};

INSTANTIATE_TEST_SUITE_P(Over, Queues, testing::ValuesIn(Transports()), NameOf);

TEST_P(Queues, EveryReadCompletesOnceIntoItsBuffer) {
  constexpr std::size_t kBlock = 4096, kBlocks = 512, kDepth = 32;
  const std::string text = RandomText(kBlock * kBlocks, 3);
  Put("file", text);
  rdfs_file* file = Open("file", O_RDONLY);
  rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, kDepth * kBlock);
  ASSERT_NE(buffer, nullptr);
  ASSERT_GE(rdfs_buffer_size(buffer), kDepth * kBlock);
  const char* memory = static_cast<const char*>(rdfs_buffer_data(buffer));
  std::mt19937 random(4);
  std::map<std::uintptr_t, std::size_t> block_of;  // by place in the buffer
  std::size_t begun = 0, ended = 0;
  const auto begin = [&](std::uintptr_t place) {
    const std::size_t block = random() % kBlocks;
    ASSERT_TRUE(block_of.emplace(place, block).second);
    ASSERT_EQ(rdfs_submit_pread(queue_, file, buffer, place * kBlock, kBlock, block * kBlock,
                                Number(place)),
              0);
    ++begun;
  };
  for (std::uintptr_t place = 0; place < kDepth; ++place) begin(place);
  while (ended < begun) {
    const rdfs_completion done = Take();
    const auto place = reinterpret_cast<std::uintptr_t>(done.user);
    ASSERT_EQ(done.result, static_cast<std::int64_t>(kBlock));
    ASSERT_EQ(block_of.count(place), 1U);
    EXPECT_EQ(std::memcmp(memory + place * kBlock, text.data() + block_of[place] * kBlock, kBlock),
              0);
    block_of.erase(place);
    ++ended;
    if (begun < 500) begin(place);
  }
  EXPECT_EQ(ended, 500U);
  rdfs_completion none{};
  EXPECT_EQ(rdfs_poll(queue_, &none, 1, 0), 0);
  rdfs_buffer_free(buffer);
  EXPECT_EQ(rdfs_close(queue_, file), 0);
}

TEST_P(Queues, EveryOperationHasAForm) {
  rdfs_attributes attributes{};
  ASSERT_EQ(rdfs_submit_mkdir(queue_, "d", 0755, Number(1)), 0);
  EXPECT_EQ(Take().result, 0);
  ASSERT_EQ(rdfs_submit_open(queue_, "d/x", O_RDWR | O_CREAT, 0644, Number(2)), 0);
  rdfs_completion done = Take();
  ASSERT_EQ(done.result, 0);
  EXPECT_EQ(done.user, Number(2));
  rdfs_file* file = done.file;
  ASSERT_NE(file, nullptr);
  rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, 100);
  std::memcpy(rdfs_buffer_data(buffer), "0123456789", 10);
  ASSERT_EQ(rdfs_submit_pwrite(queue_, file, buffer, 2, 8, 1, nullptr), 0);
  EXPECT_EQ(Take().result, 8);
  ASSERT_EQ(rdfs_submit_truncate(queue_, file, 5, nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  ASSERT_EQ(rdfs_submit_fsync(queue_, file, 1, nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  ASSERT_EQ(rdfs_submit_fstat(queue_, file, &attributes, nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  EXPECT_EQ(attributes.size, 5U);
  ASSERT_EQ(rdfs_submit_close(queue_, file, nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  EXPECT_EQ(Content("d/x"), std::string("\0"
                                        "2345",
                                        5));
  ASSERT_EQ(rdfs_submit_rename(queue_, "d/x", "y", 0, nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  ASSERT_EQ(rdfs_submit_symlink(queue_, "y", "d/link", nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  ASSERT_EQ(rdfs_submit_list(queue_, "d", nullptr), 0);
  done = Take();
  ASSERT_EQ(rdfs_listing_count(done.listing), 1U);
  EXPECT_STREQ(rdfs_listing_name(done.listing, 0), "link");
  rdfs_listing_free(done.listing);
  ASSERT_EQ(rdfs_submit_unlink(queue_, "d/link", nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  ASSERT_EQ(rdfs_submit_rmdir(queue_, "d", nullptr), 0);
  EXPECT_EQ(Take().result, 0);
  ASSERT_EQ(rdfs_submit_stat(queue_, "d", 0, &attributes, nullptr), 0);
  done = Take();
  EXPECT_EQ(done.result, -ENOENT);
  EXPECT_STREQ(done.sentence, "looking at 'd': No such file or directory");
  rdfs_buffer_free(buffer);
}

TEST_P(Queues, RefusesWhatCannotBe) {
  Put("file", "content");
  rdfs_file* file = Open("file", O_RDONLY);
  rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, 4096);
  const std::size_t size = rdfs_buffer_size(buffer);
  EXPECT_EQ(rdfs_submit_pread(queue_, file, buffer, size + 1, 0, 0, nullptr), -EINVAL);
  EXPECT_EQ(rdfs_submit_pread(queue_, file, buffer, 1, size, 0, nullptr), -EINVAL);
  EXPECT_EQ(rdfs_submit_pread(queue_, file, buffer, 0, 1, UINT64_MAX, nullptr), -EINVAL);
  EXPECT_EQ(rdfs_submit_pread(queue_, file, nullptr, 0, 1, 0, nullptr), -EINVAL);
  EXPECT_EQ(rdfs_submit_pread(nullptr, file, buffer, 0, 1, 0, nullptr), -EINVAL);
  EXPECT_EQ(rdfs_submit_open(queue_, nullptr, 0, 0, nullptr), -EINVAL);
  rdfs_queue* other = nullptr;
  ASSERT_EQ(rdfs_queue_open(export_, &other, nullptr), 0);
  EXPECT_EQ(rdfs_submit_pread(other, file, buffer, 0, 1, 0, nullptr), -EINVAL);
  EXPECT_EQ(rdfs_disconnect(export_), -EBUSY);
  // A file is its export's: any queue takes it.
  char letter = 0;
  EXPECT_EQ(rdfs_pread(other, file, &letter, 1, 3), 1);
  EXPECT_EQ(letter, 't');
  rdfs_queue_close(other);
  EXPECT_EQ(rdfs_pwrite(queue_, file, "x", 1, 0), -EBADF);
  rdfs_completion none{};
  EXPECT_EQ(rdfs_poll(queue_, &none, 0, 0), -EINVAL);
  EXPECT_EQ(rdfs_poll(queue_, nullptr, 1, 0), -EINVAL);
  EXPECT_EQ(rdfs_close(queue_, file), 0);
  rdfs_buffer_free(buffer);
}

// It would stay open at the server, and its program may have no use for an error.
TEST_P(Queues, AFileIsClosedHoweverMuchIsUnderWay) {
  Put("file", "content");
  rdfs_file* file = Open("file", O_RDONLY);
  rdfs_file* other = Open("file", O_RDONLY);
  rdfs_attributes attributes{};
  for (int i = 0; i < RDFS_MAX_UNDER_WAY; ++i) {
    ASSERT_EQ(rdfs_submit_stat(queue_, "/", 0, &attributes, nullptr), 0);
  }
  EXPECT_EQ(rdfs_submit_stat(queue_, "/", 0, &attributes, nullptr), -EAGAIN);
  EXPECT_EQ(rdfs_close(queue_, file), 0) << rdfs_sentence(queue_);
  ASSERT_EQ(rdfs_submit_close(queue_, other, Number(1)), 0);
  rdfs_completion done{};
  for (int i = 0; i <= RDFS_MAX_UNDER_WAY; ++i) {
    done = Take();
    EXPECT_EQ(done.result, 0);
  }
}

TEST_P(Queues, WaitsAlsoWhenTheProgramHasAllMemory) {
  const std::string text = RandomText(2'000'000, 5);
  Put("file", text);
  rdfs_file* file = Open("file", O_RDONLY);
  std::vector<rdfs_buffer*> all;
  for (std::size_t bytes = 1 << 20; bytes >= 4096; bytes /= 2) {
    while (rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, bytes)) all.push_back(buffer);
  }
  EXPECT_GT(all.size(), 3U);
  std::string back(text.size(), 'x');
  EXPECT_EQ(rdfs_pread(queue_, file, back.data(), back.size(), 0),
            static_cast<ssize_t>(back.size()));
  EXPECT_TRUE(back == text);
  for (rdfs_buffer* buffer : all) rdfs_buffer_free(buffer);
  EXPECT_EQ(rdfs_close(queue_, file), 0);
}

TEST_P(Queues, ThreadsThatShareTheLastMemoryMoveAllOfTheirBytes) {
  const std::string text = RandomText(2'000'000, 15);
  Put("file", text);
  rdfs_file* file = Open("file", O_RDWR);
  std::vector<rdfs_buffer*> all;
  for (std::size_t bytes = 1 << 20; bytes >= 4096; bytes /= 2) {
    while (rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, bytes)) all.push_back(buffer);
  }
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      std::string back(text.size(), 'x');
      const auto size = static_cast<ssize_t>(back.size());
      const ssize_t moved = i == 0 ? rdfs_pwrite(queue_, file, text.data(), text.size(), 0)
                                   : rdfs_pread(queue_, file, back.data(), back.size(), 0);
      if (moved == size && (i == 0 || back == text)) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 6);
  for (rdfs_buffer* buffer : all) rdfs_buffer_free(buffer);
  EXPECT_EQ(rdfs_close(queue_, file), 0);
}

// Who gives the last memory back does not have it again before those who have waited for it: what
// they read is from before the second half of the file was written.
TEST_P(Queues, TheLastMemoryGoesToWhoHasWaitedLongest) {
  constexpr std::size_t kLast = 256 << 10, kRead = 4096;
  constexpr int kReaders = 8;
  const std::string old(kRead, 'a');
  Put("file", std::string(2 * kLast, 'a'));
  rdfs_file* file = Open("file", O_RDWR);
  std::vector<rdfs_buffer*> all;
  for (std::size_t bytes = 1 << 20; bytes >= 4096; bytes /= 2) {
    while (rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, bytes)) all.push_back(buffer);
  }
  std::atomic<int> begun = 0;
  const auto await = [&begun](int threads) {
    while (begun < threads) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::seconds(1));  // they wait by now
  };
  server_.Stop();
  std::thread writer([&] {
    const std::string text(2 * kLast, 'b');
    ++begun;
    EXPECT_EQ(rdfs_pwrite(queue_, file, text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
  });
  await(1);
  std::vector<std::thread> readers;
  std::atomic<int> right = 0;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      std::string back(kRead, 'x');
      ++begun;
      const ssize_t moved = rdfs_pread(queue_, file, back.data(), back.size(), kLast);
      if (moved == static_cast<ssize_t>(kRead) && back == old) ++right;
    });
  }
  await(1 + kReaders);
  server_.Continue();
  for (std::thread& reader : readers) reader.join();
  writer.join();
  EXPECT_EQ(right, kReaders);
  for (rdfs_buffer* buffer : all) rdfs_buffer_free(buffer);
  EXPECT_EQ(rdfs_close(queue_, file), 0);
}

TEST_P(Queues, CxxObjectsDoTheSame) {
  const std::string text = RandomText(3 << 20, 8);
  rdfs::Export served;
  rdfs::Queue queue;
  rdfs::File file;
  rdfs_error error{};
  const std::string options = std::string("deadline=20,require=") + GetParam();
  ASSERT_EQ(rdfs::Export::Connect(Source(), options, served, &error), 0) << error.sentence;
  ASSERT_EQ(rdfs::Queue::Open(served, queue, &error), 0) << error.sentence;
  ASSERT_EQ(queue.MakeDirectory("d", 0755), 0);
  ASSERT_EQ(queue.OpenFile("d/file", O_RDWR | O_CREAT, 0644, file), 0) << queue.sentence();
  const rdfs::Buffer buffer = queue.Allocate(text.size());
  ASSERT_NE(buffer, nullptr);
  std::memcpy(rdfs_buffer_data(buffer.get()), text.data(), text.size());
  const auto completes = [&](std::int64_t result, std::uintptr_t user) {
    rdfs_completion completion{};
    ASSERT_EQ(queue.Poll(&completion, 1, 30'000), 1);
    EXPECT_EQ(completion.result, result);
    EXPECT_EQ(completion.user, Number(user));
  };
  const std::size_t piece = 1 << 20;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    ASSERT_EQ(file.SubmitWrite(buffer, at, piece, at, Number(at)), 0);
    completes(static_cast<std::int64_t>(piece), at);
  }
  ASSERT_EQ(file.SubmitSync(true, Number(1)), 0);
  completes(0, 1);
  EXPECT_TRUE(Content("d/file") == text);
  std::memset(rdfs_buffer_data(buffer.get()), 0, text.size());
  ASSERT_EQ(file.SubmitRead(buffer, 5, piece, 7, Number(2)), 0);
  pollfd ready{.fd = queue.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ready, 1, 30'000), 1);
  completes(static_cast<std::int64_t>(piece), 2);
  EXPECT_EQ(std::memcmp(static_cast<char*>(rdfs_buffer_data(buffer.get())) + 5, &text[7], piece),
            0);

  // A text that C would cut off names something else.
  const std::string cut("d\0x", 3);
  rdfs_attributes attributes{};
  rdfs::File none;
  rdfs::Export no_export;
  rdfs::Listing listing;
  EXPECT_EQ(queue.OpenFile(cut, O_RDWR | O_CREAT, 0644, none), -EINVAL);
  EXPECT_EQ(queue.List(cut, listing), -EINVAL);
  EXPECT_EQ(queue.Stat(cut, attributes), -EINVAL);
  EXPECT_EQ(queue.MakeDirectory(cut, 0755), -EINVAL);
  EXPECT_EQ(queue.RemoveDirectory(cut), -EINVAL);
  EXPECT_EQ(queue.Unlink(cut), -EINVAL);
  EXPECT_EQ(queue.Rename("d", cut), -EINVAL);
  EXPECT_EQ(queue.Symlink(cut, "link"), -EINVAL);
  EXPECT_EQ(rdfs::Export::Connect(Source(), options + cut, no_export, &error), -EINVAL);
  EXPECT_EQ(error.number, EINVAL);

  EXPECT_EQ(file.Truncate(99), 0);
  EXPECT_EQ(file.Stat(attributes), 0);
  EXPECT_EQ(attributes.size, 99U);
  EXPECT_EQ(file.Close(), 0);
  EXPECT_EQ(queue.Symlink("file", "d/link"), 0);
  EXPECT_EQ(queue.Rename("d/link", "d/moved"), 0);
  EXPECT_EQ(queue.Stat("d/moved", attributes), 0);
  EXPECT_EQ(attributes.size, 99U);
  EXPECT_EQ(queue.Unlink("d/moved"), 0);
  EXPECT_EQ(queue.Unlink("d/file"), 0);
  EXPECT_EQ(queue.RemoveDirectory("d"), 0);
  EXPECT_EQ(queue.Stat("d", attributes), -ENOENT);
}

TEST_P(Queues, MemoryThatIsFreedStaysWithItsOperation) {
  const std::string text = RandomText(1 << 20, 6);
  Put("file", text);
  rdfs_file* file = Open("file", O_RDONLY);
  rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, 1 << 20);
  ASSERT_EQ(rdfs_submit_pread(queue_, file, buffer, 0, 1 << 20, 0, nullptr), 0);
  rdfs_buffer_free(buffer);
  EXPECT_EQ(Take().result, 1 << 20);
  // Under way, open and untaken when the queue is closed.
  buffer = rdfs_buffer_alloc(queue_, 1 << 20);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(rdfs_submit_pread(queue_, file, buffer, 0, 1 << 20, 0, nullptr), 0);
  }
  ASSERT_EQ(rdfs_submit_open(queue_, "file", O_RDONLY, 0, nullptr), 0);
  ASSERT_EQ(rdfs_submit_list(queue_, "/", nullptr), 0);
  rdfs_queue_close(queue_);
  queue_ = nullptr;
}

TEST_P(Queues, ADescriptorTellsOfCompletions) {
  const int fd = rdfs_queue_fd(queue_);
  EXPECT_EQ(rdfs_queue_fd(queue_), fd);
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  for (int round = 0; round < 20; ++round) {
    rdfs_attributes attributes{};
    ASSERT_EQ(rdfs_submit_stat(queue_, "/", 0, &attributes, nullptr), 0);
    ASSERT_EQ(rdfs_submit_stat(queue_, "/", 0, &attributes, nullptr), 0);
    for (int taken = 0; taken < 2; ++taken) {
      ASSERT_EQ(poll(&entry, 1, 30'000), 1);  // nobody is in rdfs_poll
      rdfs_completion done{};
      ASSERT_EQ(rdfs_poll(queue_, &done, 1, 0), 1);
      EXPECT_EQ(done.result, 0);
    }
    EXPECT_EQ(poll(&entry, 1, 0), 0);
    // Waiting works beside it.
    EXPECT_EQ(rdfs_stat(queue_, "/", 0, &attributes), 0);
  }
}

TEST_P(Queues, OneThreadSubmitsAndAnotherTakes) {
  constexpr int kEach = 300;
  std::atomic<int> failures{0};
  std::thread taker([&] {
    rdfs_completion done[8];
    for (int taken = 0; taken < 2 * kEach;) {
      const int count = rdfs_poll(queue_, done, 8, -1);
      for (int i = 0; i < count; ++i) failures += done[i].result == 0 ? 0 : 1;
      taken += count;
    }
  });
  const auto submit = [&](rdfs_attributes* out) {
    for (int i = 0; i < kEach; ++i) {
      if (rdfs_submit_stat(queue_, "/", 0, out, nullptr) != 0) ++failures;
      rdfs_attributes mine{};
      if (rdfs_stat(queue_, "/", 0, &mine) != 0) ++failures;
    }
  };
  // Each thread's results go to one place, which nobody reads.
  std::vector<rdfs_attributes> first(1), second(1);
  std::thread one([&] { submit(first.data()); });
  std::thread two([&] { submit(second.data()); });
  one.join();
  two.join();
  taker.join();
  EXPECT_EQ(failures, 0);
}

// A change waits for everybody who may believe what was before: a program that is busy with
// something else must not make others wait until its lease (5 s) is over.
TEST_P(Queues, AProgramThatComputesKeepsNobodyWaiting) {
  Put("file", "content");
  rdfs_attributes attributes{};
  rdfs_export* other = nullptr;
  rdfs_queue* others = nullptr;
  Connect(&other);
  ASSERT_EQ(rdfs_queue_open(other, &others, nullptr), 0);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(rdfs_stat(queue_, "file", 0, &attributes), 0);
    ASSERT_EQ(rdfs_rename(others, "file", "elsewhere", 0), 0);
    ASSERT_EQ(rdfs_rename(others, "elsewhere", "file", 0), 0);
  }
  // Four leases would be 20 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  rdfs_queue_close(others);
  EXPECT_EQ(rdfs_disconnect(other), 0);
}

// Neither does one that takes its completions one after the other.
TEST_P(Queues, AProgramThatTakesSlowlyKeepsNobodyWaiting) {
  using std::chrono::steady_clock;
  Put("file", "content");
  rdfs_export* other = nullptr;
  rdfs_queue* others = nullptr;
  Connect(&other);
  ASSERT_EQ(rdfs_queue_open(other, &others, nullptr), 0);
  constexpr int kCompletions = 2000;
  rdfs_attributes attributes{};
  for (int i = 0; i < kCompletions; ++i) {
    ASSERT_EQ(rdfs_submit_stat(queue_, "file", 0, &attributes, nullptr), 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // most have come
  std::atomic<bool> renamed{false};
  steady_clock::duration took{};
  std::thread renames([&] {
    const auto begin = steady_clock::now();
    EXPECT_EQ(rdfs_rename(others, "file", "elsewhere", 0), 0);
    took = steady_clock::now() - begin;
    renamed = true;
  });
  int taken = 0;
  for (; taken < kCompletions && !renamed; ++taken) {
    Take();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (; taken < kCompletions; ++taken) Take();
  renames.join();
  EXPECT_LT(took, std::chrono::seconds(4));  // a lease is 5 s
  rdfs_queue_close(others);
  EXPECT_EQ(rdfs_disconnect(other), 0);
}

}  // namespace
}  // namespace rdfs::fs::library
