#include "transport/session/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "tests/hex.h"

namespace rdfs::transport::session {
namespace {

using Bytes = std::vector<std::byte>;

// Changes a frame on its way; `index` counts the frames of a run from 0.
using Tamper = std::function<void(int index, Bytes& frame)>;

struct Outcome {
  Status client, server;
  bool client_done = false, server_done = false, wrong_key = false;
  Agreement at_client, at_server;
  std::vector<Bytes> frames;
};

struct Scene {
  std::string client_key = "sesame";
  std::string key_name;
  std::vector<ServerPolicy::Entry> keys = {{"default", Key("sesame")}};
  EncryptionWish wish = EncryptionWish::kWanted;
  bool allow_plaintext = true;
  bool peer_is_local = false;
  Randomness client_random = Randomness::Draw();
  Randomness server_random = Randomness::Draw();
};

Outcome Play(const Scene& setup, const Tamper& tamper = nullptr) {
  Outcome run;
  const ServerPolicy policy{setup.keys, setup.allow_plaintext, "look under the mat"};
  ClientHandshake client({Key(setup.client_key), setup.key_name, setup.wish}, setup.client_random);
  ServerHandshake server(policy, setup.peer_is_local, setup.server_random);
  const auto deliver = [&](Bytes frame) {
    run.frames.push_back(frame);
    if (tamper) tamper(static_cast<int>(run.frames.size()) - 1, frame);
    return frame;
  };
  auto to_server = client.Start();
  while (to_server.ok() && !to_server->empty()) {
    auto to_client = server.OnFrame(deliver(*to_server));
    run.wrong_key = server.wrong_key();
    if (!to_client.ok()) {
      run.server = to_client.status();
      run.client =
          client.OnFrame(EncodeFrame(FrameType::kRefused, Refusal{{}, run.server}.Encode()))
              .status();
      return run;
    }
    to_server = client.OnFrame(deliver(*to_client));
  }
  run.client = to_server.status();
  run.client_done = client.done();
  run.server_done = server.done();
  run.at_client = client.agreement();
  run.at_server = server.agreement();
  return run;
}

TEST(Handshake, RightKeyAgreesOnEverything) {
  const Outcome run = Play({});
  ASSERT_TRUE(run.client_done && run.server_done) << run.client.ToString();
  EXPECT_EQ(run.frames.size(), 4U);
  EXPECT_EQ(run.at_server.key_name, "default");
  EXPECT_EQ(run.at_client.features, kFeatureStreamLane);
  EXPECT_EQ(run.at_client.encryption, Encryption::kTls);
  EXPECT_TRUE(EqualInConstantTime(run.at_client.tls_key.bytes(), run.at_server.tls_key.bytes()));
  EXPECT_TRUE(EqualInConstantTime(run.at_client.session_secret.bytes(),
                                  run.at_server.session_secret.bytes()));
  EXPECT_FALSE(
      EqualInConstantTime(run.at_client.tls_key.bytes(), run.at_client.session_secret.bytes()));
}

TEST(Handshake, EachRunHasItsOwnSecrets) {
  const Outcome first = Play({});
  const Outcome second = Play({});
  EXPECT_FALSE(EqualInConstantTime(first.at_client.session_secret.bytes(),
                                   second.at_client.session_secret.bytes()));
}

TEST(Handshake, WrongKeyIsRefusedWithASentence) {
  Scene setup;
  setup.client_key = "sesamf";
  const Outcome run = Play(setup);
  EXPECT_TRUE(run.wrong_key);
  EXPECT_EQ(run.client.code(), Code::kAuthenticationFailed);
  EXPECT_EQ(run.client.message(), "wrong key: this server has another one; look under the mat");
}

TEST(Handshake, NamesChooseAmongSeveralKeys) {
  Scene setup;
  setup.keys = {{"a", Key("alpha")}, {"b", Key("beta")}};
  setup.client_key = "beta";
  EXPECT_TRUE(Play(setup).wrong_key) << "the first key is meant when none is named";
  setup.key_name = "b";
  const Outcome run = Play(setup);
  EXPECT_TRUE(run.server_done);
  EXPECT_EQ(run.at_server.key_name, "b");
}

TEST(Handshake, UnknownNamesFailLikeWrongKeys) {
  Scene setup;
  setup.key_name = "nobody";
  const Outcome unknown = Play(setup);
  setup.key_name = "default";
  setup.client_key = "guess";
  const Outcome wrong = Play(setup);
  EXPECT_TRUE(unknown.wrong_key);
  EXPECT_EQ(unknown.frames.size(), wrong.frames.size());
  EXPECT_EQ(unknown.client.ToString(), wrong.client.ToString());
}

TEST(Handshake, NoKeyOnBothSidesWorksAndIsStillSecretToListeners) {
  Scene setup;
  setup.client_key.clear();
  setup.keys.clear();
  const Outcome run = Play(setup);
  EXPECT_TRUE(run.client_done && run.server_done);
  EXPECT_TRUE(EqualInConstantTime(run.at_client.tls_key.bytes(), run.at_server.tls_key.bytes()));
  EXPECT_EQ(run.at_server.key_name, "");
}

TEST(Handshake, AKeyAtOneEndOnlyIsRefusedWithASentence) {
  Scene keyless_client;
  keyless_client.client_key.clear();
  Outcome run = Play(keyless_client);
  EXPECT_EQ(run.client.code(), Code::kAuthenticationFailed);
  EXPECT_NE(run.client.message().find("asks for a key"), std::string::npos);
  EXPECT_FALSE(run.wrong_key);

  Scene keyless_server;
  keyless_server.keys.clear();
  run = Play(keyless_server);
  EXPECT_EQ(run.client.code(), Code::kAuthenticationFailed);
  EXPECT_NE(run.client.message().find("asks for no key"), std::string::npos);
}

TEST(Handshake, AClientWithAKeyRefusesAServerThatSkipsIt) {
  ClientHandshake client({Key("sesame"), "", EncryptionWish::kWanted}, Randomness::Draw());
  const ServerPolicy keyless;
  ServerHandshake server(keyless, false, Randomness::Draw());
  Bytes hello = *client.Start();
  hello[sizeof(FrameHeader) + offsetof(ClientHelloWire, authentication)] = std::byte{0};
  const auto answer = server.OnFrame(hello);  // as a server that does not care would
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(client.OnFrame(*answer).status().code(), Code::kAuthenticationFailed);
}

TEST(Handshake, DecidesAboutTlsFromBothEnds) {
  struct Case {
    EncryptionWish wish;
    bool local;
    bool allow_plaintext;
    std::optional<Encryption> decision;
  };
  const Case cases[] = {
      {EncryptionWish::kWanted, false, true, Encryption::kTls},
      {EncryptionWish::kWanted, true, true, Encryption::kTls},
      {EncryptionWish::kNotNeeded, true, true, Encryption::kNone},
      {EncryptionWish::kNotNeeded, false, true, Encryption::kTls},
      {EncryptionWish::kPlaintextAsked, false, true, Encryption::kNone},
      {EncryptionWish::kPlaintextAsked, true, false, Encryption::kNone},
      {EncryptionWish::kPlaintextAsked, false, false, std::nullopt},
  };
  for (const Case& c : cases) {
    Scene setup;
    setup.wish = c.wish;
    setup.peer_is_local = c.local;
    setup.allow_plaintext = c.allow_plaintext;
    const Outcome run = Play(setup);
    EXPECT_EQ(run.client_done, c.decision.has_value()) << run.client.ToString();
    if (c.decision) {
      EXPECT_EQ(run.at_client.encryption, *c.decision);
    }
  }
}

// Any bit of any frame, flipped on the way: no end may finish believing that all is well, and they
// never end up with the same secrets.
TEST(Handshake, EveryFlippedBitIsDetected) {
  for (int index = 0; index < 4; ++index) {
    const std::size_t size = Play({}).frames[static_cast<std::size_t>(index)].size();
    for (std::size_t byte = 0; byte < size; ++byte) {
      const unsigned bit = static_cast<unsigned>(byte) % 8;
      const Outcome run = Play({}, [&](int at, Bytes& frame) {
        if (at == index) frame[byte] ^= static_cast<std::byte>(1U << bit);
      });
      EXPECT_FALSE(run.client_done) << "frame " << index << " byte " << byte;
      if (index < 3) {
        EXPECT_FALSE(run.server_done) << "frame " << index << " byte " << byte;
      }
    }
  }
}

TEST(Handshake, FeaturesAndVersionsCannotBeDowngraded) {
  const std::size_t hello = sizeof(FrameHeader);
  const struct {
    int frame;
    std::size_t offset;
  } fields[] = {{0, hello + offsetof(VersionPrefix, minor)},
                {0, hello + offsetof(ClientHelloWire, optional_features)},
                {0, hello + offsetof(ClientHelloWire, encryption_wish)},
                {1, hello + offsetof(VersionPrefix, minor)},
                {1, hello + offsetof(ServerHelloWire, features)},
                {1, hello + offsetof(ServerHelloWire, encryption)}};
  for (const auto& field : fields) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      const Outcome run = Play({}, [&](int at, Bytes& frame) {
        if (at == field.frame) frame[field.offset] ^= static_cast<std::byte>(1U << bit);
      });
      EXPECT_FALSE(run.client_done || run.server_done) << field.frame << " " << field.offset;
    }
  }
}

