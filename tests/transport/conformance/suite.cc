#include "tests/transport/conformance/suite.h"

#include <cstdio>
#include <string_view>

#include "tests/transport/conformance/harness.h"
#include "tests/transport/conformance/peer.h"

namespace rdfs::transport::conformance {
namespace {

// GoogleTest asks for the parameters inside InitGoogleTest, from code that has no other way to
// Main's arguments.
std::vector<Subject>& MutableSubjects() {
  static std::vector<Subject> subjects;
  return subjects;
}

// The value of "--name=value" among the arguments; empty without.
std::string_view Argument(int argc, char** argv, std::string_view prefix) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(prefix)) return argument.substr(prefix.size());
  }
  return {};
}

}  // namespace

const std::vector<Subject>& Subjects() { return MutableSubjects(); }

int Main(int argc, char** argv, std::vector<Subject> subjects) {
  MutableSubjects() = std::move(subjects);
  const std::string_view role = Argument(argc, argv, "--conformance-peer=");
  const std::string_view name = Argument(argc, argv, "--subject=");
  testing::InitGoogleTest(&argc, argv);
  if (role.empty()) return RUN_ALL_TESTS();
  for (const Subject& subject : Subjects()) {
    if (subject.name == name) return RunPeer(subject, std::string(role), Control(Fd(3)));
  }
  (void)std::fprintf(stderr, "no subject is named '%.*s'\n", static_cast<int>(name.size()),
                     name.data());
  return 2;
}

}  // namespace rdfs::transport::conformance
