"""What a call may do, over generated paths, commands and rules."""

import posixpath
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.agent.approvals import Mode, Rule, Rules, judge, within
from headrace.ports import Touch

FOLDER = "/home/person/work"
MODES: tuple[Mode, ...] = ("allow", "ask", "deny")
ORDER = {"deny": 0, "ask": 1, "allow": 2}

names = st.sampled_from(["a", "b", "work", "works", "..", ".", "x y", "~", "person", "etc", "-", "ä"])
resolved = st.lists(names, max_size=6).map(lambda parts: posixpath.normpath("/" + "/".join(parts)))
near = st.lists(names, max_size=4).map(lambda parts: posixpath.normpath(f"{FOLDER}/" + "/".join(parts)))
paths = resolved | near
modes = st.sampled_from(MODES)
disk = st.sampled_from(["read", "write"])
path_rules = st.builds(Rule, tool=st.sampled_from(["tool", "other"]), path=paths, then=modes)
plain_rules = st.builds(Rule, tool=st.sampled_from(["tool", "other"]), then=modes)
rule_sets = st.builds(
    Rules,
    modes=st.dictionaries(st.sampled_from(["tool", "other"]), modes),
    rules=st.lists(path_rules | plain_rules, max_size=4).map(tuple),
    assume_yes=st.booleans(),
)


def judged(touch: Touch, rules: Rules, real: str = FOLDER) -> Mode:
    return judge("tool", touch, real_path=real, folder=FOLDER, rules=rules).mode


@given(disk, paths, rule_sets)
def test_nothing_outside_is_allowed_or_asked_without_a_rule_that_names_it(
    kind: str, path: str, rules: Rules
) -> None:
    assume(not within(path, FOLDER))
    named = [r for r in rules.rules if r.tool == "tool" and r.path and within(path, r.path)]
    if judged(Touch(kind, path), rules, path) != "deny":  # type: ignore[arg-type]
        assert any(rule.then != "deny" for rule in named)


@given(disk, paths, st.integers(0, 6), modes, rule_sets)
def test_the_first_rule_that_names_a_path_decides(
    kind: str, path: str, up: int, then: Mode, others: Rules
) -> None:
    around = path
    for _ in range(up):
        around = posixpath.dirname(around)
    first = Rule(tool="tool", path=around, then=then)
    rules = Rules(others.modes, (first, *others.rules), others.assume_yes)
    expected = "allow" if then == "ask" and rules.assume_yes else then
    assert judged(Touch(kind, path), rules, path) == expected  # type: ignore[arg-type]


@given(st.sampled_from(["read", "write", "run", "fetch", "ask", "nothing", "remember"]), paths, rule_sets)
def test_yes_turns_asking_into_allowing_and_nothing_else(kind: str, path: str, rules: Rules) -> None:
    touch = Touch(kind, path)  # type: ignore[arg-type]
    cautious = judged(touch, Rules(rules.modes, rules.rules, assume_yes=False), path)
    bold = judged(touch, Rules(rules.modes, rules.rules, assume_yes=True), path)
    assert bold == ("allow" if cautious == "ask" else cautious)


@given(paths, paths)
def test_within_is_a_matter_of_whole_names(path: str, folder: str) -> None:
    assert within(path, folder) == (posixpath.commonpath([path, folder]) == folder)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("read", "allow"),
        ("write", "ask"),
        ("run", "ask"),
        ("remember", "ask"),
        ("fetch", "allow"),
        ("ask", "allow"),
        ("nothing", "allow"),
    ],
)
def test_the_defaults(kind: str, mode: Mode) -> None:
    assert judged(Touch(kind, "a"), Rules(), f"{FOLDER}/a") == mode  # type: ignore[arg-type]


@given(paths, st.sampled_from(["deny", "ask"]), st.integers(0, 6))
def test_a_rule_that_holds_back_also_holds_back_the_folder_around_it(
    path: str, then: Mode, height: int
) -> None:
    """A search of a folder goes down into what the rule is about."""
    around = str([Path(path), *Path(path).parents][min(height, len(Path(path).parents))])
    assert within(path, around)
    rules = Rules(rules=(Rule(tool="tool", path=path, then=then), Rule(tool="tool", path="/", then="allow")))
    assert judged(Touch("read", around), rules, around) == then


