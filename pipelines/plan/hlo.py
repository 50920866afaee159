"""Parses optimized HLO: the instructions of each computation, trip counts of loops, bytes of collectives.

Optimized HLO is text, one instruction per line. TPU fusions have `estimated_cycles`, the compiler's own estimate; a
loop's body is written once, whatever its trip count, and collectives and Pallas kernels have no cycles at all.
estimate.py puts these together.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipelines.messages import english

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
SCATTERED = "all-reduce-scatter"  # how such a computation's name begins
PALLAS_TARGET = "tpu_custom_call"

_BITS = {"pred": 8, "c64": 64, "c128": 128, "token": 0, "opaque": 0}

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_END = re.compile(r"^\}(?!\})")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(([^)]*)\)")
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\]")
_CYCLES = re.compile(r'"estimated_cycles":"?(\d+)')
_UNKNOWN = 2**63 - 1  # cycles of copies that TPU7x leaves to a SparseCore
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_FLOPS = re.compile(r'"cost_estimate":\{"flops":"?(\d+)')
_OWN = re.compile(
    r'"output_tuple_original_start":"(\d+)","output_tuple_original_end":"(\d+)",'
    r'"operand_original_start":"(\d+)","operand_original_end":"(\d+)"'
)
_PLACED_ARRAY = re.compile(r"\b[a-z]+\d*\w*\[[\d,]*\](?:\{[^}]*\})?")
_PALLAS_BYTES = re.compile(r'"cost_estimate":\{[^}]*"bytes_accessed":"?(\d+)')


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One line of HLO. `shape` is the result's, `attributes` is the text after the operands."""

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool

    @property
    def cycles(self) -> int:
        """Returns the compiler's estimate, 0 if there is none."""
        found = _CYCLES.search(self.attributes)
        return int(found[1]) if found and int(found[1]) != _UNKNOWN else 0

    @property
    def copied_bytes(self) -> int:
        """Returns the bytes that a copy reads and writes of which the compiler says that it knows no cycles."""
        found = _CYCLES.search(self.attributes)
        return 2 * sum(read_bytes(self.shape)) if found and int(found[1]) == _UNKNOWN else 0

    @property
    def is_attention(self) -> bool:
        """Returns whether it belongs to attention, plain or a kernel: HLO keeps the names of traced operations."""
        found = _OP_NAME.search(self.attributes)
        return found is not None and "attention" in found[1]

    def find_called(self, *names: str) -> list[str]:
        """Returns the computations that any of these attributes name."""
        found: list[str] = []
        for name in names:
            for single, several in re.findall(rf"\b{name}=(?:%?([\w.\-]+)|\{{([^}}]*)\}})", self.attributes):
                found += [part.strip().lstrip("%") for part in (single or several).split(",") if part.strip()]
        return found

    @property
    def channel(self) -> str | None:
        """Returns a collective's channel id, which all of its phases share."""
        found = re.search(r"channel_id=(\d+)", self.attributes)
        return found and found[1]

    @property
    def collective(self) -> str | None:
        """Returns which kind of collective it is or starts, or None."""
        kind = self.opcode.removesuffix("-start")
        return kind if kind in COLLECTIVES else None


