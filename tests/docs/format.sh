#!/usr/bin/env bash
# Usage: format.sh CLANG_FORMAT [--self-test]
# Every source is laid out as .clang-format says. With --self-test: one that is not is seen.
set -uo pipefail
format=$1
cd "$(dirname "$0")/../.." || exit 1
if [ "${2:-}" = --self-test ]; then
  ! printf 'int  f( );\n' | "$format" --assume-filename=tests/docs/format.cc --dry-run -Werror 2>/dev/null
  exit
fi
find docs fs server tests tools transport -name '*.cc' -o -name '*.h' -o -name '*.hpp' -o -name '*.c' |
  xargs "$format" --dry-run -Werror || {
  echo "format.sh: lay these out again: $format -i FILE" >&2
  exit 1
}
