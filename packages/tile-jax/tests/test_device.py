"""The device as JAX sees it: arrays, donation, errors, compilation ahead of time, the end of the process."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import jax.version
import numpy as np
import pytest
import tile_jax
from jax import export
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from tile_ir.diagnostics import TileDeviceError
from tile_jax.pjrt import handles
from tile_jax.pjrt.state import Client

DEVICES = os.environ["TILE_JAX_DEVICES"].split(",")
TILE = jax.devices("tile")
HERE = TILE[0]
X = np.arange(12, dtype=np.float32).reshape(3, 4)
DTYPES = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32")


def layer(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.tanh(a @ b) * 2 + 1


def aligned(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers in memory that a device which works on the host's takes in place."""
    raw = np.zeros(values.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    made = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def test_every_device_that_was_named_is_there() -> None:
    assert [d.platform for d in TILE] == ["tile"] * len(DEVICES)
    assert [d.device_kind for d in TILE] == [f"{name}:0" for name in DEVICES]
    assert [d.id for d in TILE] == list(range(len(DEVICES)))
    assert jax.default_backend() == "cpu"


@pytest.mark.parametrize("number", range(1, len(DEVICES)), ids=DEVICES[1:])
def test_a_program_runs_on_every_device(number: int) -> None:
    b = X[:2].T.copy()
    made = jax.jit(layer)(*jax.device_put((X / 10, b / 10), TILE[number]))
    assert made.devices() == {TILE[number]}
    np.testing.assert_allclose(made, np.tanh(X / 10 @ (b / 10)) * 2 + 1, rtol=1e-5)


# --- arrays ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_go_there_and_back(dtype: str) -> None:
    array = np.asarray(X % 2, jnp.dtype(dtype))
    placed = jax.device_put(array, HERE)
    assert placed.dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(placed), array)


@pytest.mark.parametrize(
    "view", [X.T, X[::-1, ::2], X[:, 1:2], X[:0], np.float32(3), np.broadcast_to(X[0], (2, 3, 4))], ids=range(6)
)
def test_arrays_of_any_layout(view: Any) -> None:
    np.testing.assert_array_equal(np.asarray(jax.device_put(view, HERE)), view)


def test_arrays_move_between_devices_and_platforms() -> None:
    there = jax.device_put(jax.device_put(X, HERE), TILE[2])
    assert there.devices() == {TILE[2]}
    np.testing.assert_array_equal(jax.device_put(there, jax.devices("cpu")[0]), X)


def test_a_view_of_an_array_outlives_it() -> None:
    placed = jax.device_put(X, HERE)
    view = np.asarray(placed)
    placed.delete()
    gc.collect()
    jax.device_put(np.full_like(X, 7), HERE).block_until_ready()
    np.testing.assert_array_equal(view, X)


def test_aligned_memory_of_the_host_is_taken_in_place_and_let_go() -> None:
    given = aligned(X)
    placed = jax.device_put(given, HERE)
    assert np.asarray(placed).ctypes.data == given.ctypes.data
    moved = jax.device_put(placed, TILE[1])
    del placed
    gc.collect()
    given[...] = 0
    np.testing.assert_array_equal(moved, X)


def rounds(a: jax.Array, n: jax.Array) -> Any:
    return jax.lax.while_loop(lambda s: s[1] < n, lambda s: (s[0], s[1] + 1), (a, jnp.int32(0)))[0]


def test_rounds_hand_values_to_other_places() -> None:
    """The body takes one of what is carried, and gives the others as they are, in another order."""

    def turns(a: jax.Array, b: jax.Array, n: jax.Array) -> Any:
        return jax.lax.while_loop(lambda s: s[2] < n, lambda s: (s[1], s[0], s[2] + 1), (a, b, jnp.int32(0)))

    x, y = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.float32)[1:]
    for n in (0, 1, 2, 3):
        found = jax.jit(turns)(x, y, np.int32(n))
        for one, wanted in zip(found, (y, x, n) if n % 2 else (x, y, n), strict=True):
            np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("size", [3, 3000, 300_000])
def test_loops_that_data_ends_go_round_as_often_as_it_says(size: int) -> None:
    """Of programs of many rounds, of few and of one: rounds behind the last one change nothing, none and those before it are all there."""

    def counted(a: jax.Array, n: jax.Array) -> Any:
        add = jax.jit(lambda b, c: b + c)  # a function of the module
        return jax.lax.while_loop(lambda s: s[2] < n, lambda s: (add(s[0], s[1]), s[1], s[2] + 1), (a, a * 0 + 1, 0))

    for n in (0, 1, 127, 128, 129, 300):
        with jax.default_device(HERE):
            found, _, rounds = jax.jit(counted)(np.zeros(size, np.float32), np.int32(n))
        np.testing.assert_array_equal(found, np.full(size, n, np.float32))
        assert rounds == n


