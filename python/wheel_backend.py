"""Builds the wheel of the Python package (PEP 517): the files of paceline/ and libpaceline.so.1.

The library is the one that PACELINE_LIBRARY names, or `pip wheel -C library=PATH`; else it is built
here, by CMake, in a folder of its own. Paths count from this folder.
"""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SONAME = "libpaceline.so.1"
METADATA = """Metadata-Version: 2.1
Name: paceline
Version: %s
Summary: Trains neural networks on commodity clusters
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy
Description-Content-Type: text/markdown

%s"""


def _read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def _version():
    return re.search(r"project\(paceline VERSION ([\d.]+)", _read(ROOT, "CMakeLists.txt")).group(1)


def _library(settings, work):
    """The path of the library, which is built if none is named."""
    named = (settings or {}).get("library") or os.environ.get("PACELINE_LIBRARY")
    if named:
        return named
    build = os.path.join(work, "build")
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release"], check=True)
    subprocess.run(["cmake", "--build", build, "--target", "paceline_shared", "--parallel",
                    str(os.cpu_count() or 1)], check=True)
    return os.path.join(build, SONAME)


def _stripped(library, work):
    """A copy without debug information, where there is a strip."""
    copy = os.path.join(work, SONAME)
    shutil.copyfile(library, copy)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", copy], check=True)
    with open(copy, "rb") as file:
        return file.read()


def _files():
    top = os.path.join(HERE, "paceline")
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py") or name == "py.typed":
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    yield os.path.relpath(path, HERE), file.read()


def _write(wheel, name, data, record):
    if isinstance(data, str):
        data = data.encode()
    info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # equal inputs give equal bytes
    info.external_attr = 0o644 << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(info, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record.append("%s,sha256=%s,%d" % (name, digest, len(data)))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Write the wheel, and return its name."""
    version = _version()
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    name = "paceline-%s-%s.whl" % (version, tag)
    info = "paceline-%s.dist-info/" % version
    record = []
    with tempfile.TemporaryDirectory() as work, \
            zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for path, data in _files():
            _write(wheel, path, data, record)
        library = _stripped(_library(config_settings, work), work)
        _write(wheel, "paceline/" + SONAME, library, record)
        _write(wheel, info + "METADATA", METADATA % (version, _read(HERE, "README.md")), record)
        _write(wheel, info + "WHEEL", "Wheel-Version: 1.0\nGenerator: paceline\n"
               "Root-Is-Purelib: false\nTag: %s\n" % tag, record)
        _write(wheel, info + "licenses/LICENSE", _read(ROOT, "LICENSE"), record)
        record.append(info + "RECORD,,")
        wheel.writestr(info + "RECORD", "\n".join(record) + "\n")
    return name


def build_sdist(sdist_directory, config_settings=None):
    """The sources of the library are above this folder."""
    raise NotImplementedError("there is no sdist of this package: build a wheel in a checkout")


def get_requires_for_build_wheel(config_settings=None):
    """Nothing."""
    return []
