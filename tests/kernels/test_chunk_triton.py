"""The Triton chunk and decode kernels against the token loop in float64: interpreted in small, on CUDA in full."""
# pyright: basic, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import statetrack.kernels.chunk_triton as chunk_triton
from statetrack.kernels.chunk_triton import Launch, ckda_chunk, launches
from statetrack.kernels.ckda_reference import ckda_naive
from statetrack.kernels.decode_triton import ckda_decode
from statetrack.kernels.gates import Gate
from statetrack.kernels.trials import tracker_trial

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
on_cuda = pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
# Relative errors in root mean square: rounding to bfloat16 (2^-9), tf32, three tf32 products, float32.
LIMITS = {"bf16": 6e-3, "tf32": 5e-3, "tracking": 1e-4, "exact": 2e-5}


@dataclass(frozen=True)
class Case:
    """A call with random inputs that hold the edges of every range."""

    T: int = 70
    B: int = 1
    H: int = 1
    HV: int = 1
    K: int = 32
    V: int = 16
    n: int = 1
    kind: str = "signed"
    each: bool = False
    scalar: bool = False
    bias: bool = False
    resets: bool = False
    cu: tuple[int, ...] | None = None
    precision: str = "exact"
    dtype: torch.dtype = torch.float32
    normalize: bool = True
    launch: Launch | None = field(default=None, hash=False)

    @property
    def limit(self) -> float:
        half = self.dtype == torch.bfloat16 and self.precision == "fast"
        return LIMITS["bf16" if half else "tf32" if self.precision == "fast" else self.precision]

    def inputs(self) -> tuple[dict[str, Tensor], Gate]:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, device=DEVICE)

        rows, sequences = self.T * self.n, self.B if self.cu is None else len(self.cu) - 1
        k = normal(self.B, rows, self.H, self.K)
        k[:, 3::17] = 0.0
        k[:, 5::7] = k[:, 5:6]
        if not self.normalize:
            k /= self.K**0.5
        beta = 2 * torch.rand(self.B, rows, self.HV, device=DEVICE)
        beta[:, 1::9], beta[:, 2::9] = 2.0, 0.0
        x = 2 * normal(self.B, rows if self.each else self.T, self.HV, 1 if self.scalar else self.K)
        if self.kind == "alpha":
            x = torch.tanh(x)
            x[:, ::5] = 1.0
            x[:, 1::5] = -1.0
            if self.resets:
                x[:, 10:12] = 0.0
                x[:, 20] = 1e-12
        named = {
            "q": normal(self.B, self.T, self.H, self.K),
            "k": k,
            "v": normal(self.B, rows, self.HV, self.V),
            "beta": beta,
            "x": x,
        }
        named = {name: tensor.to(self.dtype) for name, tensor in named.items()}
        named["start"] = 0.3 * normal(sequences, self.HV, self.K, self.V)
        if self.kind in ("softplus", "bounded"):
            named["a_log"] = 0.1 * normal(self.HV)
        if self.bias:
            named["dt_bias"] = 0.1 * normal(self.HV, 1 if self.scalar else self.K)
        return named, self.gate(named)

    def gate(self, named: dict[str, Tensor]) -> Gate:
        if self.kind == "none":
            return Gate("none")
        return Gate(self.kind, named["x"], named.get("a_log"), named.get("dt_bias"))

    def options(self) -> dict[str, object]:
        return {
            "scale": self.K**-0.5,
            "factors": self.n,
            "normalize_keys": self.normalize,
            "normalize_queries": self.normalize,
            "output_final_state": True,
            "cu_seqlens": None if self.cu is None else torch.tensor(self.cu, device=DEVICE),
        }

    def failing(self, slack: float = 1.0) -> dict[str, float]:
        """The relative errors that are above their limits; every tensor that the kernels allocate starts as NaN.

        The gradients of one number a head are sums over tokens that may cancel: their errors are relative to the terms.
        What is rounded is the gradient of log|alpha|, so that of alpha is that over alpha, and fades where |alpha| is
        below 2^-14 (docs/kernels.md): it is compared times |alpha|, and may be off by 4e-4 more. With resets it is not.
        """
        named, gate = self.inputs()
        found = self._run(named, ckda_chunk, torch.float32, precision=self.precision, launch=self.launch)
        right = self._run(named, ckda_naive, torch.float64, precision="exact")
        summed = () if self.kind == "none" else ("da_log", "ddt_bias") if self.scalar else ("da_log",)
        terms = {name: float(right["dx"].norm()) for name in summed}
        if self.kind in ("signed", "alpha"):
            size = gate.alpha().double().abs()
            found["dx"], right["dx"] = found["dx"] * size, right["dx"] * size
        names = [name for name in right if name != "dx" or not self.resets]
        errors = {name: _error(found[name], right[name], terms.get(name, 0.0)) for name in names}
        return {name: e for name, e in errors.items() if not e <= slack * self.limit + (4e-4 if name == "dx" else 0.0)}

    def _run(self, named: dict[str, Tensor], path, wide: torch.dtype, **more: object) -> dict[str, Tensor]:
        exact = wide == torch.float64
        leaves = {name: (x.double() if exact else x.clone()).requires_grad_() for name, x in named.items()}
        if self.kind == "none":
            del leaves["x"]
        call = {name: leaves[name] for name in ("q", "k", "v", "beta")}
        more |= self.options()
        o, last = path(*call.values(), self.gate(leaves), initial_state=leaves["start"], **more)
        generator = torch.Generator(DEVICE).manual_seed(1)
        weights = [torch.randn(t.shape, generator=generator, device=DEVICE).to(wide) for t in (o, last)]
        loss = (o.to(wide) * weights[0]).sum() + (last.to(wide) * weights[1]).sum()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        return {"o": o.detach(), "state": last.detach(), **dict(zip((f"d{n}" for n in leaves), gradients, strict=True))}


