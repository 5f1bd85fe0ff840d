"""Losses and Accuracy: the ends of a net. Bottom t is a target through which no gradient goes."""
import torch
import torch.nn.functional as F

from layers_common import Case, count, labels_of
from layers_unit import IMAGE, MATRIX, layer


# --- SoftmaxWithLoss --------------------------------------------------------------------------

def normalizer(mode, valid, all_of_them, outer):
    return max(1.0, {"VALID": valid, "FULL": all_of_them, "BATCH_SIZE": outer, "NONE": 1}[mode])


def softmax_loss(x, t, axis=1, mode="VALID", ignore=-100):
    """Sum of -log of the labels' softmax, without ignored ones, divided as `mode` selects; BATCH_SIZE is
    the product of all dimensions before the axis."""
    outer = count(x.shape[:axis % x.dim()])
    x = x.movedim(axis, 1)
    total = F.cross_entropy(x, t, ignore_index=ignore, reduction="sum")
    return total / normalizer(mode, int((t != ignore).sum()), t.numel(), outer)


def softmax(name, loss_param, f, x=MATRIX, N=5, labels=3, target=None, axis=1, more="", weight=1.0,
            data=(4.0, 0.5), **rest):
    """Labels are the data layer's, or one a position."""
    fields = ("loss_param { %s } " % loss_param if loss_param else "") + (
        "softmax_param { axis: %d } " % axis if axis != 1 else "") + more
    bottoms = [x] if target is None else [x, target]

    def loss(b, p):
        t = b[1].long() if target else labels_of(N, labels)
        return {"loss": f(b[0], t.reshape(b[0].select(axis, 0).shape), axis)}

    Case("softmax-loss." + name, loss,
         [layer("SoftmaxWithLoss", bottoms=["x0", "t" if target else "label"], top="loss",
                more=fields)],
         bottoms, N=N, labels=labels, losses={"loss": weight}, data=data, opencv=False,
         target=(3.0, 1.5, True) if target else None, **rest)


MODES = ("VALID", "FULL", "BATCH_SIZE", "NONE")
softmax("default", "", softmax_loss)
softmax("point", "", softmax_loss, (6, 1, 1))
softmax("many", "", softmax_loss, (40,), labels=40, N=3)
softmax("one-record", "", softmax_loss, N=1)
softmax("ignored-of-none", "ignore_label: 255", softmax_loss)
softmax("all-ignored", "ignore_label: 0", lambda x, t, axis: 0 * x.sum(), labels=1)
softmax("ignored.test", "ignore_label: 1", lambda x, t, axis: softmax_loss(x, t, axis, ignore=1),
        train=False)
softmax("test", "", softmax_loss, train=False)
softmax("far", "", softmax_loss, data=(80.0, 0.0))
softmax("far-image", "", softmax_loss, (4, 3, 2), 2, target=(3, 2), data=(80.0, 0.0))
softmax("weight", "", softmax_loss, more="loss_weight: 0.25", weight=0.25)
for mode in MODES:
    softmax("%s" % mode.lower(), "normalization: %s" % mode,
            lambda x, t, axis, mode=mode: softmax_loss(x, t, axis, mode))
    softmax("%s.ignored" % mode.lower(), "ignore_label: 1 normalization: %s" % mode,
            lambda x, t, axis, mode=mode: softmax_loss(x, t, axis, mode, 1))
    softmax("%s.image" % mode.lower(), "normalization: %s" % mode,
            lambda x, t, axis, mode=mode: softmax_loss(x, t, axis, mode), (4, 3, 2), 2,
            target=(1, 3, 2))
    softmax("%s.image.ignored" % mode.lower(), "normalization: %s ignore_label: 2" % mode,
            lambda x, t, axis, mode=mode: softmax_loss(x, t, axis, mode, 2), (4, 3, 2), 2,
            target=(3, 2), more="loss_weight: 3", weight=3.0)
for flag, mode in (("true", "VALID"), ("false", "BATCH_SIZE")):
    softmax("normalize-%s" % flag, "ignore_label: 1 normalize: %s" % flag,
            lambda x, t, axis, mode=mode: softmax_loss(x, t, axis, mode, 1))
    softmax("normalize-%s.image" % flag, "normalize: %s" % flag,
            lambda x, t, axis, mode=mode: softmax_loss(x, t, axis, mode), (4, 3, 2), 2,
            target=(3, 2))
    softmax("normalize-%s.overruled" % flag,
            "ignore_label: 1 normalize: %s normalization: FULL" % flag,
            lambda x, t, axis: softmax_loss(x, t, axis, "FULL", 1))
