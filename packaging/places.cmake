# Run when rdfs is installed, before its files: where zsh and python3 look beneath CMAKE_INSTALL_PREFIX.
# Sets rdfs_zsh_functions and rdfs_python_modules, relative to it. The staging folder of a package ends
# in /usr as well.
set(rdfs_system FALSE)  # Debian's own folders
if(CMAKE_INSTALL_PREFIX MATCHES "(^|/)usr/?$" AND EXISTS /etc/debian_version)
  set(rdfs_system TRUE)
endif()

set(rdfs_zsh_functions share/zsh/site-functions)
if(rdfs_system)
  set(rdfs_zsh_functions share/zsh/vendor-completions)
endif()

# Debian's python3 has a folder for all of its versions, and one a version beneath /usr/local.
set(rdfs_python_modules lib/python3/dist-packages)
if(NOT rdfs_system AND EXISTS /usr/bin/python3)
  execute_process(
    COMMAND /usr/bin/python3 -c "import sys; print('python%d.%d' % sys.version_info[:2])"
    RESULT_VARIABLE rdfs_status OUTPUT_VARIABLE rdfs_python OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT rdfs_status EQUAL 0)
    set(rdfs_python python3)
  endif()
  set(rdfs_python_modules lib/${rdfs_python}/site-packages)
  if(EXISTS /etc/debian_version AND CMAKE_INSTALL_PREFIX MATCHES "/local/?$")
    set(rdfs_python_modules lib/${rdfs_python}/dist-packages)
  endif()
endif()
