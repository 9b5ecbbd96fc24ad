from two_phase import Decision, Status, TwoPhaseCommit

from fencepost import ModelValue, action, constant, leads_to, strong, weak


class Prompt(TwoPhaseCommit):
    """Two-phase commit that must answer. Messages may be late, but none is lost."""

    lossy: bool = constant(False, "messages may be lost")

    @leads_to(r=TwoPhaseCommit.rms)
    def prepared_gets_an_answer(self, r: ModelValue) -> tuple[bool, bool]:
        """A resource manager that is prepared eventually commits or aborts."""
        return self.rm[r] is Status.PREPARED, self.rm[r] in (Status.COMMITTED, Status.ABORTED)


class Fair(Prompt):
    """Every step that others wait for happens eventually."""

    fairness = [
        weak(Prompt.rm_asks_again),
        weak(Prompt.tm_receives_vote),
        weak(Prompt.tm_commits),
        weak(Prompt.rm_follows),
    ]


class Patient(Fair):
    """The transaction manager does not wait forever either."""

    fairness = [*Fair.fairness, weak(Fair.tm_aborts)]


class Unlucky(Patient):
    """Decisions get lost, in separate steps of the network."""

    @action(r=Patient.rms, by="network")
    def network_loses_decision(self, r: ModelValue) -> None:
        self.network.receive(Decision, to=r)


class Lucky(Unlucky):
    """A decision that is sent again and again arrives eventually."""

    fairness = [*Unlucky.fairness, strong(Unlucky.rm_follows)]
