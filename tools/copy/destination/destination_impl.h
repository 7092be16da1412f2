// What Destination and OutputFile share behind destination.h.
#pragma once

#include <sys/stat.h>

#include "tools/copy/destination/destination.h"

namespace rdfs::copy {

// A directory that was entered. Who makes something in it holds it: when nobody does any more, it
// gets its owner, mode and times (FinishNode), and lets go of its parent.
struct Destination::Node {
  std::string path;  // beneath the root
  std::string name;  // in the parent
  NodePtr parent;    // none: it is the root
  std::size_t depth = 0;
  FileId id;
  std::optional<Entry> entry;
  bool fresh = false;             // made by us: nothing is in it but what we made
  bool in_source = false;         // it is a source, or lies in one (AddSource)
  bool inherits = false;          // gives what is made in it a default ACL (acl(5))
  std::optional<gid_t> group;     // gives what is made in it this group: it is setgid
  std::optional<mode_t> restore;  // had to be opened to us for the time being
  FilePtr file;                   // Destination::mutex_
  std::list<Node*>::iterator recent;
};

// A directory by its path: as long as it is entered, or somebody holds it.
struct Destination::Known {
  std::weak_ptr<Node> node;
  NodePtr entered;
};

struct Destination::Place {
  NodePtr folder;
  FilePtr in;  // the folder itself
  std::string name;
  std::optional<struct stat> now;  // what is there
};

// The names of one inode.
struct Destination::LinkGroup {
  enum class State : std::uint8_t { kPending, kWhole, kFailed };
  State state = State::kPending;
  std::uint32_t seen = 1;
  std::string path;          // of the first, beneath the root
  std::uint32_t source = 0;  // of that
  FileId made;               // what that is, if `meet`: a later source may replace it
  struct Waiting {
    std::string path;
    Place place;
    std::function<void()> made;
  };
  std::vector<Waiting> waiting;
};

struct OutputFile::State {
  State(Destination& destination, Destination::Place where, Entry what)
      : owner(destination), place(std::move(where)), entry(std::move(what)) {}

  Destination& owner;
  Destination::Place place;
  Entry entry;            // as it was begun
  std::string temporary;  // empty: in place
  // With `resume`, of a large file; as long as somebody may go on with what is there.
  std::unique_ptr<Journal> journal;
  std::optional<std::uint64_t> number;  // of its name, where that is of this copy alone
  std::vector<Range> kept;
  std::atomic<bool> written{false};  // something that is worth going on with
  bool open = true;                  // neither finished nor given up
  FilePtr file;
  struct stat made {};                // what it was when it was made or opened
  std::atomic<std::uint64_t> end{0};  // of what was written
};

}  // namespace rdfs::copy