softmax("rows", "", softmax_loss, (2, 4, 3), 2, target=(2, 3), axis=2)
softmax("last", "ignore_label: 0", lambda x, t, axis: softmax_loss(x, t, axis, ignore=0), (2, 3, 4),
        2, target=(6,), axis=-1)
softmax("batch_size.rows", "normalization: BATCH_SIZE ignore_label: 1",
        lambda x, t, axis: softmax_loss(x, t, axis, "BATCH_SIZE", 1), (2, 4, 3), 2, target=(2, 3),
        axis=2)
softmax("wide-image", "", softmax_loss, (19, 2, 3), 2, target=(1, 2, 3))
Case("softmax-loss.probabilities",
     lambda b, p: {"loss": softmax_loss(b[0], labels_of(4, 3)), "y": torch.softmax(b[0], 1)},
     [layer("SoftmaxWithLoss", bottoms=["x0", "label"], top="loss' top: 'y")], [MATRIX], N=4,
     losses={"loss": 1.0}, heads=[], opencv=False)


# --- EuclideanLoss, SigmoidCrossEntropyLoss, HingeLoss ----------------------------------------

def euclidean(a, b):
    """Σ (a - b)² / 2 N"""
    return ((a.flatten(1) - b.reshape(len(b), -1)) ** 2).sum() / (2 * len(a))


def pairs(name, kind, f, bottoms, names, fields="", weight=1.0, by="definition", **more):
    Case(name, lambda b, p: {"loss": f(b)}, [layer(kind, bottoms=names, top="loss", more=fields)],
         bottoms, losses={"loss": weight}, opencv=False, by=by, **more)


both = lambda b: euclidean(b[0], b[1])
pairs("euclidean.matrix", "EuclideanLoss", both, [MATRIX, MATRIX], ["x0", "x1"])
pairs("euclidean.image", "EuclideanLoss", both, [IMAGE, IMAGE], ["x0", "x1"], "loss_weight: 0.5",
      0.5)
pairs("euclidean.wide", "EuclideanLoss", both, [(18, 2, 3), (18, 2, 3)], ["x0", "x1"])
pairs("euclidean.flat", "EuclideanLoss", both, [IMAGE, (24,)], ["x0", "x1"])
pairs("euclidean.target", "EuclideanLoss", both, [IMAGE, IMAGE], ["x0", "t"],
      target=(4.0, 0.0, False))
pairs("euclidean.first-is-target", "EuclideanLoss", both, [IMAGE, IMAGE], ["t", "x0"],
      target=(4.0, 0.0, False))
pairs("euclidean.itself", "EuclideanLoss", lambda b: euclidean(b[0], b[0]), [MATRIX], ["x0", "x0"])
pairs("euclidean.label", "EuclideanLoss", lambda b: euclidean(b[0], labels_of(6, 4).double()),
      [(1,)], ["x0", "label"], N=6, labels=4)
pairs("euclidean.test", "EuclideanLoss", both, [IMAGE, IMAGE], ["x0", "x1"], train=False)


def cross_entropy(x, t, mode="BATCH_SIZE", ignore=None):
    """-Σ t log σ(x) + (1 - t) log(1 - σ(x)), without ignored ones, divided as `mode` selects."""
    valid = torch.ones_like(t) if ignore is None else (t != ignore).double()
    each = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return (each * valid).sum() / normalizer(mode, float(valid.sum()), t.numel(), len(x))


def sigmoid_loss(name, fields, x=MATRIX, mode="BATCH_SIZE", ignore=None, target=(1.0, 0.5, False),
                 weight=1.0, data=(8.0, 0.0), **more):
    pairs("sigmoid-loss." + name, "SigmoidCrossEntropyLoss",
          lambda b: cross_entropy(b[0], b[1], mode, ignore), [x, x],
          ["x0", "t"], fields, weight, "torch", target=target, data=data, N=3, **more)


