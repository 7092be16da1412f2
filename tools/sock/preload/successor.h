// Successor: the program that exec is about to start, and whether it will have this library. Only
// one that has may find open what is this library's own: another may be, or start, one of another
// user's.
//
// On the stack of the call; allocates nothing, for exec may be called where that is not allowed.
#pragma once

namespace rdfs::sock {

struct Successor {
  const char* file = nullptr;        // null: cannot be told
  char* const* variables = nullptr;  // of its environment; may be null
  bool searched = false;             // in PATH, where there is no slash in it (execvp(3))
};

// Whether the dynamic linker loads this library into it. In doubt it does not.
bool LoadsThisLibrary(const Successor& next);

// At the beginning of a program, once: how its environment names this library.
void NoteThisLibrary();

}  // namespace rdfs::sock
