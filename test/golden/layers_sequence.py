"""Layers over sequences: LSTM, RNN and GRU by PyTorch's own, and Embed.

Where cont is 0 a sequence begins, so each record is cut there and PyTorch runs over the pieces:
nothing here masks a state. Axis 0 has the records, axis 1 the steps.
"""
import torch
import torch.nn.functional as F

from layers_common import Case, Param

CONT = (1.3, 1.25, True)   # about a third of the marks are 0
BREAKS = (0.0, 0.0, True)  # all are: sequences of one step
WHOLE = (0.0, 1.0, True)   # none is


def gates_of_caffe(w):
    """Rows of i, f, o, g to PyTorch's i, f, g, o."""
    i, f, o, g = w.chunk(4)
    return torch.cat((i, f, g, o))


def run_lstm(x, state, w):
    w_x, b_x, w_h = (gates_of_caffe(v) for v in w)
    weights = [w_x, w_h, b_x, torch.zeros_like(b_x)]
    y, h, c = torch._VF.lstm(x, state, weights, True, 1, 0.0, False, False, True)
    return y, (h, c)


def run_gru(x, state, w):
    w_x, b_x, w_h, b_h = w
    y, h = torch._VF.gru(x, state[0], [w_x, w_h, b_x, b_h], True, 1, 0.0, False, False, True)
    return y, (h,)


def run_rnn(x, state, w):
    w_x, b_x, w_h, w_o, b_o = w
    y, h = torch._VF.rnn_tanh(x, state[0], [w_x, w_h, b_x, torch.zeros_like(b_x)], True, 1, 0.0,
                              False, False, True)
    return torch.tanh(F.linear(y, w_o, b_o)), (h,)


KINDS = {"LSTM": (run_lstm, 4, 2), "GRU": (run_gru, 3, 1), "RNN": (run_rnn, 1, 1)}


def run(kind, H, x, cont, first, w):
    """Record by record, piece by piece; the state behind the last step is (N, 1, H)."""
    f, _, states = KINDS[kind]
    ys, lasts = [], []
    for n in range(x.shape[0]):
        state = tuple(v[n:n + 1] for v in first) if first else None
        cuts = [t for t in range(x.shape[1]) if cont is not None and cont[n, t] == 0]
        edges = sorted({0, *cuts, x.shape[1]})
        parts = []
        for at, end in zip(edges, edges[1:]):
            if at in cuts or state is None:
                state = tuple(torch.zeros(1, 1, H, dtype=x.dtype) for _ in range(states))
            y, state = f(x[n:n + 1, at:end], state, w)
            parts.append(y)
        ys.append(torch.cat(parts, 1))
        lasts.append(state)
    return torch.cat(ys), [torch.cat(v) for v in zip(*lasts)]


def shapes(kind, D, H, S=0):
    G = KINDS[kind][1]
    w = [(G * H, D), (G * H,)] + ([(G * H, S)] if S else []) + [(G * H, H)]
    w += [(G * H,)] if kind == "GRU" else [(H, H), (H,)] if kind == "RNN" else []
    return w


def recurrent(name, kind, T=5, D=4, H=3, cont=CONT, S=0, exposed=False, x=None, fields="", N=3,
              **more):
    message = "gru_param" if kind == "GRU" else "recurrent_param"
    states = KINDS[kind][2] if exposed else 0
    bottoms = [x or (T, D)] + ([(S,)] if S else []) + [(1, H)] * states + ([(T,)] if cont else [])
    params = [Param("unit.%d" % k, s, 1.2) for k, s in enumerate(shapes(kind, D, H, S))]

    def f(b, p):
        b, p = list(b), list(p)
        marks = b.pop() if cont else None
        steps = b.pop(0).reshape(N, T, D)
        if S:  # the static input is as good as more inputs at each step
            fixed = b.pop(0)
            steps = torch.cat((steps, fixed.reshape(N, 1, S).expand(N, T, S)), 2)
            p[0] = torch.cat((p[0], p.pop(2)), 1)
        y, last = run(kind, H, steps, marks, b, p)
        return {"y": y, **({"last%d" % k: v for k, v in enumerate(last)} if exposed else {})}

    inputs = ["x%d" % i for i in range(len(bottoms) - (1 if cont else 0))]
    order = inputs[:1] + (["t"] if cont else []) + inputs[1:]
    tops = ["y"] + ["last%d" % k for k in range(states)]
    text = "layer { name: 'unit' type: '%s' %s %s %s { num_output: %d %s %s } }" % (
        kind, " ".join("bottom: '%s'" % b for b in order), " ".join("top: '%s'" % t for t in tops),
        message, H, "expose_hidden: true" if exposed else "", fields)
    Case("%s.%s" % (kind.lower(), name), f, [text], bottoms, params, N=N, opencv=False,
         target=cont or None, **more)


