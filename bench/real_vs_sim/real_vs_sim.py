#!/usr/bin/env python3
"""The simulator's prediction of a run against the real run: four paced workers and a driver, a host each.

    bench/real_vs_sim/real_vs_sim.py [--build DIR] [--out DIR] [--only NAME,...] [--repetitions 3]
                                     [--step-s 0.2] [--rate 240mbit] [--steps 80] [--together]

The same job on five hosts of bench/netns.sh (needs root), three times, and in `paceline sim` on a
cluster file with the same link rate, that network's measured latency, and a step of S seconds. S
is a hundred times what a step's arithmetic takes and more, so that two cores carry four workers and
the load of the day counts for less: `pace` sleeps for the rest. Both leave a trace. What a worker
took from its tenth step, when all is warm, to the beginning of its last, beyond S x steps, is
compared, the mean over workers, where it is 5 % of the total or more; and so is the number of
exchanges.

Where each worker speaks with the driver by itself, what it waits depends on who else does so then,
and nothing brings workers together or apart: begun together, they would stay so in the simulator,
where a link is shared evenly, and would not on TCP. So a worker's first step is made longer, in
both worlds, with SIGSTOP here and a fault `slow` there: for easgd evenly, so that nobody meets
anybody. With ps the driver's link is busy for three quarters of the time, and even spacing does not
outlive the first steps of a real run. There workers begin at random moments: three draws for real,
twelve in the simulator, and medians of both. --together leaves all that out.

Prints a table, and writes table.md and results.json into DIR. Runs that are already in DIR are not
repeated, so it can be interrupted and called again.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
JOB = os.path.join(ROOT, "examples", "fashion-fc.job")
WORKERS = 4
WARM = 9  # steps that are not looked at
PARAMETERS = 455_370
BAR = 0.2  # so far may the simulator be off
NEGLIGIBLE = 0.05  # of the total, in both: nothing to compare
RING = ["collective.algorithm=chunked_ring", "collective.stripes=1"]  # nothing to be chosen
STRATEGIES = {
    "sync": ["sync", "strategy.sync.tau=1", *RING],
    "easgd": ["easgd", "strategy.easgd.tau=2"],
    "ps asp": ["ps", "strategy.ps.consistency=asp"],
    "ps asp colocated": ["ps", "strategy.ps.consistency=asp", "strategy.ps.colocated=true"],
    "mpca": ["mpca"],
    "pace": ["pace"],
    "allreduce": ["allreduce", *RING],
    "async_allreduce": ["async_allreduce", *RING],
}
# The time between two exchanges of one worker alone, in steps and ways of the model; and how many
# random beginnings are simulated, 0 where workers begin evenly apart.
ALONE = {"easgd": (2, 1, 0), "ps asp": (1, 2, 12)}
LISTED = "sync,easgd,ps asp,ps asp colocated,mpca"


def settings(args, name):
    """The job's settings in both worlds: strategy, then fields."""
    strategy, *fields = STRATEGIES[name]
    return [strategy, *fields, f"workers={WORKERS}", "threads=1", f"pace={args.step_s}",
            "validation=0", f"stop.steps={args.steps}", "stop.epochs=1000000",
            "evaluate.every_exchanges=1000000000", "checkpoint.every_seconds=0"]


def behind(args, name, draw):
    """By how many seconds each worker begins late."""
    steps, ways, draws = ALONE.get(name, (0, 0, 0))
    model_s = PARAMETERS * 32 / (in_mbit(args.rate) * 1e6)
    cycle = 0 if args.together else steps * args.step_s + ways * model_s
    chance = random.Random(draw)
    return [round(cycle * (chance.random() if draws else i / WORKERS), 4) for i in range(WORKERS)]


def in_mbit(rate):
    units = {"gbit": 1000, "mbit": 1, "kbit": 1e-3, "bit": 1e-6}
    unit = next(u for u in units if rate.endswith(u))
    return float(rate[:-len(unit)]) * units[unit]


# ---- on a host ----

def wait_for(path, text="", count=1):
    """Wait until the file exists and contains the text this many times."""
    deadline = time.time() + 60
    while time.time() < deadline:
        if os.path.exists(path):
            with open(path) as f:
                if f.read().count(text) >= count:
                    return
        time.sleep(0.005)
    sys.exit(f"{path} does not come")


