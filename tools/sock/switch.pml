/* The switch-over of one direction, as PROTOCOL.md tells it, for spin(1): a sender with N bytes, a
 * receiver, the kernel's TCP and a ring, every look at a shared word a step of its own. Checked are
 * the order and number of the bytes (assertions), that nobody waits for ever (no invalid end state)
 * and that the stream comes to its end (ltl ends). tests/tools/sock/model.sh runs it, and again with
 * each of the BUG_ macros, which spin must reject.
 *
 * LEAVE 1: the receiver may at any time go on without the shim; LEAVE 2: the sender, too, and be
 * killed while it takes back what the ring holds. Bytes are their own numbers.
 */
#ifndef N
#define N 4
#endif
#ifndef PHASES
#define PHASES 2
#endif
#ifndef LEAVE
#define LEAVE 0
#endif
#define RING 2
#define TCP 2

chan tcp = [TCP] of { byte };
bool fin = false;           /* the sender's kernel socket is closed */
bool sender_hup = false;    /* the sender's end of the bells is closed */
bool receiver_hup = false;
bool broken = false;        /* somebody reset the connection */

byte ring[RING];
/* The gate is one word: whoever looks at it or changes it does so in one step. */
byte cursor = 0;
bool sender_shut = true;
bool receiver_shut = true;
byte opens = 0;
byte open_at = 0;
byte consumed = 0;
byte passed = 0;
byte tcp_reads = 0;
bool reader_armed = false;
bool writer_armed = false;
bool abandoned = false;
bool returned = false;
bool taken_back = false;    /* with consumed one word */
byte kept = 0;
bool data_bell = false;
bool room_bell = false;

bool receiver_done = false;
byte written = N;           /* by a program that is not killed */