WHOLE = (3.0, 0.5, True)  # -1, 0, 1
sigmoid_loss("default", "")
sigmoid_loss("far", "", data=(240.0, 0.0))
sigmoid_loss("image", "loss_weight: 0.5", IMAGE, weight=0.5)
sigmoid_loss("ignored", "loss_param { ignore_label: -1 }", ignore=-1, target=WHOLE)
sigmoid_loss("wide", "loss_param { normalization: FULL }", (18, 2, 2), "FULL")
for mode in MODES:
    sigmoid_loss("%s.ignored" % mode.lower(),
                 "loss_param { ignore_label: -1 normalization: %s }" % mode, IMAGE, mode, -1,
                 WHOLE)
    sigmoid_loss(mode.lower(), "loss_param { normalization: %s }" % mode, MATRIX, mode)
sigmoid_loss("normalize-true", "loss_param { ignore_label: -1 normalize: true }", mode="VALID",
             ignore=-1, target=WHOLE)
sigmoid_loss("normalize-false", "loss_param { ignore_label: -1 normalize: false }", ignore=-1,
             target=WHOLE)
sigmoid_loss("test", "", train=False)
pairs("sigmoid-loss.label", "SigmoidCrossEntropyLoss",
      lambda b: cross_entropy(b[0], labels_of(6, 2).double().reshape(6, 1)), [(1,)],
      ["x0", "label"], N=6, labels=2)


def hinge(x, t, norm):
    """Σ max(0, 1 ∓ x)^norm / N, minus for the label's"""
    sign = torch.ones_like(x)
    sign[torch.arange(len(x)), t] = -1
    return (torch.relu(1 + sign * x) ** norm).sum() / len(x)


for norm in (1, 2):
    f = lambda b, norm=norm: hinge(b[0], labels_of(5, 3), norm)
    text = "hinge_loss_param { norm: L%d } " % norm
    pairs("hinge.l%d" % norm, "HingeLoss", f, [MATRIX], ["x0", "label"], text, N=5, data=(4.0, 0.0))
    pairs("hinge.l%d.weight" % norm, "HingeLoss", f, [MATRIX], ["x0", "label"],
          text + "loss_weight: -2", -2.0, N=5, data=(4.0, 0.0))
pairs("hinge.default", "HingeLoss", lambda b: hinge(b[0], labels_of(4, 3), 1), [(3,)],
      ["x0", "label"], N=4, data=(4.0, 0.0))
for norm in (1, 2):  # the label's margin is just kept
    pairs("hinge.l%d.edge" % norm, "HingeLoss",
          lambda b, norm=norm: hinge(b[0], labels_of(4, 3), norm), [(3,)], ["x0", "label"],
          "hinge_loss_param { norm: L%d }" % norm, N=4, data=(0.0, 1.0))
pairs("hinge.image", "HingeLoss", lambda b: hinge(b[0].flatten(1), labels_of(4, 20), 2), [IMAGE],
      ["x0", "label"], "hinge_loss_param { norm: L2 }", N=4, labels=20)
pairs("hinge.point.test", "HingeLoss", lambda b: hinge(b[0].flatten(1), labels_of(4, 3), 1),
      [(5, 1, 1)], ["x0", "label"], N=4, train=False)


# --- several losses ---------------------------------------------------------------------------

Case("losses.two", lambda b, p: {"one": softmax_loss(b[0], labels_of(4, 3)),
                                 "two": euclidean(b[0], b[1])},
     [layer("SoftmaxWithLoss", bottoms=["x0", "label"], top="one", name="a",
            more="loss_weight: 0.3"),
      layer("EuclideanLoss", bottoms=["x0", "x1"], top="two", name="b", more="loss_weight: 2")],
     [MATRIX, MATRIX], N=4, losses={"one": 0.3, "two": 2.0}, opencv=False)
Case("losses.three", lambda b, p: {"one": softmax_loss(b[0], labels_of(4, 3)),
                                   "h": torch.tanh(b[0]),
                                   "two": softmax_loss(torch.tanh(b[0]), labels_of(4, 3)),
                                   "three": hinge(torch.tanh(b[0]), labels_of(4, 3), 2)},
     [layer("SoftmaxWithLoss", bottoms=["x0", "label"], top="one", name="a",
            more="loss_weight: 0.3"),
      layer("TanH", top="h", name="b"),
      layer("SoftmaxWithLoss", bottoms=["h", "label"], top="two", name="c"),
      layer("HingeLoss", "hinge_loss_param", "norm: L2", ["h", "label"], "three", "d",
            "loss_weight: 0.125")],
     [MATRIX], N=4, losses={"one": 0.3, "two": 1.0, "three": 0.125}, heads=[], opencv=False)
