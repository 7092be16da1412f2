// The bytes of every message: what another release must still read.
#include "transport/session/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/hex.h"
#include "transport/session/frame.h"

namespace rdfs::transport::session {
namespace {

constexpr std::string_view kPrefix = "52444653 0100 0000";  // "RDFS", 1.0

template <std::size_t N>
std::array<std::byte, N> Filled(int value) {
  std::array<std::byte, N> out{};
  out.fill(static_cast<std::byte>(value));
  return out;
}

std::string Repeat(std::string_view hex, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += hex;
  return out;
}

std::string Join(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const auto part : parts) out += part;
  return ToHex(FromHex(out));
}

ClientHello SampleClientHello() {
  ClientHello hello;
  hello.required_features = 0x0102;
  hello.optional_features = 0x0304;
  hello.authentication = Authentication::kKey;
  hello.encryption_wish = EncryptionWish::kPlaintextAsked;
  hello.nonce = Filled<32>(0xaa);
  hello.share = Filled<32>(0xbb);
  hello.key_name = "k1";
  return hello;
}

TEST(Messages, ClientHelloBytes) {
  EXPECT_EQ(ToHex(SampleClientHello().Encode()),
            Join({kPrefix, "0201000000000000", "0403000000000000", "00400000", "01", "02", "0000",
                  Repeat("aa", 32), Repeat("bb", 32), "0200", "6b31", "0000"}));
  ClientHello back;
  ASSERT_TRUE(ClientHello::Decode(SampleClientHello().Encode(), back).ok());
  EXPECT_EQ(back.Encode(), SampleClientHello().Encode());
}

TEST(Messages, ServerHelloBytes) {
  ServerHello hello;
  hello.features = 1;
  hello.authentication = Authentication::kKey;
  hello.encryption = Encryption::kTls;
  hello.nonce = Filled<32>(0xcc);
  hello.share = Filled<32>(0xdd);
  EXPECT_EQ(ToHex(hello.Encode()), Join({kPrefix, "0100000000000000", "00400000", "01", "01",
                                         "0000", Repeat("cc", 32), Repeat("dd", 32), "0000"}));
  ServerHello back;
  ASSERT_TRUE(ServerHello::Decode(hello.Encode(), back).ok());
  EXPECT_EQ(back.Encode(), hello.Encode());
}

TEST(Messages, RefusalBytes) {
  const Refusal refusal{{}, {Code::kAuthenticationFailed, 13, "wrong key"}};
  EXPECT_EQ(ToHex(refusal.Encode()), Join({kPrefix, "1300", "0900", "77726f6e67206b6579"}));
  Refusal back;
  ASSERT_TRUE(Refusal::Decode(refusal.Encode(), back).ok());
  EXPECT_EQ(back.why.code(), Code::kAuthenticationFailed);
  EXPECT_EQ(back.why.message(), "wrong key");
}

TEST(Messages, RefusalSentencesCannotSteerATerminal) {
  Refusal back;
  const Refusal refusal{{}, {Code::kNotFound, "\x1b]0;owned\x07\nno"}};
  ASSERT_TRUE(Refusal::Decode(refusal.Encode(), back).ok());
  EXPECT_EQ(back.why.message(), "?]0;owned??no");
}

TEST(Messages, RefusalOfAnUnknownCodeIsStillARefusal) {
  for (const char* code : {"0000", "0f00", "ff00", "ffff"}) {
    Refusal back;
    ASSERT_TRUE(Refusal::Decode(FromHex(Join({kPrefix, code, "0100", "78"})), back).ok());
    EXPECT_EQ(back.why.code(), Code::kProtocolError) << code;
  }
}

SessionOpen SampleOpen() {
  SessionOpen open;
  open.host.boot_id = Filled<16>(0x11);
  open.host.netns_device = 4;
  open.host.netns_inode = 0xf0000098;
  open.uid = 1000;
  open.lane_wish = EncryptionWish::kPlaintextAsked;
  open.service = "fs";
  open.request = {std::byte{1}, std::byte{2}};
  return open;
}

TEST(Messages, SessionOpenBytes) {
  EXPECT_EQ(ToHex(SampleOpen().Encode()),
            Join({Repeat("11", 16), "0400000000000000", "980000f000000000", "e8030000", "0200",
                  "0200", "6673", "0200", "0102", "0000"}));
  SessionOpen back;
  ASSERT_TRUE(SessionOpen::Decode(SampleOpen().Encode(), back).ok());
  EXPECT_EQ(back.Encode(), SampleOpen().Encode());
}

SessionGrant SampleGrant() {
  SessionGrant grant;
  grant.session_id = 0x0102030405060708;
  grant.server_epoch = 9;
  grant.same_host = grant.encrypt_lanes = true;
  grant.offers = {{Kind::kShm, true, 0, "ab", ""},
                  {Kind::kVerbs, false, 0, "", "no device"},
                  {Kind::kTcp, true, 7337, "", ""}};
  grant.grant = {std::byte{7}};
  return grant;
}

TEST(Messages, SessionGrantBytes) {
  EXPECT_EQ(ToHex(SampleGrant().Encode()), Join({"0807060504030201",
                                                 "0900000000000000",
                                                 "0300",
                                                 "0300",  //
                                                 "02",
                                                 "01",
                                                 "0000",
                                                 "0200",
                                                 "6162",
                                                 "0000",  //
                                                 "03",
                                                 "00",
                                                 "0000",
                                                 "0000",
                                                 "0900",
                                                 "6e6f20646576696365",  //
                                                 "01",
                                                 "01",
                                                 "a91c",
                                                 "0000",
                                                 "0000",  //
                                                 "0100",
                                                 "07",
                                                 "0000"}));
  SessionGrant back;
  ASSERT_TRUE(SessionGrant::Decode(SampleGrant().Encode(), back).ok());
  EXPECT_EQ(back.Encode(), SampleGrant().Encode());
}

TEST(Messages, NamesOfSocketsCannotSteerATerminal) {
  for (const char* name : {"\x1b]0;owned\x07", "rdfs-\n", "two words", "\xc2\x9b", "\x7f"}) {
    SessionGrant grant = SampleGrant();
    grant.offers.front().name = name;
    SessionGrant back;
    EXPECT_EQ(SessionGrant::Decode(grant.Encode(), back).code(), Code::kProtocolError) << name;
    EXPECT_TRUE(back.offers.empty());
  }
}

TEST(Messages, GrantsSkipTransportsOfLaterVersions) {
  auto bytes = SampleGrant().Encode();
  bytes[20] = std::byte{9};  // the kind of the first offer
  SessionGrant back;
  ASSERT_TRUE(SessionGrant::Decode(bytes, back).ok());
  EXPECT_EQ(back.offers.size(), 2U);
}

TEST(Messages, FrameBytes) {
  EXPECT_EQ(ToHex(EncodeFrame(FrameType::kSessionGrant, AsBytes("ab"))),
            Join({"02000000", "1100", "0000", "6162"}));
  EXPECT_EQ(ToHex(EncodeFrame(FrameType::kClientConfirm, {})), Join({"00000000", "0300", "0000"}));
}

TEST(Messages, ExtensionsOfLaterMinorVersionsAreIgnored) {
  auto bytes = SampleClientHello().Encode();
  bytes.resize(bytes.size() - 2);
  for (const auto byte : FromHex("0300 616263")) bytes.push_back(byte);
  ClientHello back;
  EXPECT_TRUE(ClientHello::Decode(bytes, back).ok());
  bytes.push_back(std::byte{1});  // and so is what stands behind them
  EXPECT_TRUE(ClientHello::Decode(bytes, back).ok());
}

TEST(Messages, AnotherMajorVersionIsNamedWithOurs) {
  auto bytes = SampleClientHello().Encode();
  bytes[4] = std::byte{2};
  bytes[6] = std::byte{5};
  ClientHello back;
  const Status status = ClientHello::Decode(bytes, back);
  EXPECT_EQ(status.code(), Code::kVersionMismatch);
  EXPECT_NE(status.message().find("1.0"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("2.5"), std::string::npos) << status.message();
  bytes[0] = std::byte{'X'};
  EXPECT_EQ(ClientHello::Decode(bytes, back).code(), Code::kProtocolError);
}

// Every message, cut at every length: an error and never a read beyond its end (ASan watches).
template <typename Message>
void ExpectEveryCutIsRefused(const std::vector<std::byte>& whole) {
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    Message back;
    EXPECT_FALSE(Message::Decode(cut, back).ok()) << size;
  }
}

TEST(Messages, EveryTruncationIsRefused) {
  ExpectEveryCutIsRefused<ClientHello>(SampleClientHello().Encode());
  ExpectEveryCutIsRefused<ServerHello>(ServerHello{}.Encode());
  ExpectEveryCutIsRefused<Refusal>(Refusal{{}, {Code::kBusy, "later"}}.Encode());
  ExpectEveryCutIsRefused<SessionOpen>(SampleOpen().Encode());
  ExpectEveryCutIsRefused<SessionGrant>(SampleGrant().Encode());
}

TEST(Messages, LengthsBeyondTheirBoundAreRefused) {
  ClientHello hello = SampleClientHello();
  hello.key_name = std::string(kMaxKeyName + 1, 'k');
  EXPECT_FALSE(ClientHello::Decode(hello.Encode(), hello).ok());
  SessionOpen open = SampleOpen();
  open.service = std::string(kMaxService + 1, 's');
  EXPECT_FALSE(SessionOpen::Decode(open.Encode(), open).ok());
  open = SampleOpen();
  open.request.resize(kMaxOpening + 1);
  EXPECT_FALSE(SessionOpen::Decode(open.Encode(), open).ok());
  SessionGrant grant = SampleGrant();
  grant.offers.resize(kMaxOffers + 1);
  EXPECT_FALSE(SessionGrant::Decode(grant.Encode(), grant).ok());
}

TEST(Messages, TheLargestGrantFitsAFrame) {
  SessionGrant grant;
  grant.grant.resize(kMaxOpening);
  for (std::size_t i = 0; i < kMaxOffers; ++i) {
    grant.offers.push_back(
        {Kind::kShm, false, 1, std::string(kMaxSocketName, 'n'), std::string(9999, 'r')});
  }
  SessionGrant back;
  ASSERT_TRUE(SessionGrant::Decode(grant.Encode(), back).ok());
  EXPECT_EQ(back.offers.back().reason.size(), kMaxSentence);
  EXPECT_EQ(back.grant.size(), kMaxOpening);
}

TEST(Messages, HostsAreTheSameOnlyWhenEverythingIsKnownAndEqual) {
  const HostIdentity host = SampleOpen().host;
  EXPECT_TRUE(SameHost(host, host));
  HostIdentity other = host;
  other.netns_inode += 1;  // another network namespace: shm's abstract socket is not reachable
  EXPECT_FALSE(SameHost(host, other));
  other = host;
  other.boot_id[3] = std::byte{0};
  EXPECT_FALSE(SameHost(host, other));
  EXPECT_FALSE(SameHost(HostIdentity{}, HostIdentity{}));
}

TEST(FrameReader, AsksForExactlyOneFrameWhateverThePiecesAre) {
  const auto bytes = EncodeFrame(FrameType::kSessionOpen, AsBytes("hello"));
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader(64);
    std::size_t at = 0;
    bool whole = false;
    while (!whole) {
      const auto wanted = reader.Wanted();
      ASSERT_FALSE(wanted.empty());
      const std::size_t count = std::min({piece, wanted.size(), bytes.size() - at});
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, wanted.begin());
      at += count;
      auto filled = reader.Filled(count);
      ASSERT_TRUE(filled.ok());
      whole = *filled;
    }
    EXPECT_EQ(at, bytes.size());
    EXPECT_EQ(AsText(reader.frame().body), "hello");
    EXPECT_EQ(reader.frame().type, FrameType::kSessionOpen);
    reader.Next();
    EXPECT_EQ(reader.Wanted().size(), sizeof(FrameHeader));
  }
}

TEST(FrameReader, RefusesLargeFramesBeforeItAllocates) {
  for (const char* header :
       {"41000000 0100 0000", "ffffffff 0100 0000", "00000000 0100 0001", "47455420 2f20 4854"}) {
    FrameReader reader(64);
    const auto bytes = FromHex(header);
    std::copy(bytes.begin(), bytes.end(), reader.Wanted().begin());
    EXPECT_EQ(reader.Filled(8).status().code(), Code::kProtocolError) << header;
  }
}

}  // namespace
}  // namespace rdfs::transport::session
