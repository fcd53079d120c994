"""The parser is loaded at the first selector, not before."""

import subprocess
import sys


def test_importing_the_package_does_not_load_lark() -> None:
    code = (
        "import sys\n"
        "from holdfast.selectors import predicate\n"
        "assert 'lark' not in sys.modules\n"
        "predicate.compile_selector('a')\n"
        "assert 'lark' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
