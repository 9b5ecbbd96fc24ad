from enum import Enum

from fencepost import ModelValue, PerKey, Protocol, action, constant, invariant, model_values, per_key, require, state


class Task(Enum):
    OUT = "out"
    READS = "reads"
    WRITES = "writes"
    WAITS_TO_READ = "waits to read"
    WAITS_TO_WRITE = "waits to write"


class ReadersAndWriters(Protocol):
    """A lock for readers and writers that prefers writers.

    Tasks read together as long as there is no writer, neither one that writes nor one that waits. A writer is alone.
    """

    tasks = model_values("t", 3)
    forgets_readers: bool = constant(False, "readers wait until all are out, also if no writer waits any more")

    task: PerKey[ModelValue, Task] = per_key(tasks, Task.OUT)
    writers: tuple[ModelValue, ...] = state(())

    @action(t=tasks)
    def asks_to_read(self, t: ModelValue) -> None:
        require(self.task[t] is Task.OUT)
        self.task[t] = Task.WAITS_TO_READ if self.writers or self.who(Task.WRITES) else Task.READS

    @action(t=tasks)
    def asks_to_write(self, t: ModelValue) -> None:
        require(self.task[t] is Task.OUT)
        if self.who(Task.READS, Task.WRITES):
            self.task[t] = Task.WAITS_TO_WRITE
            self.writers += (t,)
        else:
            self.task[t] = Task.WRITES

    @action(t=tasks)
    def releases(self, t: ModelValue) -> None:
        require(self.task[t] in (Task.READS, Task.WRITES))
        self.task[t] = Task.OUT
        self.let_in()

    @action(t=tasks)
    def is_cancelled(self, t: ModelValue) -> None:
        require(self.task[t] in (Task.WAITS_TO_READ, Task.WAITS_TO_WRITE))
        self.task[t] = Task.OUT
        self.writers = tuple(other for other in self.writers if other != t)
        self.let_in()

    def let_in(self) -> None:
        if self.who(Task.WRITES) or (self.who(Task.READS) and (self.writers or self.forgets_readers)):
            return
        if self.writers:
            self.task[self.writers[0]] = Task.WRITES
            self.writers = self.writers[1:]
        else:
            for t in self.who(Task.WAITS_TO_READ):
                self.task[t] = Task.READS

    def who(self, *does: Task) -> list[ModelValue]:
        return [t for t in self.tasks if self.task[t] in does]

    @invariant
    def a_writer_is_alone(self) -> bool:
        return not self.who(Task.WRITES) or len(self.who(Task.READS, Task.WRITES)) == 1

    @invariant
    def who_waits_has_a_reason(self) -> bool:
        return bool(not self.who(Task.WAITS_TO_READ) or self.writers or self.who(Task.WRITES))
