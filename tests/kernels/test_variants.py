"""The global gauge agrees with the token loop, signs and all, in float64."""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

import importlib.util
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable
from statetrack.kernels import chunk_triton, tilelang_states
from statetrack.kernels.ckda_reference import ckda_naive
from statetrack.kernels.gates import Gate
from statetrack.kernels.variants import gauge, gauge_chunk, tilelang_chunk

Leaves = dict[str, Tensor]


def leaves(
    batch: int, time: int, factors: int = 1, *, heads: int = 2, value_heads: int = 2, gate_rows: int = 1,
    width: int = 6, sequences: int | None = None, seed: int = 0,
) -> Leaves:  # fmt: skip
    """Random leaves in float64: gates of both signs with exact zeros and ones of either sign, beta up to 2."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    rows, K, V = time * factors, 6, 5
    alpha = torch.tanh(normal(batch, time * gate_rows, value_heads, width) * 2)
    drawn = torch.rand(alpha.shape, generator=generator)
    alpha = torch.where(drawn < 0.05, 0.0, torch.where(drawn < 0.15, 1.0, torch.where(drawn < 0.3, -1.0, alpha)))
    made = {
        "q": normal(batch, time, heads, K),
        "k": normal(batch, rows, heads, K),
        "v": normal(batch, rows, value_heads, V),
        "beta": 2 * torch.sigmoid(normal(batch, rows, value_heads)),
        "alpha": alpha,
        "start": normal(sequences or batch, value_heads, K, V),
    }
    return {name: tensor.requires_grad_() for name, tensor in made.items()}


def missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


def positional(x: Leaves, kind: Any = "alpha") -> tuple[Any, ...]:
    return x["q"], x["k"], x["v"], x["beta"], Gate(kind, x["alpha"])


def options(precision: str, factors: int = 1, start: Tensor | None = None, bounds: Tensor | None = None) -> Any:
    return {
        "scale": 0.4, "factors": factors, "normalize_keys": True, "normalize_queries": True, "initial_state": start,
        "output_final_state": start is not None, "cu_seqlens": bounds, "precision": precision,
    }  # fmt: skip


def run(
    road: Callable[..., Any], x: Leaves, factors: int, cu_seqlens: Tensor | None, kind: str = "alpha",
    precision: str = "exact", **extra: Any,
) -> tuple[Tensor, Tensor, Leaves]:  # fmt: skip
    """Output, last state and the gradients of one scalar of both."""
    o, state = road(*positional(x, kind), **options(precision, factors, x["start"], cu_seqlens), **extra)
    weights = torch.linspace(-1, 2, o.numel(), dtype=torch.float64, device=o.device).view(o.shape)
    loss = (o * weights).sum() + (state.double() * state.double().sin()).sum()
    return o, state, dict(zip(x, torch.autograd.grad(loss, list(x.values())), strict=True))


def assert_equal_roads(x: Leaves, factors: int, cu_seqlens: Tensor | None = None, kind: str = "alpha") -> None:
    o, state, gradients = run(gauge_chunk, x, factors, cu_seqlens, kind)
    true_o, true_state, true_gradients = run(ckda_naive, x, factors, cu_seqlens, kind)
    torch.testing.assert_close(o, true_o, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(state, true_state, rtol=1e-5, atol=1e-5)
    for name, gradient in gradients.items():
        expected = true_gradients[name]
        if name == "alpha" and kind == "alpha":
            # The chunkwise form keeps a gate as a logarithm and has no slope at an exact reset.
            there = x["alpha"] != 0
            gradient, expected = gradient[there], expected[there]
        # The last state is float32, and so is what flows back from it.
        torch.testing.assert_close(gradient, expected, rtol=2e-5, atol=2e-5, msg=lambda m, n=name: f"d{n}: {m}")


@pytest.mark.parametrize("time", [1, 2, 63, 65, 150])
def test_the_gauge_equals_the_token_loop_forward_and_backward(time: int) -> None:
    assert_equal_roads(leaves(2, time, seed=time), 1)


@pytest.mark.parametrize(("factors", "gate_rows", "width"), [(2, 1, 6), (2, 2, 6), (3, 3, 6), (2, 1, 1), (2, 2, 1)])
def test_several_factors_share_or_own_their_signs(factors: int, gate_rows: int, width: int) -> None:
    assert_equal_roads(leaves(2, 70, factors, gate_rows=gate_rows, width=width), factors)


def test_signs_belong_to_value_heads() -> None:
    assert_equal_roads(leaves(2, 70, heads=2, value_heads=6), 1)


@pytest.mark.parametrize("factors", [1, 2])
def test_signs_restart_in_every_sequence(factors: int) -> None:
    bounds = torch.tensor([0, 1, 40, 40, 105, 171, 172])
    x = leaves(1, 172, factors, gate_rows=factors, sequences=6)
    assert_equal_roads(x, factors, bounds)
    joined = run(gauge_chunk, x | {"start": x["start"][:1]}, factors, None)[0]
    assert not torch.allclose(joined, run(gauge_chunk, x, factors, bounds)[0], atol=1e-2)


@pytest.mark.parametrize("kind", ["signed", "softplus", "bounded"])
def test_every_kind_of_gate_goes_through(kind: str) -> None:
    x = leaves(1, 70)
    x["alpha"] = (3 * x["alpha"].detach() - 0.5).requires_grad_()
    assert_equal_roads(x, 1, kind=kind)


def test_gauged_inputs_differ_by_signs_alone() -> None:
    x = leaves(2, 50, seed=3)
    size, q, k, last = gauge(x["alpha"], x["q"], x["k"], None, 1)
    assert torch.equal(size, x["alpha"].abs())
    assert torch.equal(q.abs(), x["q"].abs())
    assert torch.equal(k.abs(), x["k"].abs())
    signs = torch.where(x["alpha"] < 0, -1, 1).cumprod(1)
    assert torch.equal(k, x["k"] * signs)
    assert torch.equal(last[..., 0], signs[:, -1])


def test_a_forgotten_sign_is_seen() -> None:
    x = leaves(2, 50, seed=4)
    unsigned = x | {"alpha": x["alpha"].detach().abs().requires_grad_()}
    right, wrong = run(gauge_chunk, x, 1, None)[0], run(gauge_chunk, unsigned, 1, None)[0]
    assert not torch.allclose(right, wrong, atol=1e-2)


def test_the_gauge_can_be_compiled_as_one_graph() -> None:
    bounds = torch.tensor([0, 20, 50])
    x = leaves(1, 50, 2, gate_rows=2, value_heads=4)
    arguments = (x["alpha"], x["q"], x["k"], bounds, 2)
    traced = torch.compile(gauge, backend="aot_eager", fullgraph=True)(*arguments)
    for got, expected in zip(traced, gauge(*arguments), strict=True):
        assert torch.equal(got, expected)


def test_an_unknown_core_is_refused() -> None:
    with pytest.raises(InvalidInput, match="core 'other', expected 'ours' or 'fla'"):
        run(gauge_chunk, leaves(1, 4), 1, None, core="other")


def test_the_peer_core_names_every_limit_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"factors is 2, expected 1; precision is 'exact', expected 'fast'"):
        run(gauge_chunk, leaves(1, 4, 2), 2, None, core="fla")


def test_the_peer_core_gets_logarithms_and_gauged_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def chunk_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **rest: Any) -> tuple[Tensor, Tensor]:
        assert g.dtype == torch.float32
        assert g.shape == k.shape
        assert g.max() <= 0
        assert torch.isfinite(g).all()
        both = rest.pop("use_qk_l2norm_in_kernel")
        arguments = options("fast") | rest | {"normalize_keys": both, "normalize_queries": both}
        o, state = ckda_naive(q, k, v, beta, Gate("alpha", g.double().exp()), **arguments)
        assert state is not None
        return o, state

    monkeypatch.setitem(sys.modules, "fla", types.ModuleType("fla"))
    monkeypatch.setitem(sys.modules, "fla.ops", types.ModuleType("fla.ops"))
    monkeypatch.setitem(sys.modules, "fla.ops.kda", SimpleNamespace(chunk_kda=chunk_kda))
    bounds = torch.tensor([0, 30, 31, 70])
    x = leaves(1, 70, value_heads=4, width=1, sequences=3)
    o, state, gradients = run(gauge_chunk, x, 1, bounds, precision="fast", core="fla")
    true_o, true_state, true_gradients = run(ckda_naive, x, 1, bounds)
    torch.testing.assert_close(o, true_o, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state, true_state, rtol=1e-5, atol=1e-5)
    there = x["alpha"] != 0
    torch.testing.assert_close(gradients["alpha"][there], true_gradients["alpha"][there], rtol=1e-3, atol=1e-3)
    for name in ("q", "k", "v", "beta", "start"):
        torch.testing.assert_close(gradients[name], true_gradients[name], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not missing("fla"), reason="fla-core is installed")
def test_the_peer_core_is_asked_for_by_its_name_where_it_is_missing() -> None:
    with pytest.raises(KernelUnavailable, match="fla-core cannot be imported"):
        gauge_chunk(*positional(leaves(1, 4)), **options("fast"), core="fla")


def test_tilelang_names_every_limit_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        tilelang_chunk(*positional(leaves(1, 4)), **options("exact"))
    for fault in ("q is float64 on cpu", "K is 6", "V is 5", "precision is 'exact', expected 'fast'"):
        assert fault in str(caught.value)


@pytest.mark.skipif(not missing("tilelang"), reason="tilelang is installed")
def test_tilelang_is_asked_for_by_its_name_where_it_is_missing() -> None:
    with pytest.raises(KernelUnavailable, match="tilelang cannot be imported"):
        tilelang_states.installed()


class Emulated:
    """Runs a TileLang program's text as Python on torch tensors, one program after another, bfloat16 as float32."""

    bfloat16, float32, int32 = torch.float32, torch.float32, torch.int32

    def __init__(self) -> None:
        self.at: tuple[int, ...] | None = None
        self.grid: tuple[int, ...] = ()

    def prim_func(self, body: Callable[..., None]) -> Callable[..., None]:
        def run_all(*tensors: Tensor) -> None:
            self.at, self.grid = None, (1,)
            programs: list[tuple[int, ...]] = [()]
            while programs:
                self.at = programs.pop() or None
                first = self.at is None
                body(*tensors)
                if first:
                    programs = [at for at in itertools.product(*map(range, self.grid)) if any(at)]

        return run_all

    @contextmanager
    def Kernel(self, *grid: int, threads: int) -> Iterator[tuple[int, ...]]:
        assert threads % 32 == 0
        self.grid = grid
        yield self.at or (0,) * len(grid)

    def Tensor(self, shape: Any, dtype: Any) -> tuple[Any, Any]:
        return shape, dtype

    def alloc_shared(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.full(shape, torch.nan, dtype=dtype)

    alloc_fragment = alloc_shared

    def ceildiv(self, a: int, b: int) -> int:
        return -(-a // b)

    def copy(self, source: Tensor, target: Tensor) -> None:
        assert source.shape == target.shape
        target.copy_(source)

    def clear(self, target: Tensor) -> None:
        target.zero_()

    def gemm(self, a: Tensor, b: Tensor, target: Tensor, transpose_A: bool = False) -> None:
        target += (a.float().T if transpose_A else a.float()) @ b.float()

    def Parallel(self, *sizes: int) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, sizes))

    def Pipelined(self, count: Any, num_stages: int) -> range:
        return range(int(count))

    def cast(self, x: Any, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(x).to(dtype)

    def if_then_else(self, test: Any, yes: Any, no: Any) -> Any:
        return yes if test else no

    def min(self, a: Any, b: Any) -> int:
        return min(int(a), int(b))


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves run on a CUDA device")
@pytest.mark.parametrize(("factors", "bounds"), [(1, None), (1, (0, 1, 18, 18, 37)), (3, (0, 7, 10))])
def test_the_text_of_the_tilelang_stage_equals_the_token_loop(
    monkeypatch: pytest.MonkeyPatch, factors: int, bounds: tuple[int, ...] | None
) -> None:
    emulated = Emulated()
    monkeypatch.setitem(sys.modules, "tilelang", types.ModuleType("tilelang"))
    monkeypatch.setitem(sys.modules, "tilelang.language", emulated)  # pyright: ignore[reportArgumentType]

    def built(stage: str, sizes: tuple[int, ...], train: bool, start: bool, final: bool) -> Any:
        if stage == "forward":
            return tilelang_states.forward_program(sizes, train, start, final)
        return tilelang_states.backward_program(sizes, start, final)

    monkeypatch.setattr(tilelang_states, "_built", built)
    x = narrow(bounds[-1] if bounds else 20, factors, 16, len(bounds) - 1 if bounds else 2, 1 if bounds else 2)
    ends = torch.tensor(bounds) if bounds else None
    road = partial(
        chunk_triton.ckda_chunk, states=(tilelang_states.forward_states, tilelang_states.backward_states),
        launch=replace(chunk_triton.launches(16, 16, factors, "exact", False)[0], chunk=16 if factors == 1 else 64),
    )  # fmt: skip
    x = {name: tensor.detach().float().requires_grad_() for name, tensor in x.items()}
    assert_near(x, road, factors, ends, "exact", 1e-4)


def narrow(time: int, factors: int, size: int, sequences: int, batch: int, place: str = "cpu") -> Leaves:
    """Leaves whose q, k and v are in bfloat16, with gates of both signs."""
    generator = torch.Generator(place).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=place)

    rows = time * factors
    made = {
        "q": normal(batch, time, 2, size).bfloat16(),
        "k": normal(batch, rows, 2, size).bfloat16(),
        "v": normal(batch, rows, 2, size).bfloat16(),
        "beta": 2 * torch.sigmoid(normal(batch, rows, 2)),
        "alpha": torch.tanh(normal(batch, rows, 2, size) + 2),
        "start": normal(sequences, 2, size, size),
    }
    return {name: tensor.requires_grad_() for name, tensor in made.items()}


