# find_package(rdfs): the target rdfs::rdfs, which is librdfs with its headers.
include(${CMAKE_CURRENT_LIST_DIR}/rdfs-targets.cmake)
