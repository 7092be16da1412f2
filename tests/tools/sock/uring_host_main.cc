// uring_host_main MODULE: loads it for itself alone, so that its liburing is out of sight for every
// other library, and has it submit a request.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* const module = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (module == nullptr) return puts("no module"), 1;
  auto* const submit = reinterpret_cast<int (*)()>(dlsym(module, "SubmitOne"));
  const int submitted = submit == nullptr ? -1 : submit();
  printf("submitted: %d\n", submitted);
  return submitted == 1 ? 0 : 1;
}