def assert_near(
    x: Leaves, road: Callable[..., Any], factors: int, ends: Tensor | None, precision: str, allowed: float
) -> None:
    """The road's numbers against those of the token loop, which runs in float32 on the same inputs."""
    wide = {name: tensor.detach().float().requires_grad_() for name, tensor in x.items()}
    true_o, true_state, true_gradients = run(ckda_naive, wide, factors, ends)
    o, state, gradients = run(road, x, factors, ends, precision=precision)
    pairs = {"o": (o, true_o), "state": (state, true_state)}
    for name, (got, expected) in (pairs | {n: (gradients[n], true_gradients[n]) for n in x}).items():
        got, expected = got.detach().double(), expected.detach().double()
        error = float((got - expected).norm() / expected.norm())
        assert error < allowed, f"{name}: {error}"


@pytest.mark.skipif(missing("tilelang"), reason="tilelang is not installed")
@pytest.mark.parametrize("each", [0, 3])
@pytest.mark.parametrize(("K", "V", "factors", "rows", "columns"), [(128, 128, 1, 1, 64), (64, 32, 3, 4, 32)])
def test_tilelang_kernels_lower_to_hopper_code(
    each: int, K: int, V: int, factors: int, rows: int, columns: int
) -> None:
    import tilelang  # pyright: ignore[reportMissingImports]

    sizes = (each, 6, 2, 2, 300, K, V, 64, factors, rows, columns)
    target = tilelang.tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    for program in (
        tilelang_states.forward_program(sizes, True, True, True),
        tilelang_states.backward_program(sizes, True, True),
    ):
        with tilelang.transform.PassContext(opt_level=3, config=tilelang_states.passes()), target:
            assert "__global__" in tilelang.lower(program, target=target).kernel_source


@pytest.mark.skipif(
    missing("tilelang") or not torch.cuda.is_available(), reason="needs tilelang and a Hopper CUDA device"
)
@pytest.mark.parametrize("bounds", [None, (0, 1, 64, 64, 200, 333)])
@pytest.mark.parametrize(("factors", "size"), [(1, 128), (1, 64), (2, 128)])
def test_tilelang_equals_the_token_loop(factors: int, size: int, bounds: tuple[int, ...] | None) -> None:
    batch, time = (1, 333) if bounds else (2, 200)
    x = narrow(time, factors, size, len(bounds) - 1 if bounds else batch, batch, "cuda")
    assert_near(x, tilelang_chunk, factors, torch.tensor(bounds, device="cuda") if bounds else None, "fast", 2e-2)
