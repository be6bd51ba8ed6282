"""The command in the process of a test."""

import pytest


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """The command in this process: status, standard output, standard error."""
    from subspacedp.cli.app import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def go(*arguments):
        monkeypatch.setattr("sys.argv", ["subspacedp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return stop.value.code or 0, out, err

    return go
