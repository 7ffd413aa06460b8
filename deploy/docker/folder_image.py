"""Makes a container image from folders, without a daemon: `folder_image.py DIR [DIR ...] NAME:TAG OUT.tar`.

Each DIR becomes one layer, the first at the bottom; every file belongs to root. The test bed makes its pause image
with this; it also packs a model folder for `model.source.image`.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

from imagekit.archive import Image, write_archive
from imagekit.layers import LayerCache, LayerWriter


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes a container image from folders, without a daemon.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="one layer each, bottom first")
    parser.add_argument("name", metavar="NAME:TAG", help="complete: localhost/app:1")
    parser.add_argument("out", type=Path, metavar="OUT.tar")
    parser.add_argument("--entrypoint", default="", help="program and arguments, split at spaces")
    parser.add_argument("--user", default="")
    args = parser.parse_args()
    for folder in args.folders:
        if not folder.is_dir():
            parser.error(f"{folder} is not a folder")
    if ":" not in args.name.rsplit("/", 1)[-1]:
        parser.error(f"{args.name}: a tag is missing")
    return args


def main() -> None:
    args = parse_args()
    unfinished = args.out.with_name(args.out.name + ".partial")
    with tempfile.TemporaryDirectory(dir=args.out.parent) as scratch:
        cache = LayerCache(Path(scratch))
        layers = tuple(
            cache.layer(f"folder{number}", "once", partial(LayerWriter.tree, name="", source=folder))
            for number, folder in enumerate(args.folders)
        )
        image = Image(args.name, layers, entrypoint=tuple(args.entrypoint.split()), user=args.user)
        with unfinished.open("wb") as sink:
            digests = write_archive([image], sink)
    os.replace(unfinished, args.out)
    print(args.name, digests[args.name], f"{image.size >> 10} KiB")


if __name__ == "__main__":
    main()