# --- commands

words = st.sampled_from(
    ["git", "status", "push", "-s", "rm", "-rf", "/", "a.txt", "x=1", "'a b'", "~/x", "*.py"]
)
glue = st.sampled_from(
    ["; ", " && ", " || ", " | ", " & ", "\n", "\r\n", " `", " $(", " <(", " >", " {", "$", "<<<"]
)
commands = st.lists(words, min_size=1, max_size=5).map(" ".join)


def allowed(command: str, prefix: str) -> bool:
    rules = Rules(rules=(Rule(tool="tool", command=prefix, then="allow"),))
    return judged(Touch("run", command), rules) == "allow"


@given(commands, glue, commands)
def test_a_rule_never_allows_a_second_command(first: str, between: str, second: str) -> None:
    assert not allowed(first + between + second, first)


@pytest.mark.parametrize(
    ("command", "fits"),
    [
        ("git status", True),
        ("  git   status -s", True),
        ("git\tstatus", True),
        ("git statusx", False),
        ("git", False),
        ("git -C / status", False),
        ("git\u00a0status", False),
        ("git\x0bstatus", False),
        ("GIT status", False),
        ("/usr/bin/git status", False),
        ("X=1 git status", False),
    ],
)
def test_a_rule_that_allows_fits_the_words_themselves(command: str, fits: bool) -> None:
    assert allowed(command, "git status") == fits


@given(
    commands,
    glue,
    st.sampled_from(["rm", "/bin/rm", "'rm'", "r''m", 'r"m"', "\\rm", "r\\m", "../rm"]),
    commands,
)
def test_a_rule_that_denies_fits_wherever_its_words_stand(
    before: str, between: str, name: str, after: str
) -> None:
    rules = Rules(
        modes={"tool": "allow"}, rules=(Rule(tool="tool", command="rm -rf", then="deny"),), assume_yes=True
    )
    assert judged(Touch("run", f"{before}{between}{name} -rf {after}"), rules) == "deny"
    assert judged(Touch("run", f"{name}  -rf"), rules) == "deny"


@pytest.mark.parametrize("command", ["ls", "rm a.txt", "farm -rf x", "rm2 -rf", "echo rm"])
def test_a_rule_that_denies_lets_other_commands_be(command: str) -> None:
    rules = Rules(modes={"tool": "allow"}, rules=(Rule(tool="tool", command="rm -rf", then="deny"),))
    assert judged(Touch("run", command), rules) == "allow"


@pytest.mark.parametrize("then", MODES)
def test_a_rule_without_words_opens_nothing(then: Mode) -> None:
    rules = Rules(rules=(Rule(tool="tool", command=" ", then=then),))
    assert judged(Touch("run", "ls"), rules) == ("ask" if then == "allow" else then)
    assert judged(Touch("run", ""), rules) == ("ask" if then == "allow" else then)


@given(commands, rule_sets)
def test_a_path_rule_says_nothing_of_commands(command: str, rules: Rules) -> None:
    only_paths = Rules(rules=tuple(r for r in rules.rules if r.path))
    assert judged(Touch("run", command), only_paths) == "ask"


@given(st.lists(path_rules, max_size=4), paths, st.lists(path_rules, max_size=4))
def test_rules_of_other_tools_do_not_matter(before: list[Rule], path: str, after: list[Rule]) -> None:
    others = tuple(Rule(tool="other", path=r.path, then=r.then) for r in (*before, *after))
    assert judged(Touch("read", path), Rules(rules=others), path) == judged(
        Touch("read", path), Rules(), path
    )


def test_modes_are_ordered_from_safe_to_bold() -> None:
    """What is denied by a rule cannot be opened by a mode."""
    for mode in MODES:
        rules = Rules(modes={"tool": mode}, rules=(Rule(tool="tool", path=FOLDER, then="deny"),))
        assert ORDER[judged(Touch("write", "a"), rules, f"{FOLDER}/a")] == ORDER["deny"]
