from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORTER = {"EPOCHS, SEED = 10, 0": "EPOCHS, SEED = 4, 0", '"mnist-5k"': '"digits-8x8"'}


@pytest.mark.learns
@pytest.mark.parametrize("name", ["dual_student", "mean_teacher"])
def test_the_examples_learn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On smaller digits and in fewer epochs: a tenth of the time."""
    source = (EXAMPLES / f"{name}.py").read_text()
    for long, short in SHORTER.items():
        assert long in source
        source = source.replace(long, short)
    exec(source, {})
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("epoch 4: test error")
    errors = [float(word) for word in last.split()[4:7] if word[0].isdigit()]
    assert max(errors) < 70  # 41 to 46 on both CPUs, chance is 90
