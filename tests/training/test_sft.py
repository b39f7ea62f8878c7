"""Training learns, saves, and resumes exactly."""

import json
import math
import signal
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint, sft
from orgthink.training.gradients import Accumulator, cross_entropy_sum
from orgthink.training.packing import packs
from orgthink.training.rows import Row, batches
from orgthink.training.sft import Course, SftSettings, train
from orgthink.util.errors import UserError

CONFIG = DecoderConfig(16, 32, 32, 1, 1, 1, 32, 64)
SETTINGS = SftSettings(steps=12, warmup=2, batch_tokens=400, save_every=4, learning_rate=1e-2)


def rows(seed, epoch):
    """Counting: each row goes up by one, modulo eight, from a random start."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    for _ in range(1280):
        first, length = torch.randint(0, 8, (2,), generator=generator).tolist()
        ids = tuple((first + i) % 8 + 1 for i in range(length + 4))
        yield Row(ids, (False,) + (True,) * (len(ids) - 1))


def course(mixed=False):
    model = Decoder(CONFIG)
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.05 if "embedding" in name else 0.02, generator=generator)
    model.mixed_precision = mixed

    def write_folder(folder):
        CONFIG.save(folder, eos_token_id=0, pad_token_id=0)

    return Course(model, rows, write_folder)


def folder(path):
    return RunFolder.open(path) if path.exists() and any(path.iterdir()) else RunFolder.create(path, "train", SETTINGS)


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


class Stop(Exception):
    pass


def stop_at(step, error):
    def report(line):
        if line["step"] == step:
            raise error

    return report


def test_it_learns(tmp_path):
    train(course(), replace(SETTINGS, steps=60), folder(tmp_path), lambda line: None)
    losses = [line["loss"] for line in metrics(tmp_path)]
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_gradient_that_is_no_number_ends_the_run_and_spares_its_checkpoints(tmp_path, monkeypatch, value):
    """A step with it would make all weights NaN, and the next checkpoints would replace the good ones."""
    done = []

    def spoilt(model, pack):
        return cross_entropy_sum(model, pack) * (value if len(done) == 6 else 1)

    monkeypatch.setattr(sft, "cross_entropy_sum", spoilt)
    with pytest.raises(UserError, match=r"the gradient norm is .*: lower the learning rate"):
        train(course(), SETTINGS, folder(tmp_path), done.append)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["step-000004", "step-000006"]
    weights = Decoder.load(tmp_path / "checkpoints" / "step-000006" / "model").parameters()
    assert all(bool(weight.isfinite().all()) for weight in weights) and len(metrics(tmp_path)) == 6


@pytest.mark.parametrize("broken", ["loss", "rows"])
def test_an_error_between_two_updates_saves_the_steps_before_it(tmp_path, monkeypatch, capsys, broken):
    """And the run goes on from there as if there had been none."""
    train(course(), SETTINGS, folder(tmp_path / "whole"), lambda line: None)
    done = []

    def no_number(*given):
        return cross_entropy_sum(*given) * (math.nan if len(done) == 6 else 1)

    with monkeypatch.context() as patched:
        if broken == "loss":
            patched.setattr(sft, "cross_entropy_sum", no_number)
            expected = pytest.raises(UserError, match="is nan")
        else:
            patched.setattr(sft, "batches", drained(6))
            expected = pytest.raises(ZeroDivisionError)
        with expected:
            train(course(), SETTINGS, folder(tmp_path / "cut"), done.append)
    assert checkpoint.saved(tmp_path / "cut")[-1].name == "step-000006"
    assert f"step 6 is saved: continue with orgthink train --resume {tmp_path / 'cut'}" in capsys.readouterr().err
    train(course(), SETTINGS, folder(tmp_path / "cut"), lambda line: None)
    assert "continuing from step 6" in capsys.readouterr().err
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


def drained(count):
    """Batches, of which only so many can be drawn."""

    def drawn(*given, **how):
        yield from islice(batches(*given, **how), count)
        raise ZeroDivisionError

    return drawn


@pytest.mark.parametrize(("keep", "steps"), [(1, [12]), (2, [8, 12]), (None, [4, 8, 12])])
def test_as_many_checkpoints_are_kept_as_was_said(tmp_path, keep, steps):
    train(course(), replace(SETTINGS, keep=keep), folder(tmp_path), lambda line: None)
    assert [checkpoint.state(saved)["step"] for saved in checkpoint.saved(tmp_path)] == steps
    with pytest.raises(ValueError, match="keep is 0"):
        replace(SETTINGS, keep=0)


@pytest.mark.parametrize(("step", "error"), [(6, Stop()), (4, Stop())])
@pytest.mark.parametrize("mixed", [False, True])
def test_an_interrupted_run_has_the_metrics_of_an_uninterrupted_one(tmp_path, step, error, mixed):
    train(course(mixed), SETTINGS, folder(tmp_path / "whole"), lambda line: None)
    with pytest.raises(type(error)):
        train(course(mixed), SETTINGS, folder(tmp_path / "cut"), stop_at(step, error))
    train(course(mixed), SETTINGS, folder(tmp_path / "cut"), lambda line: None)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    (whole, cut) = (Decoder.load(checkpoint.saved(tmp_path / name)[-1] / "model") for name in ("whole", "cut"))
    for a, b in zip(whole.parameters(), cut.parameters(), strict=True):
        assert torch.equal(a, b)


@contextmanager
def ctrl_c_inside(step, times=1, number=signal.SIGINT):
    """Ctrl-C, or another signal, in the middle of a step: its weights have moved, and nothing is recorded yet."""
    calls = 0

    def after(optimizer, args, kwargs):
        nonlocal calls
        calls += 1
        if calls == step:
            for _ in range(times):
                signal.raise_signal(number)

    hook = register_optimizer_step_post_hook(after)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_a_step_finishes_it_and_saves(tmp_path, number):
    train(course(), SETTINGS, folder(tmp_path / "whole"), lambda line: None)
    with ctrl_c_inside(6, number=number), pytest.raises(KeyboardInterrupt):
        train(course(), SETTINGS, folder(tmp_path / "cut"), lambda line: None)
    assert checkpoint.saved(tmp_path / "cut")[-1].name == "step-000006"
    assert len(metrics(tmp_path / "cut")) == 6
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    train(course(), SETTINGS, folder(tmp_path / "cut"), lambda line: None)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


def test_a_second_ctrl_c_stops_at_once_and_saves_nothing(tmp_path):
    with ctrl_c_inside(6, times=2), pytest.raises(KeyboardInterrupt):
        train(course(), SETTINGS, folder(tmp_path / "cut"), lambda line: None)
    assert checkpoint.saved(tmp_path / "cut")[-1].name == "step-000004"
    assert len(metrics(tmp_path / "cut")) == 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for name in ("cut", "whole"):
        train(course(), SETTINGS, folder(tmp_path / name), lambda line: None)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole"), "what was lost is done again"


def test_only_one_process_trains_in_a_folder(tmp_path):
    run = folder(tmp_path)
    with run.journal(), pytest.raises(UserError, match="another process"):
        train(course(), SETTINGS, RunFolder.open(tmp_path), lambda line: None)
    assert not checkpoint.saved(tmp_path)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    train(course(), replace(SETTINGS, steps=1), folder(tmp_path), lambda line: None)
    other = Decoder(replace(CONFIG, hidden_size=64))
    with pytest.raises(ValueError, match="another shape"):
        train(replace(course(), model=other), SETTINGS, folder(tmp_path), lambda line: None)


@pytest.mark.numerical
def test_only_trained_tokens_count():
    model = course().model
    (pack,) = packs([Row((1, 2, 3, 4), (False, True, False, True))], 100)
    logprobs = model(torch.tensor([[1, 2, 3, 4]]))[0].log_softmax(-1)
    expected = -(logprobs[0, 2] + logprobs[2, 4])
    assert torch.allclose(cross_entropy_sum(model, pack), expected)


@pytest.mark.numerical
def test_gradients_of_several_cores_are_those_of_one():
    parts = list(packs(list(islice(rows(0, 0), 40)), 12))
    assert len(parts) > 4

    def gradients(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            model = course().model
            sums = Accumulator(model)
            for _ in range(2):  # the second pass adds to the first
                found = sums.add(parts, lambda model, pack: (cross_entropy_sum(model, pack), pack))
            assert all(one is other for one, other in zip(found, parts, strict=True))
            assert torch.get_num_threads() == threads
            return [weight.grad for weight in model.parameters()]
        finally:
            torch.set_num_threads(before)

    one, three, again = gradients(1), gradients(3), gradients(3)
    for alone, together, repeated in zip(one, three, again, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)
        assert torch.equal(together, repeated)
