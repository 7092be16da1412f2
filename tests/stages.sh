# shellcheck shell=bash
# The stages of ./check, sourced by it. Each runs its steps with `step` or `ctest_step`, which count into
# passed, failed and failures, and returns non-zero when one of its steps failed.

jobs=$(nproc)
# A second clone finds what the first one compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true

# failure_of NAME SECONDS STATUS: what failed under timeout(1), and whether it was for its time.
failure_of() {
  case "$3" in
    124 | 137) echo "$1 (no end after $2 s)" ;;  # 137: not even when it was asked to end
    *) echo "$1" ;;
  esac
}

# step NAME SECONDS COMMAND...: one thing that passes or fails, under a time limit.
step() {
  local name=$1 limit=$2
  shift 2
  echo "--- $name"
  local status=0
  # --foreground would leave a timed-out command's children behind.
  timeout --kill-after=20 "$limit" "$@" </dev/null || status=$?
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    return 0
  fi
  name=$(failure_of "$name" "$limit" "$status")
  echo "--- FAILED: $name" >&2
  failed=$((failed + 1))
  failures+=("$name")
  return 1
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  local targets=()
  [ $# -gt 0 ] && targets=(--target "$@")
  cmake --preset "$preset" >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; return 1; }
  rm -f "build-$preset.log"
  cmake --build "build/$preset" -j "$jobs" "${targets[@]}" | grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)'
  return "${PIPESTATUS[0]}"
}

# Tests of what only root can do, by their names.
root_only='AsRoot|_root$'
for_root=0

# count_tests PRESET CTEST-OPTION...
count_tests() {
  ctest --test-dir "build/$1" -N "${@:2}" | sed -n 's/^Total Tests: //p'
}

# ctest_step NAME SECONDS PRESET CTEST-OPTION...: counts each test case; no tests is a failure, and so is
# one that skipped. Leaves out what $without matches, and what needs root where we are not.
ctest_step() {
  local name=$1 limit=$2 preset=$3 leave_out=${without:-^\$}
  shift 3
  echo "--- $name"
  if [ "$(id -u)" -ne 0 ]; then
    for_root=$((for_root + $(count_tests "$preset" "$@" -E "$leave_out") - $(count_tests "$preset" "$@" -E "$leave_out|$root_only")))
    leave_out+="|$root_only"
  fi
  local log
  log=$(mktemp)
  timeout --kill-after=20 "$limit" ctest --test-dir "build/$preset" -j "$jobs" --no-tests=error \
    --output-on-failure --timeout 300 "$@" -E "$leave_out" </dev/null >"$log" 2>&1
  local status=$?
  local ran bad
  ran=$(grep -cE '^ *[0-9]+/[0-9]+ Test .* Passed' "$log")
  bad=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*\*\*\*' "$log")
  passed=$((passed + ran))
  failed=$((failed + bad))
  if [ "$status" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$ran" -gt 0 ]; then
    tail -n 4 "$log" | head -n 2
    rm -f "$log"
    return 0
  fi
  # What passed would hide what did not, here and inside a test.
  grep -vE '^ *Start +[0-9]+: |^ *[0-9]+/[0-9]+ Test .* Passed|^\[ RUN|^\[ +OK \]|^\[-{10}\]' "$log"
  rm -f "$log"
  [ "$bad" -eq 0 ] && failed=$((failed + 1))
  failures+=("$(failure_of "$name" "$limit" "$status")")
  return 1
}

# What all stages test that name no other build: each asks for it, since it may be the only one.
build_dev() {
  step "build (g++, warnings are errors)" 2400 bash -c "$(declare -f build); jobs=$jobs; build dev"
}

stage_unit() {
  build_dev || return 1
  with_test_user || return 1
  ctest_step "unit tests" 900 dev -LE 'e2e|rdma|full'
}

# test_programs PRESET TARGET...: builds these test programs and runs their cases.
test_programs() {
  local preset=$1
  shift
  step "build ($preset)" 2400 bash -c "$(declare -f build); jobs=$jobs; build $preset $*" || return 1
  local pattern
  pattern=$(IFS='|'; echo "^($*)\\.")
  local without=
  case "$preset" in
    # The sanitizer looks at an object through a pipe of its own, and takes it for none where there are no descriptors left.
    asan-ubsan) without='Session.WithoutADescriptorForALaneTheAcceptorSleeps' ;;
    # A death test forks a program that dies on purpose: nothing for the thread sanitizer to find. What sendmsg(2) reads
    # it notes behind the send, and takes the next write to that memory, by whoever has had the answer, for a race. It has
    # a thread of its own, with which no user namespace is made.
    tsan) without='DeathTest|LaneTest.OwnChangesAreReadAtOnceOnEveryLane|MemlockLimit.CountsForRootOfAUserNamespace' ;;
    # qemu-user offers the kernel more room for descriptors than we did, and keeps what we had no room for; and its
    # vfork is a fork, so that posix_spawn cannot tell that there is no such program. It knows neither sock_diag(7) nor
    # the options of TCP that rdsock asks for: of that, the rings and the packets.
    arm64) without='MemlockLimit.CountsForRootOfAUserNamespace|ShmHostile.PacketsThatNoCorrectPeerSendsEndTheConnection|SshLaunch.AMissingSshSaysWhatToInstall|PeerSocket|Partner|MeetingTest|EndTest|Looks[.]' ;;
  esac
  ctest_step "unit tests ($preset)" 1200 "$preset" -LE 'e2e|rdma' -R "$pattern"
}

