# One target that every library and program of ours links: warnings and sanitizers.
add_library(rdfs_options INTERFACE)
target_compile_options(rdfs_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Wnon-virtual-dtor $<$<BOOL:${RDFS_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns of `"literal" + std::string` when it optimises fully (GCC bug 105651).
  target_compile_options(rdfs_options INTERFACE -Wno-restrict)
endif()
if(RDFS_SANITIZE)
  target_compile_options(rdfs_options INTERFACE -fsanitize=${RDFS_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(rdfs_options INTERFACE -fsanitize=${RDFS_SANITIZE})
  if(RDFS_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # It takes the sanitizer's own bookkeeping for uses of an empty std::optional's value (GCC bug
    # 105562); the build without sanitizers warns as ever.
    target_compile_options(rdfs_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(RDFS_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # libstdc++'s atomic_thread_fence is not modelled by the thread sanitizer; we use none.
    target_compile_options(rdfs_options INTERFACE -Wno-tsan)
  endif()
endif()
