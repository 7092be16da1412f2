#!/usr/bin/env bash
# Usage: faults.sh --bin BUILD_DIR: nothing that was acknowledged is lost or done twice while things break (faults.py).
source "$(dirname "$0")/setup.sh"
begin "$@"
new_key "$work/key"
"${python[@]}" "$(dirname "$0")/faults.py" "$bin" "$work" || problem "calls under faults"
conclude "calls under faults"