TEST(Handshake, EveryTruncationIsRefused) {
  for (int index = 0; index < 4; ++index) {
    const std::size_t size = Play({}).frames[static_cast<std::size_t>(index)].size();
    for (std::size_t cut = 0; cut < size; ++cut) {
      const Outcome run = Play({}, [&](int at, Bytes& frame) {
        if (at == index) frame.resize(cut);
      });
      EXPECT_FALSE(run.client_done) << index << " " << cut;
    }
  }
}

TEST(Handshake, MessagesOutOfTurnEndIt) {
  const ServerPolicy policy{{{"default", Key("sesame")}}, true};
  ServerHandshake server(policy, false, Randomness::Draw());
  EXPECT_EQ(server.OnFrame(EncodeFrame(FrameType::kClientConfirm, Bytes(32))).status().code(),
            Code::kProtocolError);
  ClientHandshake again({Key("sesame"), "", EncryptionWish::kWanted}, Randomness::Draw());
  EXPECT_FALSE(server.OnFrame(*again.Start()).ok()) << "a failed handshake stays failed";

  ClientHandshake client({Key("sesame"), "", EncryptionWish::kWanted}, Randomness::Draw());
  ASSERT_TRUE(client.Start().ok());
  EXPECT_EQ(client.OnFrame(EncodeFrame(FrameType::kServerConfirm, Bytes(32))).status().code(),
            Code::kProtocolError);
}

