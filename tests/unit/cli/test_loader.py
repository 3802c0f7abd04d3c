"""A user's file: what it declares is found, and it may import what lies beside it."""

from __future__ import annotations

import sys

import pytest

from penstock.cli.loader import load
from penstock.errors import PenstockError

ONE = "from penstock import Topology\nflow = Topology('orders')\n"
TWO = ONE + "other = Topology('returns')\n"


def test_the_only_topology_is_taken(write):
    assert load(str(write(ONE))).topology.name == "orders"


@pytest.mark.parametrize(("chosen", "name"), [("flow", "orders"), ("orders", "orders"), ("other", "returns")])
def test_one_of_several_by_variable_or_by_name(write, chosen, name):
    assert load(f"{write(TWO)}::{chosen}").topology.name == name


def test_the_same_topology_in_two_variables_counts_once(write):
    assert load(str(write(ONE + "again = flow\n"))).topology.name == "orders"


def test_a_file_may_have_guards_for_the_controller_of_its_topology(write):
    path = write(ONE + "def never(proposal, view):\n    return 'not today'\nguards = [never]\n")
    [guard] = load(str(path)).guards()
    assert guard(None, None) == "not today"
    assert load(str(write(ONE))).guards() == ()


@pytest.mark.parametrize("wrong", ["'never'", "[1, 2]", "{'a': print}"])
def test_guards_that_are_none_are_refused_by_name(write, wrong):
    path = write(ONE + f"guards = {wrong}\n")
    with pytest.raises(PenstockError, match="Make it a list of functions") as caught:
        load(str(path)).guards()
    assert caught.value.name == "BAD_GUARDS"
    assert str(caught.value).startswith(str(path))


def test_what_lies_beside_the_file_can_be_imported(write):
    write("NAME = 'beside'\n", "helper_of_flow.py")
    path = write("from penstock import Topology\nfrom helper_of_flow import NAME\nt = Topology(NAME)\n")
    loaded = load(str(path))
    assert loaded.topology.name == "beside"
    assert loaded.folder == str(path.parent)


def test_a_file_called_like_a_loaded_module_leaves_that_module_alone(write):
    import json

    loaded = load(str(write(ONE, "json.py")))
    assert sys.modules["json"] is json
    assert loaded.module.__name__ == "topology_json"


def test_a_file_without_the_usual_ending(write):
    assert load(str(write(ONE, "flow.txt"))).topology.name == "orders"


def test_a_failed_file_can_be_corrected_and_loaded_again(write):
    path = write("1 / 0\n")
    with pytest.raises(PenstockError, match="ZeroDivisionError"):
        load(str(path))
    path.write_text(ONE + "# longer than before, so that no cached bytecode fits\n")
    assert load(str(path)).topology.name == "orders"


def test_an_error_further_down_points_at_the_line_that_led_there(write):
    write("def boom():\n    raise KeyError('deep')\n", "helper_that_fails.py")
    path = write("import helper_that_fails\n\nhelper_that_fails.boom()\n")
    with pytest.raises(PenstockError) as caught:
        load(str(path))
    assert str(caught.value.where) == f"{path}:3"


def test_functions_of_the_file_travel_as_code(write):
    path = write(ONE + "def double(n):\n    return n * FACTOR\nFACTOR = 2\n")
    loaded = load(str(path))
    loaded.ship_by_value()
    from pyspark import cloudpickle

    code = cloudpickle.dumps(loaded.module.double)
    module = sys.modules.pop(loaded.module.__name__)
    sys.path.remove(str(path.parent))
    try:
        assert cloudpickle.loads(code)(21) == 42
    finally:
        sys.modules[loaded.module.__name__] = module
        cloudpickle.unregister_pickle_by_value(module)
