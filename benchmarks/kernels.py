"""The layer kernels beside flash-linear-attention (fla-core) on one device: time, memory, error, tracking.

`--parts speed`: median milliseconds with the 20th and 80th percentile, forward without gradients and forward+backward,
and the peak of memory above the inputs in a forward+backward. Inputs are bfloat16, beta too, every key and query is
normalised inside the op, and so is the gate made from its pre-activation where the op can.
`--parts errors`: ||x - x'|| / ||x'|| of the output and of each gradient, x' from a float32 token loop on the same
inputs.
`--parts tracking`: beta = 2, no decay, S_0 = I, no values, K = V = 64, four random words: letters that reflect in six
keys of two channels, or that swap two of five channels (S5). The norm of the active block over the norm of the float64
product, its relative error (the worst of the words each) and the words whose state decodes wrong.

Counts (`work`): bytes are what any kernel must move, inputs read once and outputs written once; a training step reads
the inputs and the gradient of the output again, and writes a gradient for each input. Operations are those of the
chunkwise form with chunks of C = 64 factors, all products counted dense: for a factor A 2CK, its inverse C², w 2CK,
u 2CV, w S 2KV, kᵀ vn 2KV; for a token q S 2KV, q kᵀ 2CK, and times vn 2CV; the backward has twice the forward's, two
products for each. `floor_ms` is the larger of bytes over the copy rate and operations over the bfloat16 matmul rate,
both measured in the same run.
"""
# torch and fla are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from report import RESULTS, save
from torch import Tensor

from statetrack.kernels.ckda_reference import ckda_naive
from statetrack.kernels.gates import Gate
from statetrack.kernels.variants import gauge_chunk, tilelang_chunk

CHUNK = 64
LOWER = -5.0


@dataclass(frozen=True)
class Shape:
    batch: int
    time: int
    heads: int
    size: int

    def __str__(self) -> str:
        return f"B{self.batch}xT{self.time}xH{self.heads}xD{self.size}"


SHAPES = (
    Shape(8, 4096, 16, 128),
    Shape(2, 16384, 16, 128),
    Shape(1, 32768, 16, 128),
    Shape(4, 2048, 16, 64),
    Shape(1, 8192, 96, 128),
)
TINY = (Shape(2, 96, 2, 16), Shape(1, 130, 2, 32))

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Op:
    """One way to run one recurrence.

    Attributes:
        run: (inputs, options of the call) -> (o, last state).
        gate: the form of the tensor "gate": "channel" [B, T, H, K], "scalar" [B, T, H, 1], "each" [B, T n, H, K],
            "log channel" and "log scalar" (logarithms of gates in [0, 1], [B, T, H]), "none".
        truth: the same gate, for the reference.
        peers: the ops it is measured against.
    """

    name: str
    run: Callable[..., tuple[Tensor, Tensor | None]]
    gate: str
    truth: Callable[[Tensor | None], Gate]
    factors: int = 1
    peers: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="name in the file name of the results")
    parser.add_argument("--place", default="cuda" if torch.cuda.is_available() else "cpu", help="torch device")
    parser.add_argument("--parts", nargs="+", default=["speed", "errors", "tracking"])
    parser.add_argument("--only", default="", help="ops whose name holds one of these, separated by commas")
    parser.add_argument("--shapes", nargs="+", default=None, help="shapes whose name begins so")
    parser.add_argument("--no-fla", action="store_true", help="ours alone")
    parser.add_argument("--quick", action="store_true", help="the first shape, short words, fewer repeats")
    options = parser.parse_args()
    cuda = options.place.startswith("cuda")
    ops = ours(cuda) + ([] if options.no_fla or not cuda else peers())
    ops = [op for op in ops if any(part in op.name for part in options.only.split(","))]
    shapes = [s for s in (SHAPES if cuda else TINY) if any(str(s).startswith(p) for p in options.shapes or [""])]
    name = torch.cuda.get_device_name() if cuda else options.place
    for part in options.parts:
        rows: list[dict[str, Any]] = []
        title = "kernels" if part == "speed" else f"kernels-{part}"
        try:
            found = {"speed": speed, "errors": errors, "tracking": tracking}[part]
            for row in found(ops, shapes[:1] if options.quick else shapes, options):
                rows.append(row)
                shown = {key: value for key, value in row.items() if value is not None}
                print(*(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items()), flush=True)
        finally:
            # What is measured is kept, also when the run is stopped.
            compare(rows, ops)
            save(title, options.device, rows, name)
            if part == "speed":
                roofline(rows, options.device, name)