TEST(Handshake, AnEchoedShareProvesNothing) {
  // A server that knows no key answers with the client's own share and its own MAC back.
  ClientHandshake client({Key("sesame"), "", EncryptionWish::kWanted}, Randomness::Draw());
  const Bytes hello = *client.Start();
  ServerHello echo;
  echo.features = kFeatureStreamLane;
  echo.authentication = Authentication::kKey;
  echo.encryption = Encryption::kTls;
  std::copy_n(hello.begin() + sizeof(FrameHeader) + offsetof(ClientHelloWire, share), 32,
              echo.share.begin());
  const auto confirm = client.OnFrame(EncodeFrame(FrameType::kServerHello, echo.Encode()));
  ASSERT_TRUE(confirm.ok());
  Bytes reflected(confirm->begin() + sizeof(FrameHeader), confirm->end());
  EXPECT_EQ(client.OnFrame(EncodeFrame(FrameType::kServerConfirm, reflected)).status().code(),
            Code::kAuthenticationFailed);
}

TEST(Handshake, SharesThatLeadNowhereAreRefused) {
  const Outcome run = Play({}, [](int at, Bytes& frame) {
    if (at != 0) return;
    auto share = frame.begin() + sizeof(FrameHeader) + offsetof(ClientHelloWire, share);
    std::fill_n(share, 32, std::byte{0});
  });
  EXPECT_EQ(run.server.code(), Code::kProtocolError);
}