@pytest.mark.parametrize("function", [lambda a, n: (a, a), lambda a, n: a.reshape(-1), rounds, lambda a, n: a[:1]])
def test_what_is_handed_on_is_not_in_the_memory_of_the_host(function: Any) -> None:
    """Of an array of NumPy's, which JAX keeps during the call alone."""
    given = aligned(X)
    with jax.default_device(HERE):
        made = jax.jit(function)(given, np.int32(2))
    expected = jax.tree.leaves(function(X, 2))
    given[...] = 0
    for one, other in zip(jax.tree.leaves(made), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["int4", "float8_e4m3fn"])
def test_what_tile_lacks_is_named(dtype: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"UNIMPLEMENTED.*TILE-E952: arrays of {dtype}"):
        jax.device_put(np.zeros(3, jnp.dtype(dtype)), HERE)


def test_branches_take_what_they_first_read_behind_a_loop_of_the_host() -> None:
    def branch(a: jax.Array, n: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, n, lambda _, c: c * 0.5, 1.0) + a

    with jax.default_device(HERE):
        made = jax.jit(lambda a, n: jax.lax.cond(n > 1, branch, lambda a, n: a * n, a, n))(X, np.int32(3))
    np.testing.assert_array_equal(made, X + np.float32(0.125))


# --- calls -------------------------------------------------------------------------------------------------


def test_donated_arguments_are_gone() -> None:
    placed = jax.device_put(X, HERE)
    made = jax.jit(lambda a: a + 1, donate_argnums=0)(placed)
    assert placed.is_deleted()
    np.testing.assert_array_equal(made, X + 1)


def test_an_array_given_twice_is_not_donated_once() -> None:
    placed = jax.device_put(X, HERE)
    made = jax.jit(lambda a, b: (a + b, b - 1))(placed, placed)
    np.testing.assert_array_equal(made[0], 2 * X)


def test_results_may_be_arguments_constants_and_nothing() -> None:
    placed = jax.device_put(X, HERE)
    same, twice, number = jax.jit(lambda a: (a, a, jnp.float32(3)))(placed)
    np.testing.assert_array_equal(same, twice)
    assert number.shape == () and float(number) == 3
    assert jax.jit(lambda a: ())(placed) == ()
    assert jax.jit(lambda a: a + 1)(placed[:0]).shape == (0, 4)


def test_transformations() -> None:
    def f(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(x) ** 2)

    placed = jax.device_put(X / 10, HERE)
    np.testing.assert_allclose(jax.grad(f)(placed), jax.grad(f)(X / 10), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(placed), jax.vmap(f)(X / 10), rtol=1e-5)


def test_ahead_of_time() -> None:
    placed = jax.device_put(X, HERE)
    compiled = jax.jit(lambda a: a * 2).lower(placed).compile()
    np.testing.assert_array_equal(compiled(placed), X * 2)
    assert compiled.cost_analysis() == {"bytes accessed": 2.0 * X.nbytes}
    assert compiled.memory_analysis().argument_size_in_bytes == X.nbytes