def _error(found: Tensor, right: Tensor, least: float = 0.0) -> float:
    assert found.shape == right.shape
    difference = found.double() - right.double()
    return float(difference.norm() / right.double().norm().clamp_min(max(least, 1e-6)))


@pytest.fixture(autouse=True)
def _poison():
    """torch.empty gives NaN, so that an element which no kernel writes is seen; inputs are the same every time."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(0)
    yield
    torch.use_deterministic_algorithms(False)


SMALL = {
    "one token": Case(T=1),
    "a chunk and a tail": Case(T=70, B=2),
    "scalar gates, grouped heads, two factors": Case(T=40, n=2, HV=2, scalar=True),
    "a gate before each of three factors": Case(T=24, n=3, each=True),
    "four factors": Case(T=20, n=4),
    "five factors": Case(T=20, n=5, K=16),
    "eight factors": Case(T=17, n=8, K=16),
    "eight factors, scalar gates": Case(T=17, n=8, K=16, scalar=True),
    "nine factors go through torch": Case(T=17, n=9, K=16),
    "alpha": Case(kind="alpha"),
    "resets": Case(T=40, kind="alpha", resets=True),
    "softplus": Case(T=30, kind="softplus", bias=True),
    "bounded, scalar": Case(T=30, kind="bounded", bias=True, scalar=True),
    "no gate": Case(T=66, kind="none"),
    "sequences": Case(T=70, cu=(0, 1, 1, 66, 69, 70)),
    "sizes that are no powers of two": Case(T=33, K=48, V=20),
    "two blocks of channels": Case(T=33, K=96, V=40),
    "raw keys": Case(T=40, normalize=False),
    "scalar gates": Case(T=40, B=2, scalar=True),
    "a scalar gate before each of three factors": Case(T=24, n=3, each=True, scalar=True, bias=True),
    "resets of scalar gates": Case(T=70, K=16, kind="alpha", resets=True, scalar=True),
    "softplus, scalar, raw keys": Case(T=30, n=2, kind="softplus", bias=True, scalar=True, normalize=False),
    "sequences, scalar gates": Case(T=40, n=2, K=16, cu=(0, 1, 1, 36, 39, 40), scalar=True),
    "scalar gates, sizes that are no powers of two": Case(T=33, K=48, V=20, scalar=True),
    "no gate, two factors": Case(T=30, n=2, HV=2, V=40, kind="none"),
}


@pytest.mark.parametrize("name", SMALL)
def test_outputs_and_gradients_equal_the_loop(name: str) -> None:
    assert SMALL[name].failing(slack=2) == {}


@pytest.mark.parametrize("name", SMALL)
def test_decoding_equals_the_loop(name: str) -> None:
    case = SMALL[name]
    named, gate = case.inputs()
    call = [named[n] for n in ("q", "k", "v", "beta")]
    o, last = ckda_decode(*call, gate, initial_state=named["start"], **case.options())
    wide = {n: x.double() for n, x in named.items()}
    right, end = ckda_naive(
        *(wide[n] for n in ("q", "k", "v", "beta")), case.gate(wide), initial_state=wide["start"],
        precision="exact", **case.options(),
    )  # fmt: skip
    assert end is not None
    assert last is not None
    assert max(_error(o, right), _error(last, end)) < 1e-5


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("kind", ["softplus", "bounded", "signed"])
def test_saturated_gates_and_betas_have_finite_gradients(kind: str, scalar: bool) -> None:
    """Pre-activations so far out that e^x is 0, and betas that no float32 division keeps."""
    case = Case(T=20, K=16, kind=kind, bias=True, scalar=scalar)
    named, _ = case.inputs()
    named["x"][:, ::3], named["x"][:, 1::3] = -200.0, 200.0
    named["beta"][:, ::4] = 1e-39
    found = case._run(named, ckda_chunk, torch.float32, precision="exact")
    right = case._run(named, ckda_naive, torch.float64, precision="exact")
    # The terms of da_log are dx times numbers up to 200, and may cancel.
    terms = {"da_log": 200 * float(right["dx"].norm())}
    for name, exact in right.items():
        assert found[name].isfinite().all(), name
        assert name == "dx" or _error(found[name], exact, terms.get(name, 0.0)) < 1e-3, name


@pytest.mark.parametrize("scalar", [False, True])
def test_a_reset_is_exact(scalar: bool) -> None:
    """What stood in the state before a gate of zero leaves no trace, whatever it was."""
    named, gate = Case(T=40, kind="alpha", resets=True, scalar=scalar).inputs()
    ends = [
        ckda_chunk(
            named["q"], named["k"], named["v"], named["beta"], gate, scale=1.0, initial_state=factor * named["start"],
            output_final_state=True, precision="exact",
        )
        for factor in (1.0, 1e6)
    ]  # fmt: skip
    assert torch.equal(ends[0][0][:, 11:], ends[1][0][:, 11:])
    assert torch.equal(ends[0][1], ends[1][1])


def test_scalar_gates_after_a_deep_fall_keep_all_digits() -> None:
    """2^-2000 in a chunk: the sum of logarithms has no digits left for the gates that follow, the kernels' two have."""
    case = Case(T=60, K=16, kind="alpha", scalar=True)
    named, gate = case.inputs()
    named["x"][:, :20], named["x"][:, 20:] = 1e-30, 0.9 + 0.1 * torch.rand(40, 1, 1, device=DEVICE)
    found = case._run(named, ckda_chunk, torch.float32, precision="exact")
    right = case._run(named, ckda_naive, torch.float64, precision="exact")
    size = gate.alpha().double().abs()
    for name in ("o", "state", "dq", "dk", "dv", "dx"):
        weight = size if name == "dx" else 1.0
        assert _error(found[name] * weight, right[name] * weight) < 1e-6, name


