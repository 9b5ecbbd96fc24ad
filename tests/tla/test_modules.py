"""Finding modules, and what their names mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from tla.files import loaded, module, written

from fencepost.tla import ast, modules
from fencepost.tla.errors import SpecificationError
from fencepost.tla.symbols import BuiltIn, Constant, Defined, Local, Substituted, Variable


def body_of(symbol: object) -> ast.Expression:
    assert isinstance(symbol, Defined)
    assert isinstance(symbol.body, ast.Expression)
    return symbol.body


def names_in(expression: ast.Node) -> list[ast.Name | ast.Qualified]:
    """The names in an expression, in the order of the text."""
    found: list[ast.Name | ast.Qualified] = [expression] if isinstance(expression, ast.Name | ast.Qualified) else []
    return found + [name for part in ast.parts_of(expression) for name in names_in(part)]


def meaning(symbol: object) -> list[object]:
    """The symbols of the names in a definition."""
    assert isinstance(symbol, Defined)
    return [symbol.scope.symbol(name) for name in names_in(symbol.body)]


class TestExtends:
    def test_names_of_all_extended_modules_are_known(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", "EXTENDS B, C", "VARIABLE y", "Next == D1 + y"),
            module("B", "EXTENDS D"),
            module("C", "EXTENDS D", "CONSTANT N"),
            module("D", "EXTENDS Naturals", "VARIABLE x", "D1 == x"),
        )
        assert [each.name for each in spec.variables] == ["x", "y"]
        assert [each.index for each in spec.variables] == [0, 1]
        assert [each.name for each in spec.constants] == ["N"]
        plus, d1, y = meaning(spec.definitions["Next"])
        assert isinstance(plus, BuiltIn) and plus.module == "Naturals"
        assert d1 is spec.definitions["D1"]
        assert y is spec.variables[1]

    def test_local_definitions_are_not_exported(self, tmp_path: Path) -> None:
        texts = module("A", "EXTENDS B", "Op == Hidden"), module("B", "LOCAL Hidden == 1", "Seen == Hidden")
        with pytest.raises(SpecificationError, match="Hidden is not defined"):
            loaded(tmp_path, *texts)

    def test_a_local_instance_is_not_exported(self, tmp_path: Path) -> None:
        texts = module("A", "EXTENDS B", "Op == 1 + 1"), module("B", "LOCAL INSTANCE Naturals", "Seen == 1 + 1")
        with pytest.raises(SpecificationError, match=r"\+ is not defined"):
            loaded(tmp_path, *texts)

    def test_a_circle_is_refused(self, tmp_path: Path) -> None:
        texts = module("A", "EXTENDS B"), module("B", "EXTENDS C"), module("C", "I == INSTANCE A")
        with pytest.raises(SpecificationError, match=r"C.tla:2:1: .* circle: A, B, C, A"):
            loaded(tmp_path, *texts)


class TestFinding:
    def test_a_file_has_the_name_of_its_module(self, tmp_path: Path) -> None:
        path = written(tmp_path, module("A")).rename(tmp_path / "B.tla")
        with pytest.raises(SpecificationError, match=r"the file B.tla has the module A"):
            modules.load(path)

    def test_a_library_folder(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        written(tmp_path / "lib", module("B", "Op == 1"))
        path = written(tmp_path, module("A", "EXTENDS B"))
        assert "Op" in modules.load(path, [tmp_path / "lib"]).definitions

    def test_no_such_module(self, tmp_path: Path) -> None:
        with pytest.raises(
            SpecificationError, match=r"A.tla:2:9: module Natural is not found in .*did you mean Natural"
        ):
            loaded(tmp_path, module("A", "EXTENDS Natural"))

    def test_no_file_takes_the_place_of_a_standard_module(self, tmp_path: Path) -> None:
        spec = loaded(tmp_path, module("A", "EXTENDS Naturals", "Op == Nat"), module("Naturals", "Nat == 1"))
        assert isinstance(meaning(spec.definitions["Op"])[0], BuiltIn)

    def test_several_modules_in_a_file(self, tmp_path: Path) -> None:
        spec = loaded(tmp_path, module("A", "EXTENDS B", "Op == One") + "\n" + module("B", "One == 1"))
        assert meaning(spec.definitions["Op"]) == [spec.definitions["One"]]


class TestInstances:
    def test_substitutions(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", "EXTENDS Naturals", "VARIABLE x", "I == INSTANCE B WITH c <- x + 1", "Op == I!Twice(x)"),
            module("B", "EXTENDS Naturals", "VARIABLES c, x", "Twice(y) == x + c + y"),
        )
        twice = meaning(spec.definitions["Op"])[0]
        assert isinstance(twice, Defined)
        assert (twice.name, twice.module) == ("Twice", "B")
        plus, _, x, c, y = meaning(twice)
        assert isinstance(plus, BuiltIn)
        assert x is spec.variables[0]
        assert isinstance(c, Substituted) and c.scope.symbol(names_in(c.value)[1]) is spec.variables[0]
        assert y is twice.parameters[0]

    def test_parameters_of_an_instance_are_the_first_of_its_definitions(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", "I(x) == INSTANCE B WITH c <- x", "Op == I(1)!Pair(2)"),
            module("B", "CONSTANT c", "Self == c", "Pair(y) == <<Self, y>>"),
        )
        pair = meaning(spec.definitions["Op"])[0]
        assert isinstance(pair, Defined)
        assert [each.name for each in pair.parameters] == ["x", "y"]
        inside = meaning(pair)[0]
        assert isinstance(inside, Defined)
        assert inside.implied == pair.parameters[:1]
        assert meaning(inside) == [pair.parameters[0]]

    def test_instances_in_instances(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", "VARIABLE v", "I(x) == INSTANCE B WITH c <- x", "Op == I(1)!J(v)!Get(3)"),
            module("B", "CONSTANT c", "J(z) == INSTANCE C WITH d <- <<c, z>>"),
            module("C", "CONSTANT d", "Get(y) == <<d, y>>"),
        )
        get = meaning(spec.definitions["Op"])[0]
        assert isinstance(get, Defined)
        assert [each.name for each in get.parameters] == ["x", "z", "y"]
        d, y = meaning(get)
        assert isinstance(d, Substituted)
        assert [d.scope.symbol(name) for name in names_in(d.value)] == list(get.parameters[:2])
        assert y is get.parameters[2]

    def test_without_a_name(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", "VARIABLE v", "INSTANCE B WITH c <- v", "Op == Get"),
            module("B", "CONSTANT c", "Get == c"),
        )
        assert meaning(spec.definitions["Op"]) == [spec.definitions["Get"]]
        assert meaning(spec.definitions["Get"]) == [spec.variables[0]]

    def test_an_inner_module_sees_the_outer(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module(
                "A",
                *("VARIABLE v", "One == 1", module("Inner", "VARIABLE w", "Get == <<One, v, w>>")),
                *("I(w) == INSTANCE Inner", "Op == I(v)!Get"),
            ),
        )
        get = meaning(spec.definitions["Op"])[0]
        assert meaning(get)[:2] == [spec.definitions["One"], spec.variables[0]]
        assert isinstance(meaning(get)[2], Local)

    def test_in_a_let(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", r"Op(S) == \E x \in S : LET I == INSTANCE B WITH c <- x IN I!Get"),
            module("B", "CONSTANT c", "Get == c"),
        )
        quantified = body_of(spec.definitions["Op"])
        assert isinstance(quantified, ast.Quantified) and isinstance(quantified.body, ast.Let)
        x = Local("x", 0, quantified.place)
        get = (
            spec.definitions["Op"].scope.inner({"x": x}).let(quantified.body).symbol(names_in(quantified.body.body)[0])
        )
        assert isinstance(get, Defined)
        assert get.implied == (*spec.definitions["Op"].parameters, x)
        assert meaning(get) == [x]


class TestConfiguration:
    def test_names_are_replaced_by_names(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", "EXTENDS Naturals, B", "CONSTANT N", "MyNat == 0..N", "Three == 3", "Op == <<Nat, N, Get>>"),
            module("B", "EXTENDS Naturals", "Get == Nat"),
        ).with_replacements(modules.Replacements(names={"Nat": "MyNat", "N": "Three"}))
        nat, n, get = meaning(spec.definitions["Op"])
        assert isinstance(nat, Substituted) and isinstance(n, Substituted)
        assert nat.scope.symbol(names_in(nat.value)[0]) is spec.definitions["MyNat"]
        assert meaning(get) == [nat]
        assert spec.constants == ()

    def test_a_definition_is_given_a_value(self, tmp_path: Path) -> None:
        spec = loaded(tmp_path, "CONSTANT c\nNone == CHOOSE x : x \\notin {c}\nOp == None")
        given = spec.with_replacements(modules.Replacements(values=frozenset({"None", "c"})))
        assert [each.name for each in given.constants] == ["c", "None"]
        assert meaning(given.definitions["Op"]) == [given.constants[1]]
        assert isinstance(meaning(spec.definitions["Op"])[0], Defined)

    def test_in_one_module(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path,
            module("A", "I == INSTANCE B", "Seven == 7", "Op == I!Get"),
            module("B", "Six == 6", "Get == Six"),
        ).with_replacements(modules.Replacements(names_in={"B": {"Six": "Seven"}}))
        six = meaning(meaning(spec.definitions["Op"])[0])[0]
        assert isinstance(six, Substituted)
        assert six.scope.symbol(names_in(six.value)[0]) is spec.definitions["Seven"]

    def test_a_name_that_no_module_has(self, tmp_path: Path) -> None:
        spec = loaded(tmp_path, "Next == TRUE")
        with pytest.raises(SpecificationError, match="Spec does not define Nxt: did you mean Next"):
            spec.with_replacements(modules.Replacements(names={"Nxt": "Next"}))
        with pytest.raises(SpecificationError, match="the invariant Nexxt is not defined in Spec: did you mean Next"):
            spec.named("Nexxt", "the invariant")


def test_assumptions_of_all_extended_modules(tmp_path: Path) -> None:
    spec = loaded(tmp_path, module("A", "EXTENDS B", "ASSUME Two == 2 = 2"), module("B", "CONSTANT N", "ASSUME N = 1"))
    assert [each.name for each in spec.assumptions] == ["", "Two"]
    scope = spec.assumptions[0].scope
    assert isinstance(scope.symbol(names_in(spec.assumptions[0].expression)[1]), Constant)
    assert isinstance(spec.variables, tuple) and not any(isinstance(each, Variable) for each in spec.constants)
