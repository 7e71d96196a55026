"""The demo."""

from orfit.experiments import digits


def test_digits_are_remembered(tmp_path, capsys):
    results = digits.main(tmp_path)
    final = {name: accuracy[-1].mean() for name, accuracy in results.items()}
    assert final["RLS"] > 0.95
    assert final["ORFit, m = 150"] > 0.95
    assert final["SGD"] < 0.2
    assert digits.forgetting(results["ORFit, m = 150"]) < 0.05
    assert digits.forgetting(results["One-Step SGD"]) > 0.9
    assert "ORFit, m = 150" in capsys.readouterr().out
    assert (tmp_path / "forgetting.png").stat().st_size > 10_000
