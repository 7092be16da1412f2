/* The switch-over of one direction between two hosts, as PROTOCOL.md tells it under "Between hosts", for spin(1): a
 * sender P with N bytes, channel A, carriers a and b, channel B, a receiver Q, and the kernel's TCP from P to Q. Every
 * look of P's and Q's at a shared word is a step of its own. Checked are the order and number of the bytes (assertions),
 * that nobody waits for ever (no invalid end state) and that the stream comes to its end (ltl ends).
 * tests/tools/sock/model_far.sh runs it, and again with each of the BUG_ macros, which spin must reject.
 *
 * Not in it: the death of a carrier, and a receiver that abandons its ring. Bytes are their own numbers.
 */
#ifndef N
#define N 4
#endif
#ifndef PHASES
#define PHASES 2
#endif
#define RING 2
#define TCP 1

mtype = {PHASE, DATA, SHUT, FLUSHED, CONSUMED, PASSED, QUIET, WISH, FOLLOW, FLUSH};
chan tcp = [TCP] of {byte};
chan ab = [1] of {mtype, byte};
chan ba = [1] of {mtype, byte};
bool fin = false;

/* Channel A. */
byte a_ring[RING];
byte a_cursor = 0, a_opens = 0, a_open_at = 0, a_consumed = 0, a_passed = 0;
#ifdef BUG_EVEN
byte a_reads = 0;
#else
byte a_reads = 1;
#endif
bool a_sender_shut = true, a_receiver_shut = true;
/* Channel B. */
byte b_ring[RING];
byte b_cursor = 0, b_opens = 0, b_open_at = 0, b_consumed = 0, b_passed = 0, b_reads = 0;
bool b_sender_shut = true, b_wish = true, b_asks_end = false, b_complete = false;

bool done = false;

active proctype P() {
  byte next = 0, sent = 0, mine = 0, seen = 0;
  bool flag = false;
on_tcp:
  if :: next == N -> goto finish :: else fi;
  flag = !a_receiver_shut;
  flag = flag && a_passed == mine;
  if
  :: flag && mine < PHASES -> goto open
  :: nfull(tcp) -> atomic { tcp!next; next++; sent++ }
  fi;
  goto on_tcp;
open:
  a_open_at = sent;
  a_sender_shut = false;
  a_opens = mine + 1;
  mine++;
on_ring:
  seen = a_consumed;
  if
  :: a_receiver_shut -> goto shut
  :: next == N -> goto finish
  :: next < N -> goto shut
  :: next < N && a_cursor - seen < RING ->
    a_ring[a_cursor % RING] = next;
    atomic { flag = !a_receiver_shut; if :: flag -> a_cursor++; next++ :: else fi }; /* compare and swap */
    if :: flag -> goto on_ring :: else -> goto shut fi
  :: a_consumed != seen -> goto on_ring
  fi;
shut:
  a_sender_shut = true;
  flag = a_passed == mine;
  if :: flag -> goto on_tcp :: else fi;
  seen = a_reads;
  if :: seen % 2 == 0 -> goto on_tcp :: else fi;
  if :: a_reads != seen :: a_passed == mine fi;
  goto on_tcp;
finish:
  fin = true
}

active proctype a() {
  byte told = 0, shipped = 0, shut = 0, value = 0;
  bool over = false, follow = false, flush = false;
end:
  do
  :: atomic { nfull(ab) && told < a_opens && shut == told -> ab!PHASE(a_open_at); told++ }
  :: atomic { nfull(ab) && shipped < a_cursor && told == a_opens && shut < told ->
    value = a_ring[shipped % RING]; ab!DATA(value); shipped++; value = 0 }
  :: atomic { nfull(ab) && shut < told && shipped == a_cursor && (a_sender_shut || a_receiver_shut) -> shut++; ab!SHUT(0) }
  :: atomic { follow && a_sender_shut -> a_receiver_shut = false; follow = false }
    /* Flush was asked for after FIN: nothing more comes into A. */
  :: atomic { nfull(ab) && flush && told == a_opens && shipped == a_cursor -> ab!FLUSHED(0); flush = false }
  :: atomic { ba?CONSUMED(value) -> a_consumed = value; value = 0 }
#ifdef BUG_ODD_LATE
  :: ba?PASSED(value) -> a_passed = value; if :: a_reads % 2 == 0 -> a_reads++ :: else fi; value = 0
#else
  :: ba?PASSED(value) -> if :: a_reads % 2 == 0 -> a_reads++ :: else fi; a_passed = value; value = 0
#endif
  :: atomic { ba?QUIET(value) -> if :: a_passed < value && a_reads % 2 == 1 -> a_reads++ :: else fi; value = 0 }
  :: atomic { ba?WISH(value) -> follow = false; a_receiver_shut = true }
  :: atomic { ba?FOLLOW(value) -> follow = true }
#ifdef BUG_NO_FLUSH
  :: ba?FLUSH(value) -> ab!FLUSHED(0)
#else
  :: atomic { ba?FLUSH(value) -> flush = true }
#endif
  od
}

