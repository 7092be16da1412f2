// Model: what a thread's own directory must be like after what it was told of its calls.
//
// What failed in a way that leaves open whether it was done (a deadline, EIO) makes what it touches
// unsure: the names are not looked at any more, and a file may have either content. Pure; one
// thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/acknowledged/op.h"

namespace rdfs::acknowledged {

class Model {
 public:
  struct File {
    std::string bytes;
    std::optional<std::string> or_else;  // what it may be as well; nothing is done with it then
    // What was written and not synced was lost with its open file, in whatever part: as fsync(2)
    // and close(2) said, or a call before them.
    bool bytes_unsure = false;
    std::uint32_t mode = 0644;
    bool mode_unsure = false;
    int links = 1;
    bool links_unsure = false;
    [[nodiscard]] bool sure() const {
      return !or_else && !bytes_unsure && !links_unsure && !mode_unsure;
    }
  };
  using FilePtr = std::shared_ptr<File>;
  struct Slot {
    FilePtr file;  // null: closed
    int mount = 0;
    bool append = false;
    bool unsynced = false;  // something was written through it since the last sync
  };

  explicit Model(int thread) : thread_(thread) {}

  // The errno that a correct file system answers (0: done). Nothing for what others decide too.
  [[nodiscard]] std::optional<int> Expected(const Op& op) const;
  // Whether the outcome is known and the call makes sense: the workload does nothing else.
  [[nodiscard]] bool Sensible(const Op& op) const;

  // It was answered as Expected said.
  void Done(const Op& op);
  // It may have been done, or not. `error`: 0 if nobody was told.
  void Unsure(const Op& op, int error);

  [[nodiscard]] FilePtr Find(int name) const;
  [[nodiscard]] bool NameIsSure(int name) const;
  [[nodiscard]] bool DirectoryIsThere(int directory) const {
    return directories_[static_cast<std::size_t>(directory)] == kYes;
  }
  [[nodiscard]] bool DirectoryIsSure(int directory) const {
    return directories_[static_cast<std::size_t>(directory)] != kUnsure;
  }
  [[nodiscard]] const Slot& slot(int number) const {
    return slots_[static_cast<std::size_t>(number)];
  }
  // The mount where the file is open, if it is.
  [[nodiscard]] std::optional<int> OpenOn(const FilePtr& file) const;
  // The slot through which something was written to it that was not synced.
  [[nodiscard]] std::optional<int> UnsyncedSlotOf(const FilePtr& file) const;

 private:
  enum State : std::uint8_t { kNo, kYes, kUnsure };

  [[nodiscard]] bool DirectoryIsEmpty(int directory) const;
  [[nodiscard]] std::optional<int> ExpectedOfNames(const Op& op) const;
  [[nodiscard]] std::string Changed(const Op& op, const File& file) const;
  [[nodiscard]] FilePtr TargetOf(const Op& op) const;
  void DoneWithNames(const Op& op);
  void UnsureName(int name);
  void Drop(int name);

  const int thread_;
  std::map<int, FilePtr> names_;
  std::map<int, bool> unsure_;
  std::array<State, kDirectories> directories_{kYes, kNo, kNo};
  std::array<Slot, kSlots> slots_;
};

// What an answer means. kWrong: no correct file system gives it.
enum class Verdict : std::uint8_t { kDone, kUnsure, kWrong };
// `unsure`: the errnos that leave it open; ESTALE among them only counts for open files.
Verdict Judge(const Model& model, const Op& op, int error, const std::vector<int>& unsure);

// As text: what of `directory`, a thread's own, is not as the model says. At most a few lines.
std::vector<std::string> Differences(const Model& model, const std::string& directory);

}  // namespace rdfs::acknowledged