def ours(cuda: bool) -> list[Op]:
    """Our kernels: Triton on CUDA, the chunkwise torch path elsewhere."""
    core = importlib.import_module(f"statetrack.kernels.{'chunk_triton' if cuda else 'chunk_torch'}").ckda_chunk

    def op(
        name: str, kind: Any, gate: str, precision: str = "fast", factors: int = 1, peers: tuple[str, ...] = ()
    ) -> Op:
        def truth(values: Tensor | None) -> Gate:
            return Gate(kind, values, lower_bound=LOWER)

        return Op(name, partial(_ours, core, truth, factors, precision), gate, truth, factors, peers)

    signed = ("fla kda + gauge", "fla kda safe", "fla kda")
    product = ("fla gated deltaproduct n=2",)
    extra: list[Op] = []
    if cuda and importlib.util.find_spec("tilelang"):
        tiled = op("ours ckda tilelang", "signed", "channel", peers=("ours ckda fast", *signed))
        extra.append(replace(tiled, run=partial(_ours, tilelang_chunk, tiled.truth, 1, "fast")))
    return [
        *extra,
        op("ours ckda fast", "signed", "channel", peers=signed),
        op("ours ckda tracking", "signed", "channel", "tracking", peers=signed),
        op("ours ckda exact", "signed", "channel", "exact", peers=signed),
        replace(
            op("ours gauge", "signed", "channel", peers=("fla kda + gauge",)),
            run=partial(_ours, partial(gauge_chunk, core="ours"), _signed, 1, "fast"),
        ),
        op("ours kda bounded", "bounded", "channel", peers=("fla kda safe",)),
        op("ours gated delta", "signed", "scalar", peers=("fla gated delta rule",)),
        op("ours delta", "none", "none", peers=("fla delta rule",)),
        op("ours product n=2 scalar gate", "signed", "scalar", factors=2, peers=product),
        op("ours product n=2 channel gates", "signed", "each", factors=2, peers=product),
    ]


def peers() -> list[Op]:
    """The ops of fla-core, each with its fastest documented options."""
    try:
        kda = importlib.import_module("fla.ops.kda").chunk_kda
        gated = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
        delta = importlib.import_module("fla.ops.delta_rule").chunk_delta_rule
        product = importlib.import_module("fla.ops.gated_delta_product").chunk_gated_delta_product
    except ImportError as error:
        raise SystemExit(
            f"fla-core cannot be imported ({error}): install the extra 'bench', or pass --no-fla"
        ) from error

    def exact(values: Tensor | None) -> Gate:
        assert values is not None
        alpha = values.exp()
        return Gate("alpha", alpha if alpha.ndim == 4 else alpha[..., None])

    def bounded(values: Tensor | None) -> Gate:
        return Gate("bounded", values, lower_bound=LOWER)

    safe = {"safe_gate": True, "use_gate_in_kernel": True, "lower_bound": LOWER}
    return [
        Op("fla kda", partial(_peer, kda, {}), "log channel", exact),
        Op("fla kda safe", partial(_peer, kda, safe), "channel", bounded),
        Op(
            "fla kda + gauge",
            partial(_ours, partial(gauge_chunk, core="fla"), _signed, 1, "fast"),
            "channel",
            _signed,
        ),
        Op("fla gated delta rule", partial(_peer, gated, {}), "log scalar", exact),
        Op("fla delta rule", partial(_peer, delta, {}), "none", lambda _: Gate("none", None)),
        Op(
            "fla gated deltaproduct n=2",
            partial(_peer, product, {"num_householder": 2}),
            "log scalar",
            exact,
            factors=2,
        ),
    ]