TEST(Handshake, VersionMismatchNamesBothVersionsAtBothEnds) {
  ServerPolicy policy{{{"default", Key("sesame")}}, true};
  ServerHandshake server(policy, false, Randomness::Draw());
  ClientHandshake client({Key("sesame"), "", EncryptionWish::kWanted}, Randomness::Draw());
  Bytes hello = *client.Start();
  hello[sizeof(FrameHeader) + 4] = std::byte{9};
  const Status at_server = server.OnFrame(hello).status();
  EXPECT_EQ(at_server.code(), Code::kVersionMismatch);
  EXPECT_NE(at_server.message().find("9.0"), std::string::npos) << at_server.message();
  EXPECT_NE(at_server.message().find("1.0"), std::string::npos) << at_server.message();

  const Refusal from_later{{9, 3}, {Code::kVersionMismatch, "whatever it says"}};
  const Status at_client =
      client.OnFrame(EncodeFrame(FrameType::kRefused, from_later.Encode())).status();
  EXPECT_EQ(at_client.code(), Code::kVersionMismatch);
  EXPECT_NE(at_client.message().find("9.3"), std::string::npos) << at_client.message();
  EXPECT_NE(at_client.message().find("1.0"), std::string::npos) << at_client.message();
}

TEST(Handshake, RequiredFeaturesThatWeDoNotHaveAreRefused) {
  const Outcome run = Play({}, [](int at, Bytes& frame) {
    if (at == 0) {
      frame[sizeof(FrameHeader) + offsetof(ClientHelloWire, required_features)] = std::byte{0x80};
    }
  });
  EXPECT_EQ(run.server.code(), Code::kVersionMismatch);
}

// A run with everything fixed: another release must make these very bytes. The confirmations were
// computed once more from the shares by an independent program (hashlib, hmac).
TEST(Handshake, GoldenRun) {
  Scene setup;
  setup.key_name = "default";
  setup.client_random.nonce.fill(std::byte{0x01});
  setup.client_random.scalar.bytes()[0] = std::byte{0x02};
  std::fill(setup.client_random.scalar.bytes().begin() + 1,
            setup.client_random.scalar.bytes().end(), std::byte{0});
  setup.server_random.nonce.fill(std::byte{0x03});
  setup.server_random.scalar = setup.client_random.scalar;
  setup.server_random.scalar.bytes()[0] = std::byte{0x05};
  const Outcome run = Play(setup);
  ASSERT_TRUE(run.client_done && run.server_done);
  ASSERT_EQ(run.frames.size(), 4U);
  EXPECT_EQ(ToHex(run.frames[0]),
            "6b000000010000005244465301000000000000000000000001000000000000000040000001010000"
            "01010101010101010101010101010101010101010101010101010101010101015208257898dd16c7"
            "82373ff68c3c9b9f85cc292bab38f5e5fe23d49e12891a58070064656661756c740000");
  EXPECT_EQ(ToHex(run.frames[1]),
            "5a000000020000005244465301000000010000000000000000400000010100000303030303030303"
            "0303030303030303030303030303030303030303030303032801c324e769c37c1c68734bb2dffb7d"
            "2b1d25e3b4af7232fb403dd07facd05f0000");
  EXPECT_EQ(ToHex(run.frames[2]),
            "2000000003000000adb2f80041e02eedc85f9be81019c99a24205294d075ade11284349c34927d09");
  EXPECT_EQ(ToHex(run.frames[3]),
            "2000000004000000e46e43a306b703fadd504cc3ceb6981f7782528a78f6f4d13bbf4674bc4355e9");
  EXPECT_EQ(ToHex(run.at_client.tls_key.bytes()),
            "6c034d2a7b2a29793a920414caec8f1d285ff4ef2b0327d0ffd240586aaf81f5");
  EXPECT_EQ(ToHex(run.at_client.session_secret.bytes()),
            "ec5583404f66354cbcc6dcea91d4d2aed4d0193f8d93854ff40f34b36a2fa538");
}

}  // namespace
}  // namespace rdfs::transport::session
