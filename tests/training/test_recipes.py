"""`orgthink train` as a user runs it, with very few steps."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from orgthink.cli import main
from orgthink.engines.qwen3 import Qwen3
from orgthink.training import pocket


def test_a_run_is_a_folder_whose_model_everybody_opens(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "pocket", "--steps", "2", "--out", str(run)]) == 0
    model = run / "checkpoints" / "step-000002" / "model"
    assert str(model) in capsys.readouterr().out
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer("sequential countdown 1 5 12 13 15 = 47 scan <FORK-1>", return_tensors="pt")["input_ids"]
    assert ids.shape[1] == 11 and pocket.vocabulary().index(pocket.UNK) not in ids
    assert torch.allclose(Qwen3.load(model)(ids), theirs(ids).logits, atol=1e-5)

    assert main(["train", "--resume", str(run)]) == 0  # nothing is left to do
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2


def test_bad_input_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("something else")
    for arguments in (
        ["pockte", "--out", str(tmp_path / "new")],
        ["pocket", "--steps", "0", "--out", str(tmp_path / "new")],
        ["pocket", "--out", str(tmp_path)],
        ["--resume", str(tmp_path)],
        ["--resume", str(tmp_path), "--steps", "5"],
    ):
        assert main(["train", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "new").exists()
