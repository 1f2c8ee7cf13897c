"""The layer operation on a CPU: chunks against the token loop, the loop against other definitions, and the wrappers."""
# S is the papers' letter for the state.
# pyright: basic

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable
from statetrack.kernels import api, chunk_torch, fla_wrappers
from statetrack.kernels.api import ckda, ckda_decode
from statetrack.kernels.chunk_torch import ckda_chunk
from statetrack.kernels.ckda_reference import ckda_naive
from statetrack.kernels.gates import Gate
from statetrack.kernels.reference import LayerTables, recurrent

Path = Callable[..., tuple[Tensor, Tensor | None]]
ALPHAS = (-1.0, 0.0, 1.0, 1e-12, -1e-12, 0.5, -0.9, 0.998)
BETAS = (0.0, 1.0, 2.0, 0.5, 1.7)


@dataclass
class Case:
    """Shapes of a call, and its random inputs with the edges of every range in them."""

    B: int = 1
    T: int = 5
    H: int = 1
    HV: int = 1
    K: int = 4
    V: int = 3
    n: int = 1
    each: bool = True
    width: int | None = None
    cu: tuple[int, ...] | None = None
    normalize: bool = True
    gated: bool = True
    seed: int = 0
    dtype: torch.dtype = torch.float64

    def inputs(self) -> dict[str, Tensor]:
        g = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=g, dtype=torch.float64)

        def one_of(choices: tuple[float, ...], *shape: int) -> Tensor:
            return torch.tensor(choices, dtype=torch.float64)[torch.randint(len(choices), shape, generator=g)]

        rows, N = self.T * self.n, self.B if self.cu is None else len(self.cu) - 1
        k = normal(self.B, rows, self.H, self.K)
        repeat = torch.rand(self.B, rows, self.H, 1, generator=g)
        k = torch.where(repeat < 0.3, k[:, :1], torch.where(repeat > 0.9, 0.0, k))
        if not self.normalize:
            k = torch.nn.functional.normalize(k, dim=-1) * 0.9
        gates = (self.B, rows if self.each else self.T, self.HV, self.width or self.K)
        made = {
            "q": normal(self.B, self.T, self.H, self.K),
            "k": k,
            "v": normal(self.B, rows, self.HV, self.V),
            "beta": one_of(BETAS, self.B, rows, self.HV),
            "state": normal(N, self.HV, self.K, self.V),
        }
        if self.gated:
            made["alpha"] = torch.where(
                torch.rand(gates, generator=g) < 0.5, one_of(ALPHAS, *gates), torch.tanh(normal(*gates) + 1)
            )
        return {name: x.to(self.dtype).requires_grad_() for name, x in made.items()}

    def run(self, path: Path, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        o, final = path(
            x["q"],
            x["k"],
            x["v"],
            x["beta"],
            Gate("alpha", x["alpha"]) if "alpha" in x else Gate("none"),
            scale=0.4,
            factors=self.n,
            normalize_keys=self.normalize,
            normalize_queries=self.normalize,
            initial_state=x.get("state"),
            output_final_state=True,
            cu_seqlens=None if self.cu is None else torch.tensor(self.cu),
            precision="exact",
        )
        assert final is not None
        return o, final


def gradients(outputs: tuple[Tensor, ...], x: dict[str, Tensor]) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(9)
    weighted = sum((o * torch.randn(o.shape, generator=g, dtype=torch.float64).to(o.dtype)).sum() for o in outputs)
    assert isinstance(weighted, Tensor)
    return dict(zip(x, torch.autograd.grad(weighted, list(x.values()), materialize_grads=True), strict=True))


def assert_close(got: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    assert got.shape == wanted.shape, what
    if got.numel():
        error = float((got - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))
        assert error <= tolerance, f"{what}: {error}"


def compare(case: Case, tolerance: float = 1e-10) -> None:
    """Chunks and loop agree, forwards and in every gradient."""
    x = case.inputs()
    loop, chunks = case.run(ckda_naive, x), case.run(ckda_chunk, x)
    for got, wanted, what in zip(chunks, loop, ("o", "final state"), strict=True):
        assert_close(got, wanted, tolerance, what)
    found = gradients(chunks, x)
    for name, wanted in gradients(loop, x).items():
        assert_close(found[name], wanted, tolerance, f"d{name}")


CASES = [
    Case(T=1),
    Case(T=63, K=3, V=5),
    Case(T=64, B=2, H=1, HV=2),
    Case(T=65, H=2, HV=4, K=2, V=1),
    Case(T=130, width=1),
    Case(T=1, n=2),
    Case(T=33, n=2, each=False, H=1, HV=3),
    Case(T=17, n=3, K=5, V=2),
    Case(T=40, n=3, each=False, width=1, B=2),
    Case(T=3, n=70),
    Case(T=70, gated=False),
    Case(T=70, normalize=False),
    Case(T=129, cu=(0, 128, 129)),
    Case(T=70, n=2, cu=(0, 0, 1, 1, 66, 69, 70, 70)),
    Case(T=66, HV=2, cu=(0, 66)),
    Case(T=0, B=2),
    Case(T=0, cu=(0, 0, 0)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"T{c.T}n{c.n}H{c.H}/{c.HV}cu{c.cu}")
def test_chunks_and_the_token_loop_agree_forwards_and_in_every_gradient(case: Case) -> None:
    compare(case)


@settings(max_examples=25)
@given(st.data())
def test_chunks_and_the_token_loop_agree_on_any_shape(data: st.DataObject) -> None:
    T, n, H = data.draw(st.integers(1, 16)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    K, each = data.draw(st.integers(1, 4)), data.draw(st.booleans())
    cu = None
    if data.draw(st.booleans()):
        cu = (0, *sorted(data.draw(st.lists(st.integers(0, T), max_size=4))), T)
    case = Case(
        B=1 if cu else data.draw(st.integers(1, 2)),
        T=T,
        H=H,
        HV=H * data.draw(st.integers(1, 2)),
        K=K,
        V=data.draw(st.integers(1, 4)),
        n=n,
        each=each,
        width=data.draw(st.sampled_from((1, None))),
        cu=cu,
        normalize=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 1000)),
    )
    compare(case)


@pytest.mark.parametrize("n", [1, 2])
def test_several_heads_without_gates_agree(n: int) -> None:
    case = Case(B=2, T=40, H=2, HV=4, n=n, gated=False)
    x = case.inputs()
    options: dict[str, Any] = {"factors": n, "output_final_state": True}
    found = [ckda(x["q"], x["k"], x["v"], None, x["beta"], backend=b, **options) for b in ("torch", "naive")]
    for ours, right in zip(*found, strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-10, atol=1e-10)


def test_a_segment_that_is_computed_again_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(T=300, cu=(0, 129, 130, 300))
    x = case.inputs()
    once = case.run(ckda_chunk, x)
    wanted = gradients(once, x)
    monkeypatch.setattr(chunk_torch, "_SEGMENT", 1)
    monkeypatch.setattr(chunk_torch, "_KEPT", 1)
    again = case.run(ckda_chunk, x)
    assert torch.equal(again[0], once[0])
    for name, got in gradients(again, x).items():
        assert_close(got, wanted[name], 1e-12, name)


def test_with_and_without_gradients_the_numbers_are_the_same_and_inputs_stay() -> None:
    case = Case(T=128, dtype=torch.float32)
    x = case.inputs()
    before = {name: t.detach().clone() for name, t in x.items()}
    with_gradients = case.run(ckda_chunk, x)
    with torch.no_grad():
        without = case.run(ckda_chunk, x)
    assert all(torch.equal(a, b) for a, b in zip(with_gradients, without, strict=True))
    assert all(torch.equal(x[name], before[name]) for name in x)


def test_a_long_sequence_with_a_tail_of_one_token_agrees_with_the_loop() -> None:
    case = Case(T=8192, K=2, V=1, cu=(0, 8191, 8192))
    with torch.no_grad():
        loop, chunks = (case.run(path, case.inputs()) for path in (ckda_naive, ckda_chunk))
    assert_close(chunks[0], loop[0], 1e-10, "o")
    assert_close(chunks[1], loop[1], 1e-10, "final state")


def test_sequences_do_not_touch_each_other() -> None:
    case = Case(T=70, cu=(0, 30, 70))
    x = {name: t.detach() for name, t in case.inputs().items()}
    o, _ = case.run(ckda_chunk, x)
    x["v"][:, 10] = math.nan
    poisoned, _ = case.run(ckda_chunk, x)
    assert torch.equal(poisoned[:, 30:], o[:, 30:])
    assert poisoned[:, 10:30].isnan().any()


def test_two_resets_in_a_chunk_are_exact_and_have_the_true_gradient() -> None:
    case = Case(T=40, K=2, V=2)
    x = case.inputs()
    x["alpha"] = torch.full_like(x["alpha"], 0.7)
    x["alpha"][:, [10, 25]] = 0.0
    x["alpha"].requires_grad_()
    o, _ = case.run(ckda_chunk, x)
    d = torch.autograd.grad(o[:, 10].sum(), x["alpha"], retain_graph=True)[0]
    assert float(d[:, 10].abs().max()) > 1e-3
    dk = torch.autograd.grad(o[:, 25:].sum(), x["v"])[0]
    assert float(dk[:, :25].abs().max()) == 0.0
    compare(case)


@pytest.mark.parametrize("size", [1e-30, 1e30, 1e-44])
def test_the_length_of_a_key_does_not_matter_however_extreme(size: float) -> None:
    case = Case(T=70, dtype=torch.float32)
    x = {name: t.detach() for name, t in case.inputs().items()}
    wanted, _ = case.run(ckda_chunk, x)
    power = 2.0 ** round(math.log2(size))
    x["k"], x["q"] = torch.ones_like(x["k"]) * power, x["q"]
    got = case.run(ckda_chunk, x)
    x["k"] = torch.ones_like(x["k"])
    assert all(torch.equal(a, b) for a, b in zip(got, case.run(ckda_chunk, x), strict=True))
    assert wanted.isfinite().all()


def test_many_identical_keys_with_reflections_keep_the_norm_of_the_state() -> None:
    T = 4096
    k = torch.randn(1, 1, 1, 16, generator=torch.Generator().manual_seed(0)).expand(1, T, 1, 16)
    state = torch.eye(16)[None, None]
    v, beta = torch.zeros(1, T, 1, 16), torch.full((1, T, 1), 2.0)
    _, final = ckda(k, k, v, beta=beta, initial_state=state, output_final_state=True)
    assert final is not None
    assert_close(final, state, 1e-3, "an even number of reflections")


@pytest.mark.parametrize("case", [Case(T=100), Case(T=40, n=3), Case(T=90, H=1, HV=2, width=1)])
def test_a_sequence_cut_in_two_is_one_pass(case: Case) -> None:
    x = {name: t.detach() for name, t in case.inputs().items()}
    whole = case.run(ckda_chunk, x)
    cut = 37
    state, read = x["state"], []
    for part in (slice(0, cut), slice(cut, case.T)):
        rows = slice(part.start * case.n, part.stop * case.n)
        piece = {name: t[:, part if name == "q" else rows] for name, t in x.items() if name != "state"}
        o, state = case.run(ckda_chunk, {**piece, "state": state})
        read.append(o)
    assert_close(torch.cat(read, 1), whole[0], 1e-12, "o")
    assert_close(state, whole[1], 1e-12, "final state")


@pytest.mark.parametrize("path", [ckda_naive, ckda_chunk])
def test_gradients_are_those_of_finite_differences(path: Path) -> None:
    case = Case(T=3, n=2, K=2, V=2, HV=2)
    x = case.inputs()
    x["k"] = torch.randn_like(x["k"]).requires_grad_()
    names = list(x)
    assert torch.autograd.gradcheck(lambda *xs: case.run(path, dict(zip(names, xs, strict=True))), list(x.values()))


def test_the_token_loop_is_the_formula_in_matrices() -> None:
    case = Case(T=6, n=2, H=2, HV=4, K=3, V=2)
    x = {name: t.detach() for name, t in case.inputs().items()}
    o, final = case.run(ckda_naive, x)
    for h in range(4):
        S = x["state"][0, h]
        for row in range(12):
            k = x["k"][0, row, h // 2]
            k = k / k.norm() if k.norm() > 0 else k
            beta = x["beta"][0, row, h]
            S = (torch.eye(3) - beta * torch.outer(k, k)) @ torch.diag(x["alpha"][0, row, h]) @ S
            S = S + beta * torch.outer(k, x["v"][0, row, h])
            if row % 2:
                q = x["q"][0, row // 2, h // 2]
                assert_close(o[0, row // 2, h], 0.4 * S.T @ q / q.norm(), 1e-13, "o")
        assert_close(final[0, h], S, 1e-13, "final state")


@pytest.mark.parametrize("n", [1, 3])
def test_it_is_the_room_s_recurrence_on_the_same_tables(n: int, make_tables: Callable[..., LayerTables]) -> None:
    tables = make_tables(n, 4, 3, seed=n)
    ids = torch.tensor([[0, 3, 1, 4, 4, 2, 0, 1]])
    wanted, final = recurrent(tables, ids, storage=torch.float64)
    k, beta, alpha, v = (t[ids[0]].transpose(1, 2).flatten(0, 1)[None] for t in named(tables))
    q = tables.queries[ids[0]][None]
    got = ckda(
        q,
        k,
        v,
        alpha,
        beta,
        scale=1.0,
        factors=n,
        normalize_keys=False,
        normalize_queries=False,
        initial_state=tables.state[None],
        output_final_state=True,
    )
    assert got[1] is not None
    assert_close(got[0].reshape(wanted.shape), wanted, 1e-12, "o")
    assert_close(got[1].reshape(final.shape), final, 1e-12, "final state")


def named(tables: LayerTables) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert tables.values is not None
    return tables.keys, tables.betas, tables.gates, tables.values


def test_gates_by_their_rules() -> None:
    x = torch.tensor([[[[-40.0, -3.0, 0.0, 1e-9, 2.0, 40.0]]]], dtype=torch.float64, requires_grad=True)
    a_log, bias = torch.tensor([0.3]).double(), torch.full((1, 6), 0.25).double()
    r = (2 * torch.sigmoid(x) - 1).detach()
    floor = math.exp(-5)
    wanted = torch.where(r >= 0, r.clamp(min=floor), r.clamp(max=-floor))
    alpha = Gate("signed", x).alpha()
    assert_close(alpha, wanted, 1e-15, "signed")
    assert_close(torch.autograd.grad(alpha.sum(), x)[0], (1 - r * r) / 2, 1e-15, "gradient through the floor")
    soft = torch.exp(-math.exp(a_log.item()) * torch.log1p((x + bias).exp()))
    assert_close(Gate("softplus", x, a_log, bias).alpha(), soft, 1e-14, "softplus")
    bounded = torch.exp(-4 * torch.sigmoid(math.exp(a_log.item()) * (x + bias)))
    assert_close(Gate("bounded", x, a_log, bias, -4.0).alpha(), bounded, 1e-15, "bounded")
    assert Gate("none").alpha().flatten().tolist() == [1.0]


@pytest.mark.parametrize("kind", ["signed", "softplus", "bounded", "alpha"])
def test_logarithm_and_sign_are_the_gate(kind: Any) -> None:
    x = torch.linspace(-1, 1, 21, dtype=torch.float64)[None, None, None].requires_grad_()
    gate = Gate(kind, x)
    log2, sign = gate.log2_and_sign()
    assert_close(sign * log2.exp2(), gate.alpha(), 1e-13, kind)
    got, wanted = (torch.autograd.grad(y.sum(), x)[0] for y in (sign * log2.exp2(), gate.alpha()))
    if kind == "alpha":
        got, wanted = got[x != 0], wanted[x != 0]
    assert_close(got, wanted, 1e-13, f"gradient, {kind}")


def test_the_logarithm_of_a_signed_gate_near_one_keeps_its_digits() -> None:
    x = torch.tensor([[[[20.0, 30.0]]]])
    log2, _ = Gate("signed", x).log2_and_sign()
    wanted = torch.log1p(-2 / (x.double().exp() + 1)) / math.log(2)
    assert float(((log2 - wanted) / wanted).abs().max()) < 1e-6


def test_sixteen_bit_inputs_are_computed_in_float32() -> None:
    x = {name: t.detach().bfloat16() for name, t in Case(T=70, K=8, V=8).inputs().items()}
    alpha, state = x["alpha"].float(), x["state"].float()
    o, final = ckda(x["q"], x["k"], x["v"], alpha, x["beta"], initial_state=state, output_final_state=True)
    assert final is not None
    assert (o.dtype, final.dtype) == (torch.bfloat16, torch.float32)
    q, k, v = (x[name].double() for name in ("q", "k", "v"))
    _, wanted = ckda(q, k, v, alpha.double(), x["beta"], initial_state=state, output_final_state=True)
    assert wanted is not None
    assert_close(final.double(), wanted, 1e-5, "final state")


def test_autocast_changes_no_format_inside_the_operation() -> None:
    named = {n: x.detach() for n, x in Case(T=40, K=16, V=8, dtype=torch.float32).inputs().items()}
    call = [named[n] for n in ("q", "k", "v")]
    o, state = ckda(*call, beta=named["beta"], output_final_state=True)
    assert state is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, last = ckda(*call, beta=named["beta"], output_final_state=True)
        q, k, v = call
        _, decoded = ckda_decode(q, k, v, None, named["beta"], torch.zeros_like(state), backend="torch")
    assert last is not None
    assert torch.equal(again, o)
    assert torch.equal(last, state)
    assert torch.allclose(decoded, state, atol=1e-5)


def test_special_cases_are_the_known_recurrences() -> None:
    case = Case(T=50, K=4, V=3)
    x = {name: t.detach() for name, t in case.inputs().items()}
    q, k, v, beta, alpha = (x[name] for name in ("q", "k", "v", "beta", "alpha"))
    unit = torch.nn.functional.normalize(k, dim=-1)

    def loop(gates: Tensor | None, erase: bool = True) -> Tensor:
        S, rows = torch.zeros(4, 3, dtype=torch.float64), []
        for t in range(50):
            S = S if gates is None else gates[t][:, None] * S
            old = unit[0, t, 0] @ S if erase else torch.zeros(3, dtype=torch.float64)
            S = S + beta[0, t, 0] * torch.outer(unit[0, t, 0], v[0, t, 0] - old)
            rows.append(q[0, t, 0] @ S)
        return torch.stack(rows)[None, :, None]

    plain: dict[str, Any] = {"scale": 1.0, "normalize_queries": False}
    assert_close(ckda(q, k, v, beta=beta, **plain)[0], loop(None), 1e-12, "DeltaNet")
    one = alpha[..., :1]
    assert_close(ckda(q, k, v, one, beta, **plain)[0], loop(one[0, :, 0].expand(-1, 4)), 1e-12, "gated DeltaNet")
    assert_close(ckda(q, k, v, alpha, beta, **plain)[0], loop(alpha[0, :, 0]), 1e-12, "CKDA")
    basis = torch.eye(4, dtype=torch.float64)[torch.arange(50) % 4][None, :, None]
    diagonal, S = torch.zeros(1, 50, 1, 3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64)
    for t in range(50):
        S = alpha[0, t, 0][:, None] * S
        S[t % 4] = v[0, t, 0]
        diagonal[0, t, 0] = q[0, t, 0] @ S
    assert_close(ckda(q, basis, v, alpha, torch.ones_like(beta), **plain)[0], diagonal, 1e-12, "registers")


def test_decoding_token_by_token_is_one_pass_and_leaves_the_state_it_got() -> None:
    case = Case(B=2, T=6, n=2, H=1, HV=2)
    x = {name: t.detach() for name, t in case.inputs().items()}
    args = [x[name] for name in ("q", "k", "v", "alpha", "beta")]
    wanted, final = ckda(*args, factors=2, initial_state=x["state"], output_final_state=True)
    state, kept = x["state"], x["state"].clone()
    for t in range(6):
        q, *rows = (a[:, t : t + 1] if a is args[0] else a[:, 2 * t : 2 * t + 2] for a in args)
        o, state = ckda_decode(q, *rows, state=state, factors=2)
        assert_close(o, wanted[:, t : t + 1], 1e-12, "o")
    assert final is not None
    assert_close(state, final, 1e-12, "final state")
    assert torch.equal(x["state"], kept)


ONE = torch.ones(1, 4, 1, 2)
GOOD: dict[str, Any] = {"q": ONE, "k": ONE, "v": ONE, "alpha": ONE, "beta": ONE[..., 0]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"beta": None}, "beta is missing"),
        ({"alpha": 1.5 * ONE}, "alpha has values from 1.5 to 1.5"),
        ({"alpha": math.nan * ONE}, "alpha has values from nan"),
        ({"alpha": ONE[:, :3]}, "expected (1, 4, 1, 2 or 1)"),
        ({"alpha": torch.ones(1, 4, 1, 3)}, "3 channels"),
        ({"gate_logit": ONE}, "both given"),
        ({"k": ONE[:, :3]}, "k has shape (1, 3, 1, 2), expected (1, 4, 1, 2)"),
        ({"k": ONE[0]}, "expected four dimensions"),
        ({"factors": 0}, "at least 1"),
        ({"factors": 2}, "expected (1, 8, 1, 2)"),
        ({"v": torch.ones(1, 4, 3, 2), "q": ONE.expand(1, 4, 2, 2)}, "multiple of H"),
        ({"q": ONE.int()}, "q has dtype torch.int32"),
        ({"initial_state": torch.ones(1, 1, 2, 2).bfloat16()}, "never shorter"),
        ({"initial_state": torch.ones(2, 1, 2, 2)}, "initial_state has shape"),
        ({"cu_seqlens": torch.tensor([0, 3])}, "from 0 to T = 4"),
        ({"cu_seqlens": torch.tensor([0, 3, 2, 4])}, "from 0 to T = 4"),
        ({"cu_seqlens": torch.tensor([0.0, 4.0])}, "expected integers"),
        ({"precision": "best"}, "precision 'best'"),
        ({"backend": "cuda"}, "backend 'cuda'"),
        ({"scale": math.inf}, "scale inf"),
        ({"a_log": torch.ones(1)}, "need gate_logit"),
        ({"alpha": None, "gate_logit": ONE, "a_log": torch.ones(1)}, "no place"),
        ({"alpha": None, "gate_logit": ONE, "gate": "tanh"}, "gate 'tanh'"),
        ({"alpha": None, "gate_logit": ONE, "dt_bias": torch.ones(2)}, "dt_bias has shape (2,)"),
        ({"alpha": None, "gate_logit": ONE, "lower_bound": 0.0}, "lower_bound 0.0"),
    ],
)
def test_a_faulty_call_is_refused_in_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        ckda(**(GOOD | change))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_all_faults_are_listed() -> None:
    with pytest.raises(InvalidInput, match=r"precision .*; k has shape .*; .*0 to T"):
        ckda(**(GOOD | {"k": ONE[:, :3], "precision": "", "cu_seqlens": torch.tensor([0, 3])}))


def test_a_backend_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(api._PATHS, "gauge", ("no_such_module", "gauge_chunk"))
    with pytest.raises(KernelUnavailable, match="no_such_module"):
        ckda(**GOOD, backend="gauge")


def test_decoding_refuses_what_needs_a_gradient() -> None:
    x: dict[str, Any] = GOOD | {"q": ONE.clone().requires_grad_(), "state": torch.zeros(1, 1, 2, 2)}
    with pytest.raises(InvalidInput, match="needs a gradient"):
        ckda_decode(**x)
    with torch.no_grad():
        assert ckda_decode(**x)[0].shape == ONE.shape


def fla_inputs(heads: int = 1, factors: int = 1) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(3)
    shapes = {
        "q": (1, 20, 1, 4),
        "k": (1, 20 * factors, 1, 4),
        "v": (1, 20 * factors, heads, 3),
        "g": (1, 20, heads, 4),
        "beta": (1, 20 * factors, heads),
        "state": (1, heads, 4, 3),
    }
    return {name: torch.randn(shape, generator=g, dtype=torch.float64) for name, shape in shapes.items()}


def kda_formula(x: dict[str, Tensor], alpha: Tensor, beta: Tensor, unit: bool, n: int = 1) -> tuple[Tensor, Tensor]:
    heads = x["v"].shape[2]
    q, k = (torch.nn.functional.normalize(x[c], dim=-1) if unit else x[c] for c in "qk")
    S, rows = x["state"][0].clone(), []
    for t in range(20):
        S = S * alpha[0, t][..., None]
        for j in range(t * n, (t + 1) * n):
            key = k[0, j].expand(heads, 4)
            S = S + (beta[0, j][:, None] * key)[..., None] * (x["v"][0, j] - (key[..., None] * S).sum(1))[:, None]
        rows.append((q[0, t].expand(heads, 4)[..., None] * S).sum(1) / 2)
    return torch.stack(rows)[None], S[None]


SOFT = torch.nn.functional.softplus
A_LOG, BIAS = torch.tensor([0.2, -0.3]), torch.linspace(-1, 1, 8)
KDA_GATES = [
    ({}, lambda g: (-SOFT(g)).exp(), lambda g: -SOFT(g)),
    (
        {"use_gate_in_kernel": True, "A_log": A_LOG, "dt_bias": BIAS},
        lambda g: (-A_LOG.exp()[:, None] * SOFT(g + BIAS.view(2, 4))).exp(),
        lambda g: g,
    ),
    (
        {"use_gate_in_kernel": True, "lower_bound": -4.0, "safe_gate": True},
        lambda g: (-4 * torch.sigmoid(g)).exp(),
        lambda g: g,
    ),
    ({"signed_gate": True, "lower_bound": -60.0}, lambda g: 2 * torch.sigmoid(g) - 1, lambda g: g),
]


@pytest.mark.parametrize(("options", "alpha", "given"), KDA_GATES)
def test_kda_under_its_other_name(options: dict[str, Any], alpha: Any, given: Any) -> None:
    x = fla_inputs(heads=2)
    args = (x["q"], x["k"], x["v"], given(x["g"]), x["beta"])
    shared: dict[str, Any] = {"initial_state": x["state"], "output_final_state": True}
    shared |= {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True}
    wanted = kda_formula(x, alpha(x["g"]), 2 * torch.sigmoid(x["beta"]), unit=True)
    plain = {name: value for name, value in options.items() if name != "safe_gate"}
    for got in (
        fla_wrappers.chunk_kda(*args, **shared, **options, chunk_size=32, disable_recompute=True),
        fla_wrappers.fused_recurrent_kda(*args, **shared, **plain),
    ):
        assert got[1] is not None
        assert_close(got[0], wanted[0], 1e-6, "o")
        assert_close(got[1], wanted[1], 1e-6, "final state")
    turned = fla_wrappers.chunk_kda(*args, **{**shared, "initial_state": x["state"].mT}, state_v_first=True, **options)
    assert turned[1] is not None
    assert_close(turned[1], wanted[1].mT, 1e-6, "state with V first")


def test_the_delta_rules_under_their_other_names() -> None:
    x = fla_inputs()
    beta, g = torch.sigmoid(x["beta"]), -SOFT(x["g"][..., 0])
    shared: dict[str, Any] = {"initial_state": x["state"], "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    ones, scalar = torch.ones(1, 20, 1, 4), g.exp()[..., None]
    plain = fla_wrappers.chunk_delta_rule(x["q"], x["k"], x["v"], beta, **shared)
    gated = fla_wrappers.chunk_gated_delta_rule(x["q"], x["k"], x["v"], g, beta, **shared)
    a_log, bias = A_LOG[:1], BIAS[:1]
    raw = fla_wrappers.chunk_gated_delta_rule(
        x["q"], x["k"], x["v"], g, beta, **shared, use_gate_in_kernel=True, A_log=a_log, dt_bias=bias
    )
    rule = (-a_log.exp() * SOFT(g + bias)).exp()[..., None]
    for got, alpha in ((plain, ones), (gated, scalar), (raw, rule)):
        wanted = kda_formula(x, alpha, beta, unit=True)
        assert got[1] is not None
        assert_close(got[0], wanted[0], 1e-6, "o")
        assert_close(got[1], wanted[1], 1e-6, "final state")
    assert fla_wrappers.chunk_delta_rule(x["q"], x["k"], x["v"], beta)[1] is None


@pytest.mark.parametrize("gated", [True, False])
def test_the_delta_product_under_its_other_name(gated: bool) -> None:
    x = fla_inputs(factors=3)
    x["k"] = torch.nn.functional.normalize(x["k"], dim=-1)
    beta, g = 2 * torch.sigmoid(x["beta"]), -SOFT(x["g"][..., 0]) if gated else None
    got = fla_wrappers.chunk_gated_delta_product(
        x["q"], x["k"], x["v"], g, beta, 3, initial_state=x["state"], output_final_state=True
    )
    alpha = torch.ones(1, 20, 1, 1) if g is None else g.exp()[..., None]
    wanted = kda_formula(x, alpha, beta, unit=False, n=3)
    assert got[1] is not None
    assert_close(got[0], wanted[0], 1e-12, "o")
    assert_close(got[1], wanted[1], 1e-12, "final state")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chunksize": 64}, "'chunksize' is no argument"),
        ({"allow_neg_eigval": True}, "allow_neg_eigval needs"),
        ({"A_log": A_LOG[:1]}, "A_log without use_gate_in_kernel"),
        ({"lower_bound": -5.0}, "lower_bound without use_gate_in_kernel"),
        ({"use_gate_in_kernel": True}, "needs A_log or lower_bound"),
        ({"use_gate_in_kernel": True, "safe_gate": True, "A_log": A_LOG[:1]}, "safe_gate with"),
        ({"use_gate_in_kernel": True, "signed_gate": True}, "two rules"),
        ({"signed_gate": True, "A_log": A_LOG[:1]}, "no place in a signed gate"),
        ({"return_intermediate_states": True}, "not kept"),
        ({"cp_context": object()}, "not spread"),
        ({}, "expected log α ≤ 0"),
    ],
)
def test_what_would_be_ignored_or_mean_something_else_is_refused(options: dict[str, Any], said: str) -> None:
    x = fla_inputs()
    with pytest.raises(InvalidInput, match=r"chunk_kda: ") as error:
        fla_wrappers.chunk_kda(x["q"], x["k"], x["v"], x["g"].abs(), x["beta"], **options)
    assert said in str(error.value)


def test_the_other_wrappers_refuse_too() -> None:
    x = fla_inputs()
    args = (x["q"], x["k"], x["v"])
    with pytest.raises(InvalidInput, match="'g' is no argument"):
        fla_wrappers.chunk_delta_rule(*args, x["beta"], g=x["g"])
    with pytest.raises(InvalidInput, match="lower_bound is for signed_gate only"):
        fla_wrappers.chunk_gated_delta_rule(*args, -x["g"][..., 0].abs(), x["beta"], lower_bound=-5.0)
    with pytest.raises(InvalidInput, match="need g"):
        fla_wrappers.chunk_gated_delta_product(*args, None, x["beta"], 1, signed_gate=True)
    with pytest.raises(InvalidInput, match="needs a gradient"):
        fla_wrappers.fused_recurrent_kda(*args, -x["g"].abs(), x["beta"].requires_grad_())