def test_options_of_one_program() -> None:
    placed = jax.device_put(X, HERE)
    rounded = jax.jit(lambda a: a @ a.T, compiler_options={"reduced_precision": True})(placed)
    np.testing.assert_allclose(rounded, X @ X.T, rtol=1e-2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no compiler option nonsense"):
        jax.jit(lambda a: a - 3, compiler_options={"nonsense": "3"})(placed)


def test_executables_are_serialized() -> None:
    placed = jax.device_put(X, HERE)
    parts = serialize(jax.jit(lambda a: a * 3).lower(placed).compile())
    again = deserialize_and_load(*parts, backend="tile", execution_devices=[HERE])
    np.testing.assert_array_equal(again(placed), X * 3)


def test_exported_functions_run() -> None:
    made = export.export(jax.jit(lambda a: jnp.tanh(a) + 1), platforms=["tile"])(X)
    found = export.deserialize(made.serialize()).call(jax.device_put(X, HERE))
    np.testing.assert_allclose(found, np.tanh(X) + 1, rtol=1e-6)


# --- several devices ---------------------------------------------------------------------------------------


def everything(a: jax.Array, b: jax.Array) -> Any:
    """What devices can tell one another."""
    return (
        jnp.tanh(a) + jax.lax.pmean(a, "i") + b,
        jax.lax.pmax(a, "i"),
        jax.lax.all_gather(a, "i"),
        jax.lax.ppermute(a, "i", [(0, 1), (1, 0)]),
        jax.lax.psum_scatter(a, "i", scatter_dimension=0, tiled=True),
        jax.lax.all_to_all(a.reshape(2, 2), "i", 0, 1),
        jax.lax.axis_index("i"),
        jax.lax.scan(lambda c, _: (c + jax.lax.psum(c, "i") * 0.1, c.sum()), a, None, length=3),
    )


def test_devices_tell_one_another() -> None:
    rows = X[:2] / 10
    made = jax.pmap(everything, axis_name="i", in_axes=(0, None), devices=TILE[:2])(rows, np.float32(2))
    expected = jax.vmap(everything, axis_name="i", in_axes=(0, None))(rows, np.float32(2))
    for ours, theirs in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
        assert len(ours.devices()) == 2
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_arrays_over_several_devices_are_refused_where_xla_would_divide_them() -> None:
    mesh = jax.sharding.Mesh(np.array(TILE[:2]), ("i",))
    placed = jax.device_put(X[:2], jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    with pytest.raises(jax.errors.JaxRuntimeError, match="TILE-E956: the program is for 2 devices"):
        jax.jit(lambda a: a + 1)(placed)


def test_parts_of_devices_say_how_their_operands_and_results_are_divided() -> None:
    mesh, part = jax.sharding.Mesh(np.array(TILE[:2]), ("i",)), jax.sharding.PartitionSpec("i")
    rows = jax.sharding.NamedSharding(mesh, part)
    doubled = jax.shard_map(lambda a: a * 2, mesh=mesh, in_specs=part, out_specs=part)
    np.testing.assert_array_equal(jax.jit(doubled, in_shardings=rows, out_shardings=rows)(X[:2]), 2 * X[:2])
    for stated in ({}, {"in_shardings": rows}, {"out_shardings": rows}):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"(?s)TILE-E956.*in_shardings and out_shardings"):
            jax.jit(doubled, **stated)(X[:2])


# --- mistakes, and the end ---------------------------------------------------------------------------------


def test_what_cannot_run_is_named_with_its_line() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"UNIMPLEMENTED.*TILE-E956.*test_device\.py:\d+"):
        jax.jit(lambda a: a.astype(jnp.int4))(jax.device_put(X, HERE))


def test_an_exception_passes_dying_arrays() -> None:
    f = jax.jit(lambda a: a + 1)
    placed = jax.device_put(X, HERE)
    before = handles.alive()
    for _ in range(50):
        with pytest.raises(ZeroDivisionError):
            _ = [f(placed), f(placed), 1 / 0]
    gc.collect()
    assert handles.alive() <= before + 4  # no buffer is left: the executable's, and JAX's own cache of it


def _interrupt_until(over: threading.Event) -> None:
    """Again and again: Python drops an interrupt that comes while the garbage collector calls somebody."""
    seconds = 0.5
    while not over.wait(seconds):
        _thread.interrupt_main()
        seconds = 5.0


def test_an_interrupt_ends_a_program() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
    endless = jax.jit(lambda a: jax.lax.while_loop(lambda c: c >= 0, lambda c: c + 0, a))
    one = jax.device_put(np.float32(1), HERE)
    endless(-one)
    over = threading.Event()
    thread = threading.Thread(target=_interrupt_until, args=(over,))
    thread.start()
    with pytest.raises(ValueError, match="CANCELLED: interrupted"):
        endless(one)
    over.set()
    thread.join()
    assert float(jax.jit(lambda a: a + 1)(one)) == 2


def test_the_process_ends_by_itself() -> None:
    program = """
import tile_jax
tile_jax.register(default=True)
import jax, numpy as np
x = jax.jit(lambda x: x + 1)(np.ones(3, np.float32))
print(jax.default_backend(), x.devices())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tile {TILE_0(")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"devices": "lvm"}, "lvm"),
        ({"fastmath": True}, "no option fastmath"),
        ({"fast_math": "maybe"}, "true or false"),
    ],
)
def test_mistakes_in_options_are_sentences(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TileDeviceError, match=sentence):
        Client(options)


def test_a_jax_that_this_release_is_not_made_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.version, "__version_info__", (0, 4, 30))
    with pytest.raises(TileDeviceError, match=r"made for jax>=0\.10\.0,<0\.11\.0"):
        tile_jax.register()