Case("losses.without-weight",
     lambda b, p: {"one": softmax_loss(b[0], labels_of(4, 3)), "two": euclidean(b[0], b[1])},
     [layer("SoftmaxWithLoss", bottoms=["x0", "label"], top="one", name="a"),
      layer("EuclideanLoss", bottoms=["x0", "x1"], top="two", name="b", more="loss_weight: 0")],
     [MATRIX, MATRIX], N=4, losses={"one": 1.0, "two": 0.0}, opencv=False)
Case("losses.of-no-loss-layer", lambda b, p: {"y": torch.abs(b[0])},
     [layer("AbsVal", more="loss_weight: 0.125")], [MATRIX], losses={"y": 0.125}, opencv=False)
Case("losses.of-image", lambda b, p: {"y": b[0] ** 2, "z": torch.tanh(b[0] ** 2)},
     [layer("Power", "power_param", "power: 2", more="loss_weight: -0.5"),
      layer("TanH", bottoms=["y"], top="z", name="b")], [IMAGE], losses={"y": -0.5}, heads=["z"],
     opencv=False)


# --- Accuracy ---------------------------------------------------------------------------------

def accuracy(name, fields, x=MATRIX, top_k=1, axis=1, ignore=None, classes=False, target=None, N=8,
             data=(2.0, 0.0), labels=3):
    """The share of labels whose score has fewer than top_k others at least as good."""
    def f(b, p):
        scores = b[0].detach().movedim(axis, -1)
        t = b[1].long() if target else labels_of(N, labels)
        scores, t = scores.reshape(-1, scores.shape[-1]), t.reshape(-1)
        own = scores.gather(1, t[:, None])
        right = ((scores >= own).sum(1) - 1 < top_k)[t != ignore].double()
        t = t[t != ignore]
        tops = {"y": right.mean() if len(t) else torch.zeros(())}
        if classes:
            each = [right[t == c] for c in range(scores.shape[1])]
            tops["z"] = torch.tensor([r.mean() if len(r) else 0.0 for r in each])
        return tops

    text = ("accuracy_param { %s }" % fields) if fields else ""
    Case("accuracy." + name, f,
         [layer("Accuracy", bottoms=["x0", "t" if target else "label"],
                top="y' top: 'z" if classes else "y", more=text)],
         [x] if target is None else [x, target], N=N, train=False, labels=labels, data=data,
         by="definition", opencv=False, target=(3.0, 1.5, True) if target else None)


accuracy("default", "", (3,))
accuracy("point", "", (4, 1, 1))
for k in (1, 2, 3, 6, 7):
    accuracy("top-%d" % k, "top_k: %d" % k, top_k=k, labels=7)
accuracy("ignored", "ignore_label: 1", (3,), ignore=1)
accuracy("ignored-all", "ignore_label: 0", labels=1, ignore=0)
accuracy("ignored-top", "ignore_label: 0 top_k: 2", top_k=2, ignore=0)
accuracy("classes", "top_k: 2", (4,), top_k=2, classes=True, N=12)
accuracy("classes-ignored", "ignore_label: 2", (3,), ignore=2, classes=True, N=12)
accuracy("image", "top_k: 2", (3, 4, 2), top_k=2, target=(1, 4, 2), N=2)
accuracy("image-ignored", "ignore_label: 1", (3, 4, 2), ignore=1, target=(4, 2), N=2)
accuracy("image-classes", "", (3, 4, 2), classes=True, target=(4, 2), N=2)
accuracy("rows", "axis: 2 top_k: 2", (2, 5, 3), top_k=2, axis=2, target=(2, 3), N=2)
accuracy("last", "axis: -1", (2, 3, 4), axis=-1, target=(2, 3), N=2)
for k in (1, 2, 4):  # a score as good as the label's counts as better
    Case("accuracy.ties-%d" % k, lambda b, p, k=k: ties(torch.relu(b[0]), labels_of(12, 4), k),
         [layer("ReLU", top="h", name="a"),
          layer("Accuracy", "accuracy_param", "top_k: %d" % k, ["h", "label"])], [(4,)], N=12,
         labels=4, train=False, by="definition", opencv=False)


def ties(h, t, k):
    own = h.gather(1, t[:, None])
    return {"h": h, "y": ((h >= own).sum(1) <= k).double().mean()}
