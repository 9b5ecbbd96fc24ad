from tempfile import mkdtemp

from persistqueue import FILOSQLiteQueue, PriorityQueue, SQLiteAckQueue, SQLiteQueue

queue = PriorityQueue(mkdtemp(), auto_commit=False)
queue.put("later", priority=2)
queue.put("urgent", priority=1)
print(queue.get(), "is done")
queue.task_done()
print("on disk:", queue.queue(), "size:", queue.size)

queue = FILOSQLiteQueue(mkdtemp(), auto_commit=False)
queue.put("first")
queue.put("last")
print("last in, first out:", queue.get())

queue = SQLiteQueue(mkdtemp(), auto_commit=False)
number = queue.put("job")
try:
    queue.get(id=number)
except Exception as error:
    print(repr(error))

queue = SQLiteAckQueue(mkdtemp())
queue.put("job")
queue.get()
queue.resume_unack_tasks()
print("jobs:", len(queue.queue()), "active:", queue.active_size())