class Module:
    """The computations of a program; instructions are parsed lazily, as most are inside fusions."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, list[str]] = {}
        self._read: dict[str, tuple[Instruction, ...]] = {}
        self.entry = ""
        current: list[str] | None = None
        for line in text.splitlines():
            if current is None:
                if match := _COMPUTATION.match(line):
                    current = self._lines[match[2]] = []
                    self.entry = match[2] if match[1] else self.entry
            elif _END.match(line):
                current = None
            elif current and not line.startswith(" "):
                current[-1] += line  # a kernel's metadata go over several lines
            else:
                current.append(line)
        if not self.entry:
            raise ValueError(english("this is no HLO module: it has no ENTRY computation"))

    def list_instructions(self, computation: str) -> tuple[Instruction, ...]:
        """Returns a computation's instructions in execution order, which is the text's: optimized HLO is scheduled."""
        if computation not in self._read:
            self._read[computation] = tuple(_read_instructions(self._lines[computation]))
        return self._read[computation]

    def find_collective(self, computation: str) -> Instruction | None:
        """Returns the first collective among a fused computation's instructions.

        The TPU compiler writes a reduce-scatter as an all-reduce with slices of its results, in a computation that it
        names so; it is returned as a reduce-scatter.
        """
        if not any(kind in line for line in self._lines[computation] for kind in COLLECTIVES):
            return None
        inside = self.list_instructions(computation)
        found = next((one for one in inside if one.collective), None)
        if found is None or found.collective != "all-reduce" or not computation.startswith(SCATTERED):
            return found
        sliced = next(one for one in inside if one.is_root)
        return replace(found, opcode="reduce-scatter", shape=sliced.shape)

    def find_phase(self, computation: str) -> str | None:
        """Returns which phase of an asynchronous collective a fused computation contains: "start", "step" or "done"."""
        lines = self._lines[computation]
        for phase in ("start", "done"):
            if any(f'custom_call_target="AsyncCollective{phase.capitalize()}"' in line for line in lines):
                return phase
        is_step = any("chain_id=" in line and kind in line for line in lines for kind in COLLECTIVES)
        return "step" if is_step else None

    def count_trips(self, loop: Instruction, computation: str) -> int | None:
        """Returns a loop's trip count, None if it is only known at run time. `computation` contains the loop."""
        if found := re.search(r'"known_trip_count":\{"n":"?(\d+)', loop.attributes):
            return int(found[1])
        (condition,) = loop.find_called("condition")
        inside = {one.name: one for one in self.list_instructions(condition)}
        compare = next((one for one in inside.values() if one.is_root), None)
        if compare is None or compare.opcode != "compare":
            return None
        outside = {one.name: one for one in self.list_instructions(computation)}
        first, last = (
            self._find_constant(inside[name], inside=inside, start=loop, outside=outside) for name in compare.operands
        )
        direction = re.search(r"direction=(\w+)", compare.attributes)
        if first is None or last is None or direction is None or direction[1] not in ("LT", "LE"):
            return None
        return max(0, last - first + (direction[1] == "LE"))

    def _find_constant(
        self,
        value: Instruction,
        *,
        inside: dict[str, Instruction],
        start: Instruction,
        outside: dict[str, Instruction],
    ) -> int | None:
        """Returns the number that `value` of a loop's condition has when the loop begins, None if unknown."""
        value = _skip_copies(value, inside)
        if value.opcode == "get-tuple-element":
            index = re.search(r"index=(\d+)", value.attributes)
            begin = outside.get(start.operands[0])
            if index is None or begin is None or begin.opcode != "tuple" or int(index[1]) >= len(begin.operands):
                return None
            if begin.operands[int(index[1])] not in outside:
                return None
            value = _skip_copies(outside[begin.operands[int(index[1])]], outside)
        if value.opcode != "constant" or not value.operands[0].lstrip("-").isdigit():
            return None
        return int(value.operands[0])


def _skip_copies(value: Instruction, around: dict[str, Instruction]) -> Instruction:
    while value.opcode in ("copy", "bitcast") and value.operands[0] in around:
        value = around[value.operands[0]]
    return value


def _read_instructions(lines: Sequence[str]) -> Iterator[Instruction]:
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        found = _OPCODE.search(f" {match[3]}")
        if found is None:
            continue
        rest = f" {match[3]}"
        yield Instruction(
            name=match[2],
            opcode=found[1],
            shape=rest[: found.start()].strip(),
            operands=tuple(part.strip().lstrip("%") for part in found[2].split(",") if part.strip()),
            attributes=rest[found.end() :],
            is_root=match[1] is not None,
        )


