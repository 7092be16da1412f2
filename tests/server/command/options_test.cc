#include "server/command/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "server/process/serving.h"
#include "tests/server/temp_dir.h"
#include "transport/session/acceptor.h"

namespace rdfs::server {
namespace {

CommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "rdfsd");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(ExportSpec, OptionsAreTakenFromTheEnd) {
  const auto spec = ExportSpec::Parse("home=/srv/a,b,ro,all_squash,anonuid=5,anongid=6");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->name, "home");
  EXPECT_EQ(spec->directory, "/srv/a,b");
  EXPECT_TRUE(spec->read_only);
  EXPECT_EQ(spec->id_mode, IdMode::kAllSquash);
  EXPECT_EQ(spec->anonymous, (Ids{5, 6}));
  EXPECT_EQ(ExportSpec::Parse("a=/x,row")->directory, "/x,row");
  for (const char* wrong : {"", "a", "=b", "a=", "a=,ro", "a/b=c"}) {
    EXPECT_FALSE(ExportSpec::Parse(wrong).ok()) << wrong;
  }
}

TEST(ExportSpec, WhatSaysThatItIsEmptyIsNotExported) {
  const auto exported = Export::Create({.name = "x", .directory = "/proc"});
  ASSERT_FALSE(exported.ok());
  EXPECT_NE(exported.status().message().find("its files are empty"), std::string::npos);
}

TEST(ExportSpec, OptionsThatContradictEachOtherAreRefused) {
  for (const char* wrong : {"a=/x,rw,ro", "a=/x,trusted,all_squash", "a=/x,anonuid=1,anonuid=2"}) {
    const auto spec = ExportSpec::Parse(wrong);
    ASSERT_FALSE(spec.ok()) << wrong;
    EXPECT_NE(spec.status().message().find("exclude each other"), std::string::npos)
        << spec.status().message();
  }
  EXPECT_TRUE(ExportSpec::Parse("a=/x,ro,ro,trusted,no_root_squash").ok());
}

TEST(ExportSpec, AnOptionThatIsMisspeltIsToldFromADirectory) {
  const TempDir dir;
  const auto said = [&](const std::string& directory) {
    ExportSpec spec;
    spec.name = "a";
    spec.directory = directory;
    return Export::Create(spec).status().message();
  };
  EXPECT_NE(said(dir.path() + ",rdonly").find("there is no option rdonly; there are ro, "),
            std::string::npos);
  EXPECT_NE(said(dir.path() + ",rdonly,sync").find("there is no option sync; "), std::string::npos);
  for (const char* plain : {"/none", "/none,rdonly", ",ro"}) {
    EXPECT_NE(said(dir.path() + plain).find("make it, or correct the path"), std::string::npos)
        << plain;
  }
}

TEST(ExportSpec, AllAreTheServersUserWhereThatIsNotRoot) {
  const auto spec = ExportSpec::Parse("a=/x,as_me");
  EXPECT_EQ(spec.ok(), ::geteuid() != 0);
  EXPECT_EQ(Parse({"--export", "a=/x,as_me"}).exit_code, ::geteuid() == 0 ? 2 : 0);
}

TEST(Options, TheUsualCommandLine) {
  const CommandLine line = Parse({"--export", "a=/x", "--export", "b=/y,ro", "--port", "0", "-f",
                                  "--no-auth", "--pool", "64M", "-v", "-v"});
  ASSERT_TRUE(line.options.has_value()) << line.output;
  EXPECT_EQ(line.options->exports.size(), 2U);
  EXPECT_EQ(line.options->pool_bytes, 64U << 20U);
  EXPECT_EQ(line.options->port, 0);
  EXPECT_TRUE(line.options->foreground);
  EXPECT_EQ(line.options->verbosity, 2);
}

