"""No path to foreign data unpickles, evaluates, starts a shell or unpacks an archive as a whole."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dualstudent"
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "pty", "yaml"}
CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.hub.load"),
    *("torch.jit.load", "torch.package.PackageImporter", "scipy.io.readsav", "joblib.load"),
}
METHODS = {
    "extractall",
    "unpack_archive",
    "loadmat",
    "read_pickle",
    "load_state_dict_from_url",
}
KEYWORDS = {"shell", "allow_pickle"}


def find_unsafe(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            names = [module or ""] if module else [alias.name for alias in node.names]
            yield from (name for name in names if name.split(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS or called.rpartition(".")[2] in METHODS:
                yield called
            elif called == "torch.load":
                safe = any(k.arg == "weights_only" and is_constant(k, True) for k in node.keywords)
                yield called if safe else "torch.load without weights_only"
            yield from (
                f"{called}({keyword.arg}=…)"
                for keyword in node.keywords
                if keyword.arg in KEYWORDS and not is_constant(keyword, False)
            )


def is_constant(keyword: ast.keyword, value: bool) -> bool:
    return isinstance(keyword.value, ast.Constant) and keyword.value.value is value


def test_the_package_has_no_unsafe_call() -> None:
    found = [
        (path.relative_to(SOURCE).parts[0], each)
        for path in SOURCE.rglob("*.py")
        for each in find_unsafe(ast.parse(path.read_text("utf-8")))
    ]
    # Published weights of networks, which have a checksum, may be read by the one call.
    assert found in ([], [("networks", "torch.load")])


@pytest.mark.parametrize(
    "program",
    [
        "import pickle",
        "joblib.load(path)",
        "eval(text)",
        "subprocess.run(command, shell=True)",
        "np.load(path, allow_pickle=flag)",
        "tarfile.open(path).extractall()",
        "loadmat(path)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "os.system('ls')",
    ],
)
def test_what_is_unsafe_is_found(program: str) -> None:
    assert list(find_unsafe(ast.parse(program))) not in ([], ["torch.load"])


def test_what_is_safe_is_not_found() -> None:
    program = "np.load(path, allow_pickle=False); re.compile('a'); subprocess.run(['ls'])"
    assert list(find_unsafe(ast.parse(program))) == []