def read_bytes(shape: str) -> list[int]:
    """Returns the bytes of every array in a shape; tuples have several."""
    return [_count_bits(kind) * math.prod(sizes) // 8 for kind, sizes in read_arrays(shape)]


def read_arrays(shape: str) -> list[tuple[str, tuple[int, ...]]]:
    """Returns element type and sizes of every array in a shape."""
    return [
        (kind, tuple(int(size) for size in sizes.split(",") if size))
        for kind, sizes in _ARRAY.findall(re.sub(r"/\*.*?\*/", "", shape))
    ]


def _count_bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    digits = re.match(r"[a-z]+(\d+)", kind)  # bf16, s8, f8e4m3fn
    return int(digits[1]) if digits else 0


def count_own_bytes(one: Instruction, shapes: Mapping[str, str]) -> int:
    """Returns how many bytes a fusion at least moves to and from HBM beside the step of a collective in it.

    `shapes` are those of its operands. 0 for an instruction with no such step. Of an array with three axes or more only
    one of the first is counted: a loop reads and writes one layer of what lies there for all.
    """
    if (found := _OWN.search(one.attributes)) is None:
        return 0
    first_out, last_out, first_in, last_in = map(int, found.groups())
    given = _PLACED_ARRAY.findall(re.sub(r"/\*.*?\*/", "", one.shape))[first_out : last_out + 1]
    taken = [shapes.get(name, "") for name in one.operands[first_in : last_in + 1]]
    total = 0
    for array in (*given, *(part for shape in taken for part in _PLACED_ARRAY.findall(shape))):
        sizes = read_arrays(array)[0][1]
        if "S(" not in array:  # another space than HBM
            total += sum(read_bytes(array)) // (sizes[0] if len(sizes) > 2 else 1)
    return total


def count_moved_bytes(collective: Instruction) -> int:
    """Returns the bytes that one chip sends (and receives) for a collective, computed as a ring."""
    sizes = read_bytes(collective.shape)
    if collective.opcode.endswith("-start") and collective.opcode != "all-reduce-start":
        result = sizes[1] if len(sizes) > 1 else sizes[0]  # (operand, result, ...)
    else:
        result = sum(sizes)
    group = count_group(collective)
    if collective.collective == "all-reduce":
        return 2 * result * (group - 1) // group
    if collective.collective == "reduce-scatter":
        return result * (group - 1)
    if collective.collective in ("all-gather", "all-to-all", "ragged-all-to-all"):
        return result * (group - 1) // group
    return result


def count_group(collective: Instruction) -> int:
    """Returns the number of chips in one group of a collective."""
    text = collective.attributes
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return found[1].count(",") + 1
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=", text):
        return int(found[1].split(",")[-1])
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", text):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", found[1])}
        return math.prod(sizes[name] for name in re.findall(r"'([^']+)'", found[2]))
    return 2  # a permutation: every chip has one partner


def count_pallas_flops(kernel: Instruction) -> int:
    """Returns the FLOPs that the kernel reports, or else those of attention with its shapes of q, k and v."""
    if found := _FLOPS.search(kernel.attributes):
        return int(found[1])
    layouts = re.search(r"operand_layout_constraints=\{(.*?\})\}", kernel.attributes)
    arrays = [sizes for _, sizes in read_arrays(layouts[1]) if len(sizes) >= 3] if layouts else []
    wide = [sizes for sizes in arrays if sizes[-1] >= _MIN_HEAD_DIM]
    if len(wide) < 3:
        return 0
    query, key, _ = wide[-3:]
    return 4 * math.prod(query) * key[-2]  # q k^T and p v, a multiply and an add each


def count_pallas_bytes(kernel: Instruction) -> int:
    """Returns the bytes of HBM that the kernel reports to read and write, 0 if it reports none."""
    found = _PALLAS_BYTES.search(kernel.attributes)
    return int(found[1]) if found else 0


_MIN_HEAD_DIM = 32
