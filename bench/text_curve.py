#!/usr/bin/env python3
"""The validation loss of the examples over text, here and in PyTorch with the same settings.

    bench/text_curve.py [--job lstm|rnn] [--text FILE] [--epochs N] [--every STEPS] [--paceline FILE]
                        [--run DIR] [--state FILE]

Trains examples/shakespeare-lstm.job (or -rnn.job) with the command, and the same net in PyTorch: the same
windows in the same order, streams whose state is carried, RMSProp, rate, clipping, batch, and fillers (with
another random generator). Both are evaluated after the same steps, on the windows held out, each from a state
of 0. Prints both curves, and then what part of the words in 3,000 characters that the trained model draws
occurs in the text (bench/text_words.py). Fails when the loss is more than 0.02 above PyTorch's at its best
evaluation, or fewer than 80 % of the words occur.

With --run and --state a call that was interrupted continues: DIR is the run, which is resumed from its
newest checkpoint, or taken as it is where it ended; FILE keeps PyTorch's net, optimizer, streams and losses
as of its last evaluation.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
from text_words import share_of_words
from torch import nn

WINDOW, BATCH, STREAMS, VALIDATION, EMBED = 50, 32, 32, 2230, 64
RATE, GAMMA, DECAY, DELTA, CLIP = 0.002, 0.97, 0.95, 1e-8, 5
UNITS = 200, 100
MARGIN, LENGTH, WORDS = 0.02, 3000, 0.8


class Layer(nn.Module):
    """LSTM, or Caffe's RNN: h = tanh(W_xh x + W_hh h + b_h), and the output tanh(W_ho h + b_o)."""

    def __init__(self, kind, inputs, units):
        super().__init__()
        self.units = (nn.LSTM if kind == "lstm" else nn.RNN)(inputs, units, batch_first=True)
        self.out = nn.Linear(units, units) if kind == "rnn" else None
        for name, p in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(p)
            else:
                nn.init.uniform_(p, -0.08, 0.08)
        self.units.bias_hh_l0.requires_grad = False  # there is one bias

    def forward(self, x, state):
        y, state = self.units(x, state)
        return (torch.tanh(self.out(y)) if self.out else y), state


class Net(nn.Module):
    def __init__(self, kind, characters):
        super().__init__()
        self.kind, self.sizes = kind, UNITS
        self.embed = nn.Embedding(characters, EMBED)
        nn.init.normal_(self.embed.weight, 0, 0.3)
        inputs = (EMBED,) + self.sizes
        self.layers = nn.ModuleList(Layer(kind, i, o) for i, o in zip(inputs, self.sizes))
        self.scores = nn.Linear(self.sizes[-1], characters)
        nn.init.uniform_(self.scores.weight, -0.08, 0.08)
        nn.init.zeros_(self.scores.bias)

    def zero_state(self, n):
        """For n records: a list of vectors, h and of an LSTM c for each layer."""
        return [torch.zeros(n, u) for u in self.sizes for _ in range(2 if self.kind == "lstm" else 1)]

    def forward(self, x, state):
        y, ended = self.embed(x), []
        for i, layer in enumerate(self.layers):
            if self.kind == "lstm":
                y, (h, c) = layer(y, (state[2 * i][None], state[2 * i + 1][None]))
                ended += [h[0].detach(), c[0].detach()]
            else:
                y, h = layer(y, state[i][None])
                ended.append(h[0].detach())
        return self.scores(y), ended


def read_windows(path):
    with open(path, encoding="utf-8", newline="") as f:
        text = f.read()
    ids = {c: i for i, c in enumerate(sorted(set(text)))}
    units = torch.tensor([ids[c] for c in text])
    count = (len(units) - WINDOW - 1) // WINDOW + 1
    x = units[:count * WINDOW].view(count, WINDOW)
    y = units[1:count * WINDOW + 1].view(count, WINDOW)
    return text, len(ids), x, y


def record_at(place, n):
    """As src/data/sampler.c orders records in streams."""
    place %= n
    each = n // STREAMS
    return place if place >= each * STREAMS else place % STREAMS * each + place // STREAMS


class Streams:
    """As src/learner/carried_state.c carries the state of each."""

    def __init__(self, net, n):
        self.n, self.at, self.next = n, net.zero_state(STREAMS), [0] * STREAMS

    def begin(self, start):
        state = [v.clone() for v in self.at]
        rows = [(start + i) % self.n % STREAMS for i in range(BATCH)]
        for i, row in enumerate(rows):
            follows = self.next[row] == record_at(start + i, self.n)
            for v, all_ in zip(state, self.at):
                v[i] = all_[row] if follows else 0
        return state

    def end(self, start, state):
        for i in range(BATCH):
            row = (start + i) % self.n % STREAMS
            for v, all_ in zip(state, self.at):
                all_[row] = v[i]
            self.next[row] = record_at(start + i, self.n) + 1


def evaluate(net, x, y):
    net.eval()
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(x), BATCH):
            scores, _ = net(x[i:i + BATCH], net.zero_state(len(x[i:i + BATCH])))
            total += nn.functional.cross_entropy(scores.flatten(0, 1), y[i:i + BATCH].flatten(),
                                                 reduction="sum").item()
    net.train()
    return total / y.numel()


