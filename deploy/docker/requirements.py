"""Prints what one role needs, for `pip install -r`: `requirements.py PYPROJECT ROLE`. The Dockerfiles use it."""

import sys
import tomllib
from pathlib import Path


def main() -> None:
    project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
    print("\n".join([*project["dependencies"], *project["optional-dependencies"][sys.argv[2]]]))


if __name__ == "__main__":
    main()
