# %% [markdown]
# Train a net from NumPy arrays, look at its curves, and change its weights. The cells of this
# script run in an editor that knows `# %%`, and one after the other as `python3 tutorial.py`.

# %%
import tempfile

import numpy as np

import paceline

folder = tempfile.mkdtemp()
random = np.random.default_rng(1)


def draw_points(count):
    """Points of three spirals, and of which each is."""
    along, y = random.random(count), random.integers(0, 3, count)
    angle = 4 * along + 2.0944 * y + 0.3 * (random.random(count) - 0.5)
    x = np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1)
    return x.astype(np.float32), y


x, y = draw_points(3000)
tx, ty = draw_points(600)

# %% [markdown]
# A net has layers on top of each other. Two workers, processes of this machine, train it: each
# takes eight steps of its own, and then they average their models.

# %%
net = paceline.Spec().input(2).inner_product(64).relu().inner_product(3).softmax_loss()
run = paceline.train(net=net, data=(x, y), test=(tx, ty), strategy={"sync": {"tau": 8}}, workers=2,
                     epochs=30, batch=32, lr=0.1, out=folder + "/run")
print("test error %.1f %% after %.0f epochs and %.1f s" % (
    100 * run.report.test_error, run.report.epochs, run.report.wall_s))

# %% [markdown]
# The events of a run are dictionaries, and those of a kind are arrays: for matplotlib, say
# `plt.plot(curve["epoch"], curve["loss"])`.

# %%
for event in run:
    if event["kind"] == "start":
        print("net with %d parameters, %d records" % (event["parameters"],
                                                      event["records"]["train"]))
curve = run.curve("loss")
print("loss", curve["loss"].round(3))

# %% [markdown]
# The model of the run predicts classes: their probabilities, a row for each record.

# %%
scores = paceline.predict(run, tx)
print("wrong: %.1f %%" % (100 * np.mean(scores.argmax(axis=1) != ty)))

# %% [markdown]
# Records may come from an iterator, one by one or in batches. A `DataLoader` of PyTorch is one.


# %%
def batches():
    for begin in range(0, len(x), 100):
        yield x[begin:begin + 100], y[begin:begin + 100]


one = paceline.Net(net, batch=32, threads=1, solver={"base_lr": 0.1, "momentum": 0.9})
one.set_training_data(batches())
one.set_test_data((tx, ty))
print("loss %.3f, error %.3f" % (one.train(500), one.test().error))

# %% [markdown]
# Weights are views on the net's own memory. A net without its first layer's weights guesses.

# %%
print({name: array.shape for name, array in one.weights.items()})
one.weights["ip1.0"][:] = 0
print("error without them %.3f" % one.test().error)

# %% [markdown]
# Before buying machines, simulate them, or plan: here four, one of half the speed, at 100 Mbit/s.

# %%
cluster = "node { count: 3 } node { speed: 0.5 } link { mbit: 100 } step_seconds: 0.002"
simulated = paceline.simulate(cluster=cluster, net=net, data=(x, y), test=(tx, ty), workers=4,
                              strategy="mpca", epochs=5, batch=32, lr=0.05, files=False)
print("mpca in %.2f virtual seconds: error %.3f" % (simulated.report.wall_s,
                                                    simulated.report.test_error))
plan = paceline.plan(cluster=cluster, net=net, data=(x, y), batch=32, workers=(1, 4))
print("best: %s with %d workers, %.0f samples/s" % (
    plan.best.strategy, plan.best.workers, plan.best.samples_per_s))
