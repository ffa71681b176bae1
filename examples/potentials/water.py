"""Trains water.ir, a potential of water, and writes water.safetensors and water.xyz beside it.

The reference is a flexible water model that is computed here: SPC/Fw (Y. Wu, H. L. Tepper and
G. A. Voth, J. Chem. Phys. 124, 024503, 2006), harmonic bonds and angles, Lennard-Jones between
oxygens, and charges. Charges act by the damped shifted force (C. J. Fennell and J. D. Gezelter,
J. Chem. Phys. 124, 234104, 2006) within 6 angstrom, because a local network can learn no more.

The loss is of energies and forces. Forces are the energy's derivative, so that the gradient of the
loss goes through a derivative: Gradus takes both. The network then runs dynamics itself, what it
visits is labelled by the reference, and training goes on with it.

    python3 water.py            everything: the data, three rounds of training, the checks
    python3 water.py --small    a tiny setting; the exit status says whether the loss fell
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import struct
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np

import gradus
from gradus import ops

folder = pathlib.Path(__file__).resolve().parent

# Angstrom, eV, fs, and the masses of atoms.
COULOMB = 14.399645
BOLTZMANN = 8.617333e-5
ACCELERATION = 0.009648533  # of 1 eV/angstrom, of a mass of 1
KCAL = 0.04336411
MASSES = np.array([15.999, 1.008, 1.008])
VOLUME = 29.97  # of a molecule, at 0.998 g/cm^3

CUTOFF = 4.5
REFERENCE_CUTOFF = 6.0
DAMPING = 0.3
SKIN = 0.6
RATTLE = 0.06  # the most that frames are moved at random, as a deviation


# ---------------------------------------------------------------------------------------------
# Neighbours
# ---------------------------------------------------------------------------------------------


def neighbours(r, box, reach):
    """All pairs (i, j) nearer than `reach`, both ways, and what r[j] - r[i] lacks of their vector.

    `box` is the edge of a cubic box, or None. Positions need not lie in it.
    """
    home = np.zeros_like(r) if box is None else np.floor(r / box) * box
    images = 0 if box is None else math.ceil(reach / box)
    steps = np.arange(-images, images + 1) * (box or 0.0)
    found = []
    for image in np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, 3):
        d = (r - home)[None, :] - (r - home)[:, None] + image
        near = (d * d).sum(-1) < reach * reach
        if not image.any():
            np.fill_diagonal(near, False)
        i, j = np.nonzero(near)
        found.append((i, j, image + home[i] - home[j]))
    i, j, shift = (np.concatenate(part) for part in zip(*found))
    return i, j, shift


class List:
    """Neighbours that serve until an atom has moved half of the skin."""

    def __init__(self, reach):
        self.reach = reach
        self.at = None

    def moved(self, r, box):
        if self.at is not None and self.box == box and self.at.shape == r.shape:
            if np.square(r - self.at).sum(-1).max() < SKIN * SKIN / 4:
                return False
        self.at, self.box = r.copy(), box
        self.found = neighbours(r, box, self.reach + SKIN)
        return True


# ---------------------------------------------------------------------------------------------
# The reference
# ---------------------------------------------------------------------------------------------


def spc_fw(molecules, i, j, shift, charges, well):
    """The energy of molecules f64[M, 3, 3], O H H each, and of pairs of different molecules."""
    arms = molecules[:, 1:, :] - molecules[:, :1, :]
    lengths = ops.sqrt((arms * arms).sum(-1))
    bonds = 0.5 * 1059.162 * KCAL * ((lengths - 1.012) ** 2).sum()
    cosine = (arms[:, 0, :] * arms[:, 1, :]).sum(-1) / (lengths[:, 0] * lengths[:, 1])
    bend = ops.acos(cosine) - math.radians(113.24)
    angles = 0.5 * 75.90 * KCAL * (bend**2).sum()

    flat = ops.flatten(molecules, 0, 1)
    d = ops.index_select(flat, j, 0) - ops.index_select(flat, i, 0) + shift
    c, a = REFERENCE_CUTOFF, DAMPING
    # Farther pairs are taken for pairs at the cutoff, where energy and force are zero.
    r = ops.minimum(ops.sqrt((d * d).sum(-1)), c)
    at, slope = math.erfc(a * c) / c, 2 * a / math.sqrt(math.pi) * math.exp(-((a * c) ** 2)) / c
    coulomb = ops.erfc(a * r) / r - at + (at / c + slope) * (r - c)
    s6, cut = (3.165492 / r) ** 6, (3.165492 / c) ** 6
    rise = 4 * (6 * cut - 12 * cut * cut) / c
    lennard_jones = 4 * (s6 * s6 - s6) - 4 * (cut * cut - cut) - rise * (r - c)
    return bonds + angles + 0.5 * (charges * coulomb + well * lennard_jones).sum()


class Reference:
    """Energy and forces of atoms O H H O H H ..., whose molecules are whole as they lie."""

    def __init__(self):
        f64, p = "f64", gradus.Dim("P")
        types = [
            gradus.Type(f64, [gradus.Dim("M"), 3, 3]),
            gradus.Type("i64", [p]),
            gradus.Type("i64", [p]),
            gradus.Type(f64, [p, 3]),
            gradus.Type(f64, [p]),
            gradus.Type(f64, [p]),
        ]
        program = gradus.trace(spc_fw, *types).differentiate(1, wrt=["molecules"])
        self.state = gradus.State(program.compile())
        self.list = List(REFERENCE_CUTOFF)

    def __call__(self, r, box):
        if self.list.moved(r, box):
            i, j, shift = self.list.found
            apart = (i // 3 != j // 3) | shift.any(-1)
            i, j, shift = i[apart], j[apart], shift[apart]
            charge = np.where(np.arange(len(r)) % 3 == 0, -0.82, 0.41)
            well = ((i % 3 == 0) & (j % 3 == 0)) * 0.1554253 * KCAL
            self.pairs = i, j, shift, COULOMB * charge[i] * charge[j], well
        self.state.restart()
        energy = self.state.run(r.reshape(-1, 3, 3), *self.pairs)[0].item()
        slope = np.array(self.state.run(1.0)[0])
        return energy, -slope.reshape(-1, 3)


# ---------------------------------------------------------------------------------------------
# Dynamics
# ---------------------------------------------------------------------------------------------


def whole(r):
    """Whether every bond is shorter than 1.5 angstrom, and every angle is one."""
    m = r.reshape(-1, 3, 3)
    lengths = np.linalg.norm(m[:, 1:] - m[:, :1], axis=-1)
    return lengths.max() < 1.5 and np.linalg.norm(m[:, 1] - m[:, 2], axis=-1).min() > 0.8


def dynamics(force, r, box, steps, dt, temperature, rng, v=None, friction=0.0, gentle=False):
    """Velocity Verlet; with friction (1/fs) Langevin's. Yields (r, v, e, f) after every step."""
    mass = np.tile(MASSES, len(r) // 3)[:, None]
    spread = np.sqrt(BOLTZMANN * temperature * ACCELERATION / mass)
    r = r.copy()
    v = rng.normal(size=r.shape) * spread if v is None else v.copy()
    v -= (mass * v).sum(0) / mass.sum()
    keep = math.exp(-friction * dt)
    e, f = force(r, box)
    for _ in range(steps):
        v += 0.5 * dt * ACCELERATION * (f.clip(-5, 5) if gentle else f) / mass
        r += 0.5 * dt * v
        if friction:
            v = keep * v + math.sqrt(1 - keep * keep) * spread * rng.normal(size=r.shape)
            v -= (mass * v).sum(0) / mass.sum()  # clusters stay where they are
        r += 0.5 * dt * v
        e, f = force(r, box)
        v += 0.5 * dt * ACCELERATION * (f.clip(-5, 5) if gentle else f) / mass
        yield r, v, e, f


def kinetic(v):
    return 0.5 * (np.tile(MASSES, len(v) // 3)[:, None] * v * v).sum() / ACCELERATION


def lattice(side, box, rng):
    """side^3 molecules on a cubic lattice, turned at random."""
    places = np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3) * (box / side)
    out = []
    half = math.radians(113.24) / 2
    shape = 1.012 * np.array([[0, 0, 0], [math.sin(half), math.cos(half), 0]])
    shape = np.vstack([shape, shape[1] * [-1, 1, 1]])
    for place in places:
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        out.append(place + shape @ turn.T)
    return np.concatenate(out)


@dataclass
class Frame:
    """Atoms and their labels. `kind` is (atoms, whether in a box): frames of one may be batched."""

    r: np.ndarray
    box: float | None
    energy: float
    forces: np.ndarray

    def __post_init__(self):
        self.kind = (len(self.r), self.box is not None)
        self.edges = neighbours(self.r, self.box, CUTOFF)


def visit(force, reference, r, box, frames, every, temperature, rng, rattle=0.0, friction=0.01):
    """Frames that Langevin dynamics under `force` passes, with the reference's labels.

    Ends early where a molecule breaks. `rattle` adds a copy of each frame, displaced at random.
    """
    out = []
    steps = dynamics(force, r, box, frames * every, 0.5, temperature, rng, None, friction)
    for n, (now, _, _, _) in enumerate(steps, 1):
        if n % every and whole(now):
            continue
        copies = [now.copy()]
        if rattle:
            copies.append(now + rng.normal(size=now.shape) * rattle * rng.random())
        for copy in copies:
            energy, forces = reference(copy, box)
            if np.abs(forces).max() < 20:
                out.append(Frame(copy, box, energy, forces))
        if not whole(now):
            break
    return out


# Boxes of 27 and of 8 molecules, clusters of 8: molecules on a side, box or not, temperatures.
SYSTEMS = [(3, True), (2, True), (2, False)]
TEMPERATURES = {True: (300, 400, 500, 600), False: (150, 250, 300, 350)}


def start(reference, side, boxed, temperature, rng):
    edge = (VOLUME * side**3) ** (1 / 3) * (1 + rng.uniform(-0.03, 0.03) * boxed)
    r, box = lattice(side, edge, rng), edge if boxed else None
    for r, v, _, _ in dynamics(reference, r, box, 300, 0.5, temperature, rng, None, 0.05, True):
        pass
    for r, v, _, _ in dynamics(reference, r, box, 1000, 0.5, temperature, rng, v, 0.02):
        pass
    return r.copy(), box


def sample(reference, frames, every, rattle, rng, systems=SYSTEMS):
    out, starts = [], []
    for side, boxed in systems:
        for temperature in TEMPERATURES[boxed]:
            r, box = start(reference, side, boxed, temperature, rng)
            starts.append((r, box, temperature))
            out += visit(reference, reference, r, box, frames, every, temperature, rng, rattle)
    return out, starts


# ---------------------------------------------------------------------------------------------
# The model
# ---------------------------------------------------------------------------------------------

# What is trained; the other inputs of water.ir stay as they begin.
TRAINED = ["centre", "sharpness", "mix", "w1", "b1", "w2", "b2", "w3", "skip", "b3"]

TRAINING = """
graph training {
  stage 0 (%positions: f64[N, 3], %edges: i64[2, E], %shifts: f64[E, 3], %species: i64[N],
           %frame: i64[N], %energy_weight: f64[FRAMES], %energy_ref: f64[FRAMES],
           %force_ref: f64[N, 3], WEIGHTS) {
    %ghosts = full() {shape = [N], value = false, dtype = bool}
BODY
    %total = sum(%energies)
    %pull = grad(%total, %positions)
    # Minus the forces.
    %miss = add(%pull, %force_ref)
    %miss2 = square(%miss)
    %force_loss = mean(%miss2)
    %no_energy = full() {shape = [FRAMES], value = 0.0, dtype = f64}
    %of_frames = index_add(%no_energy, %frame, %energies) {dim = 0}
    %error = sub(%of_frames, %energy_ref)
    %error_atom = mul(%error, %energy_weight)
    %error2 = square(%error_atom)
    %energy_loss = mean(%error2)
    %heavy = mul(%energy_loss, 300.0)
    %loss = add(%force_loss, %heavy)
    return loss = %loss, force_loss = %force_loss, energy_loss = %energy_loss
  }
}
"""


def species(n):
    return (np.arange(n) % 3 > 0).astype(np.int64)


def first_weights(k, m, h, rng):
    f = 2 * k + 3 * m
    # Functions of O's and H's distances begin where there are atoms. Wider apart, they are wider.
    low, widest = np.array([2.3, 0.8, 0.8, 1.3]), 4.2
    x = np.linspace(0, 1, k)[None, :]
    centre = low[:, None] * (widest / low[:, None]) ** x
    width = 0.9 * np.gradient(centre, axis=1)

    def normal(rows, columns):
        return rng.normal(size=(rows, columns)) / math.sqrt(columns)

    return {
        "cutoff": np.array(CUTOFF),
        "centre": centre,
        "sharpness": 0.5 / width**2,
        # Walls of 2 eV at 2.0 (O O), 0.6 (O H) and 1.0 angstrom (H H), a fifth 0.4 farther.
        "repulsion": 2 * np.exp(4 * np.array([2.0, 0.6, 0.6, 1.0])),
        "decay": np.full(4, 4.0),
        "mix": normal(2 * m, 2 * k),
        "shift": np.zeros((2, f)),
        "scale": np.ones((2, f)),
        "w1": normal(2 * h, f),
        "b1": np.zeros(2 * h),
        "w2": normal(2 * h, h),
        "b2": np.zeros(2 * h),
        "w3": normal(2, h) * 0.1,
        "skip": np.zeros((2, f)),
        "b3": np.zeros(2),
    }


def save(weights, path):
    """A .safetensors file: the length of a header, the header, and the elements."""
    header = {"__metadata__": {"cutoff": f"{CUTOFF:g}", "species": "O H", "units": "metal"}}
    data = b""
    for name, value in sorted(weights.items()):
        part = np.ascontiguousarray(value, "<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": list(np.shape(value))}
        header[name]["data_offsets"] = [len(data), len(data) + len(part)]
        data += part
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


class Learned:
    """The model as simulators run it: from its files, by gradus.Potential."""

    def __init__(self, weights):
        with tempfile.TemporaryDirectory() as where:
            path = pathlib.Path(where) / "water.safetensors"
            save(weights, path)
            self.potential = gradus.Potential(str(folder / "water.ir"), str(path))
        self.list = List(CUTOFF)

    def __call__(self, r, box):
        if self.list.moved(r, box):
            i, j, shift = self.list.found
            self.edges, self.shifts = np.stack([i, j]), np.ascontiguousarray(shift)
        out = self.potential.run(r, self.edges, self.shifts, species(len(r)))
        return out.energy, np.array(out.forces)


class Batches:
    """Draws frames: of each kind as many every time, so that a batch's atoms are as many."""

    def __init__(self, frames, counts, rng):
        self.rng = rng
        self.counts = counts
        self.kinds = {kind: [f for f in frames if f.kind == kind] for kind in counts}
        most = {k: max(len(f.edges[0]) for f in fs) for k, fs in self.kinds.items()}
        # Room for the edges of the largest frames: sizes that stay are planned once.
        self.edges = sum(most[k] * n for k, n in counts.items())

    def draw(self):
        return [
            self.kinds[kind][n]
            for kind, count in self.counts.items()
            for n in self.rng.integers(len(self.kinds[kind]), size=count)
        ]


def batch(frames, edges=None):
    """Frames as one system without edges between them, and their labels."""
    first = np.cumsum([0] + [len(f.r) for f in frames])
    pairs = [np.stack(f.edges[:2]) + n for f, n in zip(frames, first)]
    pairs, shifts = np.concatenate(pairs, 1), np.concatenate([f.edges[2] for f in frames])
    if edges is not None:
        # An edge beyond the cutoff adds nothing.
        more = edges - len(shifts)
        pairs = np.concatenate([pairs, np.zeros((2, more), np.int64)], 1)
        shifts = np.concatenate([shifts, np.tile([2 * CUTOFF, 0.0, 0.0], (more, 1))])
    sizes = np.array([len(f.r) for f in frames])
    return {
        "positions": np.concatenate([f.r for f in frames]),
        "edges": pairs,
        "shifts": shifts,
        "species": species(first[-1]),
        "frame": np.repeat(np.arange(len(frames)), sizes),
        "energy_weight": 1.0 / sizes,
        "energy_ref": np.array([f.energy for f in frames]),
        "force_ref": np.concatenate([f.forces for f in frames]),
    }


class Trainer:
    """Adam on the loss; its gradient is stage 1, and passes through the forces' derivative."""

    def __init__(self, weights):
        self.weights = dict(weights)
        text = (folder / "water.ir").read_text()
        inputs = text[text.index("%cutoff: ") : text.index(") {")]
        # Data decide a size of the model, so that it is no graph to be called: its nodes stand here.
        nodes = text[text.index(") {") + 4 : text.index("    return")]
        training = TRAINING.replace("WEIGHTS", inputs).replace("BODY", nodes)
        program = gradus.parse(training, "water.py")
        self.state = gradus.State(program.differentiate(1, wrt=TRAINED).compile())
        seen = text.replace("= %energies", "= %energies, features = %features")
        self.features = gradus.State(gradus.parse(seen, "water.ir").compile())
        self.moments = {n: [np.zeros_like(weights[n]), np.zeros_like(weights[n])] for n in TRAINED}
        self.steps = 0

    def standardise(self, frames):
        """What the network reads begins with a mean of 0 and a deviation of 1, by species."""
        inputs = batch(frames)
        some = {n: inputs[n] for n in ("positions", "edges", "shifts", "species")}
        some["ghosts"] = np.zeros(len(some["species"]), dtype=bool)
        features = np.array(self.features.run(**some, **self.weights).features)
        self.features.restart()
        kinds = [features[some["species"] == s] for s in (0, 1)]
        self.weights["shift"] = np.stack([f.mean(0) for f in kinds])
        self.weights["scale"] = np.stack([1 / (f.std(0) + 1e-2) for f in kinds])
        # The mean energy of an atom: a third of a molecule's.
        mean = np.mean([f.energy / len(f.r) for f in frames])
        self.weights["b3"] = np.full(2, mean)

    def losses(self, inputs):
        out = self.state.run(**inputs, **self.weights)
        return out.loss.item(), out.force_loss.item(), out.energy_loss.item()

    def step(self, inputs, rate):
        values = self.losses(inputs)
        slopes = self.state.run(ct1_loss=1.0, ct1_force_loss=None, ct1_energy_loss=None)
        self.state.restart()
        self.steps += 1
        grown = {n: np.array(getattr(slopes, "d1_" + n)) for n in TRAINED}
        size = math.sqrt(sum((g * g).sum() for g in grown.values()))
        for name, g in grown.items():
            g *= min(1.0, 1.0 / size)  # one bad batch moves nothing far
            mean, square = self.moments[name]
            mean += 0.1 * (g - mean)
            square += 0.001 * (g * g - square)
            up = mean / (1 - 0.9**self.steps)
            down = np.sqrt(square / (1 - 0.999**self.steps)) + 1e-10
            self.weights[name] = self.weights[name] - rate * up / down
        return values

    def errors(self, frames):
        """Root mean squares: of force components (meV/angstrom), of energies (meV an atom)."""
        _, force, energy = self.losses(batch(frames))
        self.state.restart()
        return 1e3 * math.sqrt(force), 1e3 * math.sqrt(energy)


def train(trainer, batches, steps, rate, report):
    began = time.perf_counter()
    total = np.zeros(3)
    for n in range(steps):
        # The rate rises for a while, because Adam's moments are new, and falls by a cosine.
        part = min(1.0, (n + 1) / 100) * (0.505 + 0.495 * math.cos(math.pi * n / steps))
        total += trainer.step(batch(batches.draw(), batches.edges), rate * part)
        if (n + 1) % report == 0:
            _, force, energy = np.sqrt(total / report) * 1e3
            spent = (time.perf_counter() - began) / (n + 1)
            print(f"  step {n + 1:6}: forces {force:7.1f} meV/angstrom, energies {energy:6.2f} meV "
                  f"an atom, {1e3 * spent:.0f} ms a step", flush=True)
            total[:] = 0


def size_of_forces(frames):
    return 1e3 * math.sqrt(np.mean(np.concatenate([f.forces for f in frames]) ** 2))


def tell(trainer, what, frames):
    force, energy = trainer.errors(frames)
    print(f"{what}: {len(frames)} frames, force RMSE {force:.1f} meV/angstrom "
          f"(forces' own RMS {size_of_forces(frames):.0f}), energy RMSE {energy:.2f} meV an atom",
          flush=True)
    return force


# ---------------------------------------------------------------------------------------------
# All of it
# ---------------------------------------------------------------------------------------------


def small():
    """Clusters of 8 molecules, a narrow network, few steps."""
    rng = np.random.default_rng(1)
    reference = Reference()
    r, box = start(reference, 2, False, 250, rng)
    frames = visit(reference, reference, r, box, 20, 10, 250, rng, 0.05)
    trainer = Trainer(first_weights(4, 4, 8, rng))
    trainer.standardise(frames)
    before, _ = trainer.errors(frames)
    train(trainer, Batches(frames, {(24, False): 4}, rng), 200, 1e-2, 50)
    after = tell(trainer, "trained on", frames)
    fell = (before / after) ** 2
    failed = [c.name for c in Learned(trainer.weights).potential.check() if not c.passed]
    print(f"the mean square of forces' errors fell by a factor of {fell:.1f}")
    print(f"checks that fail: {', '.join(failed) or 'none'}")
    return fell > 5 and not failed


def nve(model, r, v, box, steps, dt, rng):
    """Dynamics without a thermostat: whether molecules stay whole, and what the energy does."""
    total, heat, intact = [], [], True
    for n, (now, speed, e, _) in enumerate(dynamics(model, r, box, steps, dt, 300, rng, v)):
        total.append(e + kinetic(speed))
        heat.append(2 * kinetic(speed) / (3 * len(r) * BOLTZMANN))
        intact = intact and whole(now)
        if not intact:
            break
    total = np.array(total)
    times = np.arange(len(total)) * dt * 1e-3
    slope = np.polyfit(times, total, 1)[0] / len(r)
    print(f"NVE, {len(r) // 3} molecules, {len(total)} steps of {dt:g} fs: molecules "
          f"{'stay whole' if intact else 'BREAK'}; total energy drifts by {1e3 * slope:.4f} meV "
          f"an atom a ps, swings by {1e3 * total.std() / len(r):.4f} meV an atom (RMS); "
          f"mean temperature {np.mean(heat):.0f} K", flush=True)
    return intact


def write_xyz(path, r, v, box):
    """Extended XYZ; velocities in angstrom/ps, which LAMMPS' metal units have."""
    # Molecules lie whole, with their oxygen in the box.
    m = r.reshape(-1, 3, 3)
    m = (m - np.floor(m[:, :1] / box) * box).reshape(-1, 3)
    lines = [
        str(len(r)),
        f'Lattice="{box} 0 0 0 {box} 0 0 0 {box}" '
        f'Properties=species:S:1:pos:R:3:vel:R:3 pbc="T T T"',
    ]
    for n, (at, speed) in enumerate(zip(m, v * 1e3)):
        numbers = " ".join(f"{x:.8f}" for x in [*at, *speed])
        lines.append(f"{'OHH'[n % 3]} {numbers}")
    path.write_text("\n".join(lines) + "\n")


def full(args):
    rng = np.random.default_rng(1)
    reference = Reference()
    began = time.perf_counter()
    frames, starts = sample(reference, args.frames, 40, RATTLE, rng)
    held, _ = sample(reference, max(args.frames // 5, 2), 200, 0.0, np.random.default_rng(2))
    print(f"{len(frames)} frames to learn from, {len(held)} held out, "
          f"in {time.perf_counter() - began:.0f} s", flush=True)
    trainer = Trainer(first_weights(8, 16, 32, rng))
    trainer.standardise(frames)
    counts = {(81, True): 2, (24, True): 2, (24, False): 2}
    for turn in range(args.rounds):
        last = turn == args.rounds - 1
        steps = args.steps if last else args.steps // 3
        trainer.moments = {n: [np.zeros_like(m) for m in ms] for n, ms in trainer.moments.items()}
        trainer.steps = 0
        train(trainer, Batches(frames, counts, rng), steps, args.rate, 250)
        save(trainer.weights, args.out.with_suffix(".safetensors"))
        tell(trainer, "trained on", frames)
        tell(trainer, "held out", held)
        if last:
            break
        model, more = Learned(trainer.weights), []
        for r, box, temperature in starts:
            for seen in (temperature, temperature * 1.3):
                more += visit(model, reference, r, box, args.frames // 2, 60, seen, rng, RATTLE)
        print(f"round {turn + 1}: the model visits {len(more)} frames", flush=True)
        tell(trainer, "visited", more)
        frames += more
    return finish(args, held, trainer, reference)


def finish(args, held, trainer, reference):
    rng = np.random.default_rng(3)
    for kind, what in [((81, True), "27 molecules in a box"), ((24, True), "8 molecules in a box"),
                       ((24, False), "clusters of 8")]:
        tell(trainer, f"held out, {what}", [f for f in held if f.kind == kind])
    model = Learned(trainer.weights)
    box = (VOLUME * 27) ** (1 / 3)
    r = lattice(3, box, rng)
    for r, v, _, _ in dynamics(reference, r, box, 500, 0.5, 300, rng, None, 0.05, True):
        pass
    for r, v, _, _ in dynamics(model, r, box, args.settle, 0.5, 300, rng, v, 0.01):
        pass
    r, v = r.copy(), v.copy()
    write_xyz(args.out.with_suffix(".xyz"), r, v, box)
    right = nve(model, r, v, box, 20000, 0.25, rng)
    right = nve(model, r, v, box, 20000, 0.5, rng) and right
    failed = [c.name for c in model.potential.check() if not c.passed]
    print(f"checks that fail: {', '.join(failed) or 'none'}")
    return right and not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="the test's setting")
    parser.add_argument("--frames", type=int, default=40, help="of each reference trajectory")
    parser.add_argument("--rounds", type=int, default=3, help="of training")
    parser.add_argument("--steps", type=int, default=21000, help="of the last round; 3 x others")
    parser.add_argument("--rate", type=float, default=2e-3, help="Adam's, at its highest")
    parser.add_argument("--settle", type=int, default=20000, help="steps before water.xyz")
    out = folder / "water"
    parser.add_argument("--out", type=pathlib.Path, default=out, help="files, without an end")
    args = parser.parse_args()
    right = small() if args.small else full(args)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
