#include "tools/rdinfo/fact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "tools/rdinfo/firewall.h"
#include "tools/rdinfo/local.h"
#include "tools/rdinfo/path.h"
#include "tools/rdinfo/remote.h"
#include "transport/base/search_path.h"

namespace rdfs::rdinfo {
namespace {

TEST(Advice, NamesWhatStopsFirstAndWhatWasAskedForBeforeTheRest) {
  const std::vector<Section> sections{
      {"here",
       {{"kernel", "5.4", true, ""},
        {"firewall", "on", true, "open the port", Weight::kNote},
        {"memlock", "64 KiB", false, "raise it", Weight::kHinders},
        {"/dev/fuse", "not there", false, "modprobe fuse", Weight::kStops}}},
      {"peer",
       {{"verbs", "does not work", false, "raise it", Weight::kHinders},
        {"TCP port 1", "not reached", false, "start it", Weight::kStops}}}};
  const Section advice = Advise(sections);
  std::vector<std::string> remedies;
  for (const Fact& fact : advice.facts) remedies.push_back(fact.value);
  EXPECT_EQ(remedies,
            (std::vector<std::string>{"start it", "modprobe fuse", "raise it", "open the port"}));
  EXPECT_EQ(advice.facts[2].name, "verbs: does not work") << "the peer's, and only once";
}

// What is at place 1 where the peer is `peer` and this machine has `ports`.
std::string BestOf(std::vector<Fact> ports, Fact peer) {
  const Section advice = Advise({{"RDMA", std::move(ports)}, {"peer", {std::move(peer)}}});
  return advice.facts.front().value;
}

TEST(Advice, NamesPortsThatAreDownFirstWhereTheyExplainASilentPeer) {
  const Fact down{"siw port 1", "down", false, "bring it up", Weight::kHinders, Role::kRdmaPort};
  const Fact up{"rxe port 1", "active", true, "", Weight::kHinders, Role::kRdmaPort};
  const Fact memlock{"memlock", "64 KiB", false, "raise it", Weight::kHinders};
  const Fact silent{"TCP port 1", "not reached",  false,
                    "check it",   Weight::kStops, Role::kPeerSilent};
  const Fact refused{"TCP port 1", "not reached", false, "check it", Weight::kStops};
  const Fact reached{"TCP port 1", "open", true, "", Weight::kStops};
  EXPECT_EQ(BestOf({memlock, down}, silent), "bring it up");
  EXPECT_EQ(BestOf({memlock, down}, refused), "check it") << "the machine answers";
  EXPECT_EQ(BestOf({memlock, down, up}, silent), "check it") << "a port is up";
  EXPECT_EQ(BestOf({memlock}, silent), "check it") << "no port at all";
  EXPECT_EQ(BestOf({memlock, down}, reached), "raise it") << "as they come";
}

TEST(Path, TellsARefusalFromSilence) {
  EXPECT_TRUE(IsRefusal({Code::kDisconnected, "nothing listens"}));
  EXPECT_FALSE(IsRefusal({Code::kDisconnected, EHOSTUNREACH, "no route"}));
  EXPECT_FALSE(IsRefusal({Code::kDisconnected, ENETUNREACH, "no network"}));
  EXPECT_FALSE(IsRefusal({Code::kDeadlineExceeded, "does not answer"}));
}

TEST(Advice, IsEmptyWhereNothingIsWrong) {
  EXPECT_TRUE(Advise({{"here", {{"kernel", "5.4", true, ""}}}}).facts.empty());
}

TEST(Firewall, IsWhatStopsSomethingThatComesIn) {
  const auto chain = [](const std::string& type, const std::string& rules) {
    return "table inet t {\n\tchain c {\n\t\ttype " + type + "; policy accept;\n" + rules +
           "\t}\n}\n";
  };
  EXPECT_TRUE(FiltersInput(chain("filter hook input priority filter", "\t\ttcp dport 22 drop\n")));
  EXPECT_TRUE(FiltersInput(chain("filter hook input priority 0", "\t\tcounter reject\n")));
  EXPECT_TRUE(FiltersInput(chain("filter hook input priority 0", "\t\tjump other\n")));
  EXPECT_TRUE(FiltersInput("chain in {\ntype filter hook input priority 0; policy drop;\n}\n"));
  EXPECT_FALSE(FiltersInput(chain("filter hook input priority 0", "\t\tct state new accept\n")));
  EXPECT_FALSE(FiltersInput(chain("filter hook forward priority 0", "\t\tdrop\n")));
  EXPECT_FALSE(FiltersInput(chain("filter hook input priority 0", "") +
                            chain("filter hook forward priority 0", "\t\tdrop\n")));
  EXPECT_FALSE(FiltersInput(""));
}

TEST(Library, IsOfTheVersionInItsFileName) {
  EXPECT_EQ(LibraryVersion("libibverbs.so.1.14.44.0"), "1.14.44.0");
  EXPECT_EQ(LibraryVersion("libfuse3.so.3.14.0"), "3.14.0");
  EXPECT_EQ(LibraryVersion("libodd.so"), "libodd.so");
  EXPECT_EQ(LibraryVersion(""), "");
}

TEST(Machine, TellsTheVersionsOfWhatItUses) {
  const std::vector<Section> sections = DescribeMachine();
  for (const char* name : {"libfuse", "libibverbs", "librdmacm"}) {
    const auto& facts = sections[0].facts;
    const auto found = std::find_if(facts.begin(), facts.end(),
                                    [name](const Fact& fact) { return fact.name == name; });
    ASSERT_NE(found, facts.end()) << name;
    EXPECT_NE(found->value.find('.'), std::string::npos) << name << " " << found->value;
  }
}

TEST(Lines, AreWholeWords) {
  EXPECT_TRUE(HasLine("# a\n  user_allow_other \nb", "user_allow_other"));
  EXPECT_TRUE(HasLine("user_allow_other", "user_allow_other"));
  EXPECT_FALSE(HasLine("#user_allow_other\n", "user_allow_other"));
  EXPECT_FALSE(HasLine("user_allow_others\n", "user_allow_other"));
}

TEST(Path, NamesAnMtuThatDiffers) {
  EXPECT_TRUE(DescribePath({.mtu = 9000, .peer_mtu = 9000}).good);
  EXPECT_TRUE(DescribePath({.mtu = 1500, .peer_mtu = 1500}).good);
  EXPECT_TRUE(DescribePath({.mtu = 65535, .peer_mtu = 0}).good) << "unknown";
  const Fact fact = DescribePath({.mtu = 9000, .peer_mtu = 1500});
  EXPECT_FALSE(fact.good);
  EXPECT_NE(fact.remedy.find("mtu 1500"), std::string::npos) << fact.remedy;
}

TEST(Peer, HasItsNameInManyWays) {
  PeerOptions options;
  options.port = 7337;
  ASSERT_TRUE(ParsePeer("rdfs://[fd00::1]:99/a/b", options).ok());
  EXPECT_EQ(options.host, "fd00::1");
  EXPECT_EQ(options.port, 99);
  EXPECT_EQ(options.export_name, "a/b");
  ASSERT_TRUE(ParsePeer("rdfs://node//data//", options).ok());
  EXPECT_EQ(options.export_name, "data");
  ASSERT_TRUE(ParsePeer("rdfs://node/", options).ok());
  EXPECT_EQ(options.export_name, "");
  PeerOptions plain;
  plain.port = 7337;
  ASSERT_TRUE(ParsePeer("node", plain).ok());
  EXPECT_EQ(plain.port, 7337);
  EXPECT_EQ(plain.export_name, "");
  EXPECT_FALSE(ParsePeer("rdfs:///e", plain).ok());
  EXPECT_FALSE(ParsePeer("", plain).ok());
}

TEST(Peer, HasOnePort) {
  PeerOptions options;
  options.port = 7338;
  options.port_is_given = true;
  EXPECT_EQ(ParsePeer("node:7337", options).message(),
            "'node:7337' names its port: leave out 7338");
  EXPECT_FALSE(ParsePeer("rdfs://node:7337/data", options).ok());
  EXPECT_TRUE(ParsePeer("node", options).ok());
  EXPECT_TRUE(ParsePeer("node:7338", options).ok());
  EXPECT_EQ(options.port, 7338);
}

TEST(Peer, ThatSshReachesIsToldByItsHost) {
  const auto advised = [](std::string_view text) {
    PeerOptions options;
    options.port = 7337;
    const std::string said = ParsePeer(text, options).message();
    constexpr std::string_view kBefore = "give its HOST: rdinfo ";
    const std::size_t at = said.find(kBefore);
    return at == said.npos ? "nothing" : said.substr(at + kBefore.size());
  };
  EXPECT_EQ(advised("user@node:/data"), "node");
  EXPECT_EQ(advised("user@node:data"), "node");
  EXPECT_EQ(advised("user@node"), "node");
  EXPECT_EQ(advised("user@[fd00::1]:/data"), "[fd00::1]");
  EXPECT_EQ(advised("[fd00::1]:/data"), "[fd00::1]");
  EXPECT_EQ(advised("node:/data"), "node");
  EXPECT_EQ(advised("node:~/data"), "node");
  EXPECT_EQ(advised("node:.."), "node");
  EXPECT_EQ(advised("http://node/data"), "nothing");
  EXPECT_EQ(advised("node://data"), "node");
  for (const char* other :
       {"node", "node:7337", "node:http", "[fd00::1]:7337", "fd00::1", "::1", "rdfs://node/data"}) {
    EXPECT_EQ(advised(other), "nothing") << other;
  }
}

TEST(Program, IsTheFirstInThePathThatMayBeRun) {
  EXPECT_EQ(FindProgram("sh", "/none:/bin:/usr/bin"), "/bin/sh");
  EXPECT_EQ(FindProgram("passwd", "/etc"), "") << "a file that is no program";
  EXPECT_EQ(FindProgram("sh", "/none"), "");
  EXPECT_EQ(FindProgram("sh", ""), "");
}

}  // namespace
}  // namespace rdfs::rdinfo
