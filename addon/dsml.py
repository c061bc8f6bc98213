"""The mitmproxy addon: `mitmdump -s addon/dsml.py`, by any path, from any folder.

mitmproxy runs this file again whenever it changes (`touch` it to reload): the modules behind it are then imported
anew as well. Exchanges that are under way keep the modules they began with.
"""

import logging
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("addon", "dsml_core", "goldens")


def _forget() -> None:
    """Drop what an earlier run of this file imported."""
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package in _PACKAGES and str(getattr(module, "__file__", "")).startswith(str(_ROOT / package)):
            del sys.modules[name]


_forget()
if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))

try:
    from addon.hooks import Dsml
except ModuleNotFoundError as missing:
    if missing.name != "regex":
        raise
    logging.getLogger("dsml").error(
        "dsml: this mitmproxy cannot import the Python package regex; "
        "install mitmproxy with it: uv tool install mitmproxy --with regex"
    )
    addons = []
else:
    addons = [Dsml()]
