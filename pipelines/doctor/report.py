"""What the doctor says: one typed report, as JSON for programs and as a page of text that is read once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.doctor.machine import Access, Disk
from pipelines.runtime.kernels.switches import BAD, INSTEAD, Found

FORMAT = 1
_GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Report:
    """A machine, its devices and what every check found.

    `devices` are as pipelines/runtime/devices/memory.py measures them, none where they could not be opened; `checks`
    are by name, and `off` are the kernels that will not be used.
    """

    at: float
    seconds: float
    versions: Mapping[str, str]
    hardware: str
    kind: str
    devices: Sequence[Mapping[str, Any]]
    host_bytes: int
    disk: Disk
    access: Access
    checks: Mapping[str, Found]
    off: tuple[str, ...]
    remembered: str = ""
    """The file in which the verdicts are kept; "" where nothing was."""
    format: int = FORMAT

    @property
    def problems(self) -> list[str]:
        """Lists what is wrong, for a terminal; empty where all is well."""
        return [*self._list_bad_checks(), *self._list_closed()]

    def _list_bad_checks(self) -> Iterator[str]:
        for name, one in self.checks.items():
            if one.is_bad and one.off:
                instead = "; ".join(dict.fromkeys(INSTEAD[kernel] for kernel in one.off))
                yield f"{name}: {one.describe()}. In its place from now on: {instead}."
            elif one.is_bad:
                yield f"{name}: {one.describe()}. There is nothing to take in its place: {_advise(name)}"

    def _list_closed(self) -> Iterator[str]:
        for folder in self.disk.unwritable:
            yield f"This user may not write {folder}: change its rights."
        if self.disk.is_little:
            yield f"Only {self.disk.free_bytes / _GB:.1f} GB are free for {self.disk.folder}: make room."
        if self.access.closed:
            yield f"This user may not open {', '.join(self.access.closed)}: change their rights."

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_well": not self.problems, "problems": self.problems}


def _advise(name: str) -> str:
    if name == "devices":
        return "see who holds the chips, and whether the driver is there."
    if name.startswith("collective"):
        return "a chip or a link is faulty, so make the machine anew."
    return "the chip, the driver or the compiler is at fault; try other versions, or another machine."


def print_lines(report: Report) -> list[str]:
    """Returns the report as lines of text."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    lines = [f"versions   {versions}", f"hardware   {report.hardware or 'no accelerator on the bus'}"]
    if report.devices:
        lines.append(f"devices    {len(report.devices)} x {report.kind}, {_describe_memory(report)}")
    else:
        lines.append("devices    not opened")
    held = "; ".join(report.access.holders) or "nobody that this user sees"
    if report.access.files:
        lock = ", libtpu's lock file is there" if report.access.has_lock else ""
        lines.append(f"held by    {held}{lock}")
    disk = report.disk
    lines.append(f"disk       {disk.folder}: {disk.free_bytes / _GB:.0f} of {disk.total_bytes / _GB:.0f} GB free")
    lines.append("")
    width = max(map(len, report.checks), default=0)
    for name, found in report.checks.items():
        mark = "BAD " if found.verdict in BAD else "-   " if found.verdict == "skipped" else "ok  "
        detail = found.detail if found.verdict == "right" else found.describe()
        lines.append(f"{mark} {name:{width}}  {found.seconds:5.1f} s  {detail}".rstrip())
    lines.append("")
    if report.off:
        lines.append(f"Kernels that are off: {', '.join(report.off)}.")
    lines += report.problems or ["All is well."]
    if report.remembered:
        lines.append(f"Kept in {report.remembered}, for this kind of chip and these versions.")
    return lines


def _describe_memory(report: Report) -> str:
    limits = [one["limit_bytes"] for one in report.devices if one["limit_bytes"]]
    used = max((one["used_bytes"] for one in report.devices), default=0)
    if not limits:
        return f"{report.host_bytes / _GB:.0f} GB of the host's memory"
    return f"{min(limits) / _GB:.1f} GB each, {used / _GB:.1f} GB in use"
