# bash completion for rdfs, mount.rdfs, rdfsd, rdcp, rdsend, rdrecv, rdsock, rdping and rdinfo. A test compares the
# options with each command's --help.

_rdfs_options() {
  case "$1" in
    rdfs) echo "-h --help -V --version -o -f --foreground -v --verbose" ;;
    mount.rdfs) echo "-o -s -f -v -n -t -h --help -V --version" ;;
    "rdfs status" | "rdfsd status") echo "-h --help --version -v" ;;
    "rdfs stats" | "rdfsd stats") echo "-h --help --version -v --json --prometheus" ;;
    "rdfs top" | "rdfsd top") echo "-h --help --version -v -n" ;;
    "rdfs watch") echo "-h --help --version -v -o -r --recursive -q --quiet" ;;
    rdfsd) echo "-h --help --version --export --read-only --listen --port --rdma-port --key-file
      --no-auth --no-rdma --require-encryption --config --pool --lease --metrics --stdio -f --foreground -v --verbose" ;;
    rdcp) echo "-h --help --version -r -R --recursive -p -a --archive -L --dereference -x
      --one-file-system -u --update --sync --checksum --delete --verify --inplace --resume -P -n --dry-run
      --exclude --include --files-from -0 --null -l --bwlimit -v --verbose -q --quiet -e --rsh --rdcp-path --bootstrap --port
      --key-file --require --lanes --plaintext --require-encryption" ;;
    rdsend) echo "-h --help --version -v -q --quiet --key-file --key-fd --require --encrypt --timeout
      --wait --plaintext --compress" ;;
    rdrecv) echo "-h --help --version -v -q --quiet --key-file --key-fd --require --encrypt --timeout
      --wait --listen --verbs-port --keep-partial --resume --forward --piece --pieces" ;;
    rdsock) echo "-h --help --version --only --except --require --stats -v --pair --far-rdsock --ssh --pairs --unpair" ;;
    rdinfo) echo "-h --help --version --key-file --json -v" ;;
    rdping) echo "-h --help --version -v" ;;
    "rdping server") echo "-h --help --version -v --listen --key-file" ;;
    "rdping client") echo "-h --help --version -v --key-file --require --seconds --size --sizes --plaintext --json" ;;
  esac
}

# The words of rdfs -o.
_rdfs_mount_options() {
  echo "key_file= require= address= deadline= workers= read_ahead= prefetch= allow_other ro rw plaintext
    require_encryption idmap= uid= gid= writeback sync async strict ssh_command= rdfsd_path= log= metrics= suid nosuid dev nodev exec noexec
    atime noatime"
}

# Sets COMPREPLY to those of the words in $1 that $2 begins.
_rdfs_offer() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }
_rdfs_files() {
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
  compopt -o filenames 2>/dev/null
}
_rdfs_also() { mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen "$@"); }

# Behind the last comma of an -o list.
_rdfs_complete_mount_option() {
  local before='' word=$1
  [[ $word == *,* ]] && before=${word%,*}, word=${word##*,}
  _rdfs_offer "$(_rdfs_mount_options)" "$word"
  COMPREPLY=("${COMPREPLY[@]/#/$before}")
  compopt -o nospace 2>/dev/null
}

# The value of the option, or of the last word of the list, $1, which stands behind $3.
_rdfs_complete_value() {
  case "$3 $2" in
    --export\ *) _rdfs_files "$2"; return ;;
    "-o "*,* | "= "*,*) _rdfs_complete_mount_option "$2"; return ;;
  esac
  case "${1##*,}" in
    require | --require) _rdfs_offer "verbs shm tcp" "$2" ;;
    idmap) _rdfs_offer "user none" "$2" ;;
    key_file | log | metrics | rdfsd_path | --metrics | --key-file | --config | --files-from) _rdfs_files "$2" ;;
  esac
}

_rdfs() {
  local command=${1##*/} word=${COMP_WORDS[COMP_CWORD]} previous='' i
  [ "$COMP_CWORD" -eq 0 ] || previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  if [ "$command" = rdsock ]; then
    # Behind the command that rdsock runs, that one's own completion.
    for ((i = 1; i < COMP_CWORD; i++)); do
      case "${COMP_WORDS[i]}" in
        --only | --except | --require | --pair | --far-rdsock | --ssh | --unpair) i=$((i + 1)) ;;
        -*) ;;
        *) declare -F _command_offset >/dev/null && _command_offset "$i"; return ;;
      esac
    done
  fi
  if [ "$command" = rdping ]; then
    for ((i = 1; i < COMP_CWORD; i++)); do
      case "${COMP_WORDS[i]}" in server | client) command="rdping ${COMP_WORDS[i]}" ;; esac
    done
  fi
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "$command ${COMP_WORDS[1]}" in
      "rdfs watch" | "rdfs "[st]* | "rdfsd "[st]*)
        case "${COMP_WORDS[1]}" in status | stats | top | watch) command="$command ${COMP_WORDS[1]}" ;; esac ;;
    esac
  fi
  # A '=' is a word of its own to bash: what stands before it names what comes.
  if [ "$word" = = ]; then
    [ "$COMP_CWORD" -lt 2 ] || _rdfs_complete_value "$previous" '' "${COMP_WORDS[COMP_CWORD - 2]}"
    return
  elif [ "$previous" = = ] && [ "$COMP_CWORD" -ge 3 ]; then
    _rdfs_complete_value "${COMP_WORDS[COMP_CWORD - 2]}" "$word" "${COMP_WORDS[COMP_CWORD - 3]}"
    return
  fi
  case "$command $previous" in
    "rdsock --require") _rdfs_offer "shm verbs" "$word"; return ;;
    "rdsock --pair" | "rdsock --unpair") mapfile -t COMPREPLY < <(compgen -A hostname -- "$word"); return ;;
    *" --require") _rdfs_offer "verbs shm tcp" "$word"; return ;;
    "rdfs -o" | "mount.rdfs -o" | "rdfs watch -o") _rdfs_complete_mount_option "$word"; return ;;
    *" --key-file" | *" --config" | *" --files-from" | *" --rdcp-path" | *" --far-rdsock") _rdfs_files "$word"; return ;;
  esac
  if [[ $word == -* ]]; then
    _rdfs_offer "$(_rdfs_options "$command")" "$word"
    return
  fi
  case "$command" in
    rdping) _rdfs_offer "server client" "$word" ;;
    rdfs | rdfsd)
      _rdfs_files "$word"
      if [ "$COMP_CWORD" -eq 1 ]; then
        _rdfs_also -W "status stats top$([ "$command" = rdfsd ] || echo ' watch')" -- "$word"
      fi ;;
    rdinfo | "rdping client") mapfile -t COMPREPLY < <(compgen -A hostname -- "$word") ;;
    rdfsd\ *) ;;
    rdsock) mapfile -t COMPREPLY < <(compgen -c -- "$word") ;;
    *) _rdfs_files "$word" ;;
  esac
  # A host may be the first operand of these.
  if [[ $command == @(rdfs|mount.rdfs|rdsend) ]] && [[ $COMP_CWORD -eq 1 || $previous == -* ]]; then
    _rdfs_also -A hostname -- "$word"
  fi
}

complete -F _rdfs rdfs mount.rdfs rdfsd rdcp rdsend rdrecv rdsock rdping rdinfo
