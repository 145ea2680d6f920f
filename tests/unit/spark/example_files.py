"""The plain Python files of an example, as modules: they are programs in folders of their own, under the same names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"


def load(example: str, name: str, **beside: ModuleType) -> ModuleType:
    """`beside` are the files of the same folder that it imports."""
    spec = importlib.util.spec_from_file_location(f"{example}_{name}", EXAMPLES / example / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, beside):
        spec.loader.exec_module(module)
    return module
