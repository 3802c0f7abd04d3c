"""The documentation gives commands that the command line takes, and names settings and errors that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock import plugins
from penstock.cli import main as _main  # noqa: F401 - it has all commands
from penstock.cli.commands import penstock
from penstock.errors import ERRORS, PenstockError
from penstock.monitor.metric import METRICS
from penstock.settings import Settings

ROOT = Path(__file__).parents[2]
#: The pages for users. The numbered pages of docs/design say what was so when they were written.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md"]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
#: What the words in capitals of a command line stand for.
STANDS_FOR = {
    "FILE": str(ROOT / "examples" / "word_count.py"),
    "DIR": "state",
    "COMMAND": "run",
    "NAME": "stela",
    "OPERATOR": "count",
    "METRIC": "rate",
    "SLOT": "127.0.0.2/0",
    "URL": "spark://rack:7077",
    **dict.fromkeys(("N", "COUNT", "TASK", "TASKS", "OPERATION", "PID", "X"), "1"),
}
ASSIGNMENT = {"NAME=VALUE": "latency=1"}
#: Names in capitals that are no errors: variables of the environment.
VARIABLES = {
    "PENSTOCK_RUNNING",
    "PENSTOCK_TWEETS",
    "PGPASSWORD",
    "PYSPARK_PYTHON",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_IP",
    "XDG_STATE_HOME",
}
_FENCE = re.compile(r" *```")
_INLINE = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(r"(?<![^\s;&|(])penstock\s+[\w-]")
_SHELL = frozenset(";&|()<>")
_SETTINGS = re.compile(r"\b[Ss]ettings?\s+((?:`[^`]+`(?:,\s+|\s+and\s+|\s+or\s+)?)+)")
_SET = re.compile(r"--set\s+[\"']?(\w+)=")
_TO_TURN = re.compile(r"^\| I want \| turn \|.*?\n\n", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"`([A-Z][A-Z0-9_]{2,})`|\.py:\d+: ([A-Z_]+):")


def inline_code(text: str) -> list[str]:
    """What stands between backticks. A paragraph ends it, so that a lost backtick spoils no more than one."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"^ *```.*$", "", text, flags=re.MULTILINE))
    return [" ".join(code.split()) for paragraph in paragraphs for code in _INLINE.findall(paragraph)]


def code_lines(text: str) -> Iterator[str]:
    """The lines of fenced and indented blocks."""
    fenced = False
    for line in text.replace("\\\n", " ").splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands_in(code: str) -> Iterator[list[str]]:
    """The words after each `penstock` of a line for a shell, up to a comment, a pipe, a redirection or the like."""
    if not _COMMAND.search(code) or code.startswith(("from ", "import ")):
        return
    # What may be left out is written in brackets; it is checked as well.
    lexer = shlex.shlex(re.sub(r"[\[\]]", "", code), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] | None = None
    for word in lexer:
        if words is None and word == "penstock":
            words = []
        elif words and _SHELL.issuperset(word):
            yield words
            words = None
        elif words is not None:
            words.append(word)
    if words:
        yield words


def filled_in(words: list[str]) -> list[str]:
    """The words with something in place of capitals and of `...`; what comes after a `...` of its own is cut."""
    filled: list[str] = []
    for word in words:
        if word == "..." and not filled[-1].startswith("-"):
            break
        given = word.replace("=...", "=1") if word != "..." else "1"
        given = ASSIGNMENT.get(given) or re.sub(r"\b[A-Z]+\b", _meant, given.removesuffix("..."))
        filled.append(given)
    return filled


def _meant(capitals: re.Match[str]) -> str:
    assert capitals[0] in STANDS_FOR, f"write into STANDS_FOR what {capitals[0]} stands for"
    return STANDS_FOR[capitals[0]]


def refusal(words: list[str], *, complete: bool = True) -> str:
    """Why the command line does not take these words; empty if it does. Nothing is run."""
    words = filled_in(words)
    try:
        context = penstock.make_context("penstock", list(words))
        name, command, rest = penstock.resolve_command(context, words)
        assert command is not None
        taken = command.make_context(name, rest, parent=context).params
        # What the parser leaves to the command.
        Settings.of(dict(one.split("=", 1) for one in taken.get("assignments", ())))
        strategy = taken.get("strategy")
        if strategy and not strategy.startswith("$"):
            plugins.require(plugins.POLICIES, strategy)
        unknown = [metric for metric in taken.get("metrics", ()) if metric not in METRICS]
        return f"there is no metric {', '.join(unknown)}" if unknown else ""
    except click.exceptions.Exit:  # --help and --version
        return ""
    except click.MissingParameter as problem:
        return problem.format_message() if complete else ""
    except click.BadOptionUsage as problem:
        # Prose may end with an option that takes a value.
        return "" if not complete and words[-1] == problem.option_name else problem.format_message()
    except click.ClickException as problem:
        return problem.format_message()
    except PenstockError as problem:
        return str(problem)


def refused_options(code: str) -> str:
    """Why no command takes options that stand by themselves."""
    words = shlex.split(code)
    have_it = [name for name, command in penstock.commands.items() if _has(command, words[0])]
    reasons = [refusal([name, *words], complete=False) for name in have_it]
    return "" if "" in reasons else next(iter(reasons), f"no command has {words[0]}")


def _has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def command_lines(text: str) -> list[tuple[list[str], bool]]:
    """Every command of a page, and whether it is complete. Prose may name a command without what it needs."""
    blocks = [(words, True) for line in code_lines(text) for words in commands_in(line)]
    return blocks + [(words, False) for code in inline_code(text) for words in commands_in(code)]


def settings_named(text: str) -> list[str]:
    """The settings of a page: after the word, after --set, and in the table of those that may be turned."""
    after_the_word = [code for names in _SETTINGS.findall(text) for code in _INLINE.findall(names)]
    names = [code.partition("=")[0] for code in after_the_word] + _SET.findall(text)
    for table in _TO_TURN.findall(text):
        names += [name for row in table.strip().splitlines() for name in _INLINE.findall(row.split("|")[2])]
    return [name for name in names if not name.isupper()]


def errors_named(text: str) -> set[str]:
    return {inline or shown for inline, shown in _ERROR.findall(text)} - STANDS_FOR.keys()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_command_line_takes_every_command(page):
    given = command_lines(page.read_text())
    refused = [(" ".join(words), refusal(words, complete=complete)) for words, complete in given]
    assert [(line, reason) for line, reason in refused if reason] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_some_command_takes_every_option(page):
    options = [code for code in inline_code(page.read_text()) if re.match(r"--?[a-z]", code)]
    others = {"--privileged --cgroupns=host"}  # of docker
    refused = {code: refused_options(code) for code in options if code not in others}
    assert {code: reason for code, reason in refused.items() if reason} == {}


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *PAGES], ids=["CONTRIBUTING.md", *NAMES])
def test_every_setting_that_is_named_exists(page):
    known = Settings.__dataclass_fields__
    assert [name for name in settings_named(page.read_text()) if name not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_error_that_is_named_exists(page):
    assert errors_named(page.read_text()) - ERRORS.keys() - VARIABLES == set()


def test_enough_is_found_in_the_pages():
    texts = [page.read_text() for page in PAGES]
    assert sum(len(command_lines(text)) for text in texts) > 100
    assert sum(len(settings_named(text)) for text in texts) > 40
    named = set().union(*(errors_named(text) for text in texts))
    assert named >= ERRORS.keys()
    assert named >= VARIABLES, "a variable that no page names any more"


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("penstock show words.py    # check it; don't run it", [["show", "words.py"]]),
        ('sudo env "PATH=$PATH" penstock top', [["top"]]),
        ("until penstock explain > /dev/null 2>&1; do penstock ps | head; done", [["explain"], ["ps"]]),
        ('penstock run FILE --set "freeze=Mon; Tue" &', [["run", "FILE", "--set", "freeze=Mon; Tue"]]),
        ("penstock history [METRIC]...", [["history", "METRIC..."]]),
        ("from penstock import Topology", []),
        ("penstock.run(topology)", []),
    ],
)
def test_commands_are_found_in_a_line(line, commands):
    assert list(commands_in(line)) == commands


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("penstock run FILE --set NAME=VALUE --state DIR --conf a.b=...", ""),
        ("penstock run FILE::NAME --throughput ...", ""),
        ("penstock COMMAND --help", ""),
        ("penstock --version", ""),
        ("penstock walk FILE", "No such command 'walk'"),
        ("penstock run FILE --machine 2", "No such option"),
        ("penstock scale-out --machines many", "Invalid value for '--machines'"),
        ("penstock history --since ever", "Invalid value for '--since'"),
        ("penstock run", "Missing argument 'FILE"),
        ("penstock run FILE --set latensy=1", "UNKNOWN_SETTING"),
        ("penstock run FILE --set latency=no", "BAD_SETTING"),
        ("penstock run FILE --strategy storms", "UNKNOWN_STRATEGY"),
        ("penstock history rates", "there is no metric rates"),
    ],
)
def test_what_the_command_line_does_not_take_is_told(line, reason):
    [words] = commands_in(line)
    assert (refusal(words) == "") == (reason == "")
    assert reason in refusal(words)


def test_options_settings_and_errors_that_do_not_exist_are_told():
    assert refused_options("-t NAME:PID") == ""
    assert "no command has" in refused_options("--topologies NAME")
    assert "Invalid value" in refused_options("--timeout soon")
    assert "No such option" in refused_options("--timeout 90s --soon")
    assert refused_options("--state") == "", "prose may name an option without its value"
    page = "The settings `latency` and `a_b=1`, or `--set c_d=2`.\n\n| I want | turn | costs |\n| x | `e_f` | `g` |\n\n"
    assert settings_named(page) == ["latency", "a_b", "c_d", "e_f"]
    assert errors_named("`BAD_NAME` of `NAME`\n\n    words.py:3: NO_SUCH: it is gone") == {"BAD_NAME", "NO_SUCH"}
