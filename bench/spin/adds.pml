/* Adds of BookKeeper beside a recovery that fences: the protocol of adds.py, action by action.
   -DENTRIES=n; -DASKED checks the invariant. Each variable belongs to the process that uses it, unless it is asked of. */

#ifndef ENTRIES
#define ENTRIES 2
#endif
#define ADDED 1
#define REFUSED 2

chan add0 = [ENTRIES] of { bit }; chan add1 = [ENTRIES] of { bit }; chan add2 = [ENTRIES] of { bit };
chan added0 = [ENTRIES] of { byte }; chan added1 = [ENTRIES] of { byte }; chan added2 = [ENTRIES] of { byte };
chan fence0 = [1] of { bit }; chan fence1 = [1] of { bit }; chan fence2 = [1] of { bit };
chan fenced0 = [1] of { byte }; chan fenced1 = [1] of { byte }; chan fenced2 = [1] of { byte };

#ifdef ASKED
byte lac, closed;               /* closed is one more than in adds.py, so 0 is open */
#define LAC(a, b, c) lac = ((a) >= (b) -> ((b) >= (c) -> (b) : ((a) >= (c) -> (c) : (a))) : \
                                          ((a) >= (c) -> (a) : ((b) >= (c) -> (c) : (b))))
#else
#define LAC(a, b, c) skip
#endif

#define MAX(a, b) ((a) >= (b) -> (a) : (b))

active proctype writer()
{
    byte sent, a0, a1, a2, it; bit stopped;
    xs add0; xs add1; xs add2; xr added0; xr added1; xr added2;
    do
    :: d_step { !stopped && sent < ENTRIES -> add0!1; add1!1; add2!1; sent++ }
    :: d_step { added0?it -> if :: it == ADDED -> a0++; LAC(a0, a1, a2) :: else -> stopped = 1 fi; it = 0 }
    :: d_step { added1?it -> if :: it == ADDED -> a1++; LAC(a0, a1, a2) :: else -> stopped = 1 fi; it = 0 }
    :: d_step { added2?it -> if :: it == ADDED -> a2++; LAC(a0, a1, a2) :: else -> stopped = 1 fi; it = 0 }
    od
}

#define BOOKIE(name, add, added, fence, fenced) \
active proctype name() \
{ \
    byte stored; bit is_fenced; \
    xr add; xs added; xr fence; xs fenced; \
    do \
    :: d_step { add?_ -> if :: is_fenced -> added!REFUSED :: else -> stored++; added!ADDED fi } \
    :: d_step { fence?_ -> is_fenced = 1; fenced!stored } \
    od \
}

BOOKIE(bookie0, add0, added0, fence0, fenced0)
BOOKIE(bookie1, add1, added1, fence1, fenced1)
BOOKIE(bookie2, add2, added2, fence2, fenced2)

active proctype recoverer()
{
    byte s0, s1, s2, it; bit fencing;
#ifndef ASKED
    byte closed;
#endif
    xs fence0; xs fence1; xs fence2; xr fenced0; xr fenced1; xr fenced2;
    do
    :: d_step { !fencing -> fencing = 1; fence0!1; fence1!1; fence2!1 }
    :: d_step { fenced0?it -> s0 = it + 1; it = 0 }
    :: d_step { fenced1?it -> s1 = it + 1; it = 0 }
    :: d_step { fenced2?it -> s2 = it + 1; it = 0 }
    :: d_step { closed == 0 && (s0 > 0) + (s1 > 0) + (s2 > 0) >= 2 -> closed = MAX(s0, MAX(s1, s2)) }
    od
}

#ifdef ASKED
active proctype monitor()
{
    d_step { closed > 0 && lac + 1 > closed -> assert(false) }
}
#endif