def _signed(values: Tensor | None) -> Gate:
    return Gate("signed", values, lower_bound=LOWER)


def _ours(core: Any, gate_of: Any, factors: int, precision: str, x: Inputs, **options: Any) -> tuple[Tensor, Any]:
    q, k, v, beta = (x[name] for name in ("q", "k", "v", "beta"))
    arguments = {
        "scale": q.shape[-1] ** -0.5,
        "factors": factors,
        "normalize_keys": True,
        "normalize_queries": True,
        "initial_state": None,
        "output_final_state": False,
        "cu_seqlens": None,
        "precision": precision,
    }
    return core(q, k, v, beta, gate_of(x.get("gate")), **arguments | options)


def _peer(kernel: Any, extra: dict[str, Any], x: Inputs, **options: Any) -> tuple[Tensor, Any]:
    arguments = {"scale": x["q"].shape[-1] ** -0.5, "use_qk_l2norm_in_kernel": True} | extra | options
    if "gate" in x:
        arguments["g"] = x["gate"]
    if extra.get("use_gate_in_kernel"):
        arguments["A_log"] = x["gate"].new_zeros(x["q"].shape[2], dtype=torch.float32)
    return kernel(x["q"], x["k"], x["v"], beta=x["beta"], **arguments)


def inputs(op: Op, shape: Shape, place: str, seed: int = 0) -> tuple[Inputs, Tensor]:
    """Fresh leaves of an op in bfloat16, and a gradient of its output: gates of about 0.95 in size, beta in (0, 1)."""
    generator = torch.Generator(place).manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=place)

    B, T, H, D = shape.batch, shape.time, shape.heads, shape.size
    rows = T * op.factors
    made = {"q": normal(B, T, H, D), "k": normal(B, rows, H, D), "v": normal(B, rows, H, D)}
    made["beta"] = torch.sigmoid(normal(B, rows, H))
    made = {name: tensor.bfloat16() for name, tensor in made.items()}
    if op.gate == "log channel":
        made["gate"] = torch.nn.functional.logsigmoid(normal(B, T, H, D) + 3.0)
    elif op.gate == "log scalar":
        made["gate"] = torch.nn.functional.logsigmoid(normal(B, T, H) + 3.0)
    elif op.gate != "none":
        size = (B, rows if op.gate == "each" else T, H, 1 if op.gate == "scalar" else D)
        drawn = normal(*size)
        bounded = op.truth(drawn).kind == "bounded"
        # |alpha| is about 0.95 either way; a signed gate has as many of either sign.
        made["gate"] = (drawn - 4.6 if bounded else 3.7 * torch.sign(drawn) + 0.5 * drawn).bfloat16()
    gradient = normal(B, T, H, D).bfloat16()
    return {name: tensor.contiguous().requires_grad_() for name, tensor in made.items()}, gradient


def work(op: Op, shape: Shape, x: Inputs, step: bool) -> tuple[float, float]:
    """The bytes that must move and the operations of the chunkwise form; see the head of this file."""
    tokens, D, C, n = shape.batch * shape.time * shape.heads, shape.size, CHUNK, op.factors
    read = sum(tensor.numel() * tensor.element_size() for tensor in x.values())
    out = tokens * D * x["v"].element_size()
    factor = 2 * C * D + C * C + 2 * C * D + 2 * C * D + 2 * D * D + 2 * D * D
    token = 2 * D * D + 2 * C * D + 2 * C * D
    products = float(tokens) * (n * factor + token)
    return (3.0 * read + 2.0 * out, 3.0 * products) if step else (float(read + out), products)


