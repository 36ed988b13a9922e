"""Checks a wheel: what it contains, its size, its tag, and that it runs on the system that its tag promises.

``python release/check.py WHEEL...`` prints each wheel's content, and fails if something is wrong.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

import mach_o

MOST_BYTES = 10 << 20

# Libraries of the C library itself. All others must be inside.
LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-\w+|ld-linux-x86-64)\.so\.\d+")

AGENTS = ["cpython", "pypy", "native", "program"]
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}

# What a path of the machine that built it begins with.
PATHS = re.compile(rb"/(?:root|home|Users|work|tmp|builds|__w)/[\w./-]*")


def problems_of(wheel: Path) -> list[str]:
    """Prints a wheel's content, and returns its faults, one sentence each."""
    problems: list[str] = []
    if match := re.fullmatch(r"nthbyte-[\w.]+-py3-none-macosx_(\d+)_(\d+)_(\w+)\.whl", wheel.name):
        found = _problems_on_macos(wheel, (int(match[1]), int(match[2])), match[3])
        return [f"nthbyte: {wheel.name}: {problem}" for problem in found]
    match = re.fullmatch(r"nthbyte-[\w.]+-py3-none-manylinux_2_(\d+)_(\w+)\.whl", wheel.name)
    if not match:
        return [f"{wheel.name} has no tag py3-none-manylinux"]
    newest, processor = (2, int(match[1])), match[2]
    expected = {f"nthbyte/libnthbyte_{agent}.so" for agent in AGENTS} | {"nthbyte/bin/nthbyte"}
    with zipfile.ZipFile(wheel) as archive:
        binaries = {}
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
        for info in archive.infolist():
            data = archive.read(info)
            if data.startswith(b"\x7fELF"):
                binaries[info.filename] = data
        tags = sorted({name.split(".")[-2] for name in archive.namelist() if name.endswith(".pyc")})
    print(f"  bytecode for {', '.join(tags) or 'no interpreter'}")
    for name, data in sorted(binaries.items()):
        elf = ELFFile(io.BytesIO(data))
        versions, needed = _needs(elf)
        ordered = sorted(versions, key=_numbers)
        print(
            f"  {name}: {len(data):,} bytes; {', '.join(needed)}; {', '.join(ordered[-1:]) or 'no version'}"
        )
        if MACHINES.get(elf["e_machine"]) != processor:
            problems.append(f"{name} is for {elf['e_machine']}, not for {processor}")
        problems += [f"{name} needs {one}, newer than its tag" for one in ordered if _numbers(one) > newest]
        problems += [f"{name} needs {one}" for one in needed if not LIBRARIES.fullmatch(one)]
        # The dynamic loader warns on stderr of programs that refer to such a symbol and are not position-independent.
        problems += [f"{name} has the protected symbol {one}" for one in protected_symbols(elf)]
        problems += _paths(name, data)
    if set(binaries) != expected:
        problems.append(
            f"it has {', '.join(sorted(binaries))}, and should have {', '.join(sorted(expected))}"
        )
    problems += _size(wheel)
    # It is where this Python is, whatever the path says.
    auditwheel = Path(sys.executable).with_name("auditwheel")
    shown = subprocess.run([auditwheel, "show", str(wheel)], capture_output=True, text=True)
    said = " ".join((shown.stdout + shown.stderr).split())
    tag = f"manylinux_{newest[0]}_{newest[1]}_{processor}"
    if f'following platform tag: "{tag}"' not in said:
        problems.append(f"auditwheel does not say {tag}: {said}")
    return [f"nthbyte: {wheel.name}: {problem}" for problem in problems]


def _problems_on_macos(wheel: Path, newest: tuple[int, int], processor: str) -> list[str]:
    """The same of a wheel with the reports alone."""
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
        may_run = {name for name in files if archive.getinfo(name).external_attr >> 16 & 0o100}
    binaries = {name: data for name, data in files.items() if data.startswith((mach_o.MAGIC, b"\x7fELF"))}
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
    name = "nthbyte/bin/nthbyte"
    if set(binaries) != {name} or name not in may_run:
        return [f"it has {', '.join(sorted(binaries)) or 'no program'}, and should have {name}, executable"]
    program = mach_o.read(files[name])
    print(f"  {name}: {len(files[name]):,} bytes; {', '.join(program.libraries)}; macOS {program.oldest}")
    problems = _size(wheel) + _paths(name, files[name])
    if program.processor != processor:
        problems.append(f"{name} is for {program.processor}, not for {processor}")
    if program.oldest is None or program.oldest > newest:
        problems.append(f"{name} needs macOS {program.oldest}, newer than its tag")
    problems += [f"{name} needs {one}" for one in program.libraries if not one.startswith("/usr/lib/")]
    if program.signature != "valid" and (processor, program.signature) != ("x86_64", "missing"):
        problems.append(f"the signature of {name}: {program.signature}")
    return problems


def _size(wheel: Path) -> list[str]:
    is_large = wheel.stat().st_size > MOST_BYTES
    return [f"it has more than {MOST_BYTES:,} bytes"] if is_large else []


def _paths(name: str, data: bytes) -> list[str]:
    paths = {path.decode() for path in PATHS.findall(data)}
    return [f"{name} has paths of the machine that built it: {', '.join(sorted(paths)[:5])}"] if paths else []


def protected_symbols(elf: ELFFile) -> list[str]:
    """The symbols that an object exports, but finds in itself first.

    Those that the linker itself makes, for the bounds of a section, no program refers to.
    """
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    names = [symbol.name for symbol in symbols if symbol["st_other"]["visibility"] == "STV_PROTECTED"]
    return [name for name in names if not name.startswith(("__start_", "__stop_"))]


def _needs(elf: ELFFile) -> tuple[set[str], list[str]]:
    """The versions of symbols that an object needs of the C library, and the libraries that it names."""
    versions: set[str] = set()
    needed: list[str] = []
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, auxiliaries in section.iter_versions():
                versions.update(auxiliary.name for auxiliary in auxiliaries)
        if isinstance(section, DynamicSection):
            needed += [tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
    return versions, needed


def _numbers(version: str) -> tuple[int, ...]:
    """The version of the C library in a symbol's version: (2, 17) of ``GLIBC_2.17``; one that is none is the newest."""
    match = re.fullmatch(r"GLIBC_([\d.]+)", version)
    return tuple(map(int, match[1].split("."))) if match else (99,)


if __name__ == "__main__":
    found = [problem for name in sys.argv[1:] for problem in problems_of(Path(name))]
    print("\n".join(found), file=sys.stderr)
    sys.exit(1 if found else 0)