for kind in KINDS:
    recurrent("plain", kind, cont=None)
    recurrent("whole", kind, cont=WHOLE)
    recurrent("cont", kind)
    recurrent("breaks", kind, cont=BREAKS)
    recurrent("one-step", kind, T=1)
    recurrent("one-unit", kind, H=1)
    recurrent("wide", kind, T=3, D=5, H=19)
    recurrent("long", kind, T=23, D=2, H=4, N=2)
    recurrent("scalars", kind, D=1, x=(5,))
    recurrent("static", kind, S=6)
    recurrent("exposed", kind, exposed=True)
    recurrent("exposed-whole", kind, exposed=True, cont=WHOLE)
    recurrent("exposed-static", kind, S=2, exposed=True)
    recurrent("last-alone", kind, exposed=True, heads=["last0"])
    recurrent("test", kind, train=False)
    recurrent("fillers", kind, fields="weight_filler { type: 'constant' value: 0.5 } bias_filler {"
              " value: -1.5 }", inits={"unit.0": torch.full((KINDS[kind][1] * 3, 4), 0.5),
                                       "unit.1": torch.full((KINDS[kind][1] * 3,), -1.5)})
recurrent("last-cells", "LSTM", exposed=True, heads=["last1"])


def stacked(first, second):
    """Two layers, as in a language model; both read the marks."""
    def f(b, p):
        n = len(shapes(first, 3, 4))
        y, _ = run(first, 4, b[0], b[1], [], list(p[:n]))
        return {"a": y, "y": run(second, 3, y, b[1], [], list(p[n:]))[0]}

    params = [Param("a.%d" % k, s) for k, s in enumerate(shapes(first, 3, 4))]
    params += [Param("b.%d" % k, s) for k, s in enumerate(shapes(second, 4, 3))]
    text = "layer { name: '%s' type: '%s' bottom: '%s' bottom: 't' top: '%s' %s { num_output: %d } }"
    message = lambda kind: "gru_param" if kind == "GRU" else "recurrent_param"
    Case("stacked.%s.%s" % (first.lower(), second.lower()), f,
         [text % ("a", first, "x0", "a", message(first), 4),
          text % ("b", second, "a", "y", message(second), 3)], [(6, 3), (6,)], params, N=2,
         opencv=False, target=CONT, heads=["y"])


stacked("LSTM", "LSTM")
stacked("RNN", "GRU")


def embed(name, shape, fields="", bias=True, K=5, O=3, **more):
    params = [Param("unit.0", (K, O))] + ([Param("unit.1", (O,))] if bias else [])
    Case("embed." + name,
         lambda b, p: {"y": F.embedding(b[0].long(), p[0]) + (p[1] if bias else 0)},
         ["layer { name: 'unit' type: 'Embed' bottom: 'data' top: 'y' embed_param { num_output: %d"
          " input_dim: %d %s } }" % (O, K, fields)], [shape], params, target=(K, K / 2, True),
         opencv=False, **more)


embed("steps", (6,))
embed("no-bias", (6,), "bias_term: false", bias=False)
embed("once-each", (1,), K=40, O=2)
embed("test", (4,), train=False)
embed("fillers", (3,), "weight_filler { value: 2 } bias_filler { value: -1 }",
      inits={"unit.0": torch.full((5, 3), 2.0), "unit.1": torch.full((3,), -1.0)})


# --- padded sequences, and windows of longer ones, by PyTorch's own modules -------------------

MODULES = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "RNN": torch.nn.RNN}
LENGTHS = (4, 1, 5, 2)  # of T steps; what lies behind them is padding
N, T, D, H = 4, 5, 3, 4


def params_of(kind, names):
    """An RNN's are those without the output's product, as PyTorch has it."""
    some = 4 if kind == "GRU" else 3
    return [Param("%s.%d" % (name, k), s, 1.2) for name in names
            for k, s in enumerate(shapes(kind, D if name == names[0] else H, H)[:some])]


