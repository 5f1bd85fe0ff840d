"""Mistakes in job files, fields and options."""
from case import NO_FILE, Case, sets, train, words

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
    Case("an unknown field", train(("batch: 20", "batchsize: 20")), "no field `batchsize`", r"x\.job:11:",
         "did you mean `batch`"),
    Case("tau misspelt", train(("seed: 7", "seed: 7\nstrategy { sync { taus: 5 } } workers: 2")),
         "no field `taus`", r"x\.job:16:", "did you mean `tau`"),
    Case("mbit misspelt in a cluster",
         lambda s: [s.write("a.cluster", "node { count: 2 }\nstep_seconds: 0.01\nlink { mbits: 5 }\n"),
                    "sim", "x.job", "--cluster", "a.cluster"][1:],
         "no field `mbits`", r"a\.cluster:3:", "did you mean `mbit`"),
    Case("lr in the solver", train((LR, "lr: 0.05")), "no field `lr`", r"x\.job:12:", "did you mean `base_lr`"),
    Case("lr in the job", train(("seed: 7", "lr: 0.05")), "no field `lr`", r"x\.job:15:",
         r"did you mean `solver \{ base_lr: "),
    Case("epochs in the job", train(("stop { steps: 20 }", "epochs: 3")), "no field `epochs`", r"x\.job:14:",
         r"did you mean `stop \{ epochs: "),
    Case("momentun in the solver", train(("momentum", "momentun")), "no field `momentun`", r"x\.job:12:",
         "did you mean `momentum`"),
    # ---- how it is written ----
    Case("an equals sign", train(("base_lr: 0.05", "base_lr = 0.05")), "`=` is not allowed", r"x\.job:12:",
         "write `:` between"),
    Case("a fraction", train(("0.00390625", "1/255")), "`/` is not allowed", r"x\.job:5:",
         r"write the number itself, as in 0\.00390625"),
    Case("a number in quotes", train(("momentum: 0.9", 'momentum: "0.9"')), r'not `"0\.9"`', r"x\.job:12:",
         "expected a number"),
    Case("a name without quotes", train(('name: "tiny"', "name: tiny")), "not `tiny`", r"x\.job:1:",
         "expected a string in quotes"),
    Case("a brace that is missing", train(("stop { steps: 20 }", "stop { steps: 20 ")), "Stop has no field `seed`",
         r"x\.job:15:", "is the `}` of `stop`, which begins in line 14, missing"),
    Case("a quote that is missing", train(('name: "tiny"', 'name: "tiny')), "a string is not closed",
         r"x\.job:1:", "write the quote at its end"),
    Case("a field given twice", train(("batch: 20", "batch: 20\nbatch: 30")), "field `batch` of Job: given twice",
         r"x\.job:12:", "keep one"),
    Case("a strategy as text", train(("seed: 7", 'strategy: "sync"')), 'not `"sync"`',
         r"x\.job:15:11: field `strategy`", r"expected `\{`"),
    Case("two strategies", train(("seed: 7", "strategy { sync { } }\nstrategy { easgd { } }")),
         "field `strategy` of Job: given twice", r"x\.job:16:", "keep one"),
    Case("a byte order mark",  # is skipped: the message names the mistake beside it
         lambda s: [s.write("x.job", "\ufeff" + open(s.path("x.job")).read()), "train", "x.job",
                    "--out", "run", "--set", "batch=0"][1:],
         "is 0", "paceline: batch:", "must be from 1 to 65536"),
    Case("curly quotes", train(('name: "tiny"', "name: \u201ctiny\u201d")), "byte 0xe2 is not allowed",
         r"x\.job:1:", "quotes are written straight"),
    Case("an empty job", file_as("e.job", "", "train", "e.job", "--out", "run"), "is empty", r"e\.job:",
         "a job has at least net, train_data and solver"),
    Case("a picture as a job", lambda s: [s.picture("p.png"), "train", "p.png", "--out", "run"][1:],
         "byte 0x89 is not allowed", r"p\.png:1:", "is this a text file"),
    # ---- words that are chosen from ----
    Case("a net that is not in the zoo", zoo("lenet5"), 'no net "lenet5"', "the zoo", "it has: lenet,"),
    Case("an optimizer in small letters", train((SGD, 'type: "sgd" ')), 'no optimizer "sgd"', r"solver\.type:",
         'there are: "SGD"'),
    Case("an unknown schedule", train(('"fixed"', '"cosine"')), 'no policy "cosine"', r"solver\.lr_policy:",
         "there are: fixed, step"),
    Case("a schedule without its numbers", train(('"fixed"', '"step"')), 'is missing, and lr_policy "step" needs it',
         r"solver\.gamma:", "set it"),
    Case("an unknown strategy", train(more=["--strategy", "ring"]), "called `ring`", "no strategy",
         "there are single, sync, allreduce"),
    Case("unknown kernels", train(more=["--kernels", "cuda"]), "not `cuda`", "kernels:",
         "expected one of auto, ref, dnnl"),
    Case("an unknown precision", train(more=["--precision", "fp16"]), "not `fp16`", "precision:",
         "expected one of f32, bf16"),
    Case("an unknown heartbeat", sets("heartbeat=wan"), "not `wan`", "heartbeat:",
         "expected one of automatic, lan, busy"),
    # ---- numbers ----
    Case("a rate of nan", train((LR, "base_lr: nan")), "is nan", r"solver\.base_lr:", "must be > 0"),
    Case("a rate below 0", train((LR, "base_lr: -0.01")), r"is -0\.01$", r"solver\.base_lr:", "must be > 0"),
    Case("no rate", train((LR, "")), "is missing", r"solver\.base_lr:", r"`base_lr: 0\.01` in the job, or --lr"),
    Case("a batch of 0", sets("batch=0"), "is 0$", "batch:", "must be from 1 to 65536"),
    Case("a batch of words", sets("batch=big"), "not `big`", "batch:", "expected an integer from 0 to"),
    Case("a batch beyond all numbers", sets("batch=1e99"), "not `1e99`", "batch:", "expected an integer from 0 to"),
    Case("no training data", no_data, "is missing", "train_data:", "give a source: idx, cifar10"),
    Case("no workers", train(more=["--workers", "0"]), "is 0$", "workers:", "must be from 1 to 1024"),
    Case("too many workers", train(more=["--workers", "5000"]), "is 5000$", "workers:", "must be from 1 to 1024"),
    Case("threads in words", train(more=["--threads", "many"]), "not `many`", "threads:",
         "expected an integer from 0 to"),
    Case("a tau of 0", sets("workers=2", "strategy.sync.tau=0"), "is 0$", r"strategy\.sync\.tau:", "must be from 1 to"),
    Case("steps set to 0", sets("stop.steps=0"), "is 0;", r"stop\.steps:", r"--unset stop\.steps takes it away"),
    Case("epochs below 0", sets("stop.epochs=-1"), "is -1;", r"stop\.epochs:", r"--unset stop\.epochs takes it away"),
    Case("validation in percent", train(("seed: 7", 'validation: "20%"')), 'not `"20%"`', r"x\.job:15:",
         "expected an integer from 0 to"),
    # ---- contradicting fields ----
    Case("single with four workers",
         train(("seed: 7", "seed: 7\nstrategy { single { } } workers: 4")), "needs workers: 1, has 4",
         r"strategy\.single:", "write --strategy sync, or another"),
    Case("conjugate gradient by batches", sets("solver.type=CG"), "takes a step from all records at once",
         r"solver\.type:", "write --strategy full_batch"),
    Case("all records by SGD", train(more=["--strategy", "full_batch"]), 'needs "CG" or "LBFGS", is "SGD"',
         r"solver\.type:", r"write --set solver\.type=LBFGS"),
    Case("slices with a strategy that cannot", train(more=["--strategy", "mpca", "--set", "workers=2", "--set", "slices=2"]),
         "strategy mpca is not for slices", "slices:", "write --strategy allreduce"),
    Case("more slices than outputs", train(more=["--set", "workers=5", "--set", "slices=5", "--strategy", "allreduce"]),
         "5 are more than its 3 outputs", 'layer "ip"', "at most that many"),
    Case("slices from a layer that is not there",
         train(more=["--set", "workers=2", "--set", "slices=2", "--set", "slices_from=fc9", "--strategy", "allreduce"]),
         'the net has no layer "fc9"', "slices_from:", "--params` lists them"),
    Case("workers and workers_min", sets("workers=2", "workers_min=1", "workers_max=3"),
         "not allowed with workers_min", "workers:", "--unset workers_min fixes the number"),
    Case("a stop rule without validation", sets("stop.validation_error=0.05"), "there is no validation data",
         r"stop\.validation_error:", "by `validation: N`"),
    Case("a snapshot for two workers",
         train(more=["--snapshot", "a.solverstate", "--workers", "2"]), "strategy sync has several",
         r"a\.solverstate:", r"write workers: 1 and strategy \{ single"),
    # ---- options ----
    Case("a command misspelt", words("trian", "x.job"), "unknown command trian", "paceline:", "did you mean train"),
    Case("an option misspelt", words("train", "x.job", "--worker", "2"), "unknown option --worker;",
         "paceline train:", "did you mean --workers"),
    Case("an option without its value", words("train", "x.job", "--workers"), "a value is missing after option --workers",
         "paceline train:", "see paceline train --help"),
    Case("--set without a value", sets("batch"), "set `batch`", "paceline:", "write FIELD=VALUE, as in batch=32"),
    Case("--set of a field misspelt", sets("solver.base_rl=1"), "no field `base_rl`", r"solver\.base_rl:",
         r"did you mean `solver\.base_lr`"),
    Case("two jobs", words("train", "x.job", "y.job"), r"unexpected argument y\.job", "paceline train:",
         "see paceline train --help"),
    Case("no job", words("train"), "a job file is missing", "paceline train:", "see paceline train --help"),
    Case("sim without a cluster", words("sim", "x.job"), "is missing", "paceline sim:", "--cluster FILE"),
    Case("plan without a cluster", words("plan", "x.job"), "one of --cluster FILE and --listen", "paceline plan:", "see paceline plan --help"),
    Case("plan for more workers than there are", words("plan", "x.job", "--cluster", "two.cluster", "--workers", "1..4"),
         "has 2 nodes", "workers", r"write 1\.\.2"),
    Case("plan for no workers", words("plan", "x.job", "--cluster", "two.cluster", "--workers", "0"),
         "expected numbers", "--workers", r"as 8 or 1\.\.8"),
    # ---- nets ----
    Case("an unknown kind of layer", net_with(("type: 'Pooling'", "type: 'Poolling'")), 'type "Poolling"',
         'layer "pool":', "supported: AbsVal.*, Pooling,"),
    Case("a blob that nobody makes", net_with(("bottom: 'pool' top: 'ip'", "bottom: 'poll' top: 'ip'")),
         'bottom "poll" is made by no layer', 'layer "ip":', "made are: data, label, conv, pool"),
    Case("a convolution without outputs", net_with(("num_output: 6 ", "")), r"convolution_param\.num_output",
         'layer "conv":', "must be positive"),
    Case("a recurrent layer over images",
         net_with(("layer { name: 'relu' type: 'ReLU'",
                   "layer { name: 'r' type: 'LSTM' recurrent_param { num_output: 8 } bottom: 'pool' top: 'r' }\n"
                   "layer { name: 'relu' type: 'ReLU'")),
         'bottom "pool", 20x6x5x5, is an image', 'layer "r":', "Reshape makes vectors"),
    Case("a damaged ONNX model as a net",
         lambda s: [s.write("model.onnx", b"\x08\x03\x12\x07pytorch\x3a\x40" + bytes(64)), "model",
                    "model.onnx"][1:],
         "this is no model in ONNX", r"model\.onnx:", "cut short or damaged"),
    Case("pictures too small for the net", zoo("resnet-50"), "the window, 7x7, is larger than the padded image, 1x1",
         'layer "pool5":', r"give larger records \(resize\)"),
    Case("a net that is not there", train(("tiny.prototxt", "nowhere.prototxt")), "No such file",
         r"nowhere\.prototxt:", NO_FILE),
    Case("fewer outputs than classes", net_with(("num_output: 3", "num_output: 2")), "label 2 is out of range",
         "train_data:", "set num_output of its last layer to 3"),
    Case("more outputs than classes", net_with(("num_output: 3", "num_output: 10")),
         "suspicious: the net has 10 outputs", "the records have 3 classes", "set num_output of its last layer to 3",
         code=(0,)),
]
