"""Mistakes in job files, fields and options."""
from case import Case, sets, train, words

LR = "base_lr: 0.05"
SGD = 'type: "SGD" '


def zoo(name):
    return train(('net { file: "tiny.prototxt" }', f'net {{ zoo: "{name}" }}'))


def no_data(scene):
    with open(scene.path("x.job")) as f:
        text = f.read()
    scene.write("x.job", text[:text.index("train_data")] + text[text.index("test_data"):])
    return ["train", "x.job", "--out", "run"]


def net_with(*changes):
    def prepare(scene):
        scene.net("tiny.prototxt", *changes)
        return ["train", "x.job", "--out", "run"]
    return prepare


def file_as(name, content, *command):
    def prepare(scene):
        scene.write(name, content)
        return list(command)
    return prepare


CASES = [
    # ---- names of fields ----
    Case("an unknown field", train(("batch: 20", "batchsize: 20")),
         "batchsize", r"x\.job:11:", r"did you mean.{0,10}batch\b"),
    Case("tau misspelt", train(("seed: 7", "seed: 7\nstrategy { sync { taus: 5 } } workers: 2")),
         "taus", r"x\.job:1[0-9]:", r"did you mean.{0,10}tau"),
    Case("mbit misspelt in a cluster",
         lambda s: [s.write("a.cluster", "node { count: 2 }\nstep_seconds: 0.01\nlink { mbits: 5 }\n"),
                    "sim", "x.job", "--cluster", "a.cluster"][1:],
         "mbits", r"a\.cluster:3:", "did you mean.{0,10}mbit"),
    Case("lr in the solver", train((LR, "lr: 0.05")), r"\blr\b", r"x\.job:12:", "base_lr"),
    Case("lr in the job", train(("seed: 7", "lr: 0.05")), r"\blr\b", r"x\.job:", "base_lr"),
    Case("epochs in the job", train(("stop { steps: 20 }", "epochs: 3")), "epochs", r"x\.job:14:",
         r"stop"),
    Case("momentun in the solver", train(("momentum", "momentun")), "momentun", r"x\.job:12:",
         "did you mean.{0,10}momentum"),
    # ---- how it is written ----
    Case("an equals sign", train(("base_lr: 0.05", "base_lr = 0.05")), "=", r"x\.job:12:",
         r"base_lr: |write.*:"),
    Case("a fraction", train(("0.00390625", "1/255")), "/", r"x\.job:5:", r"0\.0039|decimal|write"),
    Case("a number in quotes", train(("momentum: 0.9", 'momentum: "0.9"')), r"0\.9", r"x\.job:12:",
         "number"),
    Case("a name without quotes", train(('name: "tiny"', "name: tiny")), "name", r"x\.job:1:", "quotes"),
    Case("a brace that is missing", train(("stop { steps: 20 }", "stop { steps: 20 ")), r"stop",
         r"x\.job:1[45]", "}"),
    Case("a quote that is missing", train(('name: "tiny"', 'name: "tiny')), "name|text|string|quote|line",
         r"x\.job:1:", "quote|\""),
    Case("a field given twice", train(("batch: 20", "batch: 20\nbatch: 30")), "batch", r"x\.job:12:",
         "twice|once|remove"),
    Case("a strategy as text", train(("seed: 7", 'strategy: "sync"')), "strategy", r"x\.job:15:",
         r"\{|strategy \{"),
    Case("two strategies", train(("seed: 7", "strategy { sync { } }\nstrategy { easgd { } }")),
         "strategy", r"x\.job:16:", "twice|once|one of"),
    Case("a byte order mark",
         lambda s: [s.write("x.job", "\ufeff" + open(s.path("x.job")).read()), "train", "x.job",
                    "--out", "run", "--set", "batch=0"][1:],
         "batch", "batch", "> 0|at least 1|from 1"),
    Case("curly quotes", train(('name: "tiny"', "name: \u201ctiny\u201d")), "\u201c|quote|character",
         r"x\.job:1:", "\"|straight|quotes"),
    Case("an empty job", file_as("e.job", "", "train", "e.job", "--out", "run"),
         "empty|nothing|net|train_data", r"e\.job", "net|train_data"),
    Case("a picture as a job",
         lambda s: [s.picture("p.png"), "train", "p.png", "--out", "run"][1:],
         "PNG|picture|text|character|binary", r"p\.png", "job|text"),
    # ---- words that are chosen from ----
    Case("a net that is not in the zoo", zoo("lenet5"), "lenet5", "zoo", "lenet\\b"),
    Case("an optimizer in small letters", train((SGD, 'type: "sgd" ')), "sgd", r"solver\.type|x\.job", "SGD"),
    Case("an unknown schedule", train(('"fixed"', '"cosine"')), "cosine", "lr_policy", "poly"),
    Case("a schedule without its numbers", train(('"fixed"', '"step"')), "gamma|stepsize",
         r"solver\.", r"needs|set"),
    Case("an unknown strategy", train(more=["--strategy", "ring"]), "ring", "strategy", "allreduce"),
    Case("unknown kernels", train(more=["--kernels", "cuda"]), "cuda", "kernels", "dnnl"),
    Case("an unknown precision", train(more=["--precision", "fp16"]), "fp16", "precision", "f32"),
    Case("an unknown heartbeat", sets("heartbeat=wan"), "wan", "heartbeat", "lan"),
    # ---- numbers ----
    Case("a rate of nan", train((LR, "base_lr: nan")), "nan", "base_lr", "> 0|positive|finite|write"),
    Case("a rate below 0", train((LR, "base_lr: -0.01")), r"-0\.01(?!0000|9)", "base_lr", "> 0|positive"),
    Case("no rate", train((LR, "")), "missing|not set|is needed", "base_lr", "base_lr: |base_lr=|--lr|set"),
    Case("a batch of 0", sets("batch=0"), "0", "batch", "> 0|at least 1|from 1"),
    Case("a batch of words", sets("batch=big"), "big", "batch", "number|integer"),
    Case("a batch beyond all numbers", sets("batch=1e99"), "1e99", "batch", "integer|range|at most"),
    Case("no training data", no_data, "train_data", "train_data", "idx|--data"),
    Case("no workers", train(more=["--workers", "0"]), "0", "workers", "at least|> 0|1 to|from 1"),
    Case("too many workers", train(more=["--workers", "5000"]), "5000", "workers", "at most|1,?024|1 to"),
    Case("threads in words", train(more=["--threads", "many"]), "many", "threads", "number|integer"),
    Case("a tau of 0", sets("workers=2", "strategy.sync.tau=0"), "0", "tau", "> 0|at least 1|from 1"),
    Case("steps set to 0", sets("stop.steps=0"), "0", r"stop\.steps", r"unset|> 0.*(remove|unset|take)"),
    Case("epochs below 0", sets("stop.epochs=-1"), "-1", r"stop\.epochs", "> 0"),
    Case("validation in percent", train(("seed: 7", 'validation: "20%"')), "20", r"x\.job:15:|validation",
         "number|integer|records"),
    # ---- what does not go together ----
    Case("single with four workers",
         train(("seed: 7", "seed: 7\nstrategy { single { } } workers: 4")), "single", "strategy|workers",
         "--strategy|sync|workers: 1|write"),
    Case("downpour with momentum", train(more=["--strategy", "downpour"]), "momentum", "solver", "momentum(=|: ?)0"),
    Case("workers and workers_min", sets("workers=2", "workers_min=1", "workers_max=3"), "workers_min",
         "workers", "unset|one of|remove|without"),
    Case("a stop rule without validation", sets("stop.validation_error=0.05"), "validation_error", "stop",
         r"validation"),
    Case("a snapshot for two workers",
         train(more=["--snapshot", "a.solverstate", "--workers", "2"]), "snapshot", "workers|strategy|single",
         "single|one worker|workers 1"),
    # ---- options ----
    Case("a command misspelt", words("trian", "x.job"), "trian", "paceline", "train"),
    Case("an option misspelt", words("train", "x.job", "--worker", "2"), "--worker\\b", "train", "--workers"),
    Case("an option without its value", words("train", "x.job", "--workers"), "workers", "train",
         "needs|value|expected|missing"),
    Case("--set without a value", sets("batch"), "`batch`", "set", "FIELD=VALUE"),
    Case("--set of a field misspelt", sets("solver.base_rl=1"), "base_rl", "solver|--set", "base_lr"),
    Case("two jobs", words("train", "x.job", "y.job"), "y.job", "train|argument", "one|--help|usage"),
    Case("no job", words("train"), "job", "train", "--help|usage|JOB"),
    Case("sim without a cluster", words("sim", "x.job"), "cluster", "sim", "--cluster"),
    # ---- nets ----
    Case("an unknown kind of layer", net_with(("type: 'Pooling'", "type: 'Poolling'")), "Poolling",
         r"tiny\.prototxt|layer", "Pooling"),
    Case("a blob that nobody makes", net_with(("bottom: 'pool' top: 'ip'", "bottom: 'poll' top: 'ip'")), "poll",
         '"?ip"?', "pool\\b|made|top"),
    Case("a convolution without outputs", net_with(("num_output: 6 ", "")), "num_output", "conv", "num_output"),
    Case("a recurrent layer",
         net_with(("layer { name: 'relu' type: 'ReLU'",
                   "layer { name: 'r' type: 'LSTM' recurrent_param { num_output: 8 } bottom: 'pool' top: 'r' }\n"
                   "layer { name: 'relu' type: 'ReLU'")),
         "LSTM|recurrent", r"tiny\.prototxt|\"r\"", "not supported|cannot|there (are|is) no"),
    Case("an ONNX model as a net",
         lambda s: [s.write("model.onnx", b"\x08\x03\x12\x07pytorch\x3a\x40" + bytes(64)), "model",
                    "model.onnx"][1:],
         "ONNX", r"model\.onnx", "prototxt|caffemodel|convert|not supported|safetensors"),
    Case("pictures too small for the net", zoo("resnet-50"), "12|window|1 x 1|1x1|small", "layer|pool|net",
         "larger|resize|at least|smaller"),
    Case("a net that is not there", train(("tiny.prototxt", "nowhere.prototxt")), "nowhere",
         r"nowhere\.prototxt", "No such file|name|path"),
    Case("fewer outputs than classes", net_with(("num_output: 3", "num_output: 2")), "label 2|2 classes|2 outputs",
         "ip|label|idx|train-labels|net", "num_output|outputs"),
    Case("more outputs than classes", net_with(("num_output: 3", "num_output: 10")), "10 (outputs|classes)",
         "ip|classes|net", "num_output|outputs", code=(0,)),
]