TEST(Options, WrongCallsEndWithTwo) {
  EXPECT_EQ(Parse({}).exit_code, 2);
  EXPECT_EQ(Parse({"--nonsense"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a=/x", "--export", "a=/y"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a=/x", "--no-auth", "--key-file", "k"}).exit_code, 2);
  EXPECT_EQ(Parse({"--stdio", "--export", "a=/x"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a=/x", "--read-only", "b"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a=/x", "--pool", "lots"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a=/x", "--metrics", "there"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a=/x", "--port", "70000"}).exit_code, 2);
  EXPECT_EQ(Parse({"--export", "a=/x", "--rdma-port", "70000"}).exit_code, 2);
  EXPECT_EQ(Parse({"--stdio", "--metrics", "9464"}).exit_code, 2);
  EXPECT_EQ(Parse({"--stdio", "--no-rdma"}).exit_code, 2);
  EXPECT_EQ(Parse({"--stdio", "--require-encryption"}).exit_code, 2);
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  EXPECT_NE(Parse({"--version"}).output.find("rdfsd"), std::string::npos);
}

TEST(Options, AnEmptyWordIsNotAsIfItWereNotGiven) {
  for (const char* option : {"--listen", "--config", "--key-file", "--pool", "--metrics"}) {
    EXPECT_EQ(Parse({"--export", "a=/x", option, ""}).exit_code, 2) << option;
  }
  EXPECT_EQ(Parse({"--export", "a=/x", "--listen", "127.0.0.1", "--listen", ""}).exit_code, 2);
  const CommandLine everywhere = Parse({"--export", "a=/x", "--listen", ""});
  EXPECT_NE(everywhere.output.find("leave --listen out for every address"), std::string::npos)
      << everywhere.output;
}

TEST(Options, APoolHoldsSomething) {
  for (const char* nothing : {"0", "0G"}) {
    EXPECT_EQ(Parse({"--export", "a=/x", "--pool", nothing}).exit_code, 2) << nothing;
  }
}

TEST(Options, Sizes) {
  EXPECT_EQ(*ParseSize("4096"), 4096U);
  EXPECT_EQ(*ParseSize("2k"), 2048U);
  EXPECT_EQ(*ParseSize("1G"), 1U << 30U);
  for (const char* wrong : {"", "M", "1T", "-1", "1 M", "99999999999999999999", "99999999999G"}) {
    EXPECT_FALSE(ParseSize(wrong).ok()) << wrong;
  }
}

TEST(Options, TheFileFillsWhatTheCommandLineLeaves) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  std::ofstream(path) << "port = 1234\nlisten = [\"127.0.0.1\"]\npool = \"1G\"\n"
                         "[[export]]\nname = \"n\"\ndir = \"/d\"\noptions = \"ro\"\n";
  const CommandLine line = Parse({"--config", path.c_str(), "--pool", "64M"});
  ASSERT_TRUE(line.options.has_value()) << line.output;
  EXPECT_EQ(line.options->port, 1234);
  EXPECT_EQ(line.options->pool_bytes, 64U << 20U);
  EXPECT_FALSE(line.options->rdma_port);
  ASSERT_EQ(line.options->exports.size(), 1U);
  EXPECT_TRUE(line.options->exports.front().read_only);
}

TEST(Options, TheCommandLineWinsAlsoWithWhatIsTheDefaultAnyway) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  std::ofstream(path) << "port = 1234\nrdma_port = 1235\npool = \"1G\"\n"
                         "[[export]]\nname = \"n\"\ndir = \"/d\"\n";
  const CommandLine line =
      Parse({"--config", path.c_str(), "--port", "7337", "--rdma-port", "0", "--pool", "4G"});
  ASSERT_TRUE(line.options.has_value()) << line.output;
  EXPECT_EQ(line.options->port, 7337);
  EXPECT_EQ(line.options->rdma_port, 0);
  EXPECT_EQ(line.options->pool_bytes, std::size_t{4} << 30U);
}

TEST(Options, WhatASingleClientDecidesIsInNoFile) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  for (const char* const line : {"rdma = false\n", "require_encryption = true\n"}) {
    std::ofstream(path) << line;
    const CommandLine refused = Parse({"--stdio", "--config", path.c_str()});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.output.find("--stdio excludes"), std::string::npos) << refused.output;
  }
}