active proctype b() {
  byte told_consumed = 0, told_passed = 0, mark = 0, value = 0;
  bool quiet = true, wish = true, asked = false;
end:
  do
  :: atomic { ab?PHASE(value) ->
    b_open_at = value; b_sender_shut = false; b_opens++; mark = b_reads; quiet = false; value = 0 }
  :: atomic { ab?DATA(value) ->
    assert(b_cursor - b_consumed < RING); b_ring[b_cursor % RING] = value; b_cursor++; value = 0 }
  :: atomic { ab?SHUT(value) -> b_sender_shut = true }
  :: atomic { ab?FLUSHED(value) -> b_complete = true }
  :: atomic { nfull(ba) && told_consumed != b_consumed -> told_consumed = b_consumed; ba!CONSUMED(told_consumed) }
#ifdef BUG_QUIET_EARLY
  :: atomic { nfull(ba) && !quiet -> quiet = true; ba!QUIET(b_opens) }
#else
  :: atomic { nfull(ba) && !quiet && (mark % 2 == 0 || b_reads != mark) -> quiet = true; ba!QUIET(b_opens) }
#endif
    /* What was read comes before that it was passed. */
  :: atomic { nfull(ba) && told_passed != b_passed && told_consumed == b_consumed ->
    quiet = true; told_passed = b_passed; ba!PASSED(told_passed) }
  :: atomic { nfull(ba) && wish != b_wish -> wish = b_wish; if :: wish -> ba!WISH(0) :: else -> ba!FOLLOW(0) fi }
  :: atomic { nfull(ba) && b_asks_end && !asked -> asked = true; ba!FLUSH(0) }
  od
}

active proctype Q() {
  byte expected = 0, position = 0, taken = 0, mine = 0, o = 0, at = 0, now = 0;
  bool eof = false, came = false, complete = false, shut = false;
on_tcp:
  if :: b_wish && b_sender_shut -> b_wish = false :: true fi;
  atomic { b_reads = (b_reads + 1) % 4; came = false };
  o = b_opens;
  at = b_open_at;
  assert(o == mine || (o == mine + 1 && at >= position));
  if
  :: o != mine && at == position
  :: else -> atomic {
      if
      :: nempty(tcp) -> tcp?now; assert(now == expected); expected++; position++; came = true
      :: empty(tcp) -> eof = fin
      fi }
  fi;
  b_reads = (b_reads + 1) % 4;
  if :: came -> goto on_tcp :: else fi;
  complete = b_complete;
#ifdef BUG_NO_ASK
  complete = true;
#endif
  o = b_opens;
  at = b_open_at;
  if
  :: o != mine && at == position -> goto on_ring
  :: o != mine && at != position -> assert(!(eof && complete))
  :: o == mine && eof && complete -> goto over
  :: o == mine && !(eof && complete)
  fi;
  if :: eof -> b_asks_end = true :: else fi;
  if
  :: nempty(tcp) || (fin && !eof) || b_complete != complete || b_opens != o
  fi;
  goto on_tcp;
on_ring:
  eof = fin && empty(tcp);
  complete = b_complete;
#ifdef BUG_NO_ASK
  complete = true;
#endif
  atomic { now = b_cursor; shut = b_sender_shut };
#ifdef BUG_WISH_SHUTS
  shut = shut || b_wish;
#endif
  if
  :: now != taken ->
    assert(now - taken <= RING);
    now = b_ring[taken % RING]; assert(now == expected); expected++; taken++; b_consumed = taken; goto on_ring
  :: now == taken && shut -> mine++; b_passed = mine; goto on_tcp
  :: now == taken && !shut && eof && complete -> goto over
  :: now == taken && !shut && !(eof && complete)
  fi;
  if :: eof -> b_asks_end = true :: else -> if :: b_wish = true :: true fi fi;
  if
  :: b_cursor != taken || b_sender_shut || b_complete != complete || (!eof && fin && empty(tcp))
  fi;
  goto on_ring;
over:
  assert(expected == N);
  done = true
}

ltl ends { <> done }
