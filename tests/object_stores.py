"""Object stores for tests: a local folder and an S3 server, which are looked into alike."""

from __future__ import annotations

from fencepost.files.storage import open_storage


class ObjectStore:
    """A folder of an object store. ``to`` is its path or its URL."""

    def __init__(self, to: str) -> None:
        self.to = to

    def paths(self) -> list[str]:
        """All files, as paths below the folder."""
        from pyarrow import fs

        files, root = open_storage(self.to).arrow()
        found = files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        return sorted(each.path.removeprefix(f"{root}/") for each in found if each.is_file)

    def objects(self) -> set[str]:
        """The names of the objects of offloaded ledgers that have files."""
        return {path.split("/")[-2] for path in self.paths() if path.count("/") == 3}

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return open_storage(self.to).load(path) or b""

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        folder, _, name = path.rpartition("/")
        storage = open_storage(self.to)
        if folder:
            storage = storage.below(folder)
        storage.create()
        storage.write(name, content)

    def remove(self, path: str) -> None:
        """Remove a file."""
        open_storage(self.to).remove(path)

    def put(self, path: str, content: bytes | None) -> None:
        """Replace a file; None: remove it."""
        if content is None:
            self.remove(path)
        else:
            self.write(path, content)
