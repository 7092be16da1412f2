#include "transport/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace rdfs {
namespace {

Result<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return std::make_unique<int>(value / 2);
}

Status Quarter(int value, int& out) {
  RDFS_ASSIGN_OR_RETURN(const auto half, Half(value));
  RDFS_ASSIGN_OR_RETURN(const auto quarter, Half(*half));
  out = *quarter;
  return {};
}

TEST(Status, MacrosPassTheFirstFailureOn) {
  int out = 0;
  EXPECT_TRUE(Quarter(12, out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(Quarter(6, out).code(), Code::kInvalidArgument);
  EXPECT_EQ(out, 3);
}

TEST(Status, EveryFailureHasAnErrnoAndAScope) {
  EXPECT_EQ(Status().errno_value(), 0);
  EXPECT_EQ(Status::FromErrno(ENOSPC, "write").errno_value(), ENOSPC);
  EXPECT_EQ(Status::FromErrno(ENOSPC, "write").message(), "write: No space left on device");
  EXPECT_EQ(Status(Code::kBusy, "later").scope(), Scope::kRequest);
  EXPECT_EQ(Status(Code::kDisconnected, "gone").scope(), Scope::kConnection);
  EXPECT_EQ(Status(Code::kResourceExhausted, "memlock").scope(), Scope::kProcess);
  for (const int code : {1, 2, 3, 4, 5, 6, 16, 17, 18, 19, 32, 33, 34}) {
    EXPECT_NE(Status(static_cast<Code>(code), "x").errno_value(), 0);
  }
}

TEST(Status, ContextKeepsCodeAndErrno) {
  const Status inner = Status::FromErrno(EACCES, "open");
  const Status outer = inner.WithContext("export");
  EXPECT_EQ(outer.code(), Code::kErrno);
  EXPECT_EQ(outer.errno_value(), EACCES);
  EXPECT_EQ(outer.message(), "export: open: Permission denied");
}

}  // namespace
}  // namespace rdfs
