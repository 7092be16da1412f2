// The vectors are facts of draft-irtf-cfrg-cpace-20, appendix B.3 (CPACE-RISTR255-SHA512) and A.3.
#include "transport/session/pake.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/hex.h"

namespace rdfs::transport::session::cpace {
namespace {

const char* const kSessionId = "7e4b4791d6a8ef019b936c79fb7f2c57";
const char* const kChannel = "0b415f696e69746961746f720b425f726573706f6e646572";
const char* const kGenerator = "222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56";
const char* const kYa = "d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157";
const char* const kYb = "3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258";
const char* const kK = "80b69a8a76457ab6a4d7f887a4bf6b55a2f80ac19c333f917a05fc9887c8b40f";
const char* const kIsk =
    "b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd2b38950a39dfd5d4a79164614c29"
    "84f7daa460b588c1e80c3fa2068af7900447";

Element ElementFromHex(const char* hex) {
  Element out{};
  std::ranges::copy(FromHex(hex), out.begin());
  return out;
}

Scalar ScalarFromHex(const char* hex) {
  Scalar out;
  std::ranges::copy(FromHex(hex), out.bytes().begin());
  return out;
}

Scalar Ya() {
  return ScalarFromHex("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08");
}
Scalar Yb() {
  return ScalarFromHex("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d");
}

TEST(Cpace, PutsThePasswordAloneIntoTheFirstHashBlock) {
  const auto text = GeneratorString(AsBytes("Password"), FromHex(kChannel), FromHex(kSessionId));
  // 18 + 9 + 1 + 100 bytes fill a block of 128, then channel and session id with their lengths.
  EXPECT_EQ(text.size(), 128U + 25 + 17);
  EXPECT_EQ(ToHex(ByteSpan(text).first(28)),
            "11435061636552697374726574746f3235350850617373776f726464");
  EXPECT_EQ(ToHex(ByteSpan(text).subspan(28, 100)), std::string(200, '0'));
  EXPECT_EQ(ToHex(ByteSpan(text).subspan(128)), std::string("18") + kChannel + "10" + kSessionId);
}

TEST(Cpace, CountsLengthsInLeb128) {
  const std::vector<std::byte> zeroes(128);
  EXPECT_EQ(ToHex(Concatenate({AsBytes("1234"), AsBytes("5"), {}, AsBytes("678")})),
            "0431323334"
            "0135"
            "00"
            "03363738");
  EXPECT_EQ(ToHex(ByteSpan(Concatenate({zeroes})).first(3)), "800100");
}

TEST(Cpace, MakesTheDraftsGenerator) {
  EXPECT_EQ(ToHex(Generator(AsBytes("Password"), FromHex(kChannel), FromHex(kSessionId))),
            kGenerator);
}

TEST(Cpace, MakesTheDraftsShares) {
  EXPECT_EQ(ToHex(*Share(Ya(), ElementFromHex(kGenerator))), kYa);
  EXPECT_EQ(ToHex(*Share(Yb(), ElementFromHex(kGenerator))), kYb);
}

TEST(Cpace, MakesTheDraftsSecretPointOnBothSides) {
  EXPECT_EQ(ToHex(SharedPoint(Ya(), ElementFromHex(kYb))->bytes()), kK);
  EXPECT_EQ(ToHex(SharedPoint(Yb(), ElementFromHex(kYa))->bytes()), kK);
}

TEST(Cpace, MakesTheDraftsSessionKey) {
  const auto key =
      SessionKey(FromHex(kSessionId), *SharedPoint(Ya(), ElementFromHex(kYb)),
                 {ElementFromHex(kYa), AsBytes("ADa")}, {ElementFromHex(kYb), AsBytes("ADb")});
  EXPECT_EQ(ToHex(key.bytes()), kIsk);
}

TEST(Cpace, MultipliesAsTheDraft) {
  const auto scalar =
      ScalarFromHex("7cd0e075fa7955ba52c02759a6c90dbbfc10e6d40aea8d283e407d88cf538a05");
  const auto point = SharedPoint(
      scalar, ElementFromHex("2c3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c"));
  ASSERT_TRUE(point.ok());
  EXPECT_EQ(ToHex(point->bytes()),
            "7c13645fe790a468f62c39beb7388e541d8405d1ade69d1778c5fe3e7f6b600e");
}

TEST(Cpace, RefusesInvalidEncodingsAndTheNeutralElement) {
  const auto scalar =
      ScalarFromHex("7cd0e075fa7955ba52c02759a6c90dbbfc10e6d40aea8d283e407d88cf538a05");
  for (const char* share : {"2b3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c",
                            "0000000000000000000000000000000000000000000000000000000000000000",
                            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}) {
    const auto point = SharedPoint(scalar, ElementFromHex(share));
    ASSERT_FALSE(point.ok()) << share;
    EXPECT_EQ(point.status().code(), Code::kProtocolError);
  }
}

TEST(Cpace, DrawsScalarsBelowTheOrder) {
  for (int i = 0; i < 100; ++i) {
    const Scalar scalar = RandomScalar();
    EXPECT_LT(std::to_integer<int>(scalar.bytes().back()), 16);
  }
}

TEST(Cpace, DifferentPasswordsDisagree) {
  const auto run = [](std::string_view mine, std::string_view theirs) {
    const Scalar a = RandomScalar();
    const Scalar b = RandomScalar();
    const auto share_a = *Share(a, Generator(AsBytes(mine), {}, AsBytes("sid")));
    const auto share_b = *Share(b, Generator(AsBytes(theirs), {}, AsBytes("sid")));
    const auto at_a = SharedPoint(a, share_b);
    const auto at_b = SharedPoint(b, share_a);
    return EqualInConstantTime(at_a->bytes(), at_b->bytes());
  };
  EXPECT_TRUE(run("sesame", "sesame"));
  EXPECT_FALSE(run("sesame", "sesamf"));
  EXPECT_FALSE(run("sesame", ""));
}

}  // namespace
}  // namespace rdfs::transport::session::cpace