def host(build, out, step_s, late, *sets):
    """The driver on host 0; a worker on each of the others. With priority, if we may have it: it is
    not the load of the day that is measured."""
    ready = os.path.join(out, "ready")
    os.environ.update({"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
    try:
        os.nice(-15)
    except PermissionError:
        pass
    rank = int(os.environ["PACELINE_RANK"])
    if rank == 0:
        drive = os.path.join(build, "real_vs_sim_drive")
        os.execv(drive, [drive, JOB, os.path.join(out, "run"), os.path.join(out, "trace.json"),
                         os.environ["PACELINE_RENDEZVOUS"], ready, *sets])
    wait_for(ready)
    worker = subprocess.Popen(
        [os.path.join(build, "paceline"), "worker", "--join", os.environ["PACELINE_RENDEZVOUS"],
         "--listen", os.environ["PACELINE_ADDRESS"] + ":0",
         "--key", os.environ["PACELINE_KEY_FILE"]])
    late = json.loads(late)
    if any(late):
        wait_for(os.path.join(out, "run", "events.jsonl"), '"what":"join"', WORKERS)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(float(step_s) + late[rank - 1])
        worker.send_signal(signal.SIGCONT)
    return worker.wait()


def ping(ready):
    """Host 0 prints the seconds that a short message takes to host 1: half of there and back."""
    address = os.environ["PACELINE_ADDRESS"]
    if os.environ["PACELINE_RANK"] == "1":
        with socket.create_server((address, 29500)) as server:
            with open(ready, "w") as f:
                f.write(address)
            with server.accept()[0] as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while data := s.recv(64):
                    s.sendall(data)
        return
    wait_for(ready)
    took = []
    with open(ready) as f, socket.create_connection((f.read(), 29500)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(1000):
            begun = time.perf_counter()
            s.sendall(b"x" * 64)
            s.recv(64)
            took.append(time.perf_counter() - begun)
    print(statistics.median(took) / 2)


def on_hosts(args, n, *command):
    return subprocess.run([os.path.join(ROOT, "bench", "netns.sh"), "--rate", args.rate, str(n),
                           sys.executable, os.path.abspath(__file__), *command],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


# ---- runs ----

def folder(args, *key):
    key = json.dumps([args.rate, *key])
    return os.path.join(args.out, "runs", hashlib.sha1(key.encode()).hexdigest()[:16])


def measured(out, step_s):
    """Seconds beyond S x steps, and the steps, means over workers; and the number of exchanges."""
    with open(os.path.join(out, "trace.json")) as f:
        spans = json.load(f)
    begun = {}
    for e in spans:
        if e["ph"] == "X" and e["name"] == "compute":
            begun.setdefault(e["pid"], []).append(e["ts"] / 1e6)
    assert len(begun) == WORKERS, f"{out}: {len(begun)} workers"
    warm = [sorted(t)[WARM:] for t in begun.values()]
    steps = statistics.mean(len(t) - 1 for t in warm)
    with open(os.path.join(out, "run", "events.jsonl")) as f:
        events = [json.loads(line) for line in f]
    assert not any(e["kind"] == "member" and e["what"] != "join" for e in events), f"{out}: a death"
    return {"beyond_s": statistics.mean(t[-1] - t[0] for t in warm) - step_s * steps,
            "steps": steps, "exchanges": sum(e["kind"] == "exchange" for e in events)}


def once(args, out, run):
    """The run's measurements, from its file if there is one."""
    result = os.path.join(out, "result.json")
    if not os.path.exists(result):
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        done = run(out)
        if done.returncode != 0:
            sys.exit(f"{out}: exit {done.returncode}\n{done.stderr}")
        with open(result, "w") as f:
            json.dump(measured(out, args.step_s), f)
        os.remove(os.path.join(out, "trace.json"))
    with open(result) as f:
        return json.load(f)


def really(args, name, repetition):
    sets, late = settings(args, name), behind(args, name, repetition)
    return once(args, folder(args, "real", sets, late, repetition),
                lambda out: on_hosts(args, WORKERS + 1, "--host", args.build, out, str(args.step_s),
                                     json.dumps(late), *sets))


def simulated(args, name, cluster, draw=0):
    strategy, *fields = settings(args, name)
    sets = [word for f in fields for word in ("--set", f)]
    for i, late in enumerate(behind(args, name, draw)):
        if late > 0:
            cluster += f"fault {{ at: 0 slow: {i} factor: 1e6 for: {late} }}\n"

    def run(out):
        path = os.path.join(out, "a.cluster")
        with open(path, "w") as f:
            f.write(cluster)
        return subprocess.run(
            [os.path.join(args.build, "paceline"), "sim", JOB, "--cluster", path, "--strategy",
             strategy, *sets, "--trace", os.path.join(out, "trace.json"),
             "--out", os.path.join(out, "run")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})

    return once(args, folder(args, "sim", strategy, sets, cluster), run)


def cluster_text(args):
    """The network and the machine, measured once: a message's way, and a byte's cost to a core. A
    paced worker mostly sleeps, so its node has a core for the rest."""
    path = os.path.join(args.out, f"{args.rate}-{args.step_s:g}.cluster")
    if not os.path.exists(path):
        with open(path + ".new", "w") as f:
            f.write(measured_cluster(args))
        os.replace(path + ".new", path)
    with open(path) as f:
        return f.read()


def measured_cluster(args):
    ready = os.path.join(args.out, "ready")
    if os.path.exists(ready):
        os.remove(ready)
    pinged = on_hosts(args, 2, "--ping", ready)
    if pinged.returncode != 0:
        sys.exit(f"no latency: {pinged.stderr}")
    wire = json.loads(subprocess.run(
        [os.path.join(args.build, "paceline"), "bench", "wire", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
    return (f"node {{ count: {WORKERS} cores: 2 }}\ndriver {{ cores: 2 }}\n"
            f"step_seconds: {args.step_s}\nlink {{ mbit: {in_mbit(args.rate):g} "
            f"latency_us: {float(pinged.stdout) * 1e6:.1f} }}\n"
            f"costs {{ copy_gb_s: {1 / wire['copy_ns_per_byte']:.2f} "
            f"reduce_gb_s: {1 / wire['reduce_ns_per_byte']:.2f} }}\n")


def build_driver(build):
    """The command starts all workers on its own host; this driver waits for them."""
    source, program = os.path.join(HERE, "drive.c"), os.path.join(build, "real_vs_sim_drive")
    archives = [os.path.join(build, f"libpaceline{part}.a")
                for part in ("", "_real", "_sim", "_core", "_schemas")]
    if os.path.exists(program) and all(os.path.getmtime(program) > os.path.getmtime(f)
                                       for f in (source, *archives)):
        return
    subprocess.run(["cc", "-std=c17", "-O2", "-Wall", "-Wextra",
                    "-I", os.path.join(ROOT, "include"), source, "-o", program, *archives,
                    "-lcjson", "-lprotobuf-c", "-lxxhash", "-lz", "-ldnnl", "-fopenmp", "-lm"],
                   check=True)


def medians(runs):
    """Milliseconds a step beyond S, and exchanges."""
    return (1e3 * statistics.median(r["beyond_s"] / r["steps"] for r in runs),
            statistics.median(r["exchanges"] for r in runs))


def row(name, step_s, real, sim):
    (beyond, exchanges), (modelled, expected) = medians(real), medians(sim)
    part = beyond / (beyond + 1e3 * step_s)
    each = ", ".join(f"{1e3 * r['beyond_s'] / r['steps']:.1f}" for r in real)
    drawn = sorted(1e3 * r["beyond_s"] / r["steps"] for r in sim)
    spread = f" ({drawn[0]:.1f} … {drawn[-1]:.1f})" if len(sim) > 1 else ""
    ratios = [exchanges / expected]
    shown = "–"
    if max(part, modelled / (modelled + 1e3 * step_s)) >= NEGLIGIBLE:
        ratios.append(beyond / modelled if modelled else float("inf"))
        shown = f"{ratios[1]:.2f}"
    verdict = "yes" if all(abs(r - 1) <= BAR for r in ratios) else "**no**"
    return (f"| {name} | {100 * part:.0f} % | {beyond:.1f} ({each}) | {modelled:.1f}{spread} "
            f"| {shown} | {exchanges:.0f} | {expected:.0f} | {ratios[0]:.2f} | {verdict} |")


def main():
    if sys.argv[1:2] == ["--host"]:
        return host(*sys.argv[2:])
    if sys.argv[1:2] == ["--ping"]:
        return ping(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "real_vs_sim"))
    parser.add_argument("--only", default=LISTED, help=f"of {', '.join(STRATEGIES)}")
    parser.add_argument("--rate", default="240mbit")
    parser.add_argument("--step-s", type=float, default=0.2)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--together", action="store_true", help="workers begin together")
    args = parser.parse_args()
    args.build, args.out = os.path.abspath(args.build), os.path.abspath(args.out)
    os.makedirs(args.out, exist_ok=True)
    build_driver(args.build)
    cluster = cluster_text(args)
    lines = [f"| strategy | part of the total | real: ms a step beyond S = {1e3 * args.step_s:g} "
             "| sim | real / sim | exchanges: real | sim | real / sim | within 20 % |",
             "|---|---|---|---|---|---|---|---|---|"]
    results = {}
    for name in args.only.split(","):
        draws = 1 if args.together else max(1, ALONE.get(name, (0, 0, 0))[2])
        sim = [simulated(args, name, cluster, draw) for draw in range(draws)]
        real = [really(args, name, i) for i in range(args.repetitions)]
        results[name] = {"real": real, "sim": sim}
        lines.append(row(name, args.step_s, real, sim))
        print(lines[-1], file=sys.stderr, flush=True)
    table = "\n".join(lines)
    print(table)
    with open(os.path.join(args.out, "table.md"), "w") as f:
        f.write(table + "\n")
    with open(os.path.join(args.out, "results.json"), "w") as f:
        json.dump({"cluster": cluster, "strategies": results}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
