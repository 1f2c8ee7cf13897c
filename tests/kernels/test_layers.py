"""The layers on a CPU in float64: against token loops from the formulas, with caches, cut sequences and every range."""
# S, K, V, T are the papers' letters.
# pyright: basic

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from statetrack.errors import InvalidInput
from statetrack.kernels.diagonal import Diagonal, recur
from statetrack.kernels.layers import CKDA, KDA, DeltaLayer, DeltaNet, DeltaProduct, GatedDeltaNet, LayerConfig, mixer

SMALL = LayerConfig("ckda", 12, heads=2, head_dim=4, value_heads=4, value_dim=3)
CONFIGS = [
    SMALL,
    replace(SMALL, factors=2, conv=4, silu=True, learned_start=True),
    replace(SMALL, signed_gates=False, beta_max=1.0, output_gate=False),
    replace(SMALL, signed_gates=False, gate_rule="bounded", output_norm=False),
    replace(SMALL, conv=1, gate_floor=-60.0, beta_init="spread"),
    replace(SMALL, kind="kda", conv=3, beta_max=1.0),
    replace(SMALL, kind="gated_deltanet", silu=True, value_heads=None),
    replace(SMALL, kind="deltanet", heads=1, head_dim=None, value_dim=None, value_heads=None),
    replace(SMALL, kind="deltaproduct", factors=3, conv=2, output_gate=False, output_norm=False),
    replace(SMALL, kind="gated_deltaproduct", factors=2, learned_start=True),
    replace(SMALL, kind="diagonal", conv=4, silu=True, output_norm=False, gate_init="standard"),
    replace(SMALL, kind="diagonal", signed_gates=False, learned_start=True),
    LayerConfig("diagonal", 4, heads=1, head_dim=2, output_gate=False),
]
ids = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.kind}-n{c.factors}-conv{c.conv}-{c.rule}")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors here are small, and threads of two test processes only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(config: LayerConfig, seed: int = 0) -> DeltaLayer | Diagonal:
    """The module in float64 with every parameter off its start, so that none is 0 or 1 everywhere."""
    torch.manual_seed(seed)
    module = mixer(config).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def rows(config: LayerConfig, T: int = 13, B: int = 2) -> Tensor:
    return torch.randn(B, T, config.width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """Σ_j w_j x_{t - width + 1 + j} of one sequence [T, channels]."""
    width = len(weight)
    zero = torch.zeros_like(x[0])
    return torch.stack(
        [
            sum((weight[j] * (x[t - width + 1 + j] if t - width + 1 + j >= 0 else zero) for j in range(width)), zero)
            for t in range(len(x))
        ]
    )


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def delta_loop(m: DeltaLayer, x: Tensor) -> Tensor:
    """One sequence [T, width] through a delta layer, token by token in matrices."""
    c, p = m.config, dict(m.named_parameters())
    n, H, HV, K, V = c.factors, c.heads, c.groups, c.keys, c.columns
    q, k, v = (x @ p[f"{name}.weight"].T for name in ("queries", "keys", "values"))
    if c.conv:
        a, b = H * K, H * K * (1 + n)
        w = p["convolution.weight"]
        q, k, v = convolved(q, w[:, :a]), convolved(k, w[:, a:b]), convolved(v, w[:, b:])
    if c.silu:
        q, k, v = (y * torch.sigmoid(y) for y in (q, k, v))
    q, k, v = q.view(-1, H, K), k.view(-1, n, H, K), v.view(-1, n, HV, V)
    beta = c.beta_max / (1 + torch.exp(-(x @ p["betas.weight"].T).view(-1, n, HV) - p["beta_bias"]))
    read = []
    heads = []
    for h in range(HV):
        S = p["start"][h] if c.learned_start else torch.zeros(K, V, dtype=x.dtype)
        read = []
        for t in range(len(x)):
            for j in range(n):
                alpha = gate(m, x[t], h, j)
                key = k[t, j, h // (HV // H)]
                key = key / torch.sqrt((key * key).sum())
                S = (torch.eye(K, dtype=x.dtype) - beta[t, j, h] * torch.outer(key, key)) @ torch.diag(alpha) @ S
                S = S + beta[t, j, h] * torch.outer(key, v[t, j, h])
            query = q[t, h // (HV // H)]
            read.append(S.T @ (query / torch.sqrt((query * query).sum())) * K**-0.5)
        heads.append(torch.stack(read))
    o = torch.stack(heads, 1)  # [T, HV, V]
    if c.output_norm:
        o = rms(o, p["norm"])
    o = o.flatten(1)
    if c.output_gate:
        o = o * torch.sigmoid(x @ p["output_gate.weight"].T)
    return o @ p["output.weight"].T


def gate(m: DeltaLayer, x: Tensor, h: int, j: int) -> Tensor:
    """α [K] before factor j of one token."""
    c, p = m.config, dict(m.named_parameters())
    one = torch.ones(c.keys, dtype=x.dtype)
    if c.kind in ("deltanet", "deltaproduct") or (j and c.kind != "ckda"):
        return one
    bias = p["gate_bias"][h]
    each = c.factors if c.kind == "ckda" else 1
    y = (p["gates.weight"] @ x).view(each, c.groups, -1)[j, h] + bias
    if c.kind == "ckda" and c.signed_gates:
        r = 2 * torch.sigmoid(y) - 1
        # The floor is passed over by the gradient; numbers of these tests stay above it.
        assert bool((r.abs() > torch.exp(torch.tensor(c.gate_floor))).all())
        return r
    rate = torch.exp(p["a_log"][h])
    if c.gate_rule == "bounded":
        return torch.exp(c.gate_floor * torch.sigmoid(rate * y)) * one
    return torch.exp(-rate * torch.log1p(torch.exp(y))) * one


def diagonal_loop(m: Diagonal, x: Tensor) -> Tensor:
    """One sequence [T, width] through the diagonal recurrence."""
    c, p = m.config, dict(m.named_parameters())
    N = c.keys
    u = x @ p["inputs.weight"].T
    if c.conv:
        u = convolved(u, p["convolution.weight"])
    if c.silu:
        u = u * torch.sigmoid(u)
    read = []
    h = p["start"] if c.learned_start else torch.zeros_like(p["a_log"])
    for token in u:
        low, write, reading = (p["controls.weight"] @ token).split([p["steps.weight"].shape[1], N, N])
        step = torch.log1p(torch.exp(p["steps.weight"] @ low + p["step_bias"]))
        a = torch.exp(-torch.exp(p["a_log"]) * step[:, None])
        alpha = 2 * a - 1 if c.signed_gates else a
        h = alpha * h + torch.outer(step * token, write)
        read.append(h @ reading + p["skip"] * token)
    y = torch.stack(read)
    if c.output_norm:
        y = rms(y, p["norm"])
    if c.output_gate:
        z = x @ p["output_gate.weight"].T
        y = y * z * torch.sigmoid(z)
    return y @ p["output.weight"].T


def close(got: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    assert got.shape == wanted.shape
    if got.numel():
        assert float((got - wanted).abs().max()) <= tolerance * max(1.0, float(wanted.abs().max()))


@ids
def test_outputs_and_all_gradients_are_those_of_the_formulas(config: LayerConfig) -> None:
    m, x = made(config), rows(config).requires_grad_()
    loop = diagonal_loop if isinstance(m, Diagonal) else delta_loop
    wanted = torch.stack([loop(m, sequence) for sequence in x])  # pyright: ignore[reportArgumentType]
    y, _ = m(x)
    close(y, wanted)
    weights = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(2))
    at = [x, *m.parameters()]
    found, right = (torch.autograd.grad((out * weights).sum(), at) for out in (y, wanted))
    for got, want in zip(found, right, strict=True):
        assert float(want.abs().max()) > 0
        close(got, want, 1e-8)


@ids
def test_a_cache_goes_on_token_by_token_and_in_pieces_with_and_without_gradients(config: LayerConfig) -> None:
    m, x = made(config), rows(config, 37)
    whole, last = m(x)
    for pieces, graph in (((1,) * 37, False), ((1, 33, 0, 3), False), ((34, 3), True)):
        cache, read = None, []
        with torch.set_grad_enabled(graph):
            for piece in x.split(pieces, 1):
                y, cache = m(piece, cache)
                read.append(y)
        close(torch.cat(read, 1), whole)
        assert cache is not None
        assert cache.keys() == last.keys()
        for name, tensor in cache.items():
            close(tensor, last[name])


@ids
def test_cut_sequences_are_runs_of_their_own_and_go_on_from_a_cache(config: LayerConfig) -> None:
    m = made(config)
    ends = torch.tensor([0, 1, 1, 34, 36])
    parts = [rows(config, 50, 1)[:, a:b] for a, b in ((0, 1), (3, 3), (4, 37), (48, 50))]
    packed, cache = m(torch.cat(parts, 1), None, ends)
    alone = [m(part) for part in parts]
    close(packed, torch.cat([y for y, _ in alone], 1))
    more = [rows(config, 9, 1)[:, a:b] for a, b in ((0, 2), (2, 3), (3, 3), (3, 9))]
    again, after = m(torch.cat(more, 1), cache, torch.tensor([0, 2, 3, 3, 9]))
    found = [m(part, before) for part, (_, before) in zip(more, alone, strict=True)]
    close(again, torch.cat([y for y, _ in found], 1))
    for name, tensor in after.items():
        close(tensor, torch.cat([state[name] for _, state in found]))


@pytest.mark.parametrize("kind", ["ckda", "kda", "gated_deltanet", "gated_deltaproduct", "deltanet", "diagonal"])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("beta_max", [1.0, 2.0])
@pytest.mark.parametrize("rule", ["softplus", "bounded"])
def test_gates_and_betas_keep_to_their_ranges_and_fill_them(
    kind: str, signed: bool, beta_max: float, rule: str
) -> None:
    rule = "softplus" if kind == "diagonal" else rule
    config = LayerConfig(kind, 16, heads=2, value_heads=4, signed_gates=signed, beta_max=beta_max, gate_rule=rule)
    torch.manual_seed(0)
    m = mixer(config)
    with torch.no_grad():
        for parameter in m.parameters():
            parameter += 2 * torch.randn_like(parameter)
    x = 4 * torch.randn(2, 50, 16)
    k, beta, alpha = m.transitions(x)
    assert k.shape == alpha.shape
    assert beta.shape == k.shape[:-1]
    ranged = signed and kind in ("ckda", "diagonal")
    least, most = (float(end) for end in alpha.aminmax())
    assert -1 <= least <= most <= 1
    assert (least < -0.9) == ranged
    assert (kind == "deltanet") == (least == 1.0)
    assert most > 0.9
    if kind == "diagonal":
        assert k.shape == (2, 50, 32, 1, 16)
        assert float(beta.abs().max()) == 0
        return
    assert k.shape == (2, 50, 4, 1, 8)
    torch.testing.assert_close(k.norm(dim=-1), torch.ones(2, 50, 4, 1))
    least, most = (float(end) for end in beta.aminmax())
    assert 0 <= least < 0.1
    assert 0.9 * beta_max < most <= beta_max
    if ranged:
        assert float(alpha.abs().min()) >= 0.999 * torch.exp(torch.tensor(-5.0))


@ids
def test_the_transitions_are_those_that_the_layer_makes(config: LayerConfig) -> None:
    """A state that starts elsewhere differs after T tokens by the product of the transitions, whatever was written."""
    m = made(replace(config, learned_start=True))
    x = rows(config, 7, 1)
    k, beta, alpha = m.transitions(x)
    shape = m.start.shape  # pyright: ignore[reportOptionalMemberAccess]
    difference = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    _, one = m(x)
    with torch.no_grad():
        m.start.add_(difference)  # pyright: ignore[reportOptionalMemberAccess]
    _, two = m(x)
    S = difference if difference.ndim == 3 else difference[..., None]
    for t in range(7):
        for j in range(k.shape[3]):
            S = alpha[0, t, :, j, :, None] * S
            key = k[0, t, :, j]
            S = S - beta[0, t, :, j, None, None] * key[..., None] * (key[:, None] @ S)
    close((two["state"] - one["state"])[0], S.view(shape))


@pytest.mark.parametrize("kind", ["ckda", "diagonal"])
def test_the_spread_start_has_half_of_the_gates_below_zero_and_the_standard_one_few(kind: str) -> None:
    x = torch.randn(4, 64, 32)
    for start, least, most in (("spread", 0.4, 0.6), ("standard", 0.0, 0.1)):
        torch.manual_seed(0)
        m = mixer(LayerConfig(kind, 32, heads=2, gate_init=start))
        alpha = m.transitions(x)[2]
        assert least <= float((alpha < 0).double().mean()) <= most
        assert float(alpha.abs().median()) > 0.8
    assert all((mixer(LayerConfig(kind, 32, signed_gates=False)).transitions(x)[2] >= 0).flatten())


def test_all_rules_of_gates_start_from_the_same_sizes() -> None:
    found = []
    for options in ({}, {"signed_gates": False}, {"signed_gates": False, "gate_rule": "bounded"}):
        m = CKDA(32, heads=2, **options)
        found.append(m.transitions(torch.zeros(1, 1, 32))[2].abs())
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=1e-6)
    assert 0.899 < float(found[0].min()) < 0.95
    assert 0.998 < float(found[0].max()) < 0.9991


def test_beta_starts_in_the_middle_or_on_both_sides_of_it() -> None:
    zero = torch.zeros(1, 1, 32)
    standard = DeltaProduct(32, factors=2).transitions(zero)[1]
    assert bool((standard == 1).all())
    spread = DeltaProduct(32, factors=2, beta_init="spread").transitions(zero)[1]
    assert int((spread > 1).sum()) == int((spread < 1).sum()) == 4
    assert float(spread.max()) > 1.6


def test_classes_with_keywords_are_the_modules_of_their_configurations() -> None:
    for built, kind in (
        (CKDA(8, heads=2), "ckda"),
        (KDA(8, heads=2), "kda"),
        (GatedDeltaNet(8, heads=2), "gated_deltanet"),
        (DeltaNet(8, heads=2), "deltanet"),
        (DeltaProduct(8, heads=2, factors=2), "deltaproduct"),
        (DeltaProduct(8, heads=2, factors=2, gated=True), "gated_deltaproduct"),
        (Diagonal(8, heads=2), "diagonal"),
    ):
        assert built.config.kind == kind
        again = mixer(LayerConfig(**json.loads(json.dumps(asdict(built.config)))))
        assert type(again) is type(built)
        assert again.config == built.config
        again.load_state_dict(built.state_dict())


def test_reflections_set_by_hand_track_parity_for_any_length() -> None:
    """One-hot tokens, k = 1, β = 2 for token 1 and 0 for token 0, a state that starts at 1: o = (-1)^(number of 1s)."""
    m = DeltaNet(2, heads=1, head_dim=1, output_gate=False, output_norm=False, learned_start=True)
    with torch.no_grad():
        m.queries.weight.fill_(1.0)
        m.keys.weight.fill_(1.0)
        m.values.weight.zero_()
        m.betas.weight.copy_(torch.tensor([[-200.0, 200.0]]))
        m.output.weight.copy_(torch.tensor([[1.0], [0.0]]))
        assert m.start is not None
        m.start.fill_(1.0)
        tokens = torch.randint(2, (1, 5000), generator=torch.Generator().manual_seed(0))
        y, _ = m(functional.one_hot(tokens, 2).float())
    assert torch.equal(y[0, :, 0], (1 - 2 * (tokens.cumsum(1) % 2)).float()[0])


@pytest.mark.parametrize("kind", ["ckda", "gated_deltaproduct", "diagonal"])
def test_bfloat16_by_autocast_and_as_weights_is_near_float32(kind: str) -> None:
    torch.manual_seed(0)
    m = mixer(LayerConfig(kind, 32, heads=2, conv=4))
    x = torch.randn(2, 40, 32)
    wanted, _ = m(x)
    with torch.autocast("cpu", torch.bfloat16):
        found, cache = m(x)
        assert cache["state"].dtype == torch.float32
        found.float().square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in m.parameters())
    short, _ = m.bfloat16()(x.bfloat16())
    assert found.dtype == short.dtype == torch.bfloat16
    for y in (found, short):
        assert float((y.float() - wanted).norm() / wanted.norm()) < 3e-2


@settings(max_examples=40)
@given(st.integers(0, 40), st.integers(0, 1000))
def test_the_diagonal_recurrence_is_its_loop_forwards_and_backwards(T: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    alpha = torch.tensor([-1.0, 0.0, 1.0, 0.5, -0.9], dtype=torch.float64)[torch.randint(5, (2, T, 3), generator=g)]
    added, start = torch.randn(2, T, 3, generator=g).double(), torch.randn(2, 3, generator=g).double()
    at = [t.requires_grad_() for t in (alpha, added, start)]
    h, read = start, []
    for t in range(T):
        h = alpha[:, t] * h + added[:, t]
        read.append(h)
    wanted = torch.stack(read, 1) if read else added.new_zeros(2, 0, 3) + 0 * added
    found = recur(alpha, added, start)
    close(found, wanted, 1e-13)
    weights = torch.randn(2, T, 3, generator=g).double()
    gradients = [torch.autograd.grad((y * weights).sum(), at, materialize_grads=True) for y in (found, wanted)]
    for got, want in zip(*gradients, strict=True):
        close(got, want, 1e-12)


def test_a_gate_of_zero_in_the_diagonal_forgets_exactly() -> None:
    alpha = torch.full((1, 64, 1), -1.0)
    alpha[:, 30] = 0.0
    added = torch.randn(1, 64, 1)
    other = added.clone()
    other[:, :30] = 1e30
    start = torch.zeros(1, 1)
    assert torch.equal(recur(alpha, added, start)[:, 30:], recur(alpha, other, start)[:, 30:])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "mamba"}, "kind 'mamba', expected 'ckda' or 'kda'"),
        ({"width": 0, "heads": True}, "heads True, expected an integer from 1 on; width 0"),
        ({"width": 10, "heads": 4}, "width 10 is not a multiple of heads 4; give head_dim"),
        ({"value_heads": 3, "heads": 2}, "value_heads 3, expected a multiple of heads 2"),
        ({"beta_max": 3.0}, "beta_max 3.0, expected 1 or 2"),
        ({"kind": "kda", "factors": 2}, "2 factors in kda, expected 1"),
        ({"gate_init": "random", "silu": 1}, "gate_init 'random', expected 'spread' or 'standard'; silu 1"),
        ({"gate_floor": 0.0}, "gate_floor 0.0"),
        ({"precision": "half", "conv": -1}, "precision 'half'"),
        ({"kind": "diagonal", "gate_rule": "bounded"}, "gate_rule 'bounded' in diagonal"),
        ({"kind": "diagonal", "value_heads": 5, "heads": 5, "width": 8}, "2 · width = 16 is not a multiple"),
    ],
)
def test_a_bad_configuration_gets_one_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        LayerConfig(**{"kind": "ckda", "width": 16, **options})  # pyright: ignore[reportArgumentType]
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["ckda", "diagonal"])
def test_inputs_and_caches_that_do_not_fit_get_one_line(kind: str) -> None:
    m = mixer(LayerConfig(kind, 8, heads=2, conv=3))
    x = torch.randn(2, 5, 8)
    _, cache = m(x)
    for arguments, said in (
        ((x[0],), "expected [B, T, 8]"),
        ((x[..., :4],), "expected [B, T, 8]"),
        ((x, None, torch.tensor([0, 5])), "batch of 2"),
        ((x[:1], None, torch.tensor([0, 4])), "rise from 0 to T = 5"),
        ((x, {"state": cache["state"]}), "cache has ['state'], expected ['state', 'tail']"),
        ((x[:1], cache), "tail has shape"),
        ((x, {"tail": cache["tail"], "state": cache["state"][:, :1]}), "state has shape"),
    ):
        with pytest.raises(InvalidInput) as error:
            m(*arguments)
        assert said in str(error.value)