def module_of(kind, p):
    """With as many layers as p has the blobs of."""
    some, weights = 4 if kind == "GRU" else 3, []
    for k in range(0, len(p), some):
        w_x, b_x, w_h = (gates_of_caffe(v) if kind == "LSTM" else v for v in p[k:k + 3])
        weights += [w_x, w_h, b_x, p[k + 3] if kind == "GRU" else torch.zeros_like(b_x)]
    module = MODULES[kind](p[0].shape[1], H, len(p) // some, batch_first=True)
    assert [v.shape for v in module._flat_weights] == [v.shape for v in weights]
    module._flat_weights = weights
    return module


def run_modules(kind, names, x, first, p):
    """Outputs by name and the state behind the last step; states are (N, 1, H), for each layer h,
    and of an LSTM c behind it. Layer by layer, for the outputs of each; all at once is the same."""
    each, some, outs, last = KINDS[kind][2], len(p) // len(names), {}, []

    def run_some(y, state, w):
        state = torch.stack([v.squeeze(1) for v in state]).unflatten(0, (-1, each))
        y, state = module_of(kind, w)(y, tuple(state.unbind(1)) if each > 1 else state[:, 0])
        state = torch.stack(state if each > 1 else (state,), 1).flatten(0, 1)
        return y, [v.unsqueeze(1) for v in state]

    y = x
    for k, name in enumerate(names):
        y, state = run_some(y, first[each * k:each * (k + 1)], p[some * k:some * (k + 1)])
        outs[name], last = y, last + state
    whole, state = run_some(x, first, p)
    data = lambda v: v if isinstance(v, torch.Tensor) else v.data
    assert torch.allclose(data(whole), data(y), 1e-12, 1e-12)
    assert torch.allclose(torch.cat(state), torch.cat(last), 1e-12, 1e-12)
    return outs, last


def layers_of(kind, names, fields="", more=()):
    """The first reads x0, each other the one before; beside, each has some of `more`."""
    message = "gru_param" if kind == "GRU" else "recurrent_param"
    fields += " output_product: false" if kind == "RNN" else ""
    return ["layer { name: '%s' type: '%s' bottom: '%s' top: '%s' %s %s { num_output: %d %s } }"
            % (name, kind, below, name, extra, message, H, fields)
            for name, below, extra in zip(names, ["x0"] + names, more or [""] * len(names))]


def padded(kind, names, classes=3):
    """From given states to the loss at the steps that are no padding: there labels are ignored.
    In the padding of some records marks are 0, of others 1. The last record begins with 0."""
    count = KINDS[kind][2] * len(names)
    marks, words = torch.ones(N, T), torch.full((N, T), -1.0)
    for n, length in enumerate(LENGTHS):
        marks[n, length:] = n % 2
        words[n, :length] = torch.tensor([(n + 2 * t) % classes for t in range(length)])
    marks[3, 0] = 0
    ends = torch.tensor(LENGTHS).reshape(-1, 1, 1)
    known = lambda v, where: torch.where(where, v, torch.full_like(v, float("nan")))
    pack = lambda v: torch.nn.utils.rnn.pack_padded_sequence(v, LENGTHS, True, False)

    def unpack(v):
        v = torch.nn.utils.rnn.pad_packed_sequence(v, True)[0]
        return known(v, torch.arange(T).reshape(1, T, 1) < ends)

    def f(b, p):
        first = [v * marks[:, :1, None].double() for v in b[1:-1]]
        outs, last = run_modules(kind, names, pack(b[0]), first, p[:-2])
        score = outs[names[-1]]._replace(data=F.linear(outs[names[-1]].data, *p[-2:]))
        return {**{name: unpack(v) for name, v in outs.items()},
                **{"last%d" % k: known(v, ends == T) for k, v in enumerate(last)},
                "score": unpack(score),
                "loss": F.cross_entropy(score.data, pack(words).data.long())}

    ends_of = ["bottom: 'x%d' top: 'last%d'" % (k + 1, k) for k in range(count)]
    each = count // len(names)
    more = ["bottom: 'cont' " + " ".join(ends_of[k:k + each]) for k in range(0, count, each)]
    text = ["layer { name: 'in.marks' type: 'Slice' bottom: 't' top: 'cont' top: 'words'"
            " slice_param { slice_point: %d } }" % T,
            *layers_of(kind, names, "expose_hidden: true", more),
            "layer { name: 'ip' type: 'InnerProduct' bottom: '%s' top: 'score'"
            " inner_product_param { num_output: %d axis: 2 } }" % (names[-1], classes),
            "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'score' bottom: 'words'"
            " top: 'loss' loss_param { ignore_label: -1 } softmax_param { axis: 2 } }"]
    Case("padded." + kind.lower(), f, text, [(T, D)] + [(1, H)] * count + [(2 * T,)],
         params_of(kind, names) + [Param("ip.0", (classes, H)), Param("ip.1", (classes,))], N=N,
         opencv=False, losses={"loss": 1.0}, heads=[], target=torch.cat((marks, words), 1))


def windows(kind, names):
    """Three of a stream: each but the first begins with the state that the one before ends with."""
    count = KINDS[kind][2] * len(names)

    def f(b, p, carried):
        carried = torch.zeros(N, count * H).double() if carried is None else carried
        outs, last = run_modules(kind, names, b[0], carried.unflatten(1, (count, 1, H)).unbind(1),
                                 p)
        return {**outs, "carried!": torch.cat(last, 2).squeeze(1).detach()}

    Case("windows." + kind.lower(), f, layers_of(kind, names), [(T, D)], params_of(kind, names),
         N=N, opencv=False, windows=3, heads=names[-1:])


for kind, names in (("LSTM", ["a", "y"]), ("GRU", ["y"]), ("RNN", ["y"])):
    padded(kind, names)
    windows(kind, names)
