#!/usr/bin/env -S zsh -f
# Usage: complete.zsh
# An interactive zsh on a terminal of its own completes what we type with packaging/completion/_rdfs.
zmodload zsh/zpty zsh/datetime || exit 1
folder=${0:A:h}/../../packaging/completion
failures=0

# await PATTERN: what zsh has written since the last one, up to a match, in $said; gives up after 20 s.
await() {
  local piece until=$((EPOCHREALTIME + 20))
  said=''
  while [[ $said != ${~1} ]]; do
    if zpty -rt shell piece; then
      said+=$piece
    elif ((EPOCHREALTIME > until)); then
      return 1
    else
      sleep 0.05
    fi
  done
}

# offers LINE PATTERN: with LINE typed, and a tab behind it, zsh shows what matches.
offers() {
  zpty -wn shell $'\C-u'"$1"$'\t'
  await "$2" && return
  print -ru2 -- "'$1' and a tab: no $2 in ${(V)said}"
  ((++failures))
}

zpty -b shell zsh -f -i
zpty -w shell "TERM=dumb PS1= PS2= LISTMAX=1000; stty -echo; bindkey -e; setopt no_beep list_ambiguous no_list_packed
  fpath=(${(q)folder} \$fpath); autoload -U compinit; compinit -u -D; print RE''ADY"
await '*READY*' || { print -ru2 "zsh does not start: $said"; exit 1 }

offers 'rdfsd --key' '*-file*'
offers 'rdfsd to' '*top *'
offers 'rdfsd stats --j' '*json*'
offers 'rdfsd top -' '*-n*End after so many*'
offers 'rdfs watch --rec' '*recursive*'
offers 'rdfs -o asy' '*async*'
offers 'mount.rdfs -o asy' '*async*'
offers 'rdsock --sta' '*stats*'
offers 'rdping client --seco' '*seconds*'
offers 'rdping -v client --seco' '*seconds*'
zpty -d shell
((failures == 0))