stage_asan() {
  test_programs asan-ubsan base_test tcp_test tcp_conformance_test shm_test shm_conformance_test \
    verbs_unit_test session_rules_test session_test fs_protocol_test fs_client_rules_test fs_library_test \
    fuse_test rdfs_command_test server_core_test server_store_test server_survival_test \
    rdsock_switch_test rdsock_end_test rdsock_meeting_test \
    pipe_rules_test pipe_files_test pipe_live_test copy_rules_test copy_files_test \
    copy_wire_test copy_remote_test copy_export_test metrics_test
}
# The thread sanitizer goes where threads share something. Of the programs that are not named most have one thread, and
# the others' threads are those of a program here. Whole servers and clients, and what starts them, with --full: much to build.
stage_tsan() {
  local whole=()
  [ "$RDFS_CHECK_FULL" = 0 ] || whole=(server_service_test server_survival_test fs_client_live_test fs_client_lane_test
    fs_library_test copy_export_test rdsock_carrier_test acknowledged_test)
  test_programs tsan base_test tcp_test tcp_conformance_test shm_test shm_conformance_test fault_test session_test \
    server_core_test server_store_test fs_client_rules_test fuse_test rdfs_command_test rdsock_end_test \
    rdsock_slot_test pipe_files_test pipe_live_test copy_files_test copy_remote_test metrics_test "${whole[@]}"
}

# Every decoder under libFuzzer: tests/fuzz/fuzz.h.
stage_fuzz() {
  step "build (fuzz)" 2400 bash -c "$(declare -f build); jobs=$jobs; build fuzz fuzzers" || return 1
  ctest_step "fuzzers" "$([ "$RDFS_CHECK_FULL" = 1 ] && echo 3600 || echo 900)" fuzz -L fuzz
}

stage_clang() {
  step "build (clang)" 2400 bash -c "$(declare -f build); jobs=$jobs; build clang"
  # The optimiser sees what no other build sees, and ./try builds like this, where warnings stop nobody.
  step "build (g++ -O3)" 2400 bash -c "$(declare -f build); jobs=$jobs; build release-strict"
}

# Another processor: that it compiles, and what is on the wire and in shared memory has the same layout there. By
# emulation, which keeps this processor's order of loads and stores: what leans on that is not found here.
stage_arm64() {
  step "libraries for arm64" 900 cmake/arm64-sysroot || return 1
  test_programs arm64 base_test tcp_test tcp_conformance_test shm_test shm_conformance_test \
    fault_test fault_conformance_test verbs_unit_test session_rules_test session_test ssh_test metrics_test \
    fs_protocol_test pipe_rules_test copy_wire_test rdsock_switch_test rdsock_far_rules_test \
    rdsock_meeting_test rdsock_asking_test rdsock_end_test rdping_protocol_test
}

# An ordinary user for the mounts, when we are root: that is how people mount.
make_test_user() {
  [ "$(id -u)" -ne 0 ] || id rdfs-test >/dev/null 2>&1 ||
    useradd --create-home --shell /bin/bash rdfs-test || id rdfs-test  # another clone was first
}

with_test_user() {
  step "an ordinary user to mount as" 60 bash -c "$(declare -f make_test_user); make_test_user"
}

stage_e2e() {
  build_dev || return 1
  with_test_user || return 1
  ctest_step "real mounts" "$([ "$RDFS_CHECK_FULL" = 1 ] && echo 5400 || echo 1800)" dev -L e2e
}

build_kernel() {
  step "kernel with soft-iWARP and soft-RoCE" 1800 tests/rdma/build-kernel
}

stage_rdma() {
  build_dev || return 1
  build_kernel || return 1
  RDFS_RDMA_REQUIRED=1 ctest_step "real RDMA" 1800 dev -L rdma
}

# Both, one of each at a time: mounts wait for most of it, and a guest sees nothing of them.
stage_e2e_and_rdma() {
  build_dev || return 1
  build_kernel || return 1
  with_test_user || return 1
  RDFS_RDMA_REQUIRED=1 ctest_step "real mounts and real RDMA" \
    "$([ "$RDFS_CHECK_FULL" = 1 ] && echo 5400 || echo 2700)" dev -L 'e2e|rdma' -j 2
}

# What takes too long for every day.
stage_full() {
  build_dev || return 1
  build_kernel || return 1
  with_test_user || return 1
  RDFS_RDMA_REQUIRED=1 ctest_step "longer runs" 5400 dev -L full -j 1
}
