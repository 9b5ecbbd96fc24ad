from enum import Enum

from fencepost import ModelValue, PerKey, Protocol, action, constant, model_values, per_key, require


class Job(Enum):
    ABSENT = "absent"
    READY = "ready"
    TAKEN = "taken"
    DONE = "done"
    FAILED = "failed"


class Jobs(Protocol):
    """A queue on disk. A job that was taken comes again unless it is acknowledged, also after a restart."""

    jobs = model_values("j", 3)
    newest_first: bool = constant(False, "the newest job is taken first, and not the oldest one")

    job: PerKey[ModelValue, Job] = per_key(jobs, Job.ABSENT)

    @action
    def puts(self) -> None:
        absent = self.those(Job.ABSENT)
        require(len(absent) > 0)
        self.job[absent[0]] = Job.READY

    @action
    def gets(self) -> None:
        ready = self.those(Job.READY)
        require(len(ready) > 0)
        self.job[ready[-1] if self.newest_first else ready[0]] = Job.TAKEN

    @action(j=jobs)
    def gets_by_id(self, j: ModelValue) -> None:
        require(self.job[j] is Job.READY)
        self.job[j] = Job.TAKEN

    @action(j=jobs)
    def acks(self, j: ModelValue) -> None:
        require(self.job[j] is Job.TAKEN)
        self.job[j] = Job.DONE

    @action(j=jobs)
    def nacks(self, j: ModelValue) -> None:
        require(self.job[j] is Job.TAKEN)
        self.job[j] = Job.READY

    @action(j=jobs)
    def fails(self, j: ModelValue) -> None:
        require(self.job[j] is Job.TAKEN)
        self.job[j] = Job.FAILED

    @action
    def acks_all(self) -> None:
        require(len(self.those(Job.TAKEN)) > 0)
        for j in self.those(Job.TAKEN):
            self.job[j] = Job.DONE

    @action
    def resumes(self) -> None:
        for j in self.those(Job.TAKEN):
            self.job[j] = Job.READY

    @action
    def restarts(self) -> None:
        for j in self.those(Job.TAKEN):
            self.job[j] = Job.READY

    def those(self, *are: Job) -> list[ModelValue]:
        return [j for j in self.jobs if self.job[j] in are]
