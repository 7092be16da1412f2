// uring_host_main MODULE: loads it for itself alone, so that its liburing is out of sight for every
// other library, and has it submit requests.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* const module = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (module == nullptr) return puts("no module"), 1;
  const auto call = [&](const char* name) {
    auto* const function = reinterpret_cast<int (*)()>(dlsym(module, name));
    const int result = function == nullptr ? -1 : function();
    printf("%s: %d\n", name, result);
    return result;
  };
  const bool last = call("Prepare") == 0 && call("SubmitAsLast") == 2;
  const bool within = call("Prepare") == 0 && call("Submit") == 2;
  return last && within ? 0 : 1;
}