TEST(Options, WhatIsNotServed) {
  using transport::Kind;
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  const auto accepts = [&](const std::string& file, std::vector<const char*> arguments) {
    std::ofstream(path) << file << "[[export]]\nname = \"n\"\ndir = \"/d\"\n";
    arguments.insert(arguments.end(), {"--config", path.c_str()});
    const CommandLine line = Parse(std::move(arguments));
    ServingParams params;
    params.options = line.options.value_or(Options{});
    EXPECT_TRUE(line.options.has_value()) << line.output;
    return ToAcceptor(params, 0);
  };
  const std::vector<Kind> all{Kind::kShm, Kind::kVerbs, Kind::kTcp}, others{Kind::kShm, Kind::kTcp};
  for (const auto& plain :
       {accepts("", {}), accepts("rdma = true\nrequire_encryption = false\n", {})}) {
    EXPECT_EQ(plain.offer, all);
    EXPECT_TRUE(plain.allow_plaintext);
  }
  for (const auto& no_rdma :
       {accepts("rdma = false\n", {}), accepts("rdma = true\n", {"--no-rdma"})}) {
    EXPECT_EQ(no_rdma.offer, others);
    EXPECT_TRUE(no_rdma.allow_plaintext);
  }
  for (const auto& encrypted :
       {accepts("require_encryption = true\n", {}),
        accepts("require_encryption = false\n", {"--require-encryption"})}) {
    EXPECT_EQ(encrypted.offer, others);
    EXPECT_FALSE(encrypted.allow_plaintext);
  }
  std::ofstream(path) << "require_encryption = \"yes\"\n[[export]]\nname = \"n\"\ndir = \"/d\"\n";
  EXPECT_EQ(Parse({"--config", path.c_str()}).exit_code, 1);
}

TEST(Options, MetricsAreWhereTheFileSaysUnlessTheCommandLineDoes) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  const std::string exported = "[[export]]\nname = \"n\"\ndir = \"/d\"\n";
  for (const char* place : {"9464", "\"9464\"", "\"127.0.0.1:9464\""}) {
    std::ofstream(path) << "metrics = " << place << "\n" << exported;
    const CommandLine line = Parse({"--config", path.c_str()});
    ASSERT_TRUE(line.options.has_value()) << line.output;
    ASSERT_TRUE(line.options->metrics);
    EXPECT_EQ(ToString(*line.options->metrics), "127.0.0.1:9464");
  }
  const CommandLine line = Parse({"--config", path.c_str(), "--metrics", "/run/m"});
  ASSERT_TRUE(line.options.has_value()) << line.output;
  EXPECT_EQ(line.options->metrics->path, "/run/m");
  EXPECT_FALSE(Parse({"--export", "a=/x"}).options->metrics);
  for (const char* place : {"99999", "-1", "\"there\"", "true"}) {
    std::ofstream(path) << "metrics = " << place << "\n" << exported;
    const CommandLine wrong = Parse({"--config", path.c_str()});
    EXPECT_EQ(wrong.exit_code, 1) << place;
    EXPECT_NE(wrong.output.find(path + ":1: "), std::string::npos) << wrong.output;
  }
}

TEST(Options, TheFileSaysWhatOneClientMayTake) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  std::ofstream(path) << "[limits]\nmounts = 1\nlanes = 2\nopen_files = 3\nlocks = 4\n"
                         "pinned = \"5M\"\nrequests = 6\nwrong_keys = 7\n"
                         "[[export]]\nname = \"n\"\ndir = \"/d\"\n";
  const CommandLine line = Parse({"--config", path.c_str()});
  ASSERT_TRUE(line.options.has_value()) << line.output;
  const ClientLimits& limits = line.options->limits;
  EXPECT_EQ(limits.mounts, 1U);
  EXPECT_EQ(limits.lanes, 2U);
  EXPECT_EQ(limits.open_files, 3U);
  EXPECT_EQ(limits.locks, 4U);
  EXPECT_EQ(limits.pinned_bytes, 5U << 20U);
  EXPECT_EQ(limits.requests, 6U);
  EXPECT_EQ(limits.wrong_keys, 7U);
}

TEST(Options, ABrokenFileIsToldWithItsLine) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  for (const char* text :
       {"port = \n", "\n\nport = 7e37\n", "nonsense = 1\n", "\n\nport = 70000\n",
        "[limits]\nmounts = 0\n", "[limits]\nmounts = \"many\"\n", "[limits]\npinned = \"64X\"\n",
        "[limits]\nnonsense = 1\n", "[[export]]\nname = \"n\"\n",
        "[[export]]\nname = \"n\"\ndir = \"/d\"\noptions = \"rx\"\n",
        "[[export]]\nname = \"n\"\ndir = \"/d\"\noption = \"ro\"\n",
        "[[export]]\nname = \"n\"\ndir = \"/d\"\nro = true\n",
        "[[export]]\nname = \"n\"\ndir = \"/d\"\noptions = [\"ro\"]\n"}) {
    std::ofstream(path) << text;
    const CommandLine line = Parse({"--config", path.c_str()});
    EXPECT_EQ(line.exit_code, 1) << text;
    EXPECT_NE(line.output.find(path + ":"), std::string::npos) << line.output;
  }
}

