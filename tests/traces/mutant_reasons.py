"""Why a trace with one change may still be accepted: for each protocol the reasons, and the changes that have each.

A change is named by what was done, the action of the event, and the field with its change, or the action that the event
was swapped with. ``*`` stands for any text.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from traces.test_tampered_traces import NEVER_SWAPPED

Reasons = Mapping[str, tuple[str, ...]]

NOT_MODELLED = "the protocol has nothing of the kind"
LAST = "nobody does anything after it that needs it, so it may be missing, or have happened"
NOBODY_SAYS = "the protocol allows both, and no other event says which"
AGAIN = "it may be done again, and what it did the first time stays"
LATE = "it may be learnt later or never: then less is done, and nothing is done here that takes more"
INDEPENDENT = "neither follows from the other"

LOG: Reasons = {
    NOT_MODELLED: (
        "altered abdicate reason *",
        "altered seal status *",  # a leader that has sealed the log has no status
        "* withdraw_batch*",  # a withdrawal counts once the version of the chain is changed
    ),
    "a metadata service may be traced in part, and what it tells helps only to find out who has made a version": (
        "dropped metadata_written",
        "spliced metadata_written",
        "altered metadata_written *",
    ),
    NOBODY_SAYS: (
        "altered acknowledge_entry entry *",  # with the entries before it; and each may be confirmed by then
        "altered close_last_ledger last_entry *",  # any end between what is confirmed and what was written
        "altered write_entry append *",  # the first of a leader: those that it has not written have numbers as well
        "altered write_entry count *",  # the entries that were never acknowledged
        "dropped write_entry",
        "altered look_up_batch *",  # the batch of another client, who does not say which it has attached
    ),
    "the last version may have been made by somebody who is not in the trace": (
        "altered get_last_ledger version +1",
        "altered delete_withdrawn_batch version *",
        "dropped delete_withdrawn_batch",
    ),
    "an update may go unanswered, or be made by somebody who has not told that it was sent": (
        "dropped append_ledger*",
        "dropped attach_batch*",
        "dropped seal*",
        "dropped trim",
        "dropped sends_update",
        "doubled sends_trim",
        "altered sends_trim *",
    ),
    LATE: ("dropped acknowledge_entry",),
    AGAIN: (
        "doubled fence_last_ledger",
        "dropped fence_last_ledger",  # it was done again right after
        "doubled look_up_batch",
        "dropped look_up_batch",
        "spliced look_up_batch",
        "* delete_superseded_batch*",
    ),
    LAST: (
        "dropped abdicate",
        "dropped close_last_ledger",
        "dropped close_own_ledger",
        "dropped close_own_ledger_bad_version",
        "dropped get_last_ledger",
        "dropped look_up_chain",
        "dropped create_ledger",
        "dropped ledger_fenced",
        "spliced become_leader",
        "spliced abdicate",
    ),
    INDEPENDENT: (
        "swapped abdicate delete_superseded_batch",
        "swapped acknowledge_entry write_entry",
        "swapped write_entry acknowledge_entry",
    ),
}

FACT = "what replicas learn of each other stays true, and is learnt late, never or twice"

QUORUM: Reasons = {
    FACT: (
        "* accept_fetch_request*",
        "* get_pre_vote",
        "* get_vote",
        "* send_fetch_request",
        "* speak",
        "altered speak votes *",
        "* hear_leader",
        "* hear_end_of_epoch",
        "* look_for_leader",
        "* ask_for_pre_votes",
    ),
    LATE: (
        "altered learn_commit offset *",
        "dropped learn_commit",
        "spliced learn_commit",
        "dropped commit",
        "altered sync end.each -1",
        "dropped sync",
        "dropped append_fetched",
        "* keep_leading",
    ),
    "a request that is not granted, or was not asked for, leaves nothing": (
        "altered handle_vote_request *",
        "dropped handle_vote_request",
        "doubled handle_vote_request",
        "* refuse_fetch*",
    ),
    AGAIN: ("* restart_with_state", "* store_election", "dropped return_to_leader"),
    LAST: ("altered client_request count +1", "altered become_leader renews *"),
    "a replica may make a snapshot without saying so, and lose it": (
        "altered restart_with_state snapshot *",
        "* take_snapshot",
        "* install_snapshot",
        "* snapshot_damaged",
    ),
    "a number of a host is any that no other replica has": ("altered restart_with_state host *",),
    "a set in which one is named twice": ("altered * voters more", "altered keep_leading fetched more"),
    INDEPENDENT: (
        "swapped accept_fetch_request *",
        "swapped * accept_fetch_request",
        "swapped commit *",
        "swapped append_fetched learn_commit",
        "swapped learn_commit *",
        "swapped client_request keep_leading",
        "swapped client_request sync",
        "swapped client_request take_snapshot",
        "swapped get_pre_vote *",
        "swapped get_vote *",
        "swapped handle_vote_request *",
        "swapped hear_leader *",
        "swapped keep_leading *",
        "swapped send_fetch_request *",
        "swapped speak *",
        "swapped sync *",
        "swapped take_snapshot *",
        "swapped refuse_fetch *",
    ),
}

STORE: Reasons = {
    NOT_MODELLED: (
        "* bookie_refuses_add*",
        "* client_gives_up_on_*",
        "* recovery_client_gives_up_on_add*",
        "* client_ends*",
        "* client_confirms",
        "dropped client_opens_ledger",
        "altered bookie_copies_entry lac *",
    ),
    "a position in a journal counts only as lower or higher than what became durable": (
        "altered * position *",
        "altered bookie_sends_read_response since *",
    ),
    "what survives a crash may do so whether the bookie says it or not": (
        "* bookie_crashes*",
        "* bookie_recovers*",
        "altered bookie_copies_entry entries *",
        "* bookie_copies_entry",
        "doubled bookie_may_lack_entries",
        "altered bookie_may_lack_entries *",
        "spliced bookie_may_lack_entries",
        "spliced bookie_is_fenced",
        "* bookie_leaves_limbo*",
    ),
    "an answer that nobody hears, or that says nothing certain, changes nothing": (
        "altered bookie_sends_read_response *",
        "* bookie_sends_read_response",
        "altered bookie_sends_fencing_read_lac_response *",
        "* bookie_sends_fencing_read_lac_response",
        "altered bookie_sends_add_fenced_response *",
        "dropped bookie_sends_add_fenced_response",
        "altered bookie_sends_add_confirmed_response connection *",
        "altered bookie_sends_add_confirmed_response entries*",
        "dropped bookie_sends_add_confirmed_response",
        "dropped *client_receives_add_*",
        "dropped client_receives_recovery_read_response",
        "dropped client_receives_fencing_read_lac_response",
        "altered *client_receives_add_* entries*",
        "altered client_sends_add_entry_requests entries*",
    ),
    "an entry that is sent anew carries the LAC that it had before, or a higher one": (
        "altered bookie_sends_add_confirmed_response lac *",
        "altered client_receives_fencing_read_lac_response lac -1",
    ),
    "another bookie has answered alike, or another client has asked alike": (
        "altered *client_receives_* bookie other",
        "altered bookie_is_fenced connection other",
    ),
    "the answer to a write may be lost, and then be read": (
        "dropped client_receives_metadata",
        "doubled client_receives_metadata",
        "altered client_receives_metadata written *",
    ),
    "the last entry of a ledger that is not closed says nothing": ("altered * metadata.last_entry *",),
    "it comes to the same bookies: a write set is the ensemble, or one is named twice or was sent it already": (
        "altered *client_resends_pending_add_op before*",
        "altered client_sends_recovery_read_requests bookies *",
    ),
    "a client may write what it has written again, or what it will not need": (
        "* client_creates_ledger",
        "* client_changes_ensemble",
        "altered client_changes_ensemble metadata.fragments.each.each.each *",
        "* client_starts_recovery",
        "* client_opens_ledger",
        "* recovery_client_closes_ledger",
        "dropped client_sends_recovery_read_requests",
        "altered client_opens_ledger written *",
    ),
    "a reader may be told less, or later, or more by then": ("* reader_*",),
}

REASONS: Mapping[str, Reasons] = {"log": LOG, "quorum": QUORUM, "store": STORE}


def reason(protocol: str, what: str) -> str | None:
    """Why a change to a trace need not be found, if there is a reason."""
    how, action, *rest = what.split(" ")
    if protocol == "store" and how == "swapped":
        return None if (action, rest[0]) in NEVER_SWAPPED else INDEPENDENT
    return next(
        (why for why, known in REASONS[protocol].items() if any(fnmatchcase(what, pattern) for pattern in known)), None
    )
