"""Adds to every line of requirements.lock the SHA-256 of its files in the package index.

    python .ci/add_hashes.py        # after a version in the file was changed

torch is not in that file: which build of it is right depends on the machine.
"""

import re
import urllib.request
from pathlib import Path

INDEX = "https://pypi.org/simple"
LOCK = Path(__file__).parents[1] / "requirements.lock"
LINK = re.compile(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"')


def find_hashes(name: str, version: str) -> list[str]:
    """Of the wheels and source archives of one version."""
    project = re.sub(r"[-_.]+", "-", name).lower()
    with urllib.request.urlopen(f"{INDEX}/{project}/") as page:
        files = LINK.findall(page.read().decode())
    begins = re.compile(
        rf"{project.replace('-', '[-_.]+')}-{re.escape(version)}(-|\.tar|\.zip)", re.I
    )
    return sorted({digest for file, digest in files if begins.match(file)})


def main() -> None:
    lines = []
    for line in LOCK.read_text().splitlines():
        found = re.match(r"([\w.-]+)==([\w.+]+)", line)
        if found:
            hashes = find_hashes(*found.groups())
            if not hashes:
                raise SystemExit(f"the index has no {found[0]}")
            lines.append(
                " \\\n".join([found[0], *(f"    --hash=sha256:{each}" for each in hashes)])
            )
        elif line.startswith("#"):
            lines.append(line)
    LOCK.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
