from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from keel.errors import UserError
from keel.files.folders import verify_folder
from keel.stages.tokenizer import Progress, inspect, train
from keel.tokenizers.wordpiece import WordPiece


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("The cat sat on the mat. " * 50, encoding="utf-8")
    with gzip.open(folder / "b.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(
            "\n".join(json.dumps({"text": t}) for t in ["数学是一门学科。" * 9, "Cats sit on mats. " * 9]) + "\n{bad\n"
        )
    return folder


def test_a_trained_folder_is_complete_and_says_what_was_read(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "t"
    updates: list[object] = []
    result = train([str(texts)], out, vocab_size=80, report=updates.append)
    tokenizer = WordPiece.load(out)
    assert result["size"] == tokenizer.size <= 80
    assert result["documents"] == 3 and sum(result["rejected"].values()) == 1
    assert verify_folder(out)["made_by"]["fingerprint"] == tokenizer.fingerprint() == result["fingerprint"]
    assert {"tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json"} <= {
        p.name for p in out.iterdir()
    }
    assert all(isinstance(update, Progress | str) for update in updates)
    (out / "vocab.txt").write_text("x")
    with pytest.raises(UserError, match=r"vocab.txt.*damaged"):
        WordPiece.load(out)


def test_progress_reaches_the_end_of_two_passes(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("the cat sat\n" * 150_000)
    updates: list[Progress] = []
    train([str(tmp_path)], tmp_path / "t", vocab_size=30, report=updates.append)
    assert [p.done for p in updates] == sorted(p.done for p in updates)
    assert updates[0].done < updates[-1].done / 3 and updates[-1].done <= updates[-1].total


def test_an_existing_folder_is_not_overwritten(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "t"
    out.mkdir()
    train([str(texts)], out, vocab_size=80)
    with pytest.raises(UserError, match="already there"):
        train([str(texts)], out, vocab_size=80)


@pytest.mark.parametrize("content", [b"", b" \n\n ", b"\xff\xfe\x00\x01"])
def test_training_without_text_is_an_error_and_leaves_no_folder(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "e.txt").write_bytes(content)
    with pytest.raises(UserError, match="text"):
        train([str(tmp_path / "e.txt")], tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_too_small_a_size_is_reported(texts: Path, tmp_path: Path) -> None:
    few = train([str(texts)], tmp_path / "few", vocab_size=15)
    assert few["size"] <= 15 and "no room for every character" in few["note"] and few["alphabet"]["covered"] < 1
    many = train([str(texts)], tmp_path / "many", vocab_size=5000)
    assert many["size"] < 5000 and "5000 were requested" in many["note"]


def test_inspection_separates_unknown_characters_from_unknown_words(texts: Path, tmp_path: Path) -> None:
    train([str(texts)], tmp_path / "t", vocab_size=80)
    (tmp_path / "new.txt").write_text("the caθt sat θ\nthe mat 龘龘 数学", encoding="utf-8")
    result = inspect(tmp_path / "t", [str(tmp_path / "new.txt")])
    assert [(u["character"], u["count"]) for u in result["unknown_characters"]] == [("θ", 2), ("龘", 2)]
    assert result["unknown_characters"][0]["name"] == "GREEK SMALL LETTER THETA"
    assert {u["character"] for u in result["characters_in_unknown_words"]} == {"c", "a", "t"}
    assert result["unknown"] == 4 and result["unknown_words"][0] == {"word": "龘", "count": 2}
    assert result["unknown_share"] == pytest.approx(4 / result["tokens"])
    assert result["words"] == 4
    assert "unknown" not in inspect(tmp_path / "t")


def test_tokens_per_word_and_per_chinese_character(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ca", "##t", "中", "文", "。"])
    )
    (tmp_path / "a.txt").write_text("cat cat ca. ", encoding="utf-8")
    (tmp_path / "b.txt").write_text("中文。", encoding="utf-8")
    english = inspect(tmp_path / "vocab.txt", [str(tmp_path / "a.txt")])
    assert english["tokens_per_word"] == pytest.approx(5 / 3) and "chinese_characters" not in english
    chinese = inspect(tmp_path / "vocab.txt", [str(tmp_path / "b.txt")])
    assert (chinese["chinese_characters"], chinese["tokens_per_chinese_character"]) == (2, 1.5)
    assert chinese["tokens_per_word"] is None