TEST(Options, ABrokenFileIsToldInWordsThatHelp) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  const std::string exported = "[[export]]\nname = \"n\"\ndir = \"/d\"\n";
  struct Case {
    std::string text, said;  // the latter behind the file's name
  };
  for (const Case& wrong : std::vector<Case>{
           {"prot = 1\n", ":1: there is no prot here; there are listen, port, "},
           {"port = \"1234\"\n", ":1: port is a number from 0 to 65535, without quotes"},
           {"rdma_port = 2.5\n", ":1: rdma_port is a number from 0 to 65535, without quotes"},
           {"\npool = 4\n", ":2: pool is a string, as \"4G\""},
           {"pool = \"\"\n", ":1: a size is a number"},
           {"pool = \"0\"\n", ":1: a pool of 0 holds nothing"},
           {"key_file = ''\n", ":1: key_file is empty: give "},
           {"key_file = 1\n", ":1: key_file is a string, as \"/etc/rdfs/key\""},
           {"rdma = \"no\"\n", ":1: rdma is true or false, without quotes"},
           {"listen = \"::1\"\n", ":1: listen is a list of addresses, as [\"10.0.0.7\"]"},
           {"listen = [\"\"]\n", ":1: an address is empty; leave listen out"},
           {"[export]\nname = \"n\"\n", ":1: write [[export]], in double brackets"},
           {"[[limits]]\nmounts = 1\n", ":1: write [limits], in single brackets"},
           {"[limits]\nmonts = 3\n", ":2: there is no monts here; there are mounts, lanes, "},
           {exported + "pth = \"x\"\n", ":4: there is no pth here; there are name, dir, options"},
           {exported + "options = [\"ro\"]\n", ":4: options is a string, as \"ro,root_squash\""},
           {exported + "options = \"ro, rx\"\n", ":4: there is no option rx; there are ro, rw, "},
           {exported + "options = \"rw,ro\"\n",
            ":4: export \"n\": rw and ro exclude each other; leave one of them out"},
           {"port = 1\n", " has no [[export]]"},
       }) {
    std::ofstream(path) << wrong.text;
    const CommandLine line = Parse({"--config", path.c_str()});
    EXPECT_EQ(line.exit_code, 1) << wrong.text;
    EXPECT_NE(line.output.find(path + wrong.said), std::string::npos) << wrong.text << line.output;
  }
}

TEST(Options, SpacesAroundAnExportsOptionsAreNone) {
  const TempDir dir;
  const std::string path = dir / "rdfsd.toml";
  std::ofstream(path) << "[[export]]\nname = \"n\"\ndir = \"/d,ro\"\n"
                         "options = \" rw, all_squash ,anonuid=5\"\n";
  const CommandLine line = Parse({"--config", path.c_str()});
  ASSERT_TRUE(line.options.has_value()) << line.output;
  const ExportSpec& spec = line.options->exports.front();
  EXPECT_EQ(spec.directory, "/d,ro");
  EXPECT_FALSE(spec.read_only);
  EXPECT_EQ(spec.id_mode, IdMode::kAllSquash);
  EXPECT_EQ(spec.anonymous.uid, 5U);
}

TEST(Options, AFileThatCannotBeReadIsToldFromNone) {
  const TempDir dir;
  const auto said = [](const std::string& path) {
    const CommandLine line = Parse({"--config", path.c_str()});
    EXPECT_EQ(line.exit_code, 1) << line.output;
    return line.output;
  };
  EXPECT_NE(said(dir.path()).find(" is a directory; name the file in it"), std::string::npos);
  EXPECT_NE(said(dir / "none").find("No such file or directory"), std::string::npos);
  EXPECT_NE(said("/dev/zero").find(" is too large to be a configuration file"), std::string::npos);
}

}  // namespace
}  // namespace rdfs::server
