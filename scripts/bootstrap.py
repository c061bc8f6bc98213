"""What the scripts call to set up `.venv` at the root of the project, from any python3, without uv on the machine.

Written for an old Python (3.6 or later) and its standard library, since nothing else is known to be there. What it
fetches comes from the Python package index: uv by pip (and pip itself where Debian left it out), and the packages as
uv.lock pins them. Only a Python, where the machine has none that fits, comes from where uv gets it.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Optional, Tuple

try:
    import fcntl
except ImportError:
    sys.exit("this script needs Linux, macOS or WSL; elsewhere: uv run mitmdump -s addon/dsml.py")

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "set-up-for.json"
TOOLS = ROOT / ".venv-tools"
OLDEST = (3, 12)
WANTED = (3, 13)
NAMES = ("python3.13", "python3.14", "python3.12", "python3")
PIP_WHEEL = re.compile(r"pip-([\d.]+)-py(?:2\.py)?3-none-any\.whl$")
# The first two may be set to 1 by the user and would forbid --target; the others keep pip from talking.
PIP_SETTINGS = {
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_USER": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}

NO_PYTHON = """
No Python 3.12 or later was found on this machine, and uv could not download one (see above).
Looked for: {}.
Get one in any of these ways, then run the same command again:
  Debian 13, Ubuntu 24.04    sudo apt-get install python3
  Fedora                     sudo dnf install python3.13
  macOS                      brew install python@3.13
  any system                 pyenv install 3.13, or https://www.python.org/downloads/
"""

NO_UV = """
uv could not be fetched from the Python package index (see above). Check the network, or install uv yourself
(https://docs.astral.sh/uv/getting-started/installation/), then run the same command again.
"""


def ensure() -> None:
    """Returns when `.venv` holds what uv.lock says; otherwise ends the program with a message and status 1.

    Reads three small files when nothing changed. Safe to call from several processes at once: the others wait.
    """
    if _is_set_up():
        return
    TOOLS.mkdir(exist_ok=True)
    with open(str(TOOLS / "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_set_up():
            _set_up()


def launch(program: str, *arguments: str) -> NoReturn:
    """Goes on as a program in `.venv`: a module, or a file by its path (scripts/launch.py).

    Interrupts wait until it has said what it does with them.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    python = str(PYTHON)
    os.execv(python, [python, str(ROOT / "scripts" / "launch.py"), program, *arguments])


def _is_set_up() -> bool:
    # exists() follows the link: false as well when the Python behind .venv has gone.
    return PYTHON.exists() and _stamp() == _wanted_stamp()


def _stamp() -> Dict[str, str]:
    try:
        stamp: Dict[str, str] = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp


def _wanted_stamp() -> Dict[str, str]:
    content = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "uv.lock"))
    return {"root": str(ROOT), "sha256": hashlib.sha256(content).hexdigest()}


def _set_up() -> None:
    _say("setting up .venv (takes a minute the first time) ...")
    if _stamp().get("root", str(ROOT)) != str(ROOT):
        shutil.rmtree(str(VENV))  # copied or moved here: its scripts name the Python of the old place
    python = _find_python()
    uv = _find_uv(python)
    command = [uv, "sync", "--frozen", "--quiet", "--compile-bytecode", "--python", python or _python_by_uv(uv)]
    # Both would send uv to another environment.
    environment = {key: os.environ[key] for key in os.environ if key not in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")}
    if subprocess.call(command, cwd=str(ROOT), env=environment) != 0:
        sys.exit("setting up .venv failed (see above)")
    STAMP.write_text(json.dumps(_wanted_stamp()))
    _say("done")


def _find_python() -> Optional[str]:
    """The path of a Python that is new enough, the wanted version first; None if there is none."""
    paths = [sys.executable] + [path for path in map(shutil.which, NAMES) if path]
    paths += sorted(map(str, _pyenv().glob("versions/3.*/bin/python3")))
    found = {path: _version(path) for path in paths}
    fits = [path for path in paths if found[path] >= OLDEST]
    return next((path for path in fits if found[path] == WANTED), fits[0] if fits else None)


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT", "") or str(Path.home() / ".pyenv"))


def _version(python: str) -> Tuple[int, ...]:
    """(major, minor); () for what does not run, such as a shim that leads nowhere."""
    return tuple(map(int, _output([python, "-c", "import sys; print(*sys.version_info[:2])"]).split()))


def _python_by_uv(uv: str) -> str:
    """A Python that uv knows of, or downloads now. The request is a range: a uv-managed 3.12 will do."""
    find = [uv, "python", "find", "--system", f">={OLDEST[0]}.{OLDEST[1]}"]
    path = _output(find)
    if not path:
        _say("no Python 3.12 or later here; asking uv to download one ...")
        subprocess.call([uv, "python", "install", f"{WANTED[0]}.{WANTED[1]}"])
        path = _output(find)
    return path or sys.exit(NO_PYTHON.format(", ".join([*NAMES, str(_pyenv() / "versions")])))


def _find_uv(python: Optional[str]) -> str:
    on_path = shutil.which("uv")
    if on_path and _output([on_path, "--version"]):
        return on_path
    own = TOOLS / "bin" / "uv"
    if not own.exists():
        _say("fetching uv ...")
        with tempfile.TemporaryDirectory() as folder:
            _pip_install_uv(python or sys.executable, folder)
    return str(own)


def _pip_install_uv(python: str, folder: str) -> None:
    pip = [python, "-m", "pip"]
    if not _output([*pip, "--version"]):
        pip = [python, _download_pip(folder, _version(python)) + "/pip"]
    command = [*pip, "install", "--quiet", "--upgrade", "--target", str(TOOLS), "uv"]
    if subprocess.call(command, env={**os.environ, **PIP_SETTINGS}) != 0:
        sys.exit(NO_UV)


def _download_pip(folder: str, version: Tuple[int, ...]) -> str:
    """Downloads the newest pip that runs on Python `version` into `folder`; returns the path of its wheel."""
    page = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    try:
        answer = _get(page, {"Accept": "application/vnd.pypi.simple.v1+json"})
        wheel = _newest_pip(json.loads(answer.decode())["files"], version)
        data = _get(urllib.parse.urljoin(page, wheel["url"]), {})
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"this Python has no pip, and fetching it from {page} failed: {error}\n{NO_UV}")
    if hashlib.sha256(data).hexdigest() != wheel["hashes"]["sha256"]:
        sys.exit(f"the pip that came from {page} is damaged\n{NO_UV}")
    path = Path(folder, wheel["filename"])
    path.write_bytes(data)
    return str(path)


def _get(url: str, headers: Dict[str, str]) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        data: bytes = answer.read()
    return data


def _newest_pip(files: List[Dict[str, Any]], version: Tuple[int, ...]) -> Dict[str, Any]:
    """The entry of the index's page (PEP 691) to take; ValueError if none runs on Python `version`."""
    fitting = []
    for file in files:
        name = PIP_WHEEL.match(file["filename"])
        needs = re.search(r">=\s*(\d+)\.(\d+)", file.get("requires-python") or "")
        if name and not file.get("yanked") and (not needs or tuple(map(int, needs.groups())) <= version):
            fitting.append((tuple(map(int, name.group(1).split("."))), file))
    return max(fitting, key=lambda entry: entry[0])[1]


def _output(command: List[str]) -> str:
    """What the command printed, stripped; empty if it failed or could not be started."""
    try:
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, universal_newlines=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
