"""Whether this machine can run the bed, told as a reason that a person can act on."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

BED = Path(__file__).parents[1] / "bed"
TOOLS = ("apt-get", "dpkg-deb", "npm", "openssl", "curl", "ip", "nsenter", "unshare", "flock")
BUILD_MIB = 4000
RUN_MIB = 6000
"""Of images, and their unpacked copies, on the real node."""

NODE_MEMORY_MIB = 5000
"""Control plane and node, one release with two pairs of workers, and a reference model in the test."""


def kvarn_cache() -> Path:
    return Path(os.environ.get("KVARN_CACHE") or Path.home() / ".cache" / "kvarn")


def bed_folder() -> Path:
    """Where the bed's programs lie, or will."""
    return Path(os.environ.get("KVARN_BED") or kvarn_cache() / "bed")


def why_no_bed() -> str:
    """Empty when the bed can run here."""
    if os.getuid() != 0:
        return "the bed of cluster tests needs root"
    if platform.machine() != "x86_64" or "VERSION_CODENAME=bookworm" not in _os_release():
        return "the bed of cluster tests needs Debian 12 on amd64"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"the bed of cluster tests needs {', '.join(missing)}"
    built = (bed_folder() / "stamps" / "pause_image").exists()
    wanted = RUN_MIB + (0 if built else BUILD_MIB)
    free = shutil.disk_usage(_existing(bed_folder())).free >> 20
    if free < wanted:
        return f"the bed of cluster tests needs {wanted} MiB of disk in {bed_folder()}, {free} are free"
    return ""


def why_no_node() -> str:
    """Empty when the bed can run a real node here too."""
    if reason := why_no_bed():
        return reason
    if (memory := _available_mib()) < NODE_MEMORY_MIB:
        return f"the real node of cluster tests needs {NODE_MEMORY_MIB} MiB of memory, {memory} are available"
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"the real node of cluster tests may not have namespaces of its own here ({done.stderr.strip()})"
    return ""


def _available_mib() -> int:
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(facts["MemAvailable"].split()[0]) >> 10


def _os_release() -> list[str]:
    path = Path("/etc/os-release")
    return path.read_text().splitlines() if path.exists() else []


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)