def speed(ops: list[Op], shapes: list[Shape], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Times, memory and floors; the first two rows are the ceilings."""
    copy, matmul = ceilings(options.place, options.quick)
    yield {"op": "copy", "shape": "ceiling", "tb_per_s": copy}
    yield {"op": "matmul, bfloat16", "shape": "ceiling", "tflop_per_s": matmul}
    for shape in shapes:
        for op in ops:
            row: dict[str, Any] = {"op": op.name, "shape": str(shape)}
            try:
                row |= _speed_of(op, shape, options, copy, matmul)
            except Exception as error:
                row["error"] = _line(error)
            yield row


def _speed_of(op: Op, shape: Shape, options: argparse.Namespace, copy: float, matmul: float) -> dict[str, Any]:
    x, gradient = inputs(op, shape, options.place)
    leaves = list(x.values())
    plain = {name: tensor.detach() for name, tensor in x.items()}

    def forward() -> None:
        with torch.no_grad():
            op.run(plain)

    def step() -> None:
        torch.autograd.grad(op.run(x)[0], leaves, gradient)

    row: dict[str, Any] = {}
    for name, run in (("forward", forward), ("step", step)):
        middle, low, high = timed(run, options.place, options.quick)
        moved, products = work(op, shape, x, name == "step")
        row |= {
            f"{name}_ms": middle,
            f"{name}_p20_ms": low,
            f"{name}_p80_ms": high,
            f"{name}_floor_ms": max(moved / copy, products / matmul) / 1e9,
            f"{name}_mb": moved / 1e6,
            f"{name}_gflop": products / 1e9,
        }
    if options.place.startswith("cuda"):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        row["step_peak_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    return row


def timed(run: Callable[[], object], place: str, quick: bool) -> tuple[float, float, float]:
    """Milliseconds: median, 20th and 80th percentile; on CUDA by events, with the cache cleared between runs."""
    if place.startswith("cuda"):
        from triton.testing import do_bench

        run()
        torch.cuda.synchronize()
        lengths = (20, 80) if quick else (50, 300)
        return tuple(do_bench(run, warmup=lengths[0], rep=lengths[1], quantiles=[0.5, 0.2, 0.8]))  # type: ignore[return-value]
    times: list[float] = []
    for _ in range(4 if quick else 8):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1e3)
    kept = sorted(times[1:])
    return kept[len(kept) // 2], kept[len(kept) // 5], kept[-1 - len(kept) // 5]


def ceilings(place: str, quick: bool) -> tuple[float, float]:
    """The rates of a large copy in TB/s, bytes read and written, and of a bfloat16 matrix product in TFLOP/s."""
    cuda = place.startswith("cuda")
    count, size = (2**30, 8192) if cuda else (2**22, 256)
    source = torch.randn(count, device=place)
    target = torch.empty_like(source)
    copy = 8e-9 * count / timed(partial(target.copy_, source), place, quick)[0]
    del source, target
    a, b = (torch.randn(size, size, device=place).bfloat16() for _ in range(2))
    return copy, 2e-9 * size**3 / timed(partial(torch.matmul, a, b), place, quick)[0]


def compare(rows: list[dict[str, Any]], ops: list[Op]) -> None:
    """Add to our rows the peer's time over ours, for each peer that was measured on the same shape."""
    times = {(row["op"], row["shape"]): row for row in rows if "step_ms" in row and "shape" in row}
    for op in ops:
        for row in rows:
            if row["op"] != op.name or "step_ms" not in row:
                continue
            for peer in op.peers:
                if other := times.get((peer, row["shape"])):
                    row[f"ratio {peer}"] = round(other["forward_ms"] / row["forward_ms"], 3)
                    row[f"step ratio {peer}"] = round(other["step_ms"] / row["step_ms"], 3)


def errors(ops: list[Op], shapes: list[Shape], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Relative errors of the output and the gradients against a float32 token loop on the same inputs."""
    sizes = dict.fromkeys(shape.size for shape in shapes)
    long = 1024 if options.place.startswith("cuda") else 100
    for size in sizes:
        shape = Shape(2, long, 4, size)
        for op in ops:
            row: dict[str, Any] = {"op": op.name, "shape": str(shape)}
            try:
                row |= _errors_of(op, shape, options.place)
            except Exception as error:
                row["error"] = _line(error)
            yield row


def _errors_of(op: Op, shape: Shape, place: str) -> dict[str, Any]:
    x, gradient = inputs(op, shape, place, seed=1)
    o = op.run(x)[0]
    got = dict(zip(x, torch.autograd.grad(o, list(x.values()), gradient), strict=True))
    y = {name: tensor.detach().float().requires_grad_() for name, tensor in x.items()}
    # The precision names nothing here: the loop runs in the type of its inputs.
    expected_o = _ours(ckda_naive, op.truth, op.factors, "exact", y)[0]
    expected = dict(zip(y, torch.autograd.grad(expected_o, list(y.values()), gradient.float()), strict=True))
    return {"o": _distance(o, expected_o)} | {f"d{name}": _distance(got[name], expected[name]) for name in got}


def _distance(got: Tensor, expected: Tensor) -> Any:
    got, expected = got.detach().double(), expected.detach().double()
    return _number((got - expected).norm() / expected.norm())


def _number(x: Tensor) -> Any:
    """A float, or its name where JSON has none."""
    value = float(x)
    return value if math.isfinite(value) else str(value)


def tracking(ops: list[Op], _: list[Shape], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Reflections for thousands of tokens: what is left of the state."""
    cuda = options.place.startswith("cuda")
    lengths = (1024, 4096, 16384, 32768) if cuda and not options.quick else (1024, 4096) if cuda else (64, 256)
    runs = [(op.name, op, torch.bfloat16) for op in ops if op.name in TRACKED]
    for op in ops:
        if op.name == "fla kda":
            recurrent = importlib.import_module("fla.ops.kda").fused_recurrent_kda
            runs += [(f"fla kda {t}".replace("torch.", ""), op, t) for t in (torch.float16, torch.float32)]
            runs.append(("fla kda recurrent float32", replace(op, run=partial(_peer, recurrent, {})), torch.float32))
    for test, keys in letters(64).items():
        words = torch.randint(len(keys), (4, lengths[-1]), generator=torch.Generator().manual_seed(7))
        truths = products(keys, words, lengths)
        for name, op, dtype in runs:
            for length in lengths:
                row: dict[str, Any] = {"op": name, "test": test, "T": length}
                try:
                    row |= _tracked(op, keys, words[:, :length], truths[length], dtype, options.place)
                except Exception as error:
                    row["error"] = _line(error)
                yield row


TRACKED = (
    "ours ckda fast",
    "ours ckda tracking",
    "ours ckda exact",
    "fla kda",
    "fla gated delta rule",
    "fla delta rule",
)


def letters(size: int) -> dict[str, Tensor]:
    """Raw keys [letters, size] in bfloat16: six in two channels, and the ten swaps of five channels."""
    generator = torch.Generator().manual_seed(24)  # as `statetrack.kernels.trials` has it
    planar = torch.zeros(6, size)
    planar[:, :2] = torch.randn(6, 2, generator=generator)
    pairs = torch.combinations(torch.arange(5))
    swaps = torch.zeros(10, size)
    swaps[torch.arange(10), pairs[:, 0]] = 1.0
    swaps[torch.arange(10), pairs[:, 1]] = -1.0
    return {"6 keys, 2 channels": planar.bfloat16(), "S5 swaps": swaps.bfloat16()}


def products(keys: Tensor, words: Tensor, lengths: tuple[int, ...]) -> dict[int, Tensor]:
    """The states [words, active, active] in float64 after the given lengths, for the active channels."""
    k = keys.double()
    k = k[:, : int(k.any(0).sum())]
    k = k / k.norm(dim=-1, keepdim=True)
    reflections = torch.eye(k.shape[1]).double() - 2 * k[:, :, None] * k[:, None, :]
    state = torch.eye(k.shape[1]).double().repeat(len(words), 1, 1)
    found: dict[int, Tensor] = {}
    for t in range(words.shape[1]):
        state = reflections[words[:, t]] @ state
        if t + 1 in lengths:
            found[t + 1] = state
    return found


def _tracked(op: Op, keys: Tensor, words: Tensor, truth: Tensor, dtype: torch.dtype, place: str) -> dict[str, Any]:
    count, length = words.shape
    k = keys[words][:, :, None].to(place, dtype).contiguous()
    x = {"q": torch.zeros_like(k), "k": k, "v": torch.zeros_like(k)}
    x["q"][..., 0] = 1.0
    x["beta"] = torch.full((count, length, 1), 2.0, dtype=dtype, device=place)
    if op.gate == "log channel":
        x["gate"] = torch.zeros(k.shape, device=place)
    elif op.gate == "log scalar":
        x["gate"] = torch.zeros(k.shape[:3], device=place)
    elif op.gate == "channel":
        # tanh(x/2) is 1 in float32 from x = 18 on.
        x["gate"] = torch.full(k.shape, 64.0, device=place)
    size = k.shape[-1]
    start = torch.eye(size, device=place).repeat(count, 1, 1, 1)
    with torch.no_grad():
        last = op.run(x, initial_state=start, output_final_state=True)[1]
    assert last is not None
    n = truth.shape[-1]
    state = last[:, 0, :n, :n].double().cpu()
    norms = state.norm(dim=(1, 2)) / truth.norm(dim=(1, 2))
    away = (state - truth).norm(dim=(1, 2)) / truth.norm(dim=(1, 2))
    permutation = bool((truth.round() - truth).abs().max() < 1e-6)
    wrong = int((state.argmax(1) != truth.argmax(1)).any(1).sum()) if permutation else None
    return {"norm": _worst(norms), "relative_error": _number(away.max()), "wrong": wrong, "words": count}


def _worst(norms: Tensor) -> Any:
    return _number(norms[(norms.clamp_min(1e-300).log().abs()).argmax()])


def roofline(rows: list[dict[str, Any]], device: str, name: str) -> None:
    """results/kernels-DEVICE.svg: achieved rates over the operations per byte, under the two ceilings."""
    rates = {row["op"]: row for row in rows if row["shape"] == "ceiling"}
    points = [row for row in rows if "step_ms" in row]
    if len(rates) < 2 or not points:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    copy, matmul = rates["copy"]["tb_per_s"], rates["matmul, bfloat16"]["tflop_per_s"]
    figure, axes = plt.subplots(1, 2, figsize=(13, 5.5), sharey=True, layout="constrained")
    shown = points[0]["shape"]
    for axis, part in zip(axes, ("forward", "step"), strict=True):
        here = [row for row in points if row["shape"] == shown]
        intensity = [1e3 * row[f"{part}_gflop"] / row[f"{part}_mb"] for row in here]
        lowest, highest = min(intensity) / 2, max(*intensity, matmul / copy) * 2
        xs = [lowest * (highest / lowest) ** (i / 200) for i in range(201)]
        axis.loglog(xs, [min(copy * x, matmul) for x in xs], color="black", linewidth=1.2)
        for i, (row, x) in enumerate(zip(here, intensity, strict=True)):
            mine = row["op"].startswith("ours")
            y = row[f"{part}_gflop"] / row[f"{part}_ms"]
            colour = plt.get_cmap("tab20")(i % 20)
            axis.plot(x, y, "o" if mine else "s", color=colour, label=row["op"], markersize=8 if mine else 6)
        axis.set_xlabel("operations per byte that must move")
        axis.set_title(f"{'forward' if part == 'forward' else 'forward + backward'}, {shown}")
        axis.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("TFLOP/s of the chunkwise count")
    axes[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(f"{name}: copy {copy:.2f} TB/s, bfloat16 matmul {matmul:.0f} TFLOP/s")
    figure.savefig(RESULTS / f"kernels-{device}.svg")
    plt.close(figure)


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}"


if __name__ == "__main__":
    main()