active proctype Sender() {
  byte next = 0;      /* the program's next byte */
  byte sent = 0;      /* bytes that TCP was given */
  byte mine = 0;      /* phases announced */
  byte produced = 0;
  byte seen = 0;      /* what the last look showed */
  byte at = 0;
  bool gone = false;
  bool took = false;
  bool leaving = false;
  bool returnable = false;
  bool flag = false;

on_tcp:
  gone = gone || abandoned || receiver_hup;
  seen = consumed;
  if
  :: gone && !took && seen != produced -> goto take_back
  :: else
  fi;
  if
  :: leaving -> goto settle
  :: !leaving && next == N -> goto finish
  :: !leaving && LEAVE == 2 -> leaving = true; goto settle
  :: !leaving && next < N
  fi;
  /* Unread bytes, and none of TCP's behind them yet. */
  atomic { returnable = (seen != produced && !took && kept != mine); seen = 0 };
  flag = !receiver_shut;
  flag = flag && (passed == mine);
#ifdef BUG_REOPEN
  flag = true;
#endif
  if
  :: flag && mine < PHASES && !gone -> goto open
#ifndef BUG_NO_KEEP
  :: returnable -> kept = mine; goto on_tcp
#else
  :: returnable && nfull(tcp) -> atomic { tcp!next; next++; sent++ }; goto on_tcp
#endif
  :: !returnable && nfull(tcp) -> atomic { tcp!next; next++; sent++ }; goto on_tcp
  :: !gone && (abandoned || receiver_hup) -> goto on_tcp
  :: broken -> goto over
  fi;

open:
  at = sent;
  open_at = sent;
#ifdef BUG_ANNOUNCE_FIRST
  opens = mine + 1;
  sender_shut = false;
#else
  sender_shut = false;
  opens = mine + 1;
#endif
  mine++;

on_ring:
  gone = gone || abandoned || receiver_hup;
  seen = consumed;
  flag = receiver_shut;
  if
  :: flag || gone -> goto shut
  :: !flag && !gone && next == N -> goto finish
  :: !flag && !gone && next < N -> goto shut     /* the program needs TCP */
  :: !flag && !gone && next < N && produced - seen < RING ->
     ring[produced % RING] = next;
     atomic {
       flag = !sender_shut && !receiver_shut;    /* compare and swap */
       if
       :: flag -> cursor++; produced++; next++
       :: else
       fi
     };
     if
     :: flag && reader_armed -> reader_armed = false; data_bell = true
     :: else
     fi;
     goto on_ring
  :: !flag && !gone && next < N && produced - seen >= RING ->
     room_bell = false;
     writer_armed = true;
#ifndef BUG_NO_RELOOK
     seen = consumed;
     flag = receiver_shut || abandoned || receiver_hup;
     if
     :: flag || produced - seen < RING -> goto on_ring
     :: else
     fi;
#endif
     if
     :: room_bell || receiver_hup -> goto on_ring
     :: broken -> goto over
     fi
  fi;

shut:
  sender_shut = true;
  if
  :: gone ->
     seen = consumed;
     if
     :: seen == produced -> goto on_tcp
     :: else -> goto take_back
     fi
  :: else
  fi;
#ifndef BUG_NO_QUIET
  flag = (passed == mine);
  if
  :: flag -> goto on_tcp
  :: else
  fi;
  seen = tcp_reads;
  if
  :: seen % 2 == 0 -> goto on_tcp
  :: else
  fi;
  /* One kernel read of the peer's, which never sleeps. */
  if
  :: tcp_reads != seen
  :: receiver_hup
  :: abandoned
  :: broken -> goto over
  fi;
#endif
  goto on_tcp;

settle:
#ifndef BUG_LEAVES_RING
  if
  :: seen == produced || took || kept == mine
  :: else ->
     if
     :: atomic { taken_back = true; seen = consumed }; goto take_back
     :: kept = mine; goto on_tcp       /* TCP has no room: looks again */
     fi
  fi;
#endif
  /* Without the shim a program has no bells; one that has it keeps them. */
  if
  :: sender_hup = true
  :: true
  fi;
  do
  :: next < N && nfull(tcp) -> atomic { tcp!next; next++; sent++ }
  :: next < N && broken -> goto over
  :: next == N -> goto finish
  od;

take_back:
  if
  :: kept == mine -> broken = true; goto over
  :: else
  fi;
#ifdef BUG_EARLY_RETURNED
  returned = true;
  data_bell = true;
  if
  :: goto killed
  :: true
  fi;
#endif
  do
  :: seen < produced ->
     if
     :: nfull(tcp) -> atomic { tcp!ring[seen % RING]; seen++; sent++ }
     :: broken -> goto over
     :: LEAVE == 2 -> written = next; goto finish
     fi
  :: else -> break
  od;
  returned = true;
  data_bell = true;
  took = true;
  goto on_tcp;

#ifdef BUG_EARLY_RETURNED
killed:
  skip;
#endif
finish:
  /* The kernel closes what the process held, in either order. */
  if
  :: fin = true; sender_hup = true
  :: sender_hup = true; fin = true
  fi;
over:
  skip
}

