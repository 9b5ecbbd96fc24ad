------------------------------- MODULE Lease -------------------------------
\* The PlusCal side of from-tla.md. lease.py is the same algorithm in Fencepost, with the same number of states.
EXTENDS Integers, Sequences, TLC
CONSTANTS Clients, None

(*--algorithm Lease
variables holder = None, counter = 0;

macro acquire(who) begin
    await holder = None;
    holder := who;
end macro;

procedure add(n)
    variables seen = 0;
begin
    read:  seen := counter;
    write: counter := seen + n;
           return;
end procedure;

process client \in Clients
begin
    enter:
        either
            acquire(self);
        or
            goto Done;
        end either;
    work:
        with amount \in {1, 2} do
            call add(amount);
        end with;
    leave:
        if holder = self then
            holder := None;
        end if;
end process;

process reaper = "reaper"
begin
    expire:
        await holder # None;
        holder := None;
end process;
end algorithm; *)
=============================================================================
