"""Environments of the conformance checks: packages of PyPI and npm in the cache folder."""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def cache():
    """Folder for installed packages, which outlives a checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "posse-ci" / "conformance"


def fail(what, lines):
    """Ends the check: it could not be made. Exit code 2 tells this from a failed check."""
    last = lines.strip().splitlines()[-3:] or ["no reason was given"]
    print(f"{what}:\n  " + "\n  ".join(last), file=sys.stderr)
    print("This check needs the registry, or a configuration of the client that names a mirror.",
          file=sys.stderr)
    sys.exit(2)


def run(what, command, **options):
    """Runs an installer. Ends the check with the end of its output if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    if done.returncode != 0:
        fail(what, done.stdout)


def venv(name, build=False, dependencies=True):
    """Folder of programs of a virtual environment with `requirements-NAME.txt`. Packages without a
    wheel are built only if `build`; what the packages depend on is installed if `dependencies`."""
    wanted = (HERE / f"requirements-{name}.txt").read_text()
    folder = cache() / name
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return folder / "bin"
    run("cannot make a virtual environment", [sys.executable, "-m", "venv", "--clear", str(folder)])
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet",
               "--disable-pip-version-check", "--timeout", "20", "--retries", "2",
               *([] if build else ["--only-binary", ":all:"]),
               *([] if dependencies else ["--no-deps"]),
               "-r", str(HERE / f"requirements-{name}.txt")]
    run(f"cannot install requirements-{name}.txt from PyPI", install)
    stamp.write_text(wanted)
    return folder / "bin"


def npm(name):
    """Folder of programs of the npm packages that `NAME/package-lock.json` pins."""
    lock = (HERE / name / "package-lock.json").read_text()
    folder = cache() / f"npm-{name}"
    stamp = folder / "installed.txt"
    if not (stamp.exists() and stamp.read_text() == lock):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(HERE / name, folder, ignore=shutil.ignore_patterns("node_modules"))
        install = ["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        run(f"cannot install {name}/package-lock.json from npm", install, cwd=folder)
        stamp.write_text(lock)
    return folder / "node_modules" / ".bin"