active proctype Receiver() {
  byte expected = 0;
  byte position = 0;
  byte taken = 0;     /* cursor */
  byte mine = 0;      /* phases passed */
  byte o = 0;
  byte at = 0;
  byte now = 0;
  bool eof = false;
  bool came = false;
  bool flag = false;
  bool hup = false;
  bool back = false;
  bool owed = false;

on_tcp:
  if
  :: LEAVE -> goto leave
  :: true
  fi;
  /* Follows, and again after a refusal once the sender knows of it. */
#ifdef BUG_FOLLOW
  receiver_shut = false;
#else
  if
  :: receiver_shut && sender_shut && !sender_hup -> receiver_shut = false
  :: true
  fi;
#endif
  atomic { tcp_reads++; came = false };          /* odd */
  o = opens;
  at = open_at;
  assert(o == mine || (o == mine + 1 && at >= position));
  if
  :: o != mine && at == position
  :: else ->
     atomic {
       if
       :: nempty(tcp) -> tcp?now; assert(now == expected); expected++; position++; came = true
       :: empty(tcp) -> eof = fin
       fi
     }
  fi;
  tcp_reads++;
  if
  :: came -> goto on_tcp
  :: else
  fi;
#ifdef BUG_EARLY_END
  if
  :: eof && o == mine -> goto end_of_stream
  :: else
  fi;
#endif
  o = opens;
  at = open_at;
  if
  :: o == mine && eof ->
     flag = taken_back;
#ifndef BUG_TRUSTS_TAKEN_BACK
     if
     :: flag && !returned -> broken = true; goto over
     :: else
     fi;
#endif
     goto end_of_stream
  :: o == mine && !eof
  :: o != mine && at == position -> goto on_ring
  :: o != mine && at != position -> assert(!eof)
  fi;
  data_bell = false;
  reader_armed = true;
#ifndef BUG_NO_RELOOK
  o = opens;
  at = open_at;
  if
  :: o != mine && at == position -> goto on_ring
  :: else
  fi;
#endif
  if
  :: data_bell || nempty(tcp) || fin -> goto on_tcp
  :: broken -> goto over
  fi;

on_ring:
  if
  :: LEAVE -> goto leave
  :: true
  fi;
  flag = fin && empty(tcp);
  hup = sender_hup;
  back = taken_back;
  atomic { now = cursor; came = sender_shut || receiver_shut };
  if
  :: now != taken && !back ->
     assert(now - taken <= RING);
     now = ring[taken % RING];
     atomic {
#ifdef BUG_TAKES_BLINDLY
       flag = true;
#else
       flag = !taken_back;                      /* compare and swap */
#endif
       if
       :: flag -> assert(now == expected); expected++; taken++; consumed = taken
       :: else
       fi
     };
     if
     :: writer_armed -> writer_armed = false; room_bell = true
     :: else
     fi;
     goto on_ring
  :: back || (now == taken && came) -> mine++; passed = mine; goto on_tcp
  :: !back && now == taken && !came && hup -> receiver_shut = true; goto on_ring
  :: !back && now == taken && !came && !hup && flag -> goto end_of_stream
  :: else
  fi;
  if
  :: receiver_shut = true; goto on_ring             /* a polite refusal */
  :: true
  fi;
  data_bell = false;
  reader_armed = true;
#ifndef BUG_NO_RELOOK
  atomic { flag = (cursor != taken || sender_shut || receiver_shut) };
  if
  :: flag -> goto on_ring
  :: else
  fi;
#endif
  if
  :: data_bell || nempty(tcp) || fin || sender_hup -> goto on_ring
  :: broken -> goto over
  fi;

leave:
  receiver_shut = true;
  if
  :: writer_armed -> writer_armed = false; room_bell = true
  :: else
  fi;
  back = taken_back;
  o = opens;
  now = cursor;
  if
  :: !back && (o == mine || now == taken) -> goto plain
  :: back && returned -> goto plain
  :: else
  fi;
  abandoned = true;
  room_bell = true;
  if
  :: returned -> goto plain
  :: else
  fi;
  if
  :: kept > mine -> broken = true; goto over
  :: else -> owed = true                           /* a second has passed */
  fi;
plain:
  /* Without the shim a program has no bells. Where bytes are owed there is a keeper, which has them,
   * and keeps FIN away. */
  if
  :: !owed -> receiver_hup = true
  :: true
  fi;
  do
  :: nempty(tcp) -> atomic { tcp?now; assert(now == expected); expected++ }
  :: owed && returned -> owed = false
  :: owed && !returned && sender_hup -> broken = true; goto over
  :: !owed && empty(tcp) && fin -> break
  :: broken -> goto over
  od;
end_of_stream:
  assert(expected == written || broken);
over:
  receiver_done = true
}

ltl ends { <> receiver_done }