class Kept:
    """A file with all that training continues from; no name: nothing is kept."""

    def __init__(self, args, net, optimizer, streams):
        self.file, self.net, self.optimizer, self.streams = args.state, net, optimizer, streams
        self.settings = [args.job, args.seed]

    def load(self):
        """Steps taken, and the losses so far."""
        if not self.file or not os.path.exists(self.file):
            return 0, {}
        kept = torch.load(self.file)
        if kept["settings"] != self.settings:
            sys.exit(f"{self.file}: kept by --job and --seed {kept['settings']}, not {self.settings}")
        self.net.load_state_dict(kept["net"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.streams.at, self.streams.next = kept["at"], kept["next"]
        return kept["step"], kept["losses"]

    def save(self, step, losses):
        if not self.file:
            return
        torch.save({"settings": self.settings, "net": self.net.state_dict(),
                    "optimizer": self.optimizer.state_dict(), "at": self.streams.at,
                    "next": self.streams.next, "step": step, "losses": losses}, self.file + ".new")
        os.replace(self.file + ".new", self.file)


def train_torch(args, characters, x, y, steps_of_evals):
    """Validation losses after these steps."""
    torch.manual_seed(args.seed)
    n = len(x) - VALIDATION
    net = Net(args.job, characters)
    parameters = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.RMSprop(parameters, lr=RATE, alpha=DECAY, eps=DELTA)
    streams = Streams(net, n)
    kept = Kept(args, net, optimizer, streams)
    taken, losses = kept.load()
    for step in range(taken + 1, max(steps_of_evals) + 1):
        start = (step - 1) * BATCH
        records = [record_at(start + i, n) for i in range(BATCH)]
        for group in optimizer.param_groups:
            group["lr"] = RATE * GAMMA ** (start / n)
        scores, ended = net(x[records], streams.begin(start))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), y[records].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        streams.end(start, ended)
        if step in steps_of_evals:
            losses[step] = evaluate(net, x[n:], y[n:])
            kept.save(step, losses)
            print(f"  PyTorch, step {step}: {losses[step]:.4f}", file=sys.stderr, flush=True)
    missing = sorted(set(steps_of_evals) - set(losses))
    if missing:
        sys.exit(f"{args.state}: it was kept behind step {missing[0]}, of which it has no loss")
    return losses


def run_ended(run):
    """Whether its last session came to a stop rule."""
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as f:
        events = [json.loads(line) for line in f if line.endswith("\n")]
    reasons = [e.get("reason") for e in events if e["kind"] in ("start", "end")]
    return bool(reasons) and reasons[-1] not in (None, "interrupted", "failed")


def run_here(args, folder):
    """The run's directory."""
    out = args.run or os.path.join(folder, "run")
    if args.run and os.path.exists(os.path.join(args.run, "events.jsonl")):
        command = [args.paceline, "resume", args.run, "--quiet"]
        if not run_ended(args.run) and subprocess.run(command, check=False).returncode != 0:
            sys.exit(" ".join(command))
        return args.run
    command = [args.paceline, "train", f"examples/shakespeare-{args.job}.job", "--out", out, "--quiet",
               "--seed", str(args.seed), "--threads", str(args.threads), "--set", f"train_data.text.path={args.text}",
               "--epochs", f"{args.epochs:g}"]
    if args.every:
        command += ["--set", f"evaluate.every_steps={args.every}"]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(" ".join(command))
    return out


def read_curve(run):
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    return {e["step"]: (e["epoch"], e["loss"]) for e in events
            if e["kind"] == "eval" and e["set"] == "validation"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--job", choices=("lstm", "rnn"), default="lstm")
    parser.add_argument("--text", default="data/tinyshakespeare.txt")
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--every", type=int, help="steps between two evaluations; else once an epoch")
    parser.add_argument("--paceline", default="build/paceline")
    parser.add_argument("--run", help="a directory for the run, or that of one")
    parser.add_argument("--state", help="a file for PyTorch's half, or that of one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text, characters, x, y = read_windows(args.text)
    with tempfile.TemporaryDirectory() as folder:
        run = run_here(args, folder)
        here = read_curve(run)
        share, _ = share_of_words(args.paceline, run, text, LENGTH, args.seed)
    there = train_torch(args, characters, x, y, set(here))
    print("  epoch    step  Paceline   PyTorch")
    for step in sorted(here):
        print(f"{here[step][0]:7.2f} {step:7d}  {here[step][1]:8.4f}  {there[step]:8.4f}")
    best, best_there = min(loss for _, loss in here.values()), min(there.values())
    print(f"best: {best:.4f}, PyTorch {best_there:.4f}: {best - best_there:+.4f} nats a character")
    print(f"words of {LENGTH} drawn characters that occur in the text: {100 * share:.1f} %")
    return 0 if best <= best_there + MARGIN and share >= WORDS else 1


if __name__ == "__main__":
    sys.exit(main())
