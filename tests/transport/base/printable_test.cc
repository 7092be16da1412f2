#include "transport/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace rdfs {
namespace {

TEST(Printable, NothingOfAPeersSteersATerminal) {
  EXPECT_EQ(Printable("\x1b[2Jgone\r\n\tand\x7f"), "?[2Jgone???and?");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a?b");
}

TEST(Printable, LettersStay) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("no such export: Überblick ~"), "no such export: Überblick ~");
}

}  // namespace
}  // namespace rdfs
