# Tests on a real kernel RDMA stack: how one is registered.

# The labels of tests of which one driver is enough for ./check.
set(rdfs_rdma_label_siw rdma)
set(rdfs_rdma_label_rxe full)

# rdfs_add_rdma_test(NAME name DRIVER siw|rxe COMMAND command [argument...] [LABEL label]
#                    [NCPUS n] [MEM size] [TIMEOUT seconds] [MEMLOCK kib] [RW dir...] [HOSTS] [USER])
#
# Registers a test with the label (default: `rdma`; `full`: only ./check --full runs it) that runs COMMAND through `run`, hence on this machine's RDMA
# device or in the guest. The options are `boot`'s. COMMAND may hold generator expressions.
function(rdfs_add_rdma_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "HOSTS;USER"
                        "NAME;DRIVER;NCPUS;MEM;TIMEOUT;MEMLOCK;LABEL"
                        "RW;COMMAND")
  foreach(required NAME DRIVER COMMAND)
    if(NOT arg_${required})
      message(FATAL_ERROR "rdfs_add_rdma_test: ${required} is missing")
    endif()
  endforeach()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "rdfs_add_rdma_test: what is '${arg_UNPARSED_ARGUMENTS}'?")
  endif()
  if(NOT arg_NCPUS)
    set(arg_NCPUS 1)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL rdma)
  endif()

  set(options --driver ${arg_DRIVER} --ncpus ${arg_NCPUS} --timeout ${arg_TIMEOUT}
              --ro ${PROJECT_BINARY_DIR})
  if(arg_MEM)
    list(APPEND options --mem ${arg_MEM})
  endif()
  if(arg_MEMLOCK)
    list(APPEND options --memlock ${arg_MEMLOCK})
  endif()
  foreach(directory IN LISTS arg_RW)
    list(APPEND options --rw ${directory})
  endforeach()
  if(arg_HOSTS)
    list(APPEND options --hosts)
  endif()
  if(arg_USER)
    list(APPEND options --user)
  endif()

  add_test(NAME ${arg_NAME} COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run ${options} --
                                    ${arg_COMMAND})
  # The guest has its own limit; ctest's is for three boots on top of it, and a build of the kernel
  # is the business of ./check. Guests of one machine take turns.
  math(EXPR limit "${arg_TIMEOUT} + 330")
  set_tests_properties(
    ${arg_NAME} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${limit} RESOURCE_LOCK guest
                           SKIP_RETURN_CODE 77)
endfunction()

# rdfs_add_rdma_suite(NAME name COMMAND command [argument...] [TIMEOUT seconds]): name_siw in ./check, and name_rxe with
# --full, each in a guest with room for a server and its clients. Over nothing but verbs: tests/transport/kinds.h.
function(rdfs_add_rdma_suite)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "COMMAND")
  foreach(driver siw rxe)
    rdfs_add_rdma_test(
      NAME ${arg_NAME}_${driver}
      DRIVER ${driver}
      MEM 3072M
      LABEL ${rdfs_rdma_label_${driver}}
      TIMEOUT ${arg_TIMEOUT}
      COMMAND env RDFS_TEST_VERBS=1 ${arg_COMMAND})
  endforeach()
endfunction()
