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
