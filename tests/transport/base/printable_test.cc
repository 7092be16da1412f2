#include "transport/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace rdfs {
namespace {

TEST(Printable, NothingOfAPeersSteersATerminal) {
  EXPECT_EQ(Printable("\x1b[2Jgone\r\n\tand\x7f"), "?[2Jgone???and?");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(Printable("\xc2\x9b\x32J\xc2\x80\xc2\x9f\xc2"), "?2J??\xc2") << "as ESC [ 2 J";
  EXPECT_EQ(Printable("a\n\x1b", "\n"), "a\n?");
}

TEST(Printable, LettersStay) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("no such export: Überblick ~"), "no such export: Überblick ~");
  EXPECT_EQ(Printable("\xc2\xa0¿日本"), "\xc2\xa0¿日本");
}

}  // namespace
}  // namespace rdfs
