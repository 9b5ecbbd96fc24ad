------------------------------ MODULE Counter ------------------------------
EXTENDS Naturals
CONSTANT Limit
VARIABLE count

Start == count = 0
Add(n) == count + n <= Limit /\ count' = count + n
Step == Add(1) \/ Add(2)
=============================================================================