def test_a_sequence_may_be_split_where_a_chunk_ends_and_no_gradient_changes_nothing() -> None:
    named, gate = Case(T=128, K=16).inputs()
    whole, last = _plain(named, gate, slice(None), named["start"])
    first, middle = _plain(named, gate, slice(0, 64), named["start"])
    second, end = _plain(named, gate, slice(64, None), middle)
    assert torch.allclose(torch.cat([first, second], 1), whole, atol=1e-5)
    assert torch.allclose(end, last, atol=1e-5)
    with torch.no_grad():
        again, _ = _plain(named, gate, slice(None), named["start"])
    assert torch.equal(again, whole)


@pytest.mark.parametrize("precision", ["tracking", "exact"])
@pytest.mark.parametrize("case", ["Z60", "Z60, signed gates"])
def test_a_letter_repeated_turns_the_plane_by_its_angle(
    case: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reflections of one plane: 32 rows of them magnify rounding of M and T, the same way in every chunk.

    With both in float32 the state is 5e-4 to 1e-3 off here, and words of 50,000 letters were lost; with T alone, 4e-5.
    """
    trial = tracker_trial(case, dtype=torch.float32, words=1, heads=1, length=512, key_size=16, value_size=16)
    call = trial.to(DEVICE).call()

    def error() -> float:
        ends = [
            path(
                *(x.to(wide) for x in (call.q, call.k, call.v, call.beta)),
                Gate("none") if call.alpha is None else Gate("alpha", call.alpha.to(wide)),
                scale=1.0, factors=call.factors, normalize_keys=True, normalize_queries=True, cu_seqlens=None,
                initial_state=call.state.to(wide), output_final_state=True, precision=precision,
            )[1]
            for path, wide in ((ckda_chunk, torch.float32), (ckda_naive, torch.float64))
        ]  # fmt: skip
        return _error(*ends)

    assert error() < 1.5e-5
    monkeypatch.setattr(chunk_triton, "_WIDEST", 0)
    assert error() > 2e-5


def _plain(named: dict[str, Tensor], gate: Gate, part: slice, start: Tensor) -> tuple[Tensor, Tensor]:
    call = [named[n][:, part] for n in ("q", "k", "v", "beta")]
    assert gate.values is not None
    rule = replace(gate, values=gate.values[:, part])
    o, last = ckda_chunk(
        *call, rule, scale=1.0, initial_state=start.requires_grad_(torch.is_grad_enabled()), output_final_state=True,
        precision="exact",
    )  # fmt: skip
    assert last is not None
    return o.detach(), last.detach()


HALF = {"dtype": torch.bfloat16, "precision": "fast", "T": 300, "HV": 2, "H": 2}
CONFIGURATIONS = dict.fromkeys(
    (K, V, n, scalar, launch)
    for K, V, n in ((128, 128, 1), (64, 64, 1), (128, 128, 2))
    for programs in (1, 32, 128)
    for scalar in (False, True)
    for launch in launches(K, V, n, "fast", True, programs, scalar)
)


@on_cuda
@pytest.mark.parametrize("number", range(len(CONFIGURATIONS)))
def test_every_configuration(number: int) -> None:
    K, V, n, scalar, launch = list(CONFIGURATIONS)[number]
    case = Case(K=K, V=V, n=n, scalar=scalar, launch=launch, **HALF)
    # Two factors a token: each gradient has passed through twice the roundings. A scalar gate's sums over channels.
    assert case.failing(slack=1.5 if n == 2 else 1.25 if scalar else 1.0) == {}, launch


@on_cuda
@pytest.mark.parametrize("precision", ["fast", "tracking", "exact"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("K", "V"), [(32, 32), (64, 96), (96, 64), (128, 128), (192, 192), (256, 256)])
def test_every_size_and_precision(K: int, V: int, dtype: torch.dtype, precision: str) -> None:
    case = Case(T=200, HV=2, K=K, V=V, dtype=dtype, precision=precision, kind="alpha" if K == 96 else "signed")
    # outputs and gradients come back in the format of the inputs
    slack = 1.0 if dtype == torch.float32 else max(1.0, LIMITS["bf16"] / case.limit)
    assert case.failing(slack) == {}


@on_cuda
@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fast", torch.bfloat16), ("fast", torch.float16), ("fast", torch.float32), ("tracking", torch.float32),
     ("exact", torch.float32), ("tracking", torch.bfloat16)],
)  # fmt: skip
@pytest.mark.parametrize(
    ("K", "V", "n", "kind"),
    [(32, 32, 1, "signed"), (64, 96, 2, "none"), (128, 128, 2, "signed"), (192, 256, 1, "signed")],
)
def test_scalar_gates_and_none_in_every_precision(
    K: int, V: int, n: int, kind: str, dtype: torch.dtype, precision: str
) -> None:
    case = Case(T=200, HV=2, K=K, V=V, n=n, dtype=dtype, precision=precision, kind=kind, scalar=True)
    slack = 1.5 if dtype == torch.float32 else 1.5 * max(1.0, LIMITS["bf16"] / case.limit)
    if dtype == torch.float16:
        slack *= 1.25  # its raw keys are rounded to bfloat16, where those of bfloat16 are exact
    assert case.failing(slack) == {}


@on_cuda
@pytest.mark.parametrize("name", [*SMALL][5:])
def test_the_edges_in_bfloat16(name: str) -> None:
    case = replace(SMALL[name], dtype=torch.bfloat16, precision="fast", K=128, V=128)
    assert case.failing(slack=2) == {}


@on_cuda
def test_long_sequences_with_one_token_tails_and_equal_keys() -> None:
    case = Case(T=8192, cu=(0, 8191, 8191, 8192), K=64, V=64, dtype=torch.bfloat16, precision="fast")
    named, gate = case.inputs()
    named["k"][:] = named["k"][:, :1]
    wide = {n: x.double() for n, x in named.items()}
    call = [named[n] for n in ("q", "k", "v", "beta")]
    o, _ = ckda_chunk(*call, gate, initial_state=named["start"], precision="fast", **case.options())
    right, _ = ckda_decode(
        *(wide[n].float() for n in ("q", "k", "v", "beta")), case.gate({n: x.float() for n, x in wide.items()}),
        initial_state=named["start"], **case.options(),
    )  # fmt: skip
    assert o.isfinite().all()
    assert _error(o, right) < 2 * LIMITS["bf16"]
