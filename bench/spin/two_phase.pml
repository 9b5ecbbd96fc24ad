/* The two-phase commit of docs/examples/two_phase.py without losses, action by action.
   To be run with the option -m: a message that is sent again while it is in flight changes nothing. -DRMS=n; -DASKED checks that no manager has committed while another has aborted. */

#ifndef RMS
#define RMS 3
#endif
#define WORKING 0
#define PREPARED 1
#define COMMITTED 2
#define ABORTED 3

#if RMS == 2
#define EACH(m) m(0) m(1)
#elif RMS == 3
#define EACH(m) m(0) m(1) m(2)
#elif RMS == 4
#define EACH(m) m(0) m(1) m(2) m(3)
#else
#define EACH(m) m(0) m(1) m(2) m(3) m(4)
#endif

#define CHANNELS(r) chan vote##r = [1] of { bit }; chan decision##r = [1] of { byte };
EACH(CHANNELS)

#ifdef ASKED
byte rm[RMS];
#define OWN(r)
#define RM(r) rm[r]
#else
#define OWN(r) byte own##r;
#define RM(r) own##r
#endif

#define OF_MANAGER(r) xr vote##r;
#define PREPARES(r) && prepared[r]
#define DECIDES(r) decision##r!status;
#define RECEIVES(r) \
    :: d_step { vote##r?_ -> if :: status == WORKING -> prepared[r] = 1 :: else -> decision##r!status fi }

active proctype tm()
{
    byte status; bit prepared[RMS];
    EACH(OF_MANAGER)
    do
    EACH(RECEIVES)
    :: d_step { status == WORKING EACH(PREPARES) -> status = COMMITTED; EACH(DECIDES) }
    :: d_step { status == WORKING -> status = ABORTED; EACH(DECIDES) }
    od
}

#define MANAGER(r) \
active proctype rm##r() \
{ \
    OWN(r) \
    xr decision##r; \
    do \
    :: d_step { RM(r) == WORKING -> RM(r) = PREPARED; vote##r!1 } \
    :: d_step { RM(r) == WORKING -> RM(r) = ABORTED } \
    :: d_step { RM(r) == PREPARED -> vote##r!1 } \
    :: d_step { decision##r?RM(r) } \
    od \
}
EACH(MANAGER)

#ifdef ASKED
#define COMMITS(r) || rm[r] == COMMITTED
#define ABORTS(r) || rm[r] == ABORTED
active proctype monitor()
{
    d_step { (false EACH(COMMITS)) && (false EACH(ABORTS)) -> assert(false) }
}
#endif
