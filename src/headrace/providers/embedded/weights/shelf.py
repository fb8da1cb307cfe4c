"""The folder where models lie: what its files are called, and what may be believed of them.

    <home>/models/<sha256>.gguf         a model, whole
                  <sha256>.checked      how that file looked to the system when it was hashed and found right
                  <sha256>.part         one that is being fetched
                  <sha256>.03.wheel     the wheel of its third piece, while it is needed
                  <sha256>.lock         held by who fetches it

A file is hashed before it is first used, and again when its size, its times or its place on the disk are not those
noted: whoever writes to it changes them. Hashing half a gigabyte at every start would cost a second.
"""

import contextlib
import os
from pathlib import Path

from headrace.providers.embedded.weights import lock
from headrace.providers.embedded.weights.catalogue import Model
from headrace.providers.embedded.weights.failures import Busy, Denied, disk_error

FOLDER = "models"


class Shelf:
    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER

    def stem(self, model: Model) -> Path:
        return self.folder / model.sha256

    def whole(self, model: Model) -> Path:
        return self.folder / f"{model.sha256}.gguf"

    def part(self, model: Model) -> Path:
        return self.folder / f"{model.sha256}.part"

    def lock(self, model: Model) -> Path:
        return self.folder / f"{model.sha256}.lock"

    def locate(self, model: Model) -> Path | None:
        """The file, if it is there whole; whether it is right is not looked at."""
        path = self.whole(model)
        return path if _size(path) == model.size else None

    def look(self, model: Model) -> str:
        """What the system says of the file, in words that change when it is written to; raises OSError."""
        there = self.whole(model).stat()
        return f"{there.st_size} {there.st_mtime_ns} {there.st_ctime_ns} {there.st_ino}"

    def unchanged(self, model: Model) -> bool:
        """Whether the file looks as it did when it was found right."""
        try:
            return self._checked(model).read_text(encoding="ascii", errors="replace") == self.look(model)
        except OSError:
            return False

    def note(self, model: Model, looked: str) -> None:
        """The file that looked like this is right. Where that cannot be noted, it is hashed again the next time."""
        with contextlib.suppress(OSError):
            self._checked(model).write_text(looked, encoding="ascii")

    def reopen(self, model: Model) -> None:
        """Take its name from a file that is not right, and go on with it if there is more of it than of the other."""
        whole = self.whole(model)
        if _size(whole) > self.size_of_part(model):
            whole.replace(self.part(model))

    def size_of_part(self, model: Model) -> int:
        return _size(self.part(model))

    def _checked(self, model: Model) -> Path:
        return self.folder / f"{model.sha256}.checked"

    def make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, self.folder, 0) from error

    def finish(self, model: Model) -> Path:
        """Give a model that is right its name."""
        path = self.whole(model)
        self.part(model).replace(path)
        self.note(model, self.look(model))
        self.drop_wheels(model)
        # Some systems cannot sync a folder; then a power cut may cost the name, and the next fetch gives it again.
        with contextlib.suppress(OSError):
            descriptor = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return path

    def drop_wheels(self, model: Model) -> None:
        for wheel in self.folder.glob(f"{model.sha256}.*.wheel"):
            wheel.unlink(missing_ok=True)

    def remove(self, model: Model) -> int:
        """Remove a model and what there is of it; says how many bytes that freed."""
        if not self.folder.is_dir():
            return 0
        try:
            with lock.held_at_once(self.lock(model)) as alone:
                if not alone:
                    raise Busy(
                        f"The model {model.name} is being fetched by another headrace. Stop that one first."
                    )
                files = [path for path in self.folder.glob(f"{model.sha256}.*") if path.suffix != ".lock"]
                freed = sum(map(_size, files))
                for path in files:
                    path.unlink()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise Denied(
                f"{error.filename or self.folder}: it cannot be removed ({reason}). Check its permissions, and that "
                "no headrace is running."
            ) from error
        return freed


def _size(path: Path) -> int:
    """A file's size; 0 if it is not there or cannot be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
